"""The hardened sandbox: full CPython in Linux namespaces, through `bwrap`.

Each run is a process that sees the interpreter's files and an empty `/tmp`. The process has no
network access, inherits no environment variables, and can neither see nor start other processes.
Calls and answers are JSON lines on a separate socket, so printed text cannot imitate them.
"""

from __future__ import annotations

import codecs
import functools
import json
import time
from contextlib import ExitStack, closing, suppress
from typing import Any, ClassVar

from agentgym.sandboxes.base import (
    DEFAULT_LIMITS,
    NOT_JSON,
    CallBroker,
    Functions,
    Kind,
    Limits,
    RunResult,
    SandboxUnavailable,
    Stopped,
)
from agentgym.sandboxes.determinism import RunSeed
from agentgym.sandboxes.namespaces import (
    MAX_INODES,
    REMEDY,
    START_SECONDS,
    ConfinedProcess,
    base_command,
    find_bwrap,
    memory_folder,
    read_program,
    resource_limits,
)
from agentgym.text.parsing import nesting_depth
from agentgym.text.tools import MAX_CALL_CHARS, MAX_DEPTH, ToolError

_START_MB = 64  # the interpreter's address space before the code runs
_TMP_BYTES = 16 * 2**20  # occupies the host's memory
_TICK = 0.1  # seconds between checks of the number of files
_OPEN_FILES, _THREADS = 64, 64  # each file and each thread takes kernel memory
# JSON may escape one character as six, and a call contains more than its arguments.
_MAX_LINE = 8 * MAX_CALL_CHARS
_CALL_LEVELS = 2  # the levels of {"call": [name, args, kwargs]}; argument lists count separately
_KINDS: tuple[Kind, ...] = ("", "exception", "memory", "refused")
_REMEDY = f"{REMEDY}; or use sandbox='monty'"


class BubblewrapSandbox:
    """The host's CPython, isolated by fresh Linux namespaces.

    The clock and random numbers are deterministic (`agentgym.sandboxes.determinism`). Raises
    `SandboxUnavailable` if `bwrap` cannot run on this host.
    """

    requirement: ClassVar[str] = "bubblewrap"

    rules: ClassVar[str] = (
        "The interpreter is CPython with its standard library. There is no network, no other "
        "process can be started, and of the "
        "files only /tmp can be written; it is empty at the start of each run. The clock stands "
        "still but while the code sleeps."
    )

    def __init__(self) -> None:
        check()

    def run(
        self, code: str, functions: Functions, limits: Limits = DEFAULT_LIMITS, seed: int = 0
    ) -> RunResult:
        """Run code in a new process."""
        broker = CallBroker(code, functions, limits)
        try:
            broker.check()
            return _play(broker, list(functions), RunSeed(seed=seed))
        except Stopped as stop:
            return broker.end(stop.kind, str(stop))


def _play(broker: CallBroker, names: list[str], seed: RunSeed) -> RunResult:
    with ExitStack() as stack:
        try:
            conversation = stack.enter_context(closing(_Conversation(broker, names, seed)))
            conversation.start()
        except OSError as error:
            problem = f"bwrap does not run on this host: {error}; {_REMEDY}"
            raise SandboxUnavailable(problem) from error
        return conversation.play()


