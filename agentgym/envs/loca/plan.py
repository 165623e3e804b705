"""Reference plans and their steps.

A plan is a generator that yields steps and receives facts from the step results. Plans see the
office only through tool results, so a successful plan proves that the tools suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentgym.envs.loca.calls import Effects, effects_of
from agentgym.envs.loca.records import Fields
from agentgym.text.messages import ToolCall

# Function that maps calls with the same effect to one canonical form.
Canonicalizer: TypeAlias = Callable[[ToolCall], ToolCall]

# Exceptions that a plan may raise for unexpected results or facts. Python turns a StopIteration
# inside a generator into a RuntimeError.
SENSELESS = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, SyntaxError, MemoryError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One call of a plan.

    Attributes:
        label: An imperative sentence, unique in the plan.
        learn: Extracts a JSON-serializable fact from the result; optional for writing steps.
        output: The output that a writing step contributes to; empty for a reading step.
        same: The arguments that another call must repeat to count as this step; empty means all.
        accepts: An additional check of a call's canonical arguments.
        mark_own: A function that marks or removes the agent's own rows in a fact. The arguments are
            the fact, the effects of off-plan calls, and `own_records`.
        thing: The file or kind of record that the step reads or writes; see `things_changed`.
        is_look: Whether the step runs only if an off-plan call has changed `thing`.
    """

    label: str
    call: ToolCall
    learn: Callable[[str], Any] | None = None
    output: str = ""
    same: tuple[str, ...] = ()
    accepts: Callable[[Fields], bool] | None = None
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
        except SENSELESS:  # a chat may contain invalid arguments
            return False


# Steps in a sequence may run in any order.
Batch: TypeAlias = PlanStep | Sequence[PlanStep]
# A generator that receives the facts of its steps; the fact of a step without `learn` is None.
Plan: TypeAlias = Generator[Batch, Any, None]

# The last step of every plan, which ends the episode.
CLAIM = PlanStep("Say that the task is done.", ToolCall("claim_done", {}), output="claim")


def read(label: str, learn: Callable[[str], Any], tool: str, /, **arguments: Any) -> PlanStep:
    """Return a reading step."""
    return PlanStep(label, ToolCall(tool, arguments), learn)


def look(
    thing: str, label: str, learn: Callable[[str], Any], tool: str, /, **arguments: Any
) -> PlanStep:
    """Return a reading step that runs only if an off-plan call has changed `thing`."""
    return PlanStep(label, ToolCall(tool, arguments), learn, thing=thing, is_look=True)


def look_on(
    thing: str, label: str, learn: Callable[[str], Any], tool: str, /, **arguments: Any
) -> PlanStep:
    """Return a reading step that follows a `look` step with the same `thing`."""
    return PlanStep(label, ToolCall(tool, arguments), learn, thing=thing)


def write(
    label: str,
    output: str,
    tool: str,
    /,
    *,
    thing: str = "",
    same: Sequence[str] = (),
    accepts: Callable[[Fields], bool] | None = None,
    learn: Callable[[str], Any] | None = None,
    **arguments: Any,
) -> PlanStep:
    """Return a step that changes the office."""
    call = ToolCall(tool, arguments)
    return PlanStep(label, call, learn, output, tuple(same), accepts, thing=thing)


# Part of a plan, run with `yield from`.
Piece = Generator[Batch, Any, list[Any]]
