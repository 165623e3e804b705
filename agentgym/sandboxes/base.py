"""The sandbox interface, resource limits, results, and the host's side of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from agentgym.text.tools import ToolError, echo
from agentgym.world.config import Config

Kind = Literal["", "exception", "timeout", "memory", "output", "calls", "crash", "refused"]
# Functions by name; code can catch the `ToolError` that a function raises.
Functions = Mapping[str, Callable[..., str]]

# Arguments nested deeper than `MAX_DEPTH` get the same error on every Python version.
NOT_JSON = (
    "arguments must be JSON: strings, finite numbers, booleans, None, lists and dicts of these"
)

MAX_ERROR_CHARS = 1_000  # an exception's text can have any length
_MAX_FRAMES = 6  # only the innermost frames, because a recursion can produce thousands
_MAX_NAME_OR_LINE = 100  # maximum length of a source line or function name in an error


@dataclass(frozen=True)
class Limits(Config):
    """Resource limits of one run.

    Attributes:
        seconds: Wall-clock time, including function calls.
        memory_mb: Memory beyond the interpreter's initial size.
        calls: Function calls.
    """

    seconds: Annotated[float, Field(ge=0.05, le=3_600.0)] = 10.0  # no interpreter starts faster
    memory_mb: Annotated[int, Field(ge=8, le=65_536)] = 256
    output_chars: Annotated[int, Field(ge=1, le=10_000_000)] = 20_000
    calls: Annotated[int, Field(ge=0, le=1_000_000)] = 1_000
    code_chars: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of running code.

    Attributes:
        error: The reason for an early end, shown to the policy; empty if the code finished.
        kind: The category of `error`. Only `refused` guarantees that no code ran.
    """

    stdout: str
    error: str = ""
    kind: Kind = ""


class Sandbox(Protocol):
    """Interpreter for untrusted code; each run is a fresh session, and runs may be concurrent.

    Attributes:
        rules: Description of the interpreter's restrictions, for the policy.
        requirement: The interpreter's host requirement (`agentgym.text.requirements`).
    """

    rules: ClassVar[str]
    requirement: ClassVar[str]

    def run(
        self, code: str, functions: Functions, limits: Limits = DEFAULT_LIMITS, seed: int = 0
    ) -> RunResult:
        """Run code until it ends or reaches a limit.

        Exceptions in the code do not propagate; exceptions in a host function do, except ToolError.
        The 64-bit seed determines random numbers, unless the code seeds its own generator.
        """


class SandboxUnavailable(RuntimeError):
    """Error raised if the host cannot run programs in a sandbox."""


class Stopped(Exception):
    """Exception that ends a run, with a reason for the policy."""

    def __init__(self, kind: Kind, error: str) -> None:
        super().__init__(error)
        self.kind = kind


class CallBroker:
    """Host side of a run: answers and counts calls, and stores output."""

    def __init__(self, code: str, functions: Functions, limits: Limits) -> None:
        self.code = code
        self.limits = limits
        self.start_clock()
        self._functions = functions
        self._calls = 0
        self._printed: list[str] = []
        self._room = limits.output_chars

    def check(self) -> None:
        """Refuse code that is too long."""
        if len(self.code) > self.limits.code_chars:
            raise Stopped(
                "refused",
                f"the code is {len(self.code)} characters long, at most {self.limits.code_chars} "
                "are allowed",
            )

    def start_clock(self) -> None:
        """Start the clock for the code's time limit."""
        self.deadline = time.monotonic() + self.limits.seconds

    def left(self) -> float:
        """Return the seconds until the deadline, or raise `Stopped` if it has passed."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise self.too_late()
        return seconds

    def too_late(self) -> Stopped:
        """Return the result of a run that exceeded its time limit."""
        return Stopped("timeout", f"the code was stopped after {self.limits.seconds:g} seconds")

    def write(self, text: str) -> None:
        """Store printed text, or raise `Stopped` if it exceeds the limit."""
        self._printed.append(text[: self._room])
        if len(text) > self._room:
            self._room = 0
            raise Stopped(
                "output",
                f"the code printed more than {self.limits.output_chars} characters and was stopped",
            )
        self._room -= len(text)

    def call(self, name: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Answer a call; raise ToolError to refuse the call, or `Stopped` if it exceeds a limit."""
        self.left()
        self._calls += 1
        if self._calls > self.limits.calls:
            raise Stopped(
                "calls", f"the code made more than {self.limits.calls} calls and was stopped"
            )
        function = self._functions.get(name) if isinstance(name, str) else None
        if function is None:
            raise ToolError(
                f"there is no function {echo(name)}; functions: {', '.join(self._functions)}"
            )
        return function(*args, **kwargs)

    def end(
        self, kind: Kind = "", message: str = "", frames: Sequence[tuple[int, str]] = ()
    ) -> RunResult:
        """Return the result; `refused` becomes `exception` if the code made a call or printed.

        `frames` contains the line and function of each active call, outermost first.
        """
        stdout = "".join(self._printed)
        if kind == "refused" and (self._calls or stdout):
            kind = "exception"
        if len(message) > MAX_ERROR_CHARS:
            message = f"{message[:MAX_ERROR_CHARS]}… ({len(message)} characters)"
        lines = self.code.splitlines()
        for line, function in frames[-_MAX_FRAMES:]:
            source = lines[line - 1].strip()[:_MAX_NAME_OR_LINE] if 0 < line <= len(lines) else ""
            place = "" if function == "<module>" else f" in {function[:_MAX_NAME_OR_LINE]}"
            message += f"\n  at line {line}{place}: {source}"
        # Code may raise an error whose text has lone surrogates, which a chat cannot contain.
        return RunResult(stdout, message.encode("utf-8", "replace").decode("utf-8"), kind)
