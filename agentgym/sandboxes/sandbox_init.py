"""The first process in a workbench. For each job it creates namespaces with empty folders, in which
another process lays out the files, starts the program, kills its remaining processes and returns
the files.

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
_INT_BYTES = 4  # size of a descriptor number in a message
_FIRST_PIDS = 8  # more than the processes before the program
_NO_MORE = 11  # EAGAIN
_TICK_MS = 100  # how soon a program that fills the memory with empty files is noticed


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
    """Writer of `/dev/urandom` and `/dev/random`, which are pipes with an endless seeded stream.
    Bytes are consumed by reading, so each reader gets different ones.

    Args:
        seed: The seed, a whole number.

    Attributes:
        pipes: The descriptors to feed when writable.
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
        """Write as much as fits, up to an empty pipe's capacity, so that a fast reader cannot keep
        this process from its other duties.
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

    Args:
        listener: The descriptor of the kernel's questions.
        job: The job, with `most_processes` and, for processes and threads together, `most_tasks`.
        kernel: The system calls.

    Attributes:
        overrun: Whether the program tried to exceed the process limit.
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
        """Count the living threads and processes among all that were started."""
        self._processes, self._tasks = self._most
        # Process ids are assigned in order; those of a job in a separate sandbox start slightly
        # higher.
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
    """Put this process behind a gate and send its descriptor, if the kernel supports it; some
    containers already have such a filter.
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


def find_excess(tops: list[str], most: int, gate: ForkGate | None) -> str:
    """Return the exceeded limit; empty if none."""
    if gate and gate.overrun:
        return "processes"
    has_too_many = any((room := os.statvfs(top)).f_files - room.f_ffree > most for top in tops)
    return "files" if has_too_many else ""


