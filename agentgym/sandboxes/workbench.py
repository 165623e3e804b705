"""Runs programs on files: bash, the usual tools and full CPython in Linux namespaces, by `bwrap`.

Each run has the files at `/workspace` in memory of its own, and gives back what is there at its end; nothing is written on the
host. It has no network, and its processes end with it. The clock is the real one: without libfaketime, which is not used, a
program cannot be told another date. Hashes of Python are the same at every run, `random` is as the program seeds it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import os
import selectors
import socket
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, Self

from agentgym.sandboxes import sandbox_init as workbench_inside
from agentgym.sandboxes.monty import Limits
from agentgym.sandboxes.namespaces import BASH, HOME, PYTHON, REMEDY, base_command, check_machine, children, kill, seccomp

TOP = "/workspace"
PACKAGES = (
    *("PIL", "charset_normalizer", "dateutil", "et_xmlfile", "numpy", "numpy.libs", "openpyxl", "pandas", "pandas.libs"),
    *("pillow.libs", "pypdf", "pytz", "reportlab", "six.py", "tzdata"),
)
"""What Python inside can import beside its standard library, as far as it is installed."""

TOOLS = (
    "awk base64 basename bash bc cat chmod cmp column comm cp csplit cut date dd df diff dirname du echo egrep env expand "
    "expr false fgrep file find fmt fold getopt grep gunzip gzip head hexdump id join jq less ln ls md5sum mkdir mktemp mv nl "
    "nproc od paste patch pr printenv printf pwd readlink realpath rev rm rmdir sed seq sh sha1sum sha256sum shuf sleep sort "
    "split stat sum tac tail tar tee test timeout touch tr tree true truncate tsort uname unexpand uniq unlink unzip wc which "
    "whoami xargs xxd yes zcat zip"
)
"""What a shell inside finds, as far as it is in `/usr/bin`."""

MAX_PROCESSES = 64
MAX_OUTPUT_BYTES = 64 * 2**20

_MAX_FILE_BYTES, _MAX_BYTES, _TOP_BYTES, _TMP_BYTES = 32 * 2**20, 128 * 2**20, 160 * 2**20, 64 * 2**20
_MAX_FILES, _MAX_INODES = 6_000, 20_000
_TICK, _START, _GRACE, _CHUNK = 0.02, 60.0, 20.0, 2**18
_INTERPRETER = (PYTHON, "-sSPB", "-c")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a run: its bytes, None for a directory, and when it was written (seconds since 1970)."""

    data: bytes | None
    modified: float


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """What came of a run.

    Attributes:
        stdout: What was printed, up to the limit.
        stderr: What was printed as errors, up to the limit.
        code: The exit status, minus the number of a signal that ended it; None if it was stopped.
        stopped: Why it was stopped, in words for the policy; empty if it ended by itself.
        files: The bytes of each file by its path below `/workspace`, None for a directory. None if they are lost.
        left_out: What was not brought back: files for which there was no room, symlinks, pipes.
    """

    stdout: str
    stderr: str
    code: int | None
    stopped: str = ""
    files: Mapping[str, bytes | None] | None = None
    left_out: tuple[str, ...] = ()


DEFAULT_LIMITS = Limits(seconds=30.0, memory_mb=1_024, output_chars=100_000)


def run(arguments: Sequence[str], files: Mapping[str, File], cwd: str = TOP, limits: Limits = DEFAULT_LIMITS) -> ProgramResult:
    """Run a program with files and wait for its end.

    Args:
        arguments: The program by its absolute path, such as `BASH` or `PYTHON`, and its arguments.
        files: The files by their path below `/workspace`; each directory stands before what is in it.
        cwd: The directory to start in.
        limits: Seconds, memory of each process (all together may take twice as much), and how much output is shown.

    Raises:
        RuntimeError: `bwrap` is missing or cannot run on this host.
    """
    job = {
        "arguments": list(arguments),
        "cwd": cwd,
        "files": [(name, None if file.data is None else len(file.data), file.modified) for name, file in files.items()],
        "limits": _rlimits(limits),
        "most_files": _MAX_FILES,
        "most_inodes": _MAX_INODES,
        "most_bytes": _MAX_BYTES,
        "most_file_bytes": _MAX_FILE_BYTES,
    }
    parts = (file.data for file in files.values() if file.data)
    try:
        with _Run(b"".join([json.dumps(job).encode(), b"\n", *parts]), limits) as process:
            return process.play()
    except OSError as error:
        raise RuntimeError(f"programs cannot run on this host: {error}; {REMEDY}") from error


