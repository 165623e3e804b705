"""The reference plan of an office task, and the progress of an agent with it.

A plan is a script that yields the calls to make and is sent the facts in their results. It knows
the office only through these results, so it shows that the task can be solved through the tools;
the same script gives the next steps, the facts that were gathered and the outputs that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentgym.envs.loca.belief import Belief, Piece, split_fact
from agentgym.messages import ToolCall

Canonicalizer: TypeAlias = Callable[[ToolCall], ToolCall]
"""Return the form that all calls share which have the same effect."""


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
        about: A text that its arguments must also contain.
    """

    label: str
    call: ToolCall
    learn: Callable[[str], Any] | None = None
    output: str = ""
    same: tuple[str, ...] = ()
    about: str = ""

    @property
    def changes(self) -> bool:
        """True if it changes the office, rather than reads it."""
        return bool(self.output)

    def counts(self, call: ToolCall, canonicalize: Canonicalizer) -> bool:
        """Return whether a call does what this step asks for, after `canonicalize` has brought
        both into the same form.
        """
        mine, other = canonicalize(self.call), canonicalize(call)
        names = self.same or (*mine.arguments, *other.arguments)
        alike = all(other.arguments.get(name) == mine.arguments.get(name) for name in names)
        return other.name == mine.name and alike and self.about in _dump(other.arguments)


Plan: TypeAlias = Generator[Step | Sequence[Step], Any, None]
"""It is sent the fact of a step that it yields alone, a list of facts for a sequence, whose steps
may be taken in any order; the fact of a change with nothing to tell is None."""

MAX_PREFETCHED = 1_000
"""Results of calls ahead of the plan that are kept for later steps; more would let an agent that
reads at random fill the memory.
"""

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
    about: str = "",
    learn: Callable[[str], Any] | None = None,
    **arguments: Any,
) -> Step:
    """Return a step that changes the office.

    Args:
        label: See `Step`.
        output: The output that it helps to make.
        tool: The tool.
        same: The arguments in which another call must agree with it; all by default.
        about: See `Step`.
        learn: Extracts the fact in its result, such as the id of a new record.
        **arguments: The arguments of the tool.
    """
    return Step(label, ToolCall(tool, arguments), learn, output, tuple(same), about)


def _identity(call: ToolCall) -> ToolCall:
    return call


