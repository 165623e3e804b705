"""Reference plans and their steps.

A plan is a generator that yields steps and receives facts from their results. It sees the office
only through these results, so playing it proves that the tools suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentgym.envs.loca.calls import Effects, effects_of
from agentgym.text.messages import ToolCall

# Maps calls with the same effect to one form.
Canonicalizer: TypeAlias = Callable[[ToolCall], ToolCall]


# A plan raises these if it cannot interpret a result or a fact.
# A StopIteration inside a generator becomes a RuntimeError.
SENSELESS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One call of a plan.

    Attributes:
        label: An imperative sentence, unique in the plan.
        learn: Extracts the JSON-able fact from the result; optional for changes.
        output: The output that a change contributes to; empty for a reading step.
        same: The arguments that another call must share to count as this step; empty means all.
        accepts: An additional check of the canonical arguments.
        mark_own: Marks data that off-plan calls have written, given their effects and
        `own_records`.
        thing: The file or kind of record that the step writes or shows; see `things_changed`.
        is_look: Whether the step only runs if an off-plan call has changed the thing.
    """

    label: str
    call: ToolCall
    learn: Callable[[str], Any] | None = None
    output: str = ""
    same: tuple[str, ...] = ()
    accepts: Callable[[Mapping[str, Any]], bool] | None = None
    mark_own: Callable[[Any, Effects, Sequence[Any]], Any] | None = None
    thing: str = ""
    is_look: bool = False

    @property
    def effects(self) -> Effects:
        return effects_of(self.call)

    @property
    def changes(self) -> bool:
        return bool(self.output)

    def counts(self, call: ToolCall, canonicalize: Canonicalizer) -> bool:
        """Return whether a call achieves this step."""
        if (call.name, call.arguments) == (self.call.name, self.call.arguments):
            return True
        mine, other = canonicalize(self.call), canonicalize(call)
        names = self.same or (*mine.arguments, *other.arguments)
        alike = all(other.arguments.get(name) == mine.arguments.get(name) for name in names)
        if other.name != mine.name or not alike:
            return False
        try:
            return self.accepts is None or self.accepts(other.arguments)
        except SENSELESS:  # a chat may contain any arguments
            return False


# The steps of a sequence may run in any order. The plan receives None for a step without `learn`.
Plan: TypeAlias = Generator[PlanStep | Sequence[PlanStep], Any, None]

# Tasks are scored when the agent claims to be done.
CLAIM = PlanStep("Say that the task is done.", ToolCall("claim_done", {}), output="claim")


def read(label: str, learn: Callable[[str], Any], tool: str, /, **arguments: Any) -> PlanStep:
    """Return a reading step."""
    return PlanStep(label, ToolCall(tool, arguments), learn)


def look(
    thing: str, label: str, learn: Callable[[str], Any], tool: str, /, **arguments: Any
) -> PlanStep:
    """Return a step that only runs if an off-plan call has changed the thing."""
    return PlanStep(label, ToolCall(tool, arguments), learn, thing=thing, is_look=True)


def look_on(
    thing: str, label: str, learn: Callable[[str], Any], tool: str, /, **arguments: Any
) -> PlanStep:
    """Return a step that continues a look."""
    return PlanStep(label, ToolCall(tool, arguments), learn, thing=thing)


def write(
    label: str,
    output: str,
    tool: str,
    /,
    *,
    thing: str = "",
    same: Sequence[str] = (),
    accepts: Callable[[Mapping[str, Any]], bool] | None = None,
    learn: Callable[[str], Any] | None = None,
    **arguments: Any,
) -> PlanStep:
    """Return a step that changes the office; see `PlanStep`."""
    return PlanStep(
        label,
        ToolCall(tool, arguments),
        learn,
        output,
        tuple(same),
        accepts,
        thing=thing,
    )


# A generator that a plan runs with `yield from`.
Piece = Generator[PlanStep | Sequence[PlanStep], Any, list[Any]]
