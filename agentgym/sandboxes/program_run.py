"""A program's run in namespaces: its job, output, limits and returned files."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.sandboxes.base import Limits
from agentgym.sandboxes.namespaces import MAX_INODES, START_SECONDS, ConfinedProcess, children

MAX_PROCESSES = 64  # a pipeline needs a dozen processes; this limit stops fork bombs early
MAX_TASKS = 2 * MAX_PROCESSES  # processes and threads together
# Output beyond the policy's limit is discarded. Output beyond this size stops the program.
MAX_OUTPUT_BYTES = 64 * 2**20
MAX_BYTES = 128 * 2**20  # total size of all returned files
_MAX_HEADER_BYTES = 64 * 2**20  # maximum length of the line that lists the paths
_READY = b"ready\n"  # message sent just before the program starts
_TICK = 0.02  # seconds between checks of processes, memory and files


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Result of a program run, with output up to the limit.

    A stopped program's progress depends on the host's speed, so it leaves neither output nor files.

    Attributes:
        code: The exit status, or minus the signal number; None if the program was stopped.
        stopped: The reason, shown to the policy, for stopping the program; empty if not stopped.
        files: Bytes of each file (None for a directory) by path in `/workspace`; None if stopped.
        left_out: Paths not returned: files beyond the limits, symlinks and pipes.
        seconds: The time that passed on the episode's clock.
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
    """Job of one run: a line of JSON, followed by the bytes of the files."""

    def __init__(
        self, process: ConfinedProcess, job: bytes, limits: Limits, folders: Sequence[str]
    ) -> None:
        self._process, self._limits, self._folders = process, limits, folders
        self._received: dict[Any, bytearray] = {
            source: bytearray() for source in (process.channel, process.stdout, process.stderr)
        }
        self._printed = 0
        self._started = False
        self._deadline = time.monotonic() + START_SECONDS
        self._next_look = 0.0
        process.pending = memoryview(job)

    def play(self) -> ProgramResult:
        """Serve the processes until they exit; raise OSError if none started."""
        while self._process.sources:
            for source, data in self._process.exchange(_TICK):
                if data:
                    self._keep(source, data)
            now = time.monotonic()
            if now > self._deadline and not self._started:
                break
            if now > self._deadline:
                seconds = self._limits.seconds
                reason = f"stopped after {seconds:g} s"
                return ProgramResult("", "", None, reason, seconds=float(seconds), timed_out=True)
            if reason := self._excess(now):
                return ProgramResult("", "", None, reason)
        if not self._started:
            raise OSError(self._complaint())
        return self._result()

    def _keep(self, source: Any, data: bytes) -> None:
        if source is self._process.channel:
            most = MAX_BYTES + _MAX_HEADER_BYTES
        else:
            most = 4 * self._limits.output_chars + 4
            self._printed += len(data)
        buffer = self._received[source]
        buffer += data[: max(0, most - len(buffer))]
        if not self._started and buffer.startswith(_READY) and source is self._process.channel:
            # Writing the files does not count against the program's time limit.
            self._started = True
            self._deadline = time.monotonic() + self._limits.seconds

    def _excess(self, now: float) -> str:
        if self._printed > MAX_OUTPUT_BYTES:
            return f"stopped after printing more than {MAX_OUTPUT_BYTES // 2**20} MiB"
        if now < self._next_look or not self._started:
            return ""
        self._next_look = now + _TICK
        processes, tasks, memory = _usage(self._process.pid)
        if processes > MAX_PROCESSES:
            return f"stopped because it had more than {MAX_PROCESSES} processes"
        if tasks > MAX_TASKS:
            return f"stopped because it had more than {MAX_TASKS} processes and threads"
        if memory > 2 * self._limits.memory_mb * 2**20:
            most = 2 * self._limits.memory_mb
            return f"stopped because its processes took more than {most} MiB of memory"
        if self._process.made_files(self._folders) > MAX_INODES:
            return f"stopped because it made more than {MAX_INODES} files"
        return ""

    def _complaint(self) -> str:
        _, stdout, stderr = self._received.values()
        printed = stdout + stderr
        return printed.decode("utf-8", "replace").strip() or "bwrap did not start"

    def _result(self) -> ProgramResult:
        answer, stdout, stderr = self._received.values()
        try:
            parsed = _parse(bytes(answer.removeprefix(_READY)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return ProgramResult("", "", None, "stopped because the machine gave out")
        code, files, left_out, elapsed = parsed
        # A program can forge the elapsed time, but the time limit bounds any wait.
        seconds = min(max(0.0, elapsed), self._limits.seconds)
        return ProgramResult(
            self._show(stdout), self._show(stderr), code, "", files, left_out, seconds
        )

    def _show(self, printed: bytearray) -> str:
        text = bytes(printed).decode("utf-8", "replace")
        most = self._limits.output_chars
        return text if len(text) <= most else f"{text[:most]}\n… (cut after {most} characters)\n"


def _parse(reply: bytes) -> tuple[int, dict[str, bytes | None], tuple[str, ...], float]:
    line, _, data = reply.partition(b"\n")
    header = json.loads(line)
    files: dict[str, bytes | None] = {str(name): None for name in header["folders"]}
    start = 0
    for name, size in header["files"]:
        files[str(name)] = data[start : start + int(size)]
        start += int(size)
    if start != len(data):
        raise ValueError("files are missing")
    return (
        int(header["code"]),
        files,
        tuple(map(str, header["left_out"])),
        int(header["elapsed"]) / 10**9,
    )


def _usage(pid: int) -> tuple[int, int, int]:
    """Count the processes below `bwrap`, their threads, and their memory in bytes."""
    processes, tasks, pages, parents = -1, -1, 0, [pid]  # excludes our first process
    while parents and processes <= MAX_PROCESSES:
        with contextlib.suppress(OSError, ValueError):  # the process has just exited
            for child in children(parents.pop()):
                virtual, resident = map(int, Path(f"/proc/{child}/statm").read_bytes().split()[:2])
                parents.append(child)
                processes += virtual > 0  # a zombie uses no memory
                tasks += len(os.listdir(f"/proc/{child}/task"))  # noqa: PTH208 - faster
                pages += resident if processes > 0 else 0
    return processes, tasks, pages * mmap.PAGESIZE