class _Conversation:
    def __init__(self, broker: CallBroker, names: list[str], seed: RunSeed) -> None:
        self.result: RunResult | None = None
        self.complaint = b""
        self._process = ConfinedProcess(_command(), read_program("interpreter_init.py"), seed)
        self._broker = broker
        self._names = names
        self._received = bytearray()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._ready = False

    def start(self) -> None:
        """Wait until the process requests the code, or raise `OSError`."""
        deadline = time.monotonic() + START_SECONDS
        while (
            not self._ready
            and self._process.channel in self._process.sources
            and (left := deadline - time.monotonic()) > 0
        ):
            self._listen(left)
        if not self._ready:
            self.drain()
            complaint = self.complaint.decode("utf-8", "replace").strip()
            raise OSError(complaint or f"no process has started within {START_SECONDS:g} s")

    def play(self) -> RunResult:
        self._broker.start_clock()
        try:
            while self.result is None:
                self._listen(min(_TICK, self._broker.left()))
                if self._process.made_files(["/tmp"]) > MAX_INODES:
                    raise Stopped("memory", f"the code made more than {MAX_INODES} files")
            return self.result
        finally:
            with suppress(Stopped):
                self.drain()

    def close(self) -> None:
        # A process that sent its result exits, unless the code faked the result.
        self._process.close(patience=1.0 if self.result else 0.0)

    def _listen(self, seconds: float) -> None:
        for source, data in self._process.exchange(seconds):
            if source is self._process.stdout:
                self.write(data)
            else:
                self.receive(data)

    def write(self, data: bytes | None) -> None:
        if self._ready:
            self._broker.write(self._decode(data or b""))
        else:
            self.complaint += data or b""

    def drain(self) -> None:
        while data := self._process.read(self._process.stdout):
            self.write(data)

    def receive(self, data: bytes | None) -> None:
        """Answer the received lines; empty `data` means that the process exited."""
        ended = data == b""
        self._received += data or b""
        # Send one answer at a time, because unread answers would fill the host's memory.
        while (
            (not self._process.pending or ended) and self.result is None and b"\n" in self._received
        ):
            line, _, self._received = self._received.partition(b"\n")
            self._answer(bytes(line))
        if ended and self.result is None and self._ready:
            self.drain()
            raise Stopped("crash", "the interpreter ended before the code did")
        if len(self._received) > _MAX_LINE:
            raise Stopped("crash", "a call is too long")

    def _answer(self, line: bytes) -> None:
        message = None
        if nesting_depth(line.decode("utf-8", "replace")) <= MAX_DEPTH + _CALL_LEVELS:
            with suppress(ValueError):
                message = json.loads(line)
        elif line.startswith(b'{"call"'):
            self._send({"error": NOT_JSON})
            return
        match message:
            case {"ready": True} if not self._ready:
                self._ready = True
                given = self._broker.limits
                memory_mb = given.memory_mb + _START_MB
                limits = resource_limits(given, memory_mb, _TMP_BYTES, _OPEN_FILES)
                limits["RLIMIT_NPROC"] = _THREADS
                self._send(
                    {
                        "code": self._broker.code,
                        "names": self._names,
                        "limits": limits,
                        "longest": _MAX_LINE // 2,
                    }
                )
            case {"call": [str(name), list(args), dict(kwargs)]}:
                try:
                    self._send({"text": self._broker.call(name, args, kwargs)})
                except ToolError as error:
                    self._send({"error": str(error)})
            case {"done": [kind, str(text), list(frames)]} if kind in _KINDS and all(
                map(_is_frame, frames)
            ):
                self.drain()
                self.result = self._broker.end(kind, text, frames)
            case _:
                raise Stopped("crash", "the interpreter was tampered with")

    def _send(self, message: Any) -> None:
        self._process.pending = memoryview(json.dumps(message).encode() + b"\n")


def _is_frame(frame: object) -> bool:
    return isinstance(frame, list) and [type(item) for item in frame] == [int, str]


@functools.cache
def _command() -> tuple[str, ...]:
    return (
        *base_command(find_bwrap()),
        *memory_folder("/tmp", _TMP_BYTES),
        "--remount-ro",
        "/",
        "--chdir",
        "/tmp",
    )


@functools.cache
def check() -> None:
    """Check once per process that the sandbox runs here; raise `SandboxUnavailable` if not."""
    try:
        result = _play(CallBroker("print(6 * 7)", {}, DEFAULT_LIMITS), [], RunSeed())
    except Stopped as error:
        raise SandboxUnavailable(f"bwrap does not run on this host: {error}; {_REMEDY}") from error
    if result != RunResult("42\n"):
        raise SandboxUnavailable(f"bwrap does not run on this host: {result}; {_REMEDY}")
