"""The first process in a workbench: lays out files, runs the program and returns the files.

Its source is sent into the sandbox; it uses only the standard library. The host trusts none of its
messages.
"""

from __future__ import annotations

import _random
import _socket
import contextlib
import ctypes
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

_DEVICES = "/run/episode"  # its pipes appear as /dev/urandom and /dev/random
_STATE = f"{_DEVICES}/state"  # read by the preloaded library
_ELAPSED = slice(24, 32)  # of the state: elapsed nanoseconds of the clock
_SECCOMP_CALLS = {"x86_64": 317, "aarch64": 277}  # the number of the system call `seccomp`
_CLONE_CALLS = {"x86_64": 56, "aarch64": 220}
_CLONE_THREAD = 0x00010000  # a flag of `clone`, from <linux/sched.h>
_CHUNK = 4_096  # a pipe accepts this much completely or not at all, so feeding it leaves no rest
_PIPE_CHUNKS = 16  # the default capacity of a Linux pipe
_TICK_MS = 100  # how often ended processes are collected whose parents ended before
_INT_BYTES = 4  # size of a descriptor number in a message
_FIRST_PIDS = 8  # more than the processes before the program
_NO_MORE = 11  # EAGAIN


def lay_out(top: str, files: Any, stream: Any) -> None:
    """Write the files of a job from the bytes that the host sends."""
    for name, size, modified in files:
        path = os.path.join(top, name)  # noqa: PTH118 - pathlib takes as long to load as the rest
        if size is None:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
        else:
            with open(path, "wb") as file:  # noqa: PTH123
                file.write(stream.read(size))
            os.utime(path, (modified, modified))


class RandomSource:
    """Writer of `/dev/urandom` and `/dev/random`, which are pipes with a seeded stream.

    Reading consumes bytes, so each reader gets different ones.
    """

    def __init__(self, seed: int) -> None:
        self.pipes: dict[int, bytes] = {}
        self._generator = _random.Random(seed)
        for name in ("urandom", "random"):
            os.mkfifo(f"{_DEVICES}/{name}", 0o666)
            # Also open for reading, so the pipe stays open while no program uses it.
            pipe = os.open(f"{_DEVICES}/{name}", os.O_RDWR | os.O_NONBLOCK)
            self.pipes[pipe] = b""
            self.feed(pipe)

    def feed(self, pipe: int) -> None:
        """Write as much as fits, up to an empty pipe's capacity.

        A fast reader must not keep this process from its other duties.
        """
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PIPE_CHUNKS):
                data = self.pipes[pipe] or self._generator.getrandbits(8 * _CHUNK).to_bytes(
                    _CHUNK, "little"
                )
                self.pipes[pipe] = data  # first, because the pipe may be full
                self.pipes[pipe] = data[os.write(pipe, data) :]


class ForkGate:
    """Answers the kernel, which asks before a program starts a process or a thread.

    A fork bomb outruns periodic counting, and `RLIMIT_NPROC` does not bind root, who may be the
    host's user. Too many processes end the program; a thread too many is an error that it may
    handle.
    """

    def __init__(self, listener: int, job: Any, kernel: Kernel) -> None:
        self.listener = listener
        self.overrun = False
        self._kernel = kernel
        self._most = job["most_processes"], job["most_tasks"]
        self._processes, self._tasks = (most - 1 for most in self._most)  # one is already running
        self._started = 1
        self._counted = 2  # lower process ids have been examined; these of them were still alive:
        self._alive: set[int] = set()

    def attend(self, poll: select.poll, event: int) -> None:
        """Answer a question, or stop listening if nobody is left to ask."""
        if event & select.POLLIN:
            question = self._kernel.receive_question(self.listener)
            if question:  # otherwise the asker has ended
                number, is_thread = question
                self._kernel.send_answer(self.listener, number, self._error(is_thread))
        else:
            poll.unregister(self.listener)

    def _error(self, is_thread: bool) -> int:
        """Return the errno that refuses a start; 0 if there is room."""
        if self._tasks < 1 or (self._processes < 1 and not is_thread):
            self._count()
        self.overrun = self.overrun or (self._processes < 1 and not is_thread)
        if self._tasks < 1 or self.overrun:
            return _NO_MORE
        self._tasks -= 1
        self._processes -= not is_thread
        self._started += 1
        return 0

    def _count(self) -> None:
        self._processes, self._tasks = self._most
        # Process ids are assigned in order.
        recent = range(self._counted, self._started + _FIRST_PIDS)
        before, self._alive = self._alive, set()
        for pid in before.union(recent):
            try:
                os.kill(pid, 0)
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError:  # a thread has no such handle
                self._tasks -= 1
                self._alive.add(pid)
                continue
            has_ended = bool(select.select([handle], [], [], 0)[0])
            os.close(handle)
            self._tasks -= not has_ended
            self._processes -= not has_ended
            if not has_ended:
                self._alive.add(pid)
        self._counted = self._started  # at least so many ids have been assigned


def start(job: Any, gate: _socket.socket, kernel: Kernel) -> None:
    """Become the program."""
    try:
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.nice(5)  # the supervising process has priority
        for limit, most in job["limits"].items():
            resource.setrlimit(getattr(resource, limit), (most, most))
        os.chdir(job["cwd"])
        send_gate(gate, bytes.fromhex(job["gate"]), kernel)
        gate.close()
        os.execv(job["arguments"][0], job["arguments"])
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    os._exit(127)


