"""The host's side of a workbench run: output, returned files, and resource monitoring."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.sandboxes.base import Limits
from agentgym.sandboxes.namespaces import START_SECONDS, ConfinedProcess, children

MAX_PROCESSES = 64  # a pipeline takes a dozen; this stops a fork bomb before the host suffers
MAX_TASKS = 2 * MAX_PROCESSES  # processes and threads together
# Excess output is read and discarded; endless output is stopped at this size.
MAX_OUTPUT_BYTES = 64 * 2**20
MAX_BYTES = 128 * 2**20  # total of all returned files
MAX_INODES = 20_000  # an inode takes about 1 kB of kernel memory

_MAX_HEADER_BYTES = 64 * 2**20  # the line before the files, which contains their paths
_TOO_MANY = f"stopped because it had more than {MAX_PROCESSES} processes"
_REASONS = {
    "processes": _TOO_MANY,
    "files": f"stopped because it made more than {MAX_INODES} files",
}
_TICK = 0.02  # seconds between checks of processes and memory
_GRACE = 20.0  # seconds to return the files after a stop, on a busy host
_JOB, _STOP = b"j", b"s"  # commands to the first process inside; a job comes with two pipes
# # Our own processes inside when a program starts: the first process and two per run, or only the
# first process if namespaces cannot be nested.
_OURS = {b"ready many": 3, b"ready once": 1}


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Result of a program run.

    Attributes:
        stdout: The standard output, up to the limit.
        stderr: The standard error, up to the limit.
        code: The exit status, or minus the number of the terminating signal; None if stopped.
        stopped: The reason for stopping it, for the policy; empty if it ended by itself.
        files: The bytes of each file by its path below `/workspace`, None for a directory. None if
            the files are lost.
        left_out: Paths that were not returned: files beyond the limits, symlinks, pipes.
        seconds: The time that passed on the episode's clock.
        timed_out: Whether the time limit stopped it.
    """

    stdout: str
    stderr: str
    code: int | None
    stopped: str = ""
    files: Mapping[str, bytes | None] | None = None
    left_out: tuple[str, ...] = ()
    seconds: float = 0.0
    timed_out: bool = False


