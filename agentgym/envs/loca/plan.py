"""The reference plan of an office task: its steps.

A plan is a script that yields the calls to make and is sent the facts in their results. It knows
the office only through these results, so it shows that the task can be solved through the tools.
`progress.py` follows an agent with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentgym.envs.loca.calls import Effects, effects_of
from agentgym.messages import ToolCall

Canonicalizer: TypeAlias = Callable[[ToolCall], ToolCall]
"""Return the form that all calls share which have the same effect."""


# The last is what becomes of a StopIteration in a script.
SENSELESS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)
"""Exceptions of code that makes sense of a result, or of facts, where there is none in it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a plan.

    Attributes:
        label: What it does, as an order: `Read the announcements of course 12.` No two steps of a
            plan have the same.
        call: The call.
        learn: Extracts the fact in its result, as JSON-able data; a change may have nothing to
            report.
        output: The output that a change helps to make; empty for a step that reads.
        same: The arguments that another call must share to count as this step; all of them if
            empty.
        accepts: What else holds of the arguments, in canonical form, of a call that counts; a mail
            with the right address and another text does not.
        equivalent: A call with the same effects whose arguments show them, where those of `call`
            do not.
        mark_own: Marks in the fact what calls outside the plan have put there, given their
            effects: a plan has to tell the start of the task from work that was done early.
    """

    label: str
    call: ToolCall
    learn: Callable[[str], Any] | None = None
    output: str = ""
    same: tuple[str, ...] = ()
    accepts: Callable[[Mapping[str, Any]], bool] | None = None
    equivalent: ToolCall | None = None
    mark_own: Callable[[Any, Effects], Any] | None = None

    @property
    def effects(self) -> Effects:
        """The effects of the step; none if its arguments do not show them, or if it reads."""
        return effects_of(self.equivalent or self.call) if self.changes else {}

    @property
    def changes(self) -> bool:
        """True if it changes the office, rather than reads it."""
        return bool(self.output)

    def counts(self, call: ToolCall, canonicalize: Canonicalizer) -> bool:
        """Return whether a call does what this step asks for, after `canonicalize` has brought
        both into the same form.
        """
        if (call.name, call.arguments) == (self.call.name, self.call.arguments):
            return True
        mine, other = canonicalize(self.call), canonicalize(call)
        names = self.same or (*mine.arguments, *other.arguments)
        alike = all(other.arguments.get(name) == mine.arguments.get(name) for name in names)
        if other.name != mine.name or not alike:
            return False
        try:
            return self.accepts is None or self.accepts(other.arguments)
        except SENSELESS:  # arguments of a call that a chat claims
            return False


Plan: TypeAlias = Generator[Step | Sequence[Step], Any, None]
"""It is sent the fact of a step that it yields alone, a list of facts for a sequence, whose steps
may be taken in any order; the fact of a change with nothing to tell is None."""

CLAIM = Step("Say that the task is done.", ToolCall("claim_done", {}), output="claim")
"""The last step of every plan, since the tasks are scored by the state at the claim."""


def read(label: str, learn: Callable[[str], Any], tool: str, /, **arguments: Any) -> Step:
    """Return a step that reads: what `learn` extracts from the result becomes its fact."""
    return Step(label, ToolCall(tool, arguments), learn)


def write(
    label: str,
    output: str,
    tool: str,
    /,
    *,
    same: Sequence[str] = (),
    accepts: Callable[[Mapping[str, Any]], bool] | None = None,
    equivalent: ToolCall | None = None,
    learn: Callable[[str], Any] | None = None,
    **arguments: Any,
) -> Step:
    """Return a step that changes the office.

    Args:
        label: See `Step`.
        output: The output that it helps to make.
        tool: The tool.
        same: The arguments in which another call must agree with it; all by default.
        accepts: See `Step`.
        equivalent: See `Step`.
        learn: Extracts the fact in its result, such as the id of a new record.
        **arguments: The arguments of the tool.
    """
    return Step(label, ToolCall(tool, arguments), learn, output, tuple(same), accepts, equivalent)
