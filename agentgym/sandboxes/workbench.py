"""Runs programs on files: bash, the usual tools and full CPython in Linux namespaces, by `bwrap`.

Each run has the files at `/workspace` in memory of its own, and gives back what is there at its
end; nothing is written on the host. It has no network, and its processes end with it. Clock,
randomness, file times and addresses depend on the episode alone (`agentgym.sandboxes.determinism`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import socket
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.sandboxes.base import Limits, SandboxUnavailable
from agentgym.sandboxes.determinism import STATE_FOLDER, RunSeed
from agentgym.sandboxes.namespaces import (
    BASH,
    HOME,
    REMEDY,
    START_SECONDS,
    STARTS,
    ConfinedProcess,
    base_command,
    children,
    find_bwrap,
    memory_folder,
    resource_limits,
)

TOP = "/workspace"
PACKAGES = (
    *(
        "PIL",
        "charset_normalizer",
        "dateutil",
        "et_xmlfile",
        "numpy",
        "numpy.libs",
        "openpyxl",
        "pandas",
        "pandas.libs",
    ),
    *("pillow.libs", "pypdf", "pytz", "reportlab", "six.py", "tzdata"),
)
"""The packages that Python inside can import beside its standard library, and what these import."""

PROMISED_PACKAGES = ("PIL", "numpy", "openpyxl", "pandas", "pypdf", "reportlab")
"""The packages that a model is told of: without one of them no program runs, so that an episode is
the same on every host.
"""

TOOLS = (
    "awk base64 basename bash cat chmod cmp comm cp csplit cut date dd df diff dirname du echo "
    "egrep env expand expr false fgrep find fmt fold grep gunzip gzip head id join ln ls md5sum "
    "mkdir mktemp mv nl nproc od paste pr printenv printf pwd readlink realpath rev rm rmdir sed "
    "seq sh sha1sum sha256sum shuf sleep sort split stat sum tac tail tar tee test timeout touch "
    "tr true truncate tsort uname unexpand uniq unlink wc which whoami xargs yes zcat"
)
"""The programs that a shell inside finds: those that every distribution has. A host without one of
them runs none, so that an episode is the same on every host.
"""

MAX_PROCESSES = 64  # a pipeline takes a dozen; a fork bomb is stopped before the host feels it
# Read and thrown away beyond what is shown; endless output is stopped here.
MAX_OUTPUT_BYTES = 64 * 2**20

_MAX_FILE_BYTES = 32 * 2**20  # of one that is given back
_MAX_BYTES = 128 * 2**20  # of all files that are given back
_TOP_BYTES, _TMP_BYTES = (
    160 * 2**20,
    64 * 2**20,
)  # the folder may hold more than is given back, for files on their way
_MAX_HEADER_BYTES = 64 * 2**20  # of the line before the files, with their paths
_MAX_FILES, _MAX_INODES = (
    6_000,
    20_000,
)  # files given back, and files there; an inode takes about 1 kB of the kernel's memory
_OPEN_FILES = 256  # of one process: its libraries, and more files than a script has use for at once
_TICK = 0.02  # seconds between two looks at processes and memory
_GRACE = 20.0  # seconds to give the files back after a stop, on a busy host


@dataclass(frozen=True, slots=True)
class File:
    """File of a run: its bytes, None for a directory, and when it was written (seconds since
    1970).
    """

    data: bytes | None
    modified: float


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Result of a run of a program.

    Attributes:
        stdout: The text printed, up to the limit.
        stderr: The text printed as errors, up to the limit.
        code: The exit status, minus the number of a signal that ended it; None if it was stopped.
        stopped: Why it was stopped, in words for the policy; empty if it ended by itself.
        files: The bytes of each file by its path below `/workspace`, None for a directory. None if
            they are lost.
        left_out: The paths that were not brought back: files for which there was no room, symlinks,
            pipes.
    """

    stdout: str
    stderr: str
    code: int | None
    stopped: str = ""
    files: Mapping[str, bytes | None] | None = None
    left_out: tuple[str, ...] = ()


DEFAULT_LIMITS = Limits(seconds=30.0, memory_mb=1_024, output_chars=100_000)