class ProgramRun:
    """One run. Its output has separate pipes, so none of it reaches another run.

    Args:
        process: The first process inside, waiting for a job.
        job: The job: a line of JSON and the bytes of files.
        limits: Seconds, memory and output limits.
    """

    def __init__(self, process: ConfinedProcess, job: bytes, limits: Limits) -> None:
        self._process = process
        self._limits = limits
        self._stopped = ""
        self._timed_out = False
        self._last_look = 0.0
        self._ours = 0  # until the program has started
        self._end: int | None = None  # where the answer ends, once known
        ends = [os.pipe(), os.pipe()]
        self._pipes = [open(reader, "rb", buffering=0) for reader, _ in ends]  # noqa: PTH123, SIM115 - descriptors, closed below
        self._received: dict[Any, bytearray] = {
            source: bytearray() for source in (process.channel, *self._pipes, process.stdout)
        }
        self._printed = 0
        self._deadline = time.monotonic() + START_SECONDS
        with contextlib.suppress(ConnectionError):  # a dead process may have left a message
            socket.send_fds(process.channel, [_JOB], [writer for _, writer in ends])
        for pipe, (_, writer) in zip(self._pipes, ends, strict=True):
            os.close(writer)  # the programs keep their copies
            process.listen(pipe)
        process.pending = memoryview(job)

    def close(self) -> None:
        """Release the pipes."""
        for pipe in self._pipes:
            self._process.ignore(pipe)
            pipe.close()

    @property
    def reusable(self) -> bool:
        """Whether the first process waits for the next job and nothing of this one is left."""
        answer = self._received[self._process.channel]
        return self._ours > 1 and self._end is not None and len(answer) == self._end

    def play(self) -> bool:
        """Serve the processes until all have ended or must be stopped; return False if the program
        never started.
        """
        while self._process.channel in self._process.sources and not self._is_done():
            for source, data in self._process.exchange(_TICK):
                if data:
                    self._keep(source, data)
            if not self._watch():
                break
        return bool(self._ours)

    def complaint(self) -> str:
        """Return why the program did not start: bwrap's output, if any."""
        while data := self._process.read(self._process.stdout):
            self._keep(self._process.stdout, data)
        printed = bytes(self._received[self._process.stdout]).decode("utf-8", "replace").strip()
        return printed or "bwrap did not start"

    def _is_done(self) -> bool:
        """Return whether the whole answer and both pipe ends have arrived."""
        if self._end is None or len(self._received[self._process.channel]) < self._end:
            return False
        return not any(pipe in self._process.sources for pipe in self._pipes)

    def _keep(self, source: Any, data: bytes) -> None:
        """Store the output of a source up to a limit."""
        if source is self._process.channel:
            most = MAX_BYTES + _MAX_HEADER_BYTES
        else:
            # A character takes up to 4 bytes; more proves that there was more.
            most = 4 * self._limits.output_chars + 4
            self._printed += len(data)
        buffer = self._received[source]
        buffer += data[: max(0, most - len(buffer))]
        if source is self._process.channel:
            self._find_end(buffer)

    def _find_end(self, answer: bytearray) -> None:
        """Determine whether the program has started, and where the answer ends."""
        start = answer.find(b"\n") + 1
        if start and not self._ours:
            self._ours = _OURS.get(bytes(answer[: start - 1]), 0)
            self._deadline = time.monotonic() + self._limits.seconds
        if start and self._end is None and (end := answer.find(b"\n", start) + 1):
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                files = json.loads(answer[start:end])["files"]
                self._end = end + sum(int(size) for _, size in files)

    def _watch(self) -> bool:
        """Stop a run that exceeds a limit; return False if stopping fails."""
        now = time.monotonic()
        if self._stopped:
            self._end_program()  # again, in case the first was missed
        if self._stopped or not self._ours:
            # The host's time to lay out the files does not count against the program's seconds.
            return now < self._deadline
        if now > self._deadline:
            self._timed_out = True
            self._stop(f"stopped after {self._limits.seconds:g} s")
        elif self._printed > MAX_OUTPUT_BYTES:
            self._stop(f"stopped after printing more than {MAX_OUTPUT_BYTES // 2**20} MiB")
        elif now > self._last_look + _TICK:
            self._last_look = now
            processes, memory = _usage(self._process.pid, self._ours)
            if processes > MAX_PROCESSES:
                self._stop(_TOO_MANY)
            elif memory > 2 * self._limits.memory_mb * 2**20:
                self._stop(
                    f"stopped because its processes took more than {2 * self._limits.memory_mb} "
                    "MiB of memory"
                )
        return True

    def _stop(self, reason: str) -> None:
        """Kill the program's processes so that the files are returned."""
        self._stopped, self._deadline = reason, time.monotonic() + _GRACE
        self._end_program()

    def _end_program(self) -> None:
        """Kill the first process of the program's namespaces, and the kernel kills all others: with
        a fork bomb, that process would have no time to kill them. Without its own namespaces, ask
        it to.
        """
        with contextlib.suppress(OSError, IndexError):  # it has ended
            if self._ours == 1:
                self._process.channel.send(_STOP)
                return
            first = self._process.pid
            for _ in range(self._ours):
                first = children(first)[0]
            os.kill(first, signal.SIGKILL)

    def result(self) -> ProgramResult:
        """Return the result of a program that was started."""
        answer, stdout, stderr, _ = self._received.values()
        shown = self._show(stdout), self._show(stderr)
        try:
            code, reason, files, left_out, elapsed = _parse(bytes(answer.partition(b"\n")[2]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            reason = self._stopped or "stopped, for the machine gave out"
            return ProgramResult(*shown, None, reason, timed_out=self._timed_out)
        self._stopped = self._stopped or _REASONS.get(reason, "")
        code = None if self._stopped else code
        return ProgramResult(*shown, code, self._stopped, files, left_out, elapsed, self._timed_out)

    def _show(self, printed: bytearray) -> str:
        text = bytes(printed).decode("utf-8", "replace")
        most = self._limits.output_chars
        return text if len(text) <= most else f"{text[:most]}\n… (cut after {most} characters)\n"


def _parse(
    reply: bytes,
) -> tuple[int | None, str, dict[str, bytes | None], tuple[str, ...], float]:
    """Parse the first process's answer: exit status, reason, files, omitted paths and elapsed
    clock.

    Raises:
        Exception: The answer was tampered with.
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
        int(header["elapsed"]) / 10**9,
    )


def _usage(pid: int, ours: int) -> tuple[int, int]:
    """Count the programs' processes below `bwrap`, and their total memory in bytes."""
    count, pages, parents = -ours, 0, [pid]  # each of ours has one child
    while parents and count <= MAX_PROCESSES:
        with contextlib.suppress(OSError, ValueError):  # one that has just ended
            for child in children(parents.pop()):
                virtual, resident = map(int, Path(f"/proc/{child}/statm").read_bytes().split()[:2])
                parents.append(child)
                count += virtual > 0  # a zombie holds no memory
                pages += resident if count > 0 else 0
    return count, pages * mmap.PAGESIZE
