"""The reference plan of an office task, and how far an agent has come with it.

A plan is written as a script that yields the calls it wants made and is sent what they tell. It
knows the office only through these results, so it shows that the task can be solved through the
tools; the same script says what is to be done next, which facts were gathered and which outputs are
missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentgym.messages import ToolCall

Plain: TypeAlias = Callable[[ToolCall], ToolCall]
"""Brings calls that do the same into the same form."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a plan.

    Attributes:
        label: What it does, as an order: `Read the announcements of course 12.` No two steps of a
            plan have the same.
        call: The call.
        learn: What is to be kept of its result, as JSON-able data; a change may have nothing to
            tell.
        output: The output that a change helps to make; empty for a step that reads.
        same: The arguments that another call has to share to count as this step; all of them if
            empty.
        about: A text that has to be somewhere in its arguments besides.
    """

    label: str
    call: ToolCall
    learn: Callable[[str], Any] | None = None
    output: str = ""
    same: tuple[str, ...] = ()
    about: str = ""

    @property
    def changes(self) -> bool:
        """Whether it changes the office, rather than reads it."""
        return bool(self.output)

    def counts(self, call: ToolCall, plain: Plain) -> bool:
        """Whether a call does what this step asks for; `plain` brings calls that do the same into
        the same form.
        """
        mine, other = plain(self.call), plain(call)
        names = self.same or (*mine.arguments, *other.arguments)
        alike = all(other.arguments.get(name) == mine.arguments.get(name) for name in names)
        return other.name == mine.name and alike and self.about in _dump(other.arguments)


Plan: TypeAlias = Generator[Step | Sequence[Step], Any, None]
"""It is sent the fact of a step that it yields alone, a list of facts for a sequence, whose steps
may be taken in any order; the fact of a change with nothing to tell is None."""

MAX_EARLY = 1_000
"""Results of calls, beyond the plan so far, that are kept for steps that may ask for them."""

CLAIM = Step("Say that the task is done.", ToolCall("claim_done", {}), output="claim")


def read(label: str, learn: Callable[[str], Any], tool: str, /, **arguments: Any) -> Step:
    """A step that reads: what `learn` takes from the result becomes its fact."""
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
    """A step that changes the office.

    Args:
        label: See `Step`.
        output: The output that it helps to make.
        tool: The tool.
        same: The arguments in which another call may not differ from it; all by default.
        about: See `Step`.
        learn: What is to be kept of its result, such as the id of something new.
        **arguments: The arguments of the tool.
    """
    return Step(label, ToolCall(tool, arguments), learn, output, tuple(same), about)


def _as_it_is(call: ToolCall) -> ToolCall:
    return call


class Progress:
    """How far an agent has come with a plan, as far as the results that it was shown tell. It
    pickles.

    Args:
        plan: Starts the script.
        plain: See `Step.counts`; calls are compared as they are by default.

    Attributes:
        facts: What was learnt, by the label of the step; None for a change that had nothing to
            tell.
        strays: Lasting calls that no step has asked for so far.
    """

    def __init__(self, plan: Callable[[], Plan], plain: Plain = _as_it_is) -> None:
        self._plan = plan
        self._plain = plain
        self.facts: dict[str, Any] = {}
        self.strays: list[ToolCall] = []
        self._script: Plan | None = None
        self._batch: Step | Sequence[Step] = ()
        self._open: dict[str, Step] = {}
        self._over = False
        self._passed: list[Step] = []
        self._lines: dict[str, str] = {}
        self._early: dict[str, str] = {}

    def pending(self) -> list[Step]:
        """The steps that may be taken now, in the order of the plan; only `CLAIM` at its end, and
        nothing after that.
        """
        self._go_on()
        return list(self._open.values())

    def passed(self) -> list[Step]:
        """The steps that were taken, in the order of the plan."""
        self._go_on()
        return [*self._passed, *(step for step in self._steps() if step.label in self.facts)]

    def counts(self, step: Step, call: ToolCall) -> bool:
        """Whether a call does what a step asks for."""
        return step.counts(call, self._plain)

    def take(self, call: ToolCall, result: str, lasting: bool) -> None:
        """Take in a call that was carried out.

        Args:
            call: The call.
            result: What it told.
            lasting: Whether its effect cannot be undone, so that it matters even if no step asks
                for it.
        """
        self._go_on()
        for step in self._open.values():
            if self.counts(step, call):
                self._take(step, result)
                return
        if lasting:
            self.strays.append(call)
        elif len(self._early) < MAX_EARLY:
            self._early[self._key(call)] = result  # a later step may ask for just this

    def _key(self, call: ToolCall) -> str:
        same = self._plain(call)
        return _dump([same.name, sorted(same.arguments.items())])

    def lines(self) -> list[str]:
        """The facts in words, a line each; `load` takes them back."""
        self._go_on()
        strays = [f"also done: {call.name} {_dump(call.arguments)}" for call in self.strays]
        return [*self._lines.values(), *strays]

    def load(self, lines: Sequence[str]) -> None:
        """Know what lines of `lines()` tell, and nothing else.

        Raises:
            ValueError: A line is none of those.
        """
        self.__init__(self._plan, self._plain)  # type: ignore[misc]
        for line in lines:
            kind, _, rest = line.partition(": ")
            if kind == "also done":
                name, _, arguments = rest.partition(" ")
                self.strays.append(ToolCall(name, json.loads(arguments)))
            elif kind == "done":
                self._learn(rest, None, change=True)
            else:
                label, mark, fact = line.rpartition(" => ")
                if not mark:
                    raise ValueError(f"{line!r} is no line of a state")
                self._learn(label, json.loads(fact), change=False)

    def _steps(self) -> Sequence[Step]:
        return (self._batch,) if isinstance(self._batch, Step) else self._batch

    def _take(self, step: Step, result: str) -> None:
        if (fact := _learnt(step, result)) is not _NOTHING:
            self._learn(step.label, fact, change=step.learn is None)
            del self._open[step.label]
            self._go_on()

    def _learn(self, label: str, fact: Any, change: bool) -> None:
        self.facts[label] = fact
        self._lines[label] = (
            f"done: {label}" if change else f"{label} => {_dump(fact).replace('=>', _ARROW)}"
        )

    def _go_on(self) -> None:
        """Advance the script past all that is known."""
        if self._script is None:
            self._script = self._with_claim()
            self._passed, self._open, self._over = [], {}, False
            self._enter(next(self._script))
        while not (self._open or self._over):
            self._passed += self._steps()
            try:
                facts = [self.facts[step.label] for step in self._steps()]
                self._enter(self._script.send(facts[0] if isinstance(self._batch, Step) else facts))
            except StopIteration:
                self._batch, self._over = (), True

    def _enter(self, batch: Step | Sequence[Step]) -> None:
        self._batch = batch
        self._open = {step.label: step for step in self._steps() if step.label not in self.facts}
        if self._early:
            self._take_early()
        for stray in list(self.strays):
            found = next((step for step in self._open.values() if self.counts(step, stray)), None)
            if found and found.learn is None:
                self.strays.remove(stray)
                self._learn(found.label, None, change=True)
                del self._open[found.label]

    def _take_early(self) -> None:
        """Know what was read before the plan came to it."""
        for step in [step for step in self._open.values() if not step.changes]:
            told = self._early.pop(self._key(step.call), None)
            if told is not None and (fact := _learnt(step, told)) is not _NOTHING:
                self._learn(step.label, fact, change=False)
                del self._open[step.label]

    def _with_claim(self) -> Plan:
        yield from self._plan()
        yield CLAIM

    def __getstate__(self) -> dict[str, Any]:
        # A script under way cannot be pickled; it is started anew and given the facts again.
        return {**vars(self), "_script": None, "_batch": (), "_open": {}, "_passed": []}


_NOTHING = object()
_ARROW = "\\u003d>"  # how JSON may write the arrow that stands between label and fact


def _learnt(step: Step, result: str) -> Any:
    """The fact that a result tells; `_NOTHING` if it was cut or cleared."""
    try:
        return None if step.learn is None else json.loads(_dump(step.learn(result)))
    except (ValueError, LookupError, TypeError, AttributeError):
        return _NOTHING


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def steps_of(plan: Callable[[], Plan], play: Callable[[Step], str]) -> Iterator[tuple[Step, str]]:
    """All steps of a plan in order, with what each told; `play` makes the call of a step, and
    `CLAIM` is not among them.
    """
    progress = Progress(plan)
    while steps := progress.pending():
        for step in steps:
            if step is CLAIM:
                return
            result = play(step)
            progress.take(step.call, result, lasting=False)
            if step.label not in progress.facts:
                raise ValueError(
                    f"the step {step.label!r} cannot make sense of its result: {result[:500]}"
                )
            yield step, result
