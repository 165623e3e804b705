"""Guard around the code that a policy sets going: exceptions become faults, scores are checked, and
a world is re-created from its calls.
"""

from __future__ import annotations

import json
import sys
import traceback
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from agentgym.text.messages import Content, ToolCall
from agentgym.text.tool_results import to_content
from agentgym.text.tools import BoundTool, HostLimitError, RollbackError
from agentgym.world.call_record import CallRecord
from agentgym.world.step_info import Fault, StepInfo
from agentgym.world.world import World

FAULT = "the tool failed for a reason of its own, and nothing was changed; try another way"
"""Answer to a call whose tool met an unexpected exception: constant, since the text of an exception
may give away what is hidden.
"""

_SHORT = 80
"""Characters of a result that is logged as it is: to take the checksum of a line takes longer than
to look up a tool.
"""

_MAX_TRACEBACK_CHARS = 10_000
"""Characters of a traceback: the ends of a deep recursion say all of it."""


class Guard:
    """Record of what went wrong in an episode without the policy's doing.

    Args:
        on_fault: What an unexpected exception does: `report` it, or `raise` it again.

    Attributes:
        faults: The faults that this step has met so far.
        invalid: Why the episode says nothing about the policy; empty while it is valid.
        broken: Whether there is a state that could not be restored.
    """

    def __init__(self, on_fault: str) -> None:
        self._raises = on_fault == "raise"
        self.begin()

    def begin(self) -> None:
        """Forget the last episode."""
        self.faults: tuple[Fault, ...] = ()
        self.invalid = ""
        self.broken = False

    def take_faults(self) -> tuple[Fault, ...]:
        """Return the faults of this step, and forget them."""
        faults, self.faults = self.faults, ()
        return faults

    def add_faults(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return the info of a step with the faults of the wrappers that looked at it."""
        if not self.faults:
            return info
        detail: StepInfo = info["detail"]
        detail = replace(detail, faults=(*detail.faults, *self.take_faults()), invalid=self.invalid)
        return {**info, "detail": detail}

    def record(self, tool: str, error: BaseException, invalid: str = "") -> None:
        """Keep an exception for the info of this step, or raise it if the user wants that.

        Args:
            tool: What failed.
            error: The exception.
            invalid: Why the episode says nothing about the policy any more, if that is so.
        """
        if self._raises and not isinstance(error, HostLimitError):
            raise error
        self.faults = (*self.faults, _make_fault(tool, error))
        self.invalid = self.invalid or invalid

    def watch(
        self, tool: str, invalid: str = "", passes: tuple[type[Exception], ...] = ()
    ) -> _Watch:
        """Return a context that records an exception and goes on after it; those of `passes` leave
        it.
        """
        return _Watch(self, tool, invalid, passes)

    def score(self, world: World[Any]) -> tuple[float | None, Mapping[str, Any] | None]:
        """Return the score of a world, and its report if there is one; None if the scorer breaks,
        and then the episode is invalid.
        """
        if self.broken:
            return None, None
        with self.watch("score", "the scorer broke"):
            score, report = float(world.score()), world.report()
            if not 0.0 <= score <= 1.0:  # NaN is not
                raise ValueError(
                    f"{type(world).__name__}.score must return a number in [0, 1], got {score}"
                )
            json.dumps(report, allow_nan=False)  # a log must be able to hold it
            return score, report or None
        return None, None


def carry_out(
    world: World[Any], bound: BoundTool, name: str, arguments: Mapping[str, Any]
) -> str | Content:
    """Run a tool of a world, and keep the call in its log; return the result as a policy sees it.

    Raises:
        ToolError: The call was refused.
    """
    convert = partial(_show, world, ToolCall(name, arguments)) if world.observes else to_content
    answer = bound.run(arguments, convert)
    if bound.schema.final:
        world.done = True
    text = answer if isinstance(answer, str) else answer.text
    logged = text if len(text) <= _SHORT else zlib.crc32(text.encode("utf-8", "surrogatepass"))
    world.call_log.append(CallRecord(name, arguments, world.turn, logged))
    return answer


def _show(world: World[Any], call: ToolCall, result: Any, indent: int | None) -> str | Content:
    """Show the result of a call to the world, as a part of the call that is undone with it."""
    answer = to_content(result, indent)
    world.read_result(call, answer if isinstance(answer, str) else answer.text)
    return answer


def rebuild(
    world: World[Any], new: World[Any], tools: Mapping[str, BoundTool], calls: int
) -> World[Any]:
    """Bring a world that was generated from the same seed to where another was after its first
    calls.

    Args:
        world: The world to re-create.
        new: The world that takes its place.
        tools: All tools of the new world, those of every agent of a team.
        calls: How many of the calls in the log of the world to carry out.

    Raises:
        RollbackError: A call gives another result than it gave before.
    """
    for record in world.call_log[:calls]:
        new.turn = record.turn
        carry_out(new, tools[record.name], record.name, record.arguments)
        if new.call_log[-1].answer != record.answer:
            raise RollbackError(f"{record.name} gave another result when it was repeated")
    new.turn = world.turn
    return new


class _Watch:
    def __init__(
        self, guard: Guard, tool: str, invalid: str, passes: tuple[type[Exception], ...]
    ) -> None:
        self._guard, self._tool, self._invalid, self._passes = guard, tool, invalid, passes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, self._passes) or is_stop(error):
            return False
        self._guard.record(self._tool, error, self._invalid)
        return True


def is_stop(error: BaseException) -> bool:
    """Return whether an exception stops the program from outside.

    Any other is a fault of the code that raises it, those beside `Exception` included: a panic of a
    Rust library is one.
    """
    # Nobody raises asyncio's before it is imported, which takes a tenth of the time of this package.
    asyncio = sys.modules.get("asyncio.exceptions")
    cancelled = (asyncio.CancelledError,) if asyncio else ()
    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, *cancelled))


def of_host(error: BaseException) -> bool:
    """Return whether an exception is the host's: no memory, no disk, no process to be had."""
    return any(isinstance(each, (MemoryError, OSError)) for each in (error, error.__cause__))


def _make_fault(tool: str, error: BaseException) -> Fault:
    """Return the report of an exception, even of one that cannot say what it is."""
    report = traceback.TracebackException.from_exception(error, limit=-40)
    text = "".join(report.format())
    if len(text) > _MAX_TRACEBACK_CHARS:
        half = _MAX_TRACEBACK_CHARS // 2
        text = f"{text[:half]}\n…\n{text[-half:]}"
    message = next(iter(report.format_exception_only())).partition(": ")[2].strip()
    return Fault(tool, type(error).__name__, message[:_MAX_TRACEBACK_CHARS], text)