def run(
    arguments: Sequence[str],
    files: Mapping[str, File],
    cwd: str = TOP,
    limits: Limits = DEFAULT_LIMITS,
    seed: RunSeed = RunSeed(),  # noqa: B008 - it is frozen
) -> ProgramResult:
    """Run a program with files and wait for its end.

    Args:
        arguments: The program by its absolute path, such as `BASH` or `PYTHON`, and its arguments.
        files: The files by their path below `/workspace`; each directory stands before what is in
            it.
        cwd: The directory to start in.
        limits: Seconds, memory of each process (all together may take twice as much), and how much
            output is shown.
        seed: The clock and the randomness of the run.

    Raises:
        SandboxUnavailable: Programs cannot run on this host.
    """
    job = {
        "arguments": list(arguments),
        "cwd": cwd,
        "files": [
            (name, None if file.data is None else len(file.data), file.modified)
            for name, file in files.items()
        ],
        "limits": resource_limits(limits, limits.memory_mb, _MAX_FILE_BYTES, _OPEN_FILES),
        "most_files": _MAX_FILES,
        "most_inodes": _MAX_INODES,
        "most_bytes": _MAX_BYTES,
        "most_file_bytes": _MAX_FILE_BYTES,
        "seed": int.from_bytes(seed.digest()[16:24], "little"),
    }
    contents = (file.data for file in files.values() if file.data)
    message = b"".join([json.dumps(job).encode(), b"\n", *contents])
    problem = ""
    for _ in range(STARTS):  # nothing of the program has run while it is not ready
        try:
            command = (_command(), _program(), seed, f"{TOP}/")
            with ConfinedProcess(*command, many=True, split=True) as process:
                process.pending = memoryview(message)
                current = _Run(process, limits)
                if current.play():
                    return current.result()
                problem = current.complaint()
        except OSError as error:
            problem = str(error)
    raise SandboxUnavailable(f"programs cannot run on this host: {problem}; {REMEDY}")


@functools.cache
def check() -> None:
    """Check that programs can run on this host, with all that they are promised; done once a
    process.

    Raises:
        SandboxUnavailable: They cannot.
    """
    outcome = run([BASH, "-c", _CHECK], {})
    expected = f"{int(RunSeed().now.timestamp())}\n"
    if outcome.stdout != 2 * expected:
        reason = outcome.stderr.strip() or outcome.stopped or f"it printed {outcome.stdout!r}"
        raise SandboxUnavailable(f"programs cannot run on this host: {reason}; {REMEDY}")


# The shell and the interpreter start, and both see the clock of the episode.
_CHECK = "date +%s; python3 -c 'import time; print(int(time.time()))'"