def wait(
    channel: int,
    child: int,
    tops: list[str],
    most: int,
    source: RandomSource,
    gate: ForkGate | None,
) -> tuple[int | None, str]:
    """Wait for the program, feed its random source and answer its gate; return its exit status, or
    None and the reason for ending it early.
    """
    poll = select.poll()
    handle = os.pidfd_open(child)
    poll.register(handle, select.POLLIN)
    poll.register(channel, select.POLLIN | select.POLLRDHUP)  # a stop, or the end of the host
    for pipe in source.pipes:
        poll.register(pipe, select.POLLOUT)
    if gate:
        poll.register(gate.listener, select.POLLIN)
    ended = None
    while ended is None:
        events = dict(poll.poll(_TICK_MS))
        if gate and gate.listener in events:
            gate.attend(poll, events[gate.listener])
        if channel in events and handle not in events:
            os.read(channel, 1)
            return None, "stop"
        for pipe in source.pipes.keys() & events.keys():
            source.feed(pipe)
        if reason := find_excess(tops, most, gate):
            return None, reason
        while (collected := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if collected[0] == child:
                ended = os.waitstatus_to_exitcode(collected[1])
                break
    return ended, ""


def end_all() -> None:
    """Kill every process except this one."""
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def collect(top: str, most: int) -> tuple[list[tuple[str, int]], list[str], list[str]]:
    """List the contents of a directory: regular files with sizes, directories, and others. Symlinks
    are not followed.
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


def give_back(channel: int, top: str, job: Any, end: tuple[int | None, str], elapsed: int) -> None:
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
        "code": end[0],
        "reason": end[1],
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

    # From <linux/sched.h>, <linux/mount.h>, <linux/prctl.h> and <linux/capability.h>.
    _MOUNTS, _IPC, _PIDS = 0x00020000, 0x08000000, 0x20000000
    _NO_SUID_NO_DEVICES = 2 | 4
    _NO_NEW_PRIVILEGES, _SECCOMP, _FILTER, _AMBIENT, _CLEAR = 38, 22, 2, 47, 4
    # From <linux/seccomp.h>: set a filter that asks, receive a question, send an answer, continue.
    _SET_FILTER, _ASK, _RECEIVE, _SEND, _GO_ON = 1, 8, 0xC0502100, 0xC0182101, 1
    _QUESTION_BYTES, _ID = 80, slice(0, 8)
    _NUMBER, _FIRST_ARGUMENT = slice(16, 20), slice(32, 40)
    _CAPABILITIES_VERSION = 0x20080522

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)

    def _check(self, result: int) -> None:
        if result < 0:
            raise OSError(ctypes.get_errno(), "the kernel refuses it")

    def may_nest(self) -> bool:
        """Return whether this process may create namespaces and mount in them. If so, it now has
        its own, with a folder that no run sees.
        """
        try:
            self._check(self._library.unshare(self._MOUNTS))
            self.mount_memory("/tmp", 4_096)
        except OSError:
            return False
        return True

    def new_namespaces(self) -> None:
        """Create namespaces of mounts and message queues for this process, and one of processes for
        its children.
        """
        self._check(self._library.unshare(self._MOUNTS | self._IPC | self._PIDS))

    def mount_memory(self, path: str, size: int) -> None:
        """Mount an empty folder in memory over another folder."""
        options = f"mode=0755,size={size}".encode()
        self._check(
            self._library.mount(
                b"tmpfs", path.encode(), b"tmpfs", ctypes.c_ulong(self._NO_SUID_NO_DEVICES), options
            )
        )

    def confine(self, rules: bytes) -> None:
        """Drop all capabilities and apply a system call filter to this process and its children."""
        header = (ctypes.c_uint32 * 2)(self._CAPABILITIES_VERSION, 0)
        self._check(self._library.capset(header, (ctypes.c_uint32 * 6)()))
        self._prctl(self._AMBIENT, self._CLEAR)
        self._prctl(self._NO_NEW_PRIVILEGES, 1)
        with self._program(rules) as program:
            self._prctl(self._SECCOMP, self._FILTER, program)

    def listen_to_forks(self, rules: bytes) -> int:
        """Apply a filter that asks to this process and its children; return its descriptor."""
        number = ctypes.c_long(_SECCOMP_CALLS[os.uname().machine])
        with self._program(rules) as program:
            listener: int = self._library.syscall(
                number,
                ctypes.c_ulong(self._SET_FILTER),
                ctypes.c_ulong(self._ASK),
                ctypes.c_void_p(program),
            )
        self._check(listener)
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

    @contextlib.contextmanager
    def _program(self, rules: bytes) -> Any:
        """Return the address of a `struct sock_fprog`: the number of instructions of 8 bytes, and
        their address.
        """
        buffer = ctypes.create_string_buffer(rules, len(rules))
        program = (ctypes.c_size_t * 2)(len(rules) // 8, ctypes.addressof(buffer))
        yield ctypes.addressof(program)

    def _prctl(self, option: int, *arguments: int) -> None:
        words = map(ctypes.c_ulong, (*arguments, 0, 0, 0)[:4])
        self._check(self._library.prctl(option, *words))


def read_job(channel: int) -> tuple[Any, Any]:
    """Read a job; return it with the stream of the files that follow."""
    stream = open(channel, "rb", closefd=False)  # noqa: SIM115 - its process ends with it
    return json.loads(stream.readline()), stream


def open_state(job: Any) -> int:
    """Write the state for the preloaded library. Return its descriptor, which programs do not
    inherit and which survives the removal of the file.
    """
    state = os.open(_STATE, os.O_RDWR | os.O_CREAT)
    os.fchmod(state, 0o666)  # the mode that `bwrap` sets for the first process
    os.pwrite(state, bytes.fromhex(job["state"]), 0)
    return state


def run(
    top: str, channel: int, job: Any, stream: Any, outputs: list[int], kernel: Kernel, ready: bytes
) -> tuple[int | None, str]:
    """Run a job's program as the first process of its namespaces; return its exit status, or None
    and the reason for ending it early.
    """
    kernel.confine(bytes.fromhex(job["filter"]))
    lay_out(top, job["files"], stream)
    source = RandomSource(job["seed"])
    os.write(channel, ready)
    ours, theirs = _socket.socketpair()
    child = os.fork()
    if child == 0:
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
        start(job, theirs, kernel)
    for output in outputs:
        os.close(output)
    theirs.close()
    gate = receive_gate(ours, job, kernel)
    return wait(channel, child, [top, "/tmp"], job["most_inodes"], source, gate)


def finish(channel: int, top: str, job: Any, end: tuple[int | None, str], state: int) -> None:
    """Return what a job has left after all of its processes have ended."""
    elapsed = int.from_bytes(os.pread(state, _ELAPSED.stop, 0)[_ELAPSED], "little", signed=True)
    give_back(channel, top, job, end, max(0, elapsed))


def play(top: str, channel: int, outputs: list[int], kernel: Kernel) -> None:
    """Run one job in the existing namespaces."""
    job, stream = read_job(channel)
    state = open_state(job)
    end = run(top, channel, job, stream, outputs, kernel, b"ready once\n")
    end_all()
    finish(channel, top, job, end, state)


def play_apart(top: str, channel: int, outputs: list[int], kernel: Kernel) -> None:
    """Run one job in its own namespaces.

    The kernel kills all processes of a job with the first, which the host may kill: with a fork
    bomb, that process would have no time to kill the others.
    """
    kernel.new_namespaces()
    job, stream = read_job(channel)
    for path, size in job["folders"].items():
        kernel.mount_memory(path, size)
    state = open_state(job)
    said, says = os.pipe()
    child = os.fork()
    if child == 0:
        end = run(top, channel, job, stream, outputs, kernel, b"ready many\n")
        os.write(says, json.dumps(end).encode())
        os._exit(0)
    for number in (*outputs, says):
        os.close(number)
    os.waitpid(child, 0)
    kernel.confine(bytes.fromhex(job["filter"]))
    finish(channel, top, job, json.loads(os.read(said, _CHUNK) or '[null, "stop"]'), state)


def main(top: str) -> None:
    """Run jobs until the host closes its end of the channel, or a single one if namespaces cannot
    be nested.
    """
    channel = os.dup(0)  # programs do not inherit it, and their stdin is empty
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.umask(0o022)  # independent of the host's
    # The one signal that Python handles and that programs could send to the first process of a run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel = Kernel()
    nested = kernel.may_nest()
    host = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, channel)
    room = _socket.CMSG_SPACE(2 * _INT_BYTES)
    while True:
        order, attached, _, _ = host.recvmsg(1, room, _socket.MSG_CMSG_CLOEXEC)
        if not order:
            return
        outputs = [
            int.from_bytes(attached[0][2][k : k + _INT_BYTES], sys.byteorder)
            for k in (0, _INT_BYTES)
        ]
        if not nested:
            play(top, channel, outputs, kernel)
            return
        child = os.fork()
        if child == 0:
            play_apart(top, channel, outputs, kernel)
            os._exit(0)
        for output in outputs:
            os.close(output)
        if os.waitpid(child, 0)[1]:
            return  # no answer was sent, so the host must not wait for one


if __name__ == "__main__":
    main(sys.argv[1])
