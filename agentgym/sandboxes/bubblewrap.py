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
import resource
import selectors
import socket
import sys
from importlib import import_module
from subprocess import DEVNULL, PIPE, STDOUT, Popen, TimeoutExpired
from typing import Any, ClassVar, Self

from agentgym.sandboxes.monty import DEFAULT_LIMITS, CallBroker, Functions, Kind, Limits, RunResult, Stopped
from agentgym.sandboxes.namespaces import PYTHON, REMEDY, base_command, check_machine, kill, seccomp
from agentgym.tools import MAX_CALL_CHARS, ToolError

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

    def run(self, code: str, functions: Functions, limits: Limits = DEFAULT_LIMITS) -> RunResult:
        """Run code in a process of its own."""
        account = CallBroker(code, functions, limits)
        try:
            account.check()
            with _Process(account, functions) as process:
                return process.play()
        except Stopped as stop:
            return account.end(stop.kind, str(stop))


class _Process:
    """One run: the process, and the conversation with it."""

    def __init__(self, account: CallBroker, functions: Functions) -> None:
        self._account = account
        self._job = {"code": account.code, "names": list(functions), "limits": _rlimits(account.limits), "longest": _MAX_LINE // 2}
        self._pending = b""
        self._received = bytearray()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._ready = False
        self._done: RunResult | None = None

    def __enter__(self) -> Self:
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(0)
        filters, program = os.pipe()
        with contextlib.ExitStack() as undo, theirs, open(filters, "rb"), open(program, "wb") as pipe:  # noqa: PTH123 - these are descriptors
            undo.enter_context(self._channel)
            pipe.write(seccomp())
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
            kill(self._process)
        self._stdout.close()

    def play(self) -> RunResult:
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
_REMEDY = f"{REMEDY}; or use sandbox='monty'"
_INTERPRETER = (PYTHON, "-sSPB", "-u", "-W", "ignore", "-c")


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


@functools.cache
def _command() -> tuple[str, ...]:
    """The call of `bwrap` up to the program."""
    tmp = ("--size", str(_TMP_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp")
    return (*base_command(), *tmp)


@functools.cache
def _probe() -> None:
    try:
        check_machine()
        with _Process(CallBroker("print(6 * 7)", {}, DEFAULT_LIMITS), {}) as process:
            if (execution := process.play()) != RunResult("42\n"):
                raise OSError(str(execution))
    except (OSError, Stopped) as error:
        raise RuntimeError(f"bwrap does not run on this host: {error}; {_REMEDY}") from error