class _Run:
    """One run: what its processes print, what the first one gives back, and the watch over what
    they use up.
    """

    def __init__(self, process: ConfinedProcess, limits: Limits) -> None:
        self._process = process
        self._limits = limits
        self._received: dict[Any, bytearray] = {
            source: bytearray() for source in (process.channel, process.stdout, process.stderr)
        }
        self._printed = 0
        self._stopped = ""
        self._last_look = 0.0
        self._ready = False
        self._deadline = time.monotonic() + START_SECONDS

    def play(self) -> bool:
        """Listen to the processes until all have ended or have to be stopped; return False if the
        program has not been started.
        """
        while self._process.sources:
            for source, data in self._process.exchange(_TICK):
                if data:
                    self._keep(source, data)
            if not self._watch():
                break
        return self._received[self._process.channel].startswith(b"ready\n")

    def complaint(self) -> str:
        """Return why the program was not started: what `bwrap` printed, if anything."""
        printed = bytes(self._received[self._process.stderr]).decode("utf-8", "replace").strip()
        return printed or "bwrap did not start"

    def _keep(self, source: Any, data: bytes) -> None:
        """Keep what a source has said, up to a limit."""
        if source is self._process.channel:
            most = _MAX_BYTES + _MAX_HEADER_BYTES
        else:
            # A character takes up to 4 bytes; more shows that there was more.
            most = 4 * self._limits.output_chars + 4
            self._printed += len(data)
        buffer = self._received[source]
        buffer += data[: max(0, most - len(buffer))]

    def _watch(self) -> bool:
        """Stop what takes too much; return False when it does not even stop."""
        now = time.monotonic()
        if self._stopped or not self._ready:
            # How long the host takes to lay out the files is not the program's doing, so its
            # seconds are counted from then on.
            if not self._ready and self._received[self._process.channel]:
                self._ready, self._deadline = True, now + self._limits.seconds
            return now < self._deadline
        if now > self._deadline:
            self._stop(f"stopped after {self._limits.seconds:g} s")
        elif self._printed > MAX_OUTPUT_BYTES:
            self._stop(f"stopped after printing more than {MAX_OUTPUT_BYTES // 2**20} MiB")
        elif now > self._last_look + _TICK:
            self._last_look = now
            processes, memory = _usage(self._process.pid)
            if processes > MAX_PROCESSES:
                self._stop(f"stopped because it had more than {MAX_PROCESSES} processes")
            elif memory > 2 * self._limits.memory_mb * 2**20:
                self._stop(
                    f"stopped because its processes took more than {2 * self._limits.memory_mb} "
                    "MiB of memory"
                )
        return True

    def _stop(self, reason: str) -> None:
        """Tell the first process inside to end the others and give back the files."""
        self._stopped, self._deadline = reason, time.monotonic() + _GRACE
        with contextlib.suppress(OSError):
            self._process.channel.shutdown(socket.SHUT_WR)

    def result(self) -> ProgramResult:
        """Return the result of a program that was started."""
        reply, stdout, stderr = self._received.values()
        shown = [self._show(stdout), self._show(stderr)]
        try:
            code, reason, files, left_out = _parse(bytes(reply[6:]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return ProgramResult(
                shown[0], shown[1], None, self._stopped or "stopped, for the machine gave out"
            )
        if reason == "files":
            self._stopped = (
                self._stopped or f"stopped because it made more than {_MAX_INODES} files"
            )
        return ProgramResult(
            shown[0], shown[1], None if self._stopped else code, self._stopped, files, left_out
        )

    def _show(self, printed: bytearray) -> str:
        text = bytes(printed).decode("utf-8", "replace")
        most = self._limits.output_chars
        return text if len(text) <= most else f"{text[:most]}\n… (cut after {most} characters)\n"


def _parse(reply: bytes) -> tuple[int | None, str, dict[str, bytes | None], tuple[str, ...]]:
    """Read what the first process inside gave back: exit status, reason, files, and what is left
    out.

    Raises:
        Exception: It was tampered with.
    """
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
    return (
        None if code is None else int(code),
        str(header["reason"]),
        files,
        tuple(map(str, header["left_out"])),
    )


def _usage(pid: int) -> tuple[int, int]:
    """Count the processes below `bwrap`, and the bytes of memory that they hold together."""
    count, pages, parents = -1, 0, [pid]  # the first process inside does not count
    while parents and count <= MAX_PROCESSES:
        with contextlib.suppress(OSError, ValueError):  # one that has just ended
            for child in children(parents.pop()):
                virtual, resident = map(int, Path(f"/proc/{child}/statm").read_bytes().split()[:2])
                parents.append(child)
                count += virtual > 0  # one that has ended and was not collected holds nothing
                pages += resident
    return count, pages * mmap.PAGESIZE


@functools.cache
def _program() -> str:
    return Path(__file__).with_name("sandbox_init.py").read_text("utf-8")


@functools.cache
def _command() -> tuple[str, ...]:
    """Return the call of `bwrap` up to the first process.

    Raises:
        SandboxUnavailable: No `bwrap` works here, or a program or a package is missing.
    """
    find_bwrap()  # first, as it is what most hosts lack, and the rest takes longer to look for
    tools = {
        name: path.resolve() for name in TOOLS.split() if (path := Path("/usr/bin", name)).exists()
    }
    tools = {name: path for name, path in tools.items() if path.parent == Path("/usr/bin")}
    if missing := [name for name in TOOLS.split() if name not in tools]:
        raise SandboxUnavailable(
            f"programs cannot run on this host: there is no /usr/bin/{missing[0]}; install the "
            "base programs of a Linux distribution (bash, coreutils, findutils, ...)"
        )
    packages = {name: folder for name in PACKAGES if (folder := _package(name))}
    if missing := [name for name in PROMISED_PACKAGES if name not in packages]:
        raise SandboxUnavailable(
            f"programs cannot run on this host: the package {missing[0]} is missing; pip install "
            "'agentgym[office]'"
        )
    modules = [module for path in packages.values() for module in path.rglob("*.so*")]
    programs = [*tools.values(), *modules]
    command = [*base_command(programs, packages.values()), "--ro-bind", "/usr/bin", "/programs"]
    for name, path in tools.items():
        command += ["--symlink", f"/programs/{path.name}", f"/usr/bin/{name}"]
    command += ["--symlink", "usr/bin", "/bin", "--symlink", "python3", f"{HOME}/bin/python"]
    for name, path in packages.items():
        command += ["--ro-bind", str(path), f"{_PACKAGES}/{name}"]
    for device in ("null", "zero", "full"):
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for device in ("random", "urandom"):  # pipes, which the first process fills
        command += ["--symlink", f"{STATE_FOLDER}/{device}", f"/dev/{device}"]
    if _LOCALE.is_dir():
        command += ["--ro-bind", str(_LOCALE), str(_LOCALE)]
    for variable, value in _ENVIRONMENT.items():
        command += ["--setenv", variable, value]
    command += [*memory_folder(TOP, _TOP_BYTES), *memory_folder("/tmp", _TMP_BYTES)]
    return (*command, "--remount-ro", "/", "--chdir", TOP)


_LOCALE = Path("/usr/lib/locale/C.utf8")
_PACKAGES = f"{HOME}/packages"
_ENVIRONMENT = {
    "PATH": f"{HOME}/bin:/usr/bin",
    "PYTHONPATH": _PACKAGES,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "OPENBLAS_NUM_THREADS": "1",  # each thread would take memory from the limit
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8" if _LOCALE.is_dir() else "C",
}


def _package(name: str) -> Path | None:
    """Return the path at which a package is installed, if it is."""
    folders = dict.fromkeys(
        [sysconfig.get_path("platlib"), sysconfig.get_path("purelib"), *sys.path]
    )
    return next(
        (path for folder in folders if folder and (path := Path(folder, name)).exists()), None
    )
