"""Step reports for the researcher: `info["detail"]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepInfo:
    """Content of `info["detail"]`, one object because Gymnasium's vector envs pay for every key.

    Attributes:
        calls: The number of calls in the last reply.
        errors: How many of them failed; 1 if the reply was unreadable.
        failed_rounds: The consecutive replies without a successful call.
        ended: Why the episode ended: `world`, `failed_rounds`, `max_turns`, `left` if its player
            left, `over_window` if its chat exceeded the model's context window, or a wrapper's
            reason such as `context_overflow`; empty while it continues.
        score: The world's score, at the end.
        nested: The calls made by the policy's code; the chat does not show their results.
        report: The world's report, at the end, or None.
        faults: The unexpected exceptions of this step; the chat does not show them.
        invalid: Why the episode does not measure the policy, such as a broken scorer. Once set, it
            stays.
        split: The env's split, at the end; empty for all instances.
        instance: The instance's key (`World.instance_key`), if there is a split.
    """

    calls: int = 0
    errors: int = 0
    failed_rounds: int = 0
    ended: str = ""
    score: float | None = None
    nested: tuple[NestedCall, ...] = ()
    report: Mapping[str, Any] | None = None
    faults: tuple[Fault, ...] = ()
    invalid: str = ""
    split: str = ""
    instance: str = ""


@dataclass(frozen=True, slots=True)
class NestedCall:
    """A call made by code; the result of a failed one starts with `error:`."""

    name: str
    arguments: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Fault:
    """An unexpected failure of our code or of the host, in a tool or in `score`."""

    tool: str
    exception: str
    message: str
    traceback: str