def send_gate(gate: _socket.socket, rules: bytes, kernel: Kernel) -> None:
    """Put this process behind a gate and send its descriptor, if the kernel supports it.

    Some containers already have such a filter.
    """
    with contextlib.suppress(OSError):
        listener = kernel.listen_to_forks(rules).to_bytes(_INT_BYTES, sys.byteorder)
        gate.sendmsg([b"g"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener)])


def receive_gate(gate: _socket.socket, job: Any, kernel: Kernel) -> ForkGate | None:
    """Wait until the program is about to start; return its gate, if any."""
    attached = gate.recvmsg(1, _socket.CMSG_SPACE(_INT_BYTES), _socket.MSG_CMSG_CLOEXEC)[1]
    gate.close()
    if not attached:
        return None
    return ForkGate(int.from_bytes(attached[0][2][:_INT_BYTES], sys.byteorder), job, kernel)


def wait(channel: int, child: int, source: RandomSource, gate: ForkGate | None) -> int | None:
    """Wait for the program and return its exit status; None if it has too many processes."""
    poll = select.poll()
    handle = os.pidfd_open(child)
    poll.register(handle, select.POLLIN)
    poll.register(channel, select.POLLRDHUP)
    for pipe in source.pipes:
        poll.register(pipe, select.POLLOUT)
    if gate:
        poll.register(gate.listener, select.POLLIN)
    while True:
        events = dict(poll.poll(_TICK_MS))
        if channel in events:  # the host has ended
            os._exit(1)
        if gate and gate.listener in events:
            gate.attend(poll, events[gate.listener])
            if gate.overrun:
                return None
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
    """List a directory's contents: regular files with sizes, directories, and others.

    Symlinks are not followed.
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


def give_back(channel: int, top: str, job: Any, code: int | None, elapsed: int) -> None:
    """Send the outcome of the program and the files, as many as fit."""
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


class Kernel:
    """The system calls that Python does not offer."""

    # From <linux/seccomp.h>: set a filter that asks, receive a question, send an answer, continue.
    _SET_FILTER, _ASK, _RECEIVE, _SEND, _GO_ON = 1, 8, 0xC0502100, 0xC0182101, 1
    _QUESTION_BYTES, _ID = 80, slice(0, 8)
    _NUMBER, _FIRST_ARGUMENT = slice(16, 20), slice(32, 40)

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)

    def listen_to_forks(self, rules: bytes) -> int:
        """Make this process and its children ask before forking; return the filter's descriptor."""
        number = ctypes.c_long(_SECCOMP_CALLS[os.uname().machine])
        # A `struct sock_fprog`: the number of instructions of 8 bytes, and their address.
        buffer = ctypes.create_string_buffer(rules, len(rules))
        program = (ctypes.c_size_t * 2)(len(rules) // 8, ctypes.addressof(buffer))
        listener: int = self._library.syscall(
            number, ctypes.c_ulong(self._SET_FILTER), ctypes.c_ulong(self._ASK), program
        )
        if listener < 0:
            raise OSError(ctypes.get_errno(), "the kernel refuses it")
        return listener

    def receive_question(self, listener: int) -> tuple[bytes, bool] | None:
        """Receive a question's id, and whether it concerns a thread; None if the asker has ended."""
        question = ctypes.create_string_buffer(self._QUESTION_BYTES)
        if self._library.ioctl(listener, ctypes.c_ulong(self._RECEIVE), question) < 0:
            return None
        flags = int.from_bytes(question.raw[self._FIRST_ARGUMENT], sys.byteorder)
        number = int.from_bytes(question.raw[self._NUMBER], sys.byteorder)
        is_thread = number == _CLONE_CALLS[os.uname().machine] and bool(flags & _CLONE_THREAD)
        return question.raw[self._ID], is_thread

    def send_answer(self, listener: int, question: bytes, error: int) -> None:
        """Allow the request, or let it fail with an error."""
        flags = 0 if error else self._GO_ON
        answer = question + bytes(8) + (-error).to_bytes(4, sys.byteorder, signed=True)
        answer += flags.to_bytes(4, sys.byteorder)
        self._library.ioctl(
            listener, ctypes.c_ulong(self._SEND), answer
        )  # fails if the asker has ended


def main(top: str) -> None:
    """Run one job of the host."""
    channel = os.dup(0)  # programs do not inherit it, and their stdin is empty
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.umask(0o022)  # independent of the host's
    # The one signal that Python handles and that programs could send to the first process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Programs may remove the file.
    state = os.open(_STATE, os.O_RDONLY | os.O_CLOEXEC)
    stream = open(channel, "rb", closefd=False)  # noqa: SIM115 - its process ends with it
    job = json.loads(stream.readline())
    lay_out(top, job["files"], stream)
    source = RandomSource(job["seed"])
    kernel = Kernel()
    os.write(channel, b"ready\n")
    ours, theirs = _socket.socketpair()
    child = os.fork()
    if child == 0:
        start(job, theirs, kernel)
    theirs.close()
    code = wait(channel, child, source, receive_gate(ours, job, kernel))
    end_all()
    elapsed = int.from_bytes(os.pread(state, _ELAPSED.stop, 0)[_ELAPSED], "little", signed=True)
    give_back(channel, top, job, code, elapsed)


if __name__ == "__main__":
    main(sys.argv[1])
