"""Guard around code that a policy triggers."""

from __future__ import annotations

import errno
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

# A fixed text, because an exception's message may reveal hidden information.
FAULT = "the tool failed for a reason of its own, and nothing was changed; try another way"

# Longer results are logged as checksums, to save memory.
_SHORT = 80

# Only the beginning and the end of a deep recursion's traceback are useful.
_MAX_TRACEBACK_CHARS = 10_000
_MAX_CAUSE_CHARS = 200


class Guard:
    """Record of failures that the policy did not cause.

    Attributes:
        invalid: Why the episode does not measure the policy; empty for a valid episode.
        broken: Whether a state could not be restored.
    """

    def __init__(self, on_fault: str) -> None:
        self._raises = on_fault == "raise"
        self.begin()

    def begin(self) -> None:
        """Start a new episode."""
        self.faults: tuple[Fault, ...] = ()
        self.invalid = ""
        self.broken = False

    def take_faults(self) -> tuple[Fault, ...]:
        """Return and clear this step's faults."""
        faults, self.faults = self.faults, ()
        return faults

    def add_faults(self, info: dict[str, Any]) -> dict[str, Any]:
        """Add the faults that occurred in wrappers to a step's info."""
        if not self.faults:
            return info
        detail: StepInfo = info["detail"]
        detail = replace(detail, faults=(*detail.faults, *self.take_faults()), invalid=self.invalid)
        return {**info, "detail": detail}

    def record(self, tool: str, error: BaseException, invalid: str = "") -> None:
        """Record an exception for this step's info, or raise it if `on_fault` is `raise`."""
        if self._raises and not isinstance(error, HostLimitError):
            raise error
        self.faults = (*self.faults, _make_fault(tool, error))
        self.invalid = self.invalid or invalid

    def watch(
        self, tool: str, invalid: str = "", passes: tuple[type[Exception], ...] = ()
    ) -> _Watch:
        """Return a context manager that records and suppresses exceptions."""
        return _Watch(self, tool, invalid, passes)

    def score(self, world: World[Any]) -> tuple[float | None, Mapping[str, Any] | None]:
        """Return a world's score and report; None if the scorer fails."""
        if self.broken:
            return None, None
        with self.watch("score", "the scorer broke"):
            score, report = float(world.score()), world.report()
            if not 0.0 <= score <= 1.0:  # NaN is rejected too
                raise ValueError(
                    f"{type(world).__name__}.score must return a number in [0, 1], got {score}"
                )
            json.dumps(report, allow_nan=False)  # logs store the report as JSON
            return score, report or None
        return None, None


def carry_out(
    world: World[Any], bound: BoundTool, name: str, arguments: Mapping[str, Any]
) -> str | Content:
    """Run a world's tool and log the call; raise ToolError if the tool rejects the call."""
    convert = partial(_show, world, ToolCall(name, arguments)) if world.observes else to_content
    answer = bound.run(arguments, convert)
    if bound.schema.final:
        world.done = True
    text = answer if isinstance(answer, str) else answer.text
    logged = text if len(text) <= _SHORT else zlib.crc32(text.encode("utf-8", "surrogatepass"))
    world.call_log.append(CallRecord(name, arguments, world.turn, logged))
    return answer


def _show(world: World[Any], call: ToolCall, result: Any, indent: int | None) -> str | Content:
    answer = to_content(result, indent)
    world.read_result(call, answer if isinstance(answer, str) else answer.text)
    return answer


def rebuild(
    world: World[Any], new: World[Any], tools: Mapping[str, BoundTool], calls: int
) -> World[Any]:
    """Replay a world's first calls in `new`, which has the same seed; raise RollbackError if a
    result differs.
    """
    for record in world.call_log[:calls]:
        new.turn = record.turn
        carry_out(new, tools[record.name], record.name, record.arguments)
        if new.call_log[-1].answer != record.answer:
            raise RollbackError(f"{record.name} returned a different result when repeated")
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
        # Cut the message, because some exceptions quote whole prompts.
        cause = f"{type(error).__name__}: {error}"[:_MAX_CAUSE_CHARS]
        invalid = f"{self._invalid} ({cause})" if self._invalid else ""
        self._guard.record(self._tool, error, invalid)
        return True


def is_stop(error: BaseException) -> bool:
    """Report whether an exception is a request to stop."""
    # Importing asyncio for its exceptions would make importing the package 10 % slower.
    asyncio = sys.modules.get("asyncio.exceptions")
    cancelled = (asyncio.CancelledError,) if asyncio else ()
    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, *cancelled))


# `OSError`s caused by the host; a reply can cause others, for example with an overlong path.
_EXHAUSTED = {
    *(errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE),
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO),
}
# Overlong arguments in a reply can prevent a program from starting.
_OF_REPLY = {errno.E2BIG, errno.ENAMETOOLONG, errno.EINVAL}


def of_host(error: BaseException) -> bool:
    """Report whether the host caused an exception."""
    if isinstance(error, OSError):
        return error.errno in _EXHAUSTED
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno not in _OF_REPLY
    return isinstance(error, MemoryError) or isinstance(cause, MemoryError)


def _make_fault(tool: str, error: BaseException) -> Fault:
    report = traceback.TracebackException.from_exception(error, limit=-40)
    text = "".join(report.format())
    if len(text) > _MAX_TRACEBACK_CHARS:
        half = _MAX_TRACEBACK_CHARS // 2
        text = f"{text[:half]}\n…\n{text[-half:]}"
    message = next(iter(report.format_exception_only())).partition(": ")[2].strip()
    return Fault(tool, type(error).__name__, message[:_MAX_TRACEBACK_CHARS], text)
