"""Base of all sandboxes: limits, results, and the host's side of a run (its calls, its output, its
deadline).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from agentgym.text.tools import ToolError, echo
from agentgym.world.config import Config

Kind = Literal["", "exception", "timeout", "memory", "output", "calls", "crash", "refused"]
Functions = Mapping[str, Callable[..., str]]
"""The functions that code may call, by name. A function takes whatever arguments code gives, and
refuses a call with `ToolError`, which code can catch."""

NOT_JSON = (
    "arguments must be JSON: strings, finite numbers, booleans, None, lists and dicts of these"
)
"""The refusal of arguments that do not cross over; what nests deeper than `MAX_DEPTH` is among them,
however deep the encoder of this Python goes."""

MAX_ERROR_CHARS = 1_000  # an exception may carry a text of any length; this much explains it
_MAX_FRAMES = 6  # the innermost: a recursion would fill the error with copies of one line
_MAX_NAME_OR_LINE = 100  # characters of a line of source, or of a function's name, in an error


@dataclass(frozen=True)
class Limits(Config):
    """Resources that one run may use up.

    Attributes:
        seconds: Wall-clock time, calls included.
        memory_mb: Memory of the interpreter beyond what it takes to start.
        output_chars: Characters that the code may print.
        calls: Calls of functions.
        code_chars: The length of the code.

    Raises:
        ValueError: A limit is out of range.
    """

    seconds: Annotated[float, Field(ge=0.05, le=3_600.0)] = 10.0  # in less none starts
    memory_mb: Annotated[int, Field(ge=8, le=65_536)] = 256
    output_chars: Annotated[int, Field(ge=1, le=10_000_000)] = 20_000
    calls: Annotated[int, Field(ge=0, le=1_000_000)] = 1_000
    code_chars: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run of code.

    Attributes:
        stdout: The text that the code printed, up to the limit.
        error: Why it did not finish, in words for the policy; empty if it did.
        kind: The class of that reason. `refused` means that nothing ran; after any other, what ran
            has had its effects.
    """

    stdout: str
    error: str = ""
    kind: Kind = ""


class Sandbox(Protocol):
    """Interpreter for code that nobody trusts.

    It holds no state of an episode: each run is a fresh session, and any number of threads may run
    code at once.

    Attributes:
        rules: The peculiarities of this interpreter, in words for the policy.
        requirement: What it needs of the host (`agentgym.text.requirements`).
    """

    rules: ClassVar[str]
    requirement: ClassVar[str]

    def run(
        self, code: str, functions: Functions, limits: Limits = DEFAULT_LIMITS, seed: int = 0
    ) -> RunResult:
        """Run code to its end or to a limit; what it does raises nothing here, what a function
        raises (but `ToolError`) does.

        Args:
            code: The code.
            functions: The functions that it may call.
            limits: The resources that it may use up.
            seed: The randomness of the code, as far as it draws without a seed of its own: a
                number of 64 bits.
        """


class SandboxUnavailable(RuntimeError):
    """This host cannot run programs in a sandbox: a fault of the host, never of the code.

    It is raised when an env is made, or in mid-episode if the host no longer starts a process.
    """


class Stopped(Exception):
    """A run has to end here, for a reason in words for the policy."""

    def __init__(self, kind: Kind, error: str) -> None:
        super().__init__(error)
        self.kind = kind


class CallBroker:
    """Host's side of one run, the same for every sandbox: answers calls, keeps the output, counts
    both.
    """

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
        """Count the seconds of the code from now on."""
        self.deadline = time.monotonic() + self.limits.seconds

    def left(self) -> float:
        """Return the seconds until the deadline.

        Raises:
            Stopped: It has passed.
        """
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise self.too_late()
        return seconds

    def too_late(self) -> Stopped:
        """Return the end of a run that takes too long."""
        return Stopped("timeout", f"the code was stopped after {self.limits.seconds:g} seconds")

    def write(self, text: str) -> None:
        """Keep what the code printed.

        Raises:
            Stopped: There is no room for all of it.
        """
        self._printed.append(text[: self._room])
        if len(text) > self._room:
            self._room = 0
            raise Stopped(
                "output",
                f"the code printed more than {self.limits.output_chars} characters and was stopped",
            )
        self._room -= len(text)

    def call(self, name: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Answer one call.

        Raises:
            ToolError: The call was refused.
            Stopped: It is one too many, or too late.
        """
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
        """Return the result of the run.

        Args:
            kind: Why it ended early; `refused` counts only if nothing was called or printed.
            message: The reason in words.
            frames: Line and function of each call under way in the code, outermost first.
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
        # Code may raise a text with lone surrogates, which no chat can carry.
        return RunResult(stdout, message.encode("utf-8", "replace").decode("utf-8"), kind)