class _Run:
    """One run: the processes, and what they say."""

    def __init__(self, job: bytes, limits: Limits) -> None:
        self._pending = memoryview(job)
        self._limits = limits
        self._said: dict[Any, bytearray] = {}
        self._printed = 0
        self._stopped = ""
        self._looked = 0.0
        self._ready = False
        self._deadline = time.monotonic() + _START

    def __enter__(self) -> Self:
        self._channel, theirs = socket.socketpair()
        filters, program = os.pipe()
        with contextlib.ExitStack() as undo, theirs, open(filters, "rb"), open(program, "wb") as pipe:  # noqa: PTH123 - these are descriptors
            undo.enter_context(self._channel)
            pipe.write(seccomp(processes=True))
            pipe.close()
            passed = (theirs.fileno(), filters)
            program_ = [*_INTERPRETER, inspect.getsource(workbench_inside), str(passed[0]), f"{TOP}/"]
            command = [*_command(), "--seccomp", str(filters), "--", *program_]
            self._process = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, pass_fds=passed, env={}, bufsize=0)
            undo.pop_all()
        self._channel.settimeout(0)
        self._said = {source: bytearray() for source in (self._channel, self._process.stdout, self._process.stderr)}
        return self

    def __exit__(self, *error: object) -> None:
        kill(self._process)
        for source in self._said:
            source.close()

    def play(self) -> ProgramResult:
        """Listen to the processes until all have ended or have to be stopped."""
        with selectors.DefaultSelector() as selector:
            for source in self._said:
                selector.register(source, selectors.EVENT_READ)
            while selector.get_map():
                sending = selectors.EVENT_WRITE if self._pending else 0
                if self._channel in selector.get_map():
                    selector.modify(self._channel, selectors.EVENT_READ | sending)
                for key, events in selector.select(_TICK):
                    if events & selectors.EVENT_WRITE:
                        self._send()
                    if events & selectors.EVENT_READ and not self._read(key.fileobj):
                        selector.unregister(key.fileobj)
                if not self._watch():
                    break
        return self._outcome()

    def _send(self) -> None:
        try:
            self._pending = self._pending[self._channel.send(self._pending[:_CHUNK]) :]
        except ConnectionError:  # it has ended; what it said before that is still to be read
            self._pending = memoryview(b"")

    def _read(self, source: Any) -> bool:
        """Take what a source has to say; False at its end."""
        try:
            data: bytes = source.recv(_CHUNK) if source is self._channel else os.read(source.fileno(), _CHUNK)
        except ConnectionError:
            data = b""
        held = self._said[source]
        if source is self._channel:
            most = _MAX_BYTES + 64 * 2**20
        else:
            most = 4 * self._limits.output_chars + 4
            self._printed += len(data)
        held += data[: max(0, most - len(held))]
        return data != b""

    def _watch(self) -> bool:
        """Stop what takes too much; False when it does not even stop."""
        now = time.monotonic()
        if self._stopped or not self._ready:
            self._await_start(now)
            return now < self._deadline
        if now > self._deadline:
            self._stop(f"stopped after {self._limits.seconds:g} s")
        elif self._printed > MAX_OUTPUT_BYTES:
            self._stop(f"stopped after printing more than {MAX_OUTPUT_BYTES // 2**20} MiB")
        elif now > self._looked + _TICK:
            self._looked = now
            processes, memory = _usage(self._process.pid)
            if processes > MAX_PROCESSES:
                self._stop(f"stopped because it had more than {MAX_PROCESSES} processes")
            elif memory > 2 * self._limits.memory_mb * 2**20:
                self._stop(f"stopped because its processes took more than {2 * self._limits.memory_mb} MiB of memory")
        return True

    def _await_start(self, now: float) -> None:
        """Begin to count the seconds when the files are laid out: how long the host took for that is not the program's doing."""
        if not self._ready and self._said[self._channel]:
            self._ready, self._deadline = True, now + self._limits.seconds

    def _stop(self, reason: str) -> None:
        """Tell the first process inside to end the others and give back the files."""
        self._stopped, self._deadline = reason, time.monotonic() + _GRACE
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def _outcome(self) -> ProgramResult:
        reply, stdout, stderr = self._said.values()
        if not reply.startswith(b"ready\n"):
            raise OSError(bytes(stderr).decode("utf-8", "replace").strip() or "bwrap did not start")
        shown = [self._show(stdout), self._show(stderr)]
        try:
            code, reason, files, left_out = _parse(bytes(reply[6:]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return ProgramResult(shown[0], shown[1], None, self._stopped or "stopped, for the machine gave out")
        if reason == "files":
            self._stopped = self._stopped or f"stopped because it made more than {_MAX_INODES} files"
        return ProgramResult(shown[0], shown[1], None if self._stopped else code, self._stopped, files, left_out)

    def _show(self, printed: bytearray) -> str:
        text = bytes(printed).decode("utf-8", "replace")
        most = self._limits.output_chars
        return text if len(text) <= most else f"{text[:most]}\n… (cut after {most} characters)\n"


def _parse(reply: bytes) -> tuple[int | None, str, dict[str, bytes | None], tuple[str, ...]]:
    """What the first process inside gave back, which need not be what it should."""
    line, _, data = reply.partition(b"\n")
    header = json.loads(line)
    files: dict[str, bytes | None] = {str(name): None for name in header["folders"]}
    start = 0
    for name, size in header["files"]:
        files[str(name)] = data[start : start + int(size)]
        start += int(size)
    if start != len(data):
        raise ValueError("files are missing")
    code = header["code"]
    return None if code is None else int(code), str(header["reason"]), files, tuple(map(str, header["left_out"]))


def _usage(pid: int) -> tuple[int, int]:
    """How many processes run below `bwrap`, and how many bytes of memory they hold together."""
    count, pages, waiting = -1, 0, [pid]  # the first process inside does not count
    while waiting and count <= MAX_PROCESSES:
        with contextlib.suppress(OSError, ValueError):  # one that has just ended
            for child in children(waiting.pop()):
                held = [int(word) for word in Path(f"/proc/{child}/statm").read_bytes().split()[:2]]
                waiting.append(child)
                count += held[0] > 0  # one that has ended and was not collected holds nothing
                pages += held[1]
    return count, pages * _PAGE


_PAGE = os.sysconf("SC_PAGE_SIZE")


def _rlimits(limits: Limits) -> dict[str, int]:
    """Limits that hold for each process by itself."""
    few = {"RLIMIT_NOFILE": 256, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": _MAX_FILE_BYTES}
    return {"RLIMIT_AS": limits.memory_mb * 2**20, "RLIMIT_CPU": math.ceil(limits.seconds) + 1, **few}


@functools.cache
def _command() -> tuple[str, ...]:
    """The call of `bwrap` up to the first process.

    Raises:
        OSError: `bwrap` or bash is missing, or there is no filter for this machine.
    """
    check_machine()
    tools = {name: path.resolve() for name in TOOLS.split() if (path := Path("/usr/bin", name)).exists()}
    tools = {name: path for name, path in tools.items() if path.parent == Path("/usr/bin")}
    if "bash" not in tools:
        raise FileNotFoundError(f"there is no {BASH}")
    packages = {name: found for name in PACKAGES if (found := _package(name))}
    modules = [module for path in packages.values() for module in path.rglob("*.so*")]
    command = [*base_command([*tools.values(), *modules]), "--ro-bind", "/usr/bin", "/programs"]
    for name, path in tools.items():
        command += ["--symlink", f"/programs/{path.name}", f"/usr/bin/{name}"]
    command += ["--symlink", "usr/bin", "/bin", "--symlink", "python3", f"{HOME}/bin/python"]
    for name, path in packages.items():
        command += ["--ro-bind", str(path), f"{_PACKAGES}/{name}"]
    for device in ("null", "zero", "full", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    if _LOCALE.is_dir():
        command += ["--ro-bind", str(_LOCALE), str(_LOCALE)]
    for variable, value in _ENVIRONMENT.items():
        command += ["--setenv", variable, value]
    command += ["--size", str(_TOP_BYTES), "--tmpfs", TOP, "--size", str(_TMP_BYTES), "--tmpfs", "/tmp"]
    return (*command, "--remount-ro", "/", "--chdir", TOP)


_LOCALE = Path("/usr/lib/locale/C.utf8")
_PACKAGES = f"{HOME}/packages"
_ENVIRONMENT = {
    "PATH": f"{HOME}/bin:/usr/bin",
    "PYTHONPATH": _PACKAGES,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8" if _LOCALE.is_dir() else "C",
}


def _package(name: str) -> Path | None:
    """Where a package is installed."""
    folders = dict.fromkeys([sysconfig.get_path("platlib"), sysconfig.get_path("purelib"), *sys.path])
    return next((path for folder in folders if folder and (path := Path(folder, name)).exists()), None)