class Progress:
    """Progress of an agent with a plan, as far as the results in its chat show it. It pickles.

    Args:
        plan: Starts the script.
        canonicalize: See `Step.counts`; calls are compared as they are by default.

    Attributes:
        facts: The facts learnt, by the label of the step; None for a change that had nothing to
            report.
        off_plan_calls: Irreversible calls that no step has asked for so far.
        lost: Why the plan cannot go on: the facts are none that a state of the task gives, since
            the agent changed what it read then; empty while it can.
    """

    def __init__(self, plan: Callable[[], Plan], canonicalize: Canonicalizer = _identity) -> None:
        self._plan = plan
        self._canonicalize = canonicalize
        self._reset()

    def _reset(self) -> None:
        """Go back to the start of the plan, without any fact."""
        self.facts: dict[str, Any] = {}
        self.off_plan_calls: list[ToolCall] = []
        self.lost = ""
        self._script: Plan | None = None
        self._batch: Step | Sequence[Step] = ()
        self._pending: dict[str, Step] = {}
        self._exhausted = False
        self._completed: list[Step] = []
        self._lines: dict[str, str] = {}
        self._prefetched: dict[str, str] = {}
        self._pieces: dict[str, tuple[Piece, ...]] = {}  # split once, since each turn asks for them

    def pending(self) -> list[Step]:
        """Return the steps that may be taken now, in the order of the plan; only `CLAIM` at its
        end, and nothing after that.
        """
        self._advance()
        return list(self._pending.values())

    def completed(self) -> list[Step]:
        """Return the steps that were taken, in the order of the plan."""
        self._advance()
        return [*self._completed, *(step for step in self._steps() if step.label in self.facts)]

    def counts(self, step: Step, call: ToolCall) -> bool:
        """Return whether a call does what a step asks for."""
        return step.counts(call, self._canonicalize)

    def record(self, call: ToolCall, result: str, lasting: bool) -> None:
        """Record a call that was carried out.

        Args:
            call: The call.
            result: Its result.
            lasting: Whether its effect cannot be undone, so that it matters even if no step asks
                for it.
        """
        self._advance()
        step = next((step for step in self._pending.values() if self.counts(step, call)), None)
        if step is not None:
            self._learn_from(step, result)
            self._advance()
        elif lasting:
            self.off_plan_calls.append(call)
        elif len(self._prefetched) < MAX_PREFETCHED:
            self._prefetched[self._key(call)] = result  # a later step may ask for just this

    def _key(self, call: ToolCall) -> str:
        canonical = self._canonicalize(call)
        return _dump([canonical.name, sorted(canonical.arguments.items())])

    def lines(self) -> list[str]:
        """Return the facts in words, a line each; `restore` reads them."""
        self._advance()
        off_plan = [
            f"also done: {call.name} {_dump(call.arguments)}" for call in self.off_plan_calls
        ]
        return [*self._lines.values(), *off_plan]

    def belief(self) -> Belief:
        """Return the facts, the changes and the calls outside the plan, for a brief text of them."""
        self._advance()
        changes = [label for label, line in self._lines.items() if line.startswith(_DONE)]
        for label in self._lines.keys() - self._pieces.keys() - set(changes):
            self._pieces[label] = split_fact(self.facts[label])
        facts = {label: self._pieces[label] for label in self._lines if label in self._pieces}
        return Belief(facts, changes, self.off_plan_calls)

    def restore(self, lines: Sequence[str]) -> None:
        """Replace all facts by those in lines of `lines()`.

        Raises:
            ValueError: A line is none of those.
        """
        self._reset()
        for line in lines:
            kind, _, rest = line.partition(": ")
            if kind == "also done":
                name, _, arguments = rest.partition(" ")
                self.off_plan_calls.append(ToolCall(name, json.loads(arguments)))
            elif kind == "done":
                self._learn(rest, None, change=True)
            else:
                label, mark, fact = line.rpartition(" => ")
                if not mark:
                    raise ValueError(f"{line!r} is no line of a state")
                self._learn(label, json.loads(fact), change=False)

    def _steps(self) -> Sequence[Step]:
        return (self._batch,) if isinstance(self._batch, Step) else self._batch

    def _learn_from(self, step: Step, result: str) -> None:
        """Learn the fact in a result; nothing if the result was truncated or cleared."""
        try:
            fact = None if step.learn is None else json.loads(_dump(step.learn(result)))
        except _SENSELESS:
            return
        self._learn(step.label, fact, change=step.learn is None)

    def _learn(self, label: str, fact: Any, change: bool) -> None:
        self.facts[label] = fact
        self._lines[label] = (
            f"{_DONE}{label}" if change else f"{label} => {_dump(fact).replace('=>', _ARROW)}"
        )
        self._pending.pop(label, None)

    def _advance(self) -> None:
        """Advance the script past all steps whose facts are there."""
        if self._script is None:
            self._script = self._with_claim()
            self._completed, self._pending, self._exhausted = [], {}, False
            self._enter(next(self._script))
        while not (self._pending or self._exhausted):
            self._completed += self._steps()
            try:
                facts = [self.facts[step.label] for step in self._steps()]
                self._enter(self._script.send(facts[0] if isinstance(self._batch, Step) else facts))
            except StopIteration:
                self._batch, self._exhausted = (), True
            except _SENSELESS as error:
                self._batch, self._exhausted, self.lost = (
                    (),
                    True,
                    f"{type(error).__name__}: {error}",
                )

    def _enter(self, batch: Step | Sequence[Step]) -> None:
        """Start on a batch of steps, with what earlier calls already read or did of it."""
        self._batch = batch
        self._pending = {step.label: step for step in self._steps() if step.label not in self.facts}
        for step in list(self._pending.values()) if self._prefetched else ():
            if not step.changes:
                result = self._prefetched.pop(self._key(step.call), None)
                if result is not None:
                    self._learn_from(step, result)
        for call in list(self.off_plan_calls):
            match = next((step for step in self._pending.values() if self.counts(step, call)), None)
            if match and match.learn is None:
                self.off_plan_calls.remove(call)
                self._learn(match.label, None, change=True)

    def _with_claim(self) -> Plan:
        yield from self._plan()
        yield CLAIM

    def __getstate__(self) -> dict[str, Any]:
        # A running script cannot be pickled; it is started again and given the facts again.
        return {
            **vars(self),
            "_pieces": {},
            "_script": None,
            "_batch": (),
            "_pending": {},
            "_completed": [],
        }


# The last is what becomes of a StopIteration in a script.
_SENSELESS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)
"""Exceptions of code that makes sense of a result, or of facts, where there is none in it."""
_DONE = "done: "
"""The beginning of the line of a change."""
_ARROW = "\\u003d>"
"""The arrow in the JSON of a fact, escaped, since a bare one separates the label from the fact."""


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def steps_of(plan: Callable[[], Plan], play: Callable[[Step], str]) -> Iterator[tuple[Step, str]]:
    """Yield all steps of a plan in order with their results, without `CLAIM`; `play` makes the
    call of a step.
    """
    progress = Progress(plan)
    while steps := progress.pending():
        for step in steps:
            if step is CLAIM:
                return
            result = play(step)
            progress.record(step.call, result, lasting=False)
            if step.label not in progress.facts:
                raise ValueError(
                    f"the step {step.label!r} cannot make sense of its result: {result[:500]}"
                )
            yield step, result
    if progress.lost:
        raise ValueError(f"the plan stops: {progress.lost}")
