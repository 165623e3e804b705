"""Reports of an env to the researcher about each step, beside the reward: `info["detail"]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepInfo:
    """Content of `info["detail"]`, in one object because Gymnasium's vector envs pay for every key.

    Attributes:
        calls: Calls that the last reply made.
        errors: How many of them failed; 1 if the reply could not be read.
        failed_rounds: How many replies in a row, up to the last one, had no call that succeeded.
        ended: Why the episode ended: `world`, `failed_rounds`, `max_turns`, or the reason that a
            wrapper gave (`context_overflow`), or `left` if its player has gone; empty while it goes on.
        score: The world's score, once the episode has ended.
        nested: The calls that were made from within a call, by code that the policy wrote; no view
            shows their results.
        report: The world's report, once the episode has ended; None if there is none.
        faults: The exceptions of our own code that this step met; no view shows them.
        invalid: Why the episode says nothing about the policy (its scorer broke, or a limit that
            depends on the host was met); empty while it is valid. Once set it stays.
        split: The split that the env draws its instances from, once the episode has ended; empty
            for all instances.
        instance: The key of the instance (`World.instance_key`), if there is a split.
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
    """A call made by code, with its result; a result that begins with `error:` is that of a call
    that was refused.
    """

    name: str
    arguments: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Failure of our own code, or of the host, in a place where only the policy may fail.

    Attributes:
        tool: The tool that failed, or `score`.
        exception: The class of the exception.
        message: Its text.
        traceback: Where it was raised, for the researcher.
    """

    tool: str
    exception: str
    message: str
    traceback: str
