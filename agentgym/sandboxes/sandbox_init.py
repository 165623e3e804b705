"""The first process in a workbench: lays out the files, starts the program, ends all that it left
running, gives back the files.

Its source is sent inside; it uses the standard library only. The host trusts nothing it says.
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

TYPE_CHECKING = False  # to import `typing` for it would take a third of the time that the program needs to start
if TYPE_CHECKING:
    from typing import Any

_DEVICES = "/run/episode"  # its pipes are seen as /dev/urandom and /dev/random
_CHUNK = 4_096  # what a pipe takes whole or not at all, so that feeding it never leaves a rest
_PIPE_CHUNKS = 16  # that Linux gives a pipe by default
_TICK_MS = 100  # how soon a program that fills the memory with empty files is noticed


def lay_out(top: str, stream: Any) -> Any:
    """Read a job from the host, write its files and return the job."""
    job = json.loads(stream.readline())
    for name, size, modified in job["files"]:
        path = os.path.join(top, name)  # noqa: PTH118 - pathlib takes as long to load as the rest
        if size is None:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            continue
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(stream.read(size))
        os.utime(path, (modified, modified))
    return job


class RandomSource:
    """Writer of `/dev/urandom` and `/dev/random`, which are pipes in here: an endless stream by a
    seed. What a program has read is gone, so that each reader gets other bytes.

    Args:
        seed: The seed, a whole number.

    Attributes:
        pipes: The descriptors, each to be fed when it can be written.
    """

    def __init__(self, seed: int) -> None:
        self.pipes: dict[int, bytes] = {}
        self._generator = _random.Random(seed)
        for name in ("urandom", "random"):
            os.mkfifo(f"{_DEVICES}/{name}", 0o666)
            # Open for reading too, so that it stays open when no program has it.
            pipe = os.open(f"{_DEVICES}/{name}", os.O_RDWR | os.O_NONBLOCK)
            self.pipes[pipe] = b""
            self.feed(pipe)

    def feed(self, pipe: int) -> None:
        """Write as much as there is room for, up to what an empty pipe takes: a quick reader may
        not keep this process from its other duties.
        """
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PIPE_CHUNKS):
                data = self.pipes[pipe] or self._generator.getrandbits(8 * _CHUNK).to_bytes(
                    _CHUNK, "little"
                )
                self.pipes[pipe] = data  # first, since the pipe may be full
                self.pipes[pipe] = data[os.write(pipe, data) :]


def start(job: Any) -> None:
    """Become the program."""
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.nice(5)  # what watches over it goes first
        for limit, most in job["limits"].items():
            resource.setrlimit(getattr(resource, limit), (most, most))
        os.chdir(job["cwd"])
        os.execv(job["arguments"][0], job["arguments"])
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    os._exit(127)


def wait(
    channel: int, child: int, tops: list[str], most: int, source: RandomSource
) -> tuple[int | None, str]:
    """Wait for the program, and feed its source of randomness; return its exit status, or None and
    the reason why it has to end before.
    """
    poll = select.poll()
    handle = os.pidfd_open(child)
    poll.register(handle, select.POLLIN)
    poll.register(channel, select.POLLIN | select.POLLRDHUP)
    for pipe in source.pipes:
        poll.register(pipe, select.POLLOUT)
    ended = None
    while ended is None:
        ready = [number for number, _ in poll.poll(_TICK_MS)]
        if channel in ready and handle not in ready:
            return None, "stop"
        for pipe in source.pipes.keys() & ready:
            source.feed(pipe)
        if any((room := os.statvfs(top)).f_files - room.f_ffree > most for top in tops):
            return None, "files"
        while (collected := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if collected[0] == child:
                ended = os.waitstatus_to_exitcode(collected[1])
                break
    return ended, ""


def end_all() -> None:
    """End every process but this one."""
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def collect(top: str, most: int) -> tuple[list[tuple[str, int]], list[str], list[str]]:
    """List what is below a directory: regular files with their sizes, directories, anything else;
    no symlink is followed.
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


def give_back(channel: int, top: str, job: Any, end: tuple[int | None, str]) -> None:
    """Send the end of the program and the files, as many as there is room for."""
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
        "code": end[0],
        "reason": end[1],
        "files": entries,
        "folders": folders,
        "left_out": left_out,
    }
    for part in [json.dumps(header).encode() + b"\n", *parts]:
        view = memoryview(part)
        while view:
            view = view[os.write(channel, view) :]


def main(top: str) -> None:
    """Do one job."""
    channel = os.dup(0)  # not inherited by the program, whose stdin is empty
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    with open(channel, "rb", closefd=False) as stream:
        job = lay_out(top, stream)
    source = RandomSource(job["seed"])
    os.write(channel, b"ready\n")
    child = os.fork()
    if child == 0:
        start(job)
    end = wait(channel, child, [top, "/tmp"], job["most_inodes"], source)
    end_all()
    give_back(channel, top, job, end)


if __name__ == "__main__":
    main(sys.argv[1])
