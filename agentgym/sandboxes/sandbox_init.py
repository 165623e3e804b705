"""The first process in a workbench, which writes the files, runs the program and returns the files.

The program uses only the standard library. The host does not trust the program's messages.
"""

from __future__ import annotations

import _random
import contextlib
import json
import os
import resource
import select
import signal
import stat
import sys

TYPE_CHECKING = False  # importing `typing` would take a third of the start-up time
if TYPE_CHECKING:
    from typing import Any

_DEVICES = "/run/episode"  # folder of the pipes that replace /dev/urandom and /dev/random
_STATE = f"{_DEVICES}/state"  # file that the preloaded library reads
_ELAPSED = slice(24, 32)  # the bytes of the state file that contain the elapsed nanoseconds
_CHUNK = 4_096  # a pipe accepts a write of this size completely or not at all
_PIPE_CHUNKS = 16  # the default capacity of a Linux pipe
_TICK_MS = 100  # interval for reaping processes whose parents have exited


def lay_out(top: str, files: Any, stream: Any) -> None:
    """Write a job's files from the bytes that the host sends."""
    for name, size, modified in files:
        path = os.path.join(top, name)  # noqa: PTH118 - pathlib takes as long to load as the rest
        if size is None:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
        else:
            with open(path, "wb") as file:  # noqa: PTH123
                file.write(stream.read(size))
            os.utime(path, (modified, modified))


class RandomSource:
    """Writer that feeds a seeded random stream to the pipes `/dev/urandom` and `/dev/random`.

    Reading consumes bytes, so no two readers get the same bytes.
    """

    def __init__(self, seed: int) -> None:
        self.pipes: dict[int, bytes] = {}
        self._generator = _random.Random(seed)
        for name in ("urandom", "random"):
            os.mkfifo(f"{_DEVICES}/{name}", 0o666)
            # O_RDWR instead of O_WRONLY keeps the pipe open while no program reads it.
            pipe = os.open(f"{_DEVICES}/{name}", os.O_RDWR | os.O_NONBLOCK)
            self.pipes[pipe] = b""
            self.feed(pipe)

    def feed(self, pipe: int) -> None:
        """Fill a pipe. At most one pipe's capacity is written, because a fast reader would
        otherwise keep this process busy.
        """
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PIPE_CHUNKS):
                data = self.pipes[pipe] or self._generator.getrandbits(8 * _CHUNK).to_bytes(
                    _CHUNK, "little"
                )
                self.pipes[pipe] = data  # saves the bytes for the next call if the pipe is full
                self.pipes[pipe] = data[os.write(pipe, data) :]


def start(job: Any) -> None:
    """Replace this process with the program."""
    try:
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.nice(5)  # gives priority to this supervising process
        for limit, most in job["limits"].items():
            resource.setrlimit(getattr(resource, limit), (most, most))
        os.chdir(job["cwd"])
        os.execv(job["arguments"][0], job["arguments"])
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    os._exit(127)


def wait(channel: int, child: int, source: RandomSource) -> int:
    """Wait for the program and return its exit status."""
    poll = select.poll()
    handle = os.pidfd_open(child)
    poll.register(handle, select.POLLIN)
    poll.register(channel, select.POLLRDHUP)
    for pipe in source.pipes:
        poll.register(pipe, select.POLLOUT)
    while True:
        events = dict(poll.poll(_TICK_MS))
        if channel in events:  # the host has ended
            os._exit(1)
        for pipe in source.pipes.keys() & events.keys():
            source.feed(pipe)
        while (collected := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if collected[0] == child:
                return os.waitstatus_to_exitcode(collected[1])


def end_all() -> None:
    """Kill every process except this one."""
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def collect(top: str, most: int) -> tuple[list[tuple[str, int]], list[str], list[str]]:
    """List a directory's contents: regular files with sizes, directories, and others (symlinks,
    pipes).
    """
    files: list[tuple[str, int]] = []
    folders: list[str] = []
    others: list[str] = []
    waiting = [""]
    while waiting and len(files) + len(folders) + len(others) < most:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(top + folder, 0o700)  # noqa: PTH101
            for name in sorted(os.listdir(top + folder)):  # noqa: PTH208
                status = os.lstat(top + folder + name)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(folder + name)
                    waiting.append(f"{folder}{name}/")
                elif stat.S_ISREG(status.st_mode):
                    files.append((folder + name, status.st_size))
                else:
                    others.append(folder + name)
    return files, folders, others


def give_back(channel: int, top: str, job: Any, code: int, elapsed: int) -> None:
    """Send the exit status, and as many files as the limits allow."""
    files, folders, left_out = collect(top, job["most_files"])
    entries, parts, room = [], [], job["most_bytes"]
    for name, size in files:
        try:
            if size > min(room, job["most_file_bytes"]):
                raise OSError("no room")
            os.chmod(top + name, 0o600)  # noqa: PTH101
            with open(top + name, "rb") as file:  # noqa: PTH123
                data = file.read()
        except OSError:
            left_out.append(name)
            continue
        entries.append((name, len(data)))
        parts.append(data)
        room -= len(data)
    header = {
        "code": code,
        "elapsed": elapsed,
        "files": entries,
        "folders": folders,
        "left_out": left_out,
    }
    for part in [json.dumps(header).encode() + b"\n", *parts]:
        view = memoryview(part)
        while view:
            view = view[os.write(channel, view) :]


def main(top: str) -> None:
    """Run one job from the host."""
    channel = os.dup(0)  # programs do not inherit the channel, and their stdin is empty
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.umask(0o022)  # the result must not depend on the host's umask
    # SIGINT is the only signal that Python handles and that programs can send to this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Open the file before any program can remove it.
    state = os.open(_STATE, os.O_RDONLY | os.O_CLOEXEC)
    stream = open(channel, "rb", closefd=False)  # noqa: SIM115 - its process ends with it
    job = json.loads(stream.readline())
    lay_out(top, job["files"], stream)
    source = RandomSource(job["seed"])
    os.write(channel, b"ready\n")
    child = os.fork()
    if child == 0:
        start(job)
    code = wait(channel, child, source)
    end_all()
    elapsed = int.from_bytes(os.pread(state, _ELAPSED.stop, 0)[_ELAPSED], "little", signed=True)
    give_back(channel, top, job, code, elapsed)


if __name__ == "__main__":
    main(sys.argv[1])
