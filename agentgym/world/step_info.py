"""Step reports for the researcher: `info["detail"]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class StepInfo:
    """Content of `info["detail"]` in step results and trajectories.

    Fields can be read as attributes or keys: `detail.ended` is `detail["ended"]`.

    Attributes:
        calls: The number of calls in the last reply.
        errors: The number of failed calls; 1 if the reply was unreadable.
        failed_rounds: The number of consecutive replies without a successful call.
        ended: Why the episode ended: `world`, `failed_rounds`, `max_turns`, `fault` if a state could
            not be restored, `left` if the player left, `over_window` if the chat exceeded the
            model's context window, or another reason, such as a wrapper's `context_overflow`;
            empty during the episode.
        score: The world's score, set when the episode ends.
        nested: The calls made by the policy's code, whose results the chat does not show.
        report: The world's report, set when the episode ends, or None.
        faults: The unexpected exceptions of this step, which the chat does not show.
        invalid: Why the episode is not a valid measurement of the policy, such as a broken scorer.
            Once set, the reason does not change.
        split: The env's split, set when the episode ends; empty without a split.
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

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore the object from JSON data; missing fields get their defaults."""
        known = {item.name: data[item.name] for item in fields(cls) if item.name in data}
        nested = tuple(NestedCall(**call) for call in data.get("nested", ()))
        faults = tuple(Fault(**fault) for fault in data.get("faults", ()))
        return cls(**{**known, "nested": nested, "faults": faults})

    def __getitem__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise KeyError(name)
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or a default."""
        return self[name] if name in self.__slots__ else default


@dataclass(frozen=True, slots=True)
class NestedCall:
    """A call made by the policy's code; the result of a failed call starts with `error:`."""

    name: str
    arguments: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Fault:
    """An unexpected failure of the code or the host, in a tool or in `score`."""

    tool: str
    exception: str
    message: str
    traceback: str
