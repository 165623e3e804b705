"""The progress of an agent with the plan of an office task, as far as its chat shows it.

What the agent has done in its own way counts like the steps of the plan that have the same effects,
so that the next steps are those whose effects the office still lacks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agentgym.envs.loca.belief import OfficeBelief
from agentgym.envs.loca.calls import MAKERS, Effects, effects_of
from agentgym.envs.loca.plan import CLAIM, SENSELESS, Canonicalizer, Plan, PlanStep
from agentgym.text.messages import ToolCall

MAX_PREFETCHED = 1_000
"""Results of calls ahead of the plan that are kept for later steps; more would let an agent that
reads at random fill the memory.
"""

_DONE = "done: "
"""The beginning of the line of a change."""
_OTHER = "also changed"
"""The beginning of the line of a call outside the plan whose effects steps may need."""
_ARROW = "\\u003d>"
"""The arrow in the JSON of a fact, escaped, since a bare one separates the label from the fact."""


class OtherChanges:
    """Changes by calls that no step of the plan has asked for, as their arguments show them.

    Attributes:
        calls: The calls, each with its result if that has the id of a new record.
        effects: Their effects, the newest values.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[ToolCall, str]] = []
        self.effects: dict[str, str] = {}

    def add(self, call: ToolCall, result: str) -> str:
        """Add a call that was carried out; return the result as it is kept."""
        kept = result if call.name in MAKERS else ""
        self.calls.append((call, kept))
        self.effects |= effects_of(call)
        return kept

    def have(self, effects: Effects) -> bool:
        """Return whether there are some effects, and they have all been had."""
        return bool(effects) and effects.items() <= self.effects.items()

    def result_of(self, effects: Effects) -> str:
        """Return the result of the one call that had some effects; empty if several had them."""
        return next(
            (text for call, text in self.calls if effects.items() <= effects_of(call).items()), ""
        )


def _identity(call: ToolCall) -> ToolCall:
    return call


class Progress:
    """Progress of an agent with a plan, as far as the results in its chat show it. It pickles.

    Args:
        plan: Starts the script.
        canonicalize: See `PlanStep.counts`; calls are compared as they are by default.

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
        self._batch: PlanStep | Sequence[PlanStep] = ()
        self._pending: dict[str, PlanStep] = {}
        self._exhausted = False
        self._completed: list[PlanStep] = []
        self._lines: dict[str, str] = {}
        self._prefetched: dict[str, str] = {}
        self._other = OtherChanges()
        self._done_effects: dict[str, tuple[str, str]] = {}  # values, with the labels of the steps
        self._unexplained_calls: list[tuple[ToolCall, str]] | None = None  # None: not up to date
        self._other_lines: list[str] | None = None  # as above
        self._unread: list[PlanStep] = []  # steps that were taken, whose effects are not there yet
        self._open: Counter[str] = Counter()  # the outputs of the pending steps; empty for reads
        self._outputs: set[str] = set()  # those of the steps that were taken
        self._chars = 0  # of the lines of the facts
        self._belief = OfficeBelief()
        self._unindexed: dict[str, None] = {}  # labels whose facts the belief does not have yet

    def pending(self) -> list[PlanStep]:
        """Return the steps that may be taken now, in the order of the plan; only `CLAIM` at its
        end, and nothing after that.
        """
        self._advance()
        return list(self._pending.values())

    def completed(self) -> list[PlanStep]:
        """Return the steps that were taken, in the order of the plan."""
        self._advance()
        return [*self._completed, *(step for step in self._steps() if step.label in self.facts)]

    def counts(self, step: PlanStep, call: ToolCall) -> bool:
        """Return whether a call does what a step asks for, and maybe more."""
        needed = step.effects
        return step.counts(call, self._canonicalize) or bool(
            needed and needed.items() <= effects_of(call).items()
        )

    def record(self, call: ToolCall, result: str, lasting: bool) -> None:
        """Record a call that was carried out.

        Args:
            call: The call.
            result: Its result.
            lasting: Whether its effect cannot be undone, so that it matters even if no step asks
                for it.
        """
        self._advance()
        step = self._match(call)
        if step is not None:
            self._learn_from(step, result)
            self._advance()
        elif lasting:
            self.off_plan_calls.append(call)
            self._outdate_others()
        elif effects := effects_of(call):
            result = self._other.add(call, result)
            self._outdate_others()
            self._reopen(effects)
            self._advance()
            self._credit(call, result)
            self._credit_effects(effects)
            self._advance()
        elif len(self._prefetched) < MAX_PREFETCHED:
            self._prefetched[self._key(call)] = result  # a later step may ask for just this

    def _match(self, call: ToolCall) -> PlanStep | None:
        """Return the pending step that a call takes by itself."""
        return next(
            (step for step in self._pending.values() if step.counts(call, self._canonicalize)), None
        )

    def _key(self, call: ToolCall) -> str:
        canonical = self._canonicalize(call)
        return _dump([canonical.name, sorted(canonical.arguments.items())])

    def lines(self) -> list[str]:
        """Return the facts in words, a line each; `restore` reads them."""
        self._advance()
        return [*self._lines.values(), *self._lines_of_others()]

    def _lines_of_others(self) -> list[str]:
        """Return the lines on the calls outside the plan."""
        if self._other_lines is None:
            self._other_lines = [
                f"also done: {call.name} {_dump(call.arguments)}" for call in self.off_plan_calls
            ]
            self._other_lines += [
                f"{_OTHER}: {_dump([call.name, call.arguments, result])}"
                for call, result in self._unexplained()
            ]
        return self._other_lines

    def _outdate_others(self) -> None:
        """Note that calls outside the plan, or what they leave unexplained, have changed."""
        self._unexplained_calls = self._other_lines = None

    def chars(self) -> int:
        """Return the number of characters in `lines()`, without building them."""
        self._advance()
        return self._chars + sum(map(len, self._lines_of_others()))

    def line_count(self) -> int:
        """Return the number of `lines()`."""
        self._advance()
        return len(self._lines) + len(self._lines_of_others())

    def finished(self) -> set[str]:
        """Return the outputs for which steps were taken and none is pending; none while the plan
        still reads, which may yet change any output.
        """
        self._advance()
        if self._open[""]:
            return set()
        return {output for output in self._outputs if not self._open[output]}

    def brief(self, needed: frozenset[str], room: int) -> list[str]:
        """Return what matters of the facts, the changes and the calls outside the plan; see
        `OfficeBelief.brief`.
        """
        self._advance()
        for label in self._unindexed:
            if self._lines[label].startswith(_DONE):
                self._belief.change(label)
            else:
                self._belief.learn(label, self.facts[label])
        self._unindexed = {}
        off_plan = self.off_plan_calls + [call for call, _ in self._unexplained()]
        return self._belief.brief(needed, room, off_plan)

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
            elif kind == _OTHER:
                name, arguments, result = json.loads(rest)
                self._other.add(ToolCall(name, arguments), result)
            elif kind == "done":
                self._learn(rest, None, change=True)
            else:
                label, mark, fact = line.rpartition(" => ")
                if not mark:
                    raise ValueError(f"{line!r} is no line of a state")
                self._learn(label, json.loads(fact), change=False)

    def _steps(self) -> Sequence[PlanStep]:
        return (self._batch,) if isinstance(self._batch, PlanStep) else self._batch

    def _learn_from(self, step: PlanStep, result: str) -> None:
        """Learn the fact in a result; nothing if the result was truncated or cleared."""
        try:
            fact = None if step.learn is None else json.loads(_dump(step.learn(result)))
            if step.mark_own is not None:
                fact = step.mark_own(fact, self._other.effects)
        except SENSELESS:
            return
        self._learn(step.label, fact, change=step.learn is None)

    def _learn(self, label: str, fact: Any, change: bool) -> None:
        self._forget(label)
        self.facts[label] = fact
        line = f"{_DONE}{label}" if change else f"{label} => {_dump(fact).replace('=>', _ARROW)}"
        self._lines[label] = line
        self._chars += len(line)
        self._unindexed[label] = None
        if step := self._pending.pop(label, None):
            self._open[step.output] -= 1
            self._note_done(step)

    def _forget(self, label: str) -> None:
        """Forget the fact of a step, if there is one."""
        if label in self.facts:
            self._chars -= len(self._lines.pop(label))
            del self.facts[label]
            self._unindexed.pop(label, None)
            self._belief.forget(label)

    def _note_done(self, step: PlanStep) -> None:
        self._outdate_others()
        self._unread.append(step)
        self._outputs.add(step.output)

    def _read_effects(self) -> None:
        """Read the effects of the steps that were taken since; only calls outside the plan need
        them, and statements take long to parse.
        """
        for step in self._unread:
            self._done_effects |= {
                thing: (value, step.label) for thing, value in step.effects.items()
            }
        self._unread = []

    def _reopen(self, effects: Effects) -> None:
        """Ask again for the changes that a call outside the plan has undone."""
        self._read_effects()
        undone = {
            done[1]
            for thing, value in effects.items()
            if (done := self._done_effects.get(thing)) and done[0] != value
        }
        for label in undone:
            if self.facts[label] is None:  # no later step was made from what it reported
                self._forget(label)
                self._script = None

    def _credit(self, call: ToolCall, result: str) -> None:
        """Count a call outside the plan as the pending step that it takes by itself, if any."""
        step = self._match(call)
        if step is not None and self._other.have(effects_of(call)):
            self._learn_from(step, result)
            if step.label in self.facts:
                self._other.calls.remove((call, result))
                self._outdate_others()

    def _credit_effects(self, effects: Effects) -> None:
        """Count the pending steps that concern some things, and whose effects are all there."""
        for step in list(self._pending.values()):
            needed = step.effects
            if not needed.keys().isdisjoint(effects) and self._other.have(needed):
                self._learn_from(step, self._other.result_of(needed))

    def _unexplained(self) -> list[tuple[ToolCall, str]]:
        """Return the calls outside the plan with effects that no step that was taken has."""
        if self._unexplained_calls is None:
            if self._other.calls:
                self._read_effects()
            self._unexplained_calls = [
                (call, result)
                for call, result in self._other.calls
                if any(
                    self._done_effects.get(thing, (None,))[0] != value
                    for thing, value in effects_of(call).items()
                )
            ]
        return self._unexplained_calls

    def _advance(self) -> None:
        """Advance the script past all steps whose facts are there."""
        if self._script is None:
            self._script = self._with_claim()
            self._completed, self._pending, self._exhausted = [], {}, False
            self._done_effects, self._unread, self._outputs = {}, [], set()
            self._outdate_others()
            self._enter(next(self._script))
        while not (self._pending or self._exhausted):
            self._completed += self._steps()
            try:
                facts = [self.facts[step.label] for step in self._steps()]
                self._enter(
                    self._script.send(facts[0] if isinstance(self._batch, PlanStep) else facts)
                )
            except StopIteration:
                self._batch, self._exhausted = (), True
            except SENSELESS as error:
                self._batch, self._exhausted, self.lost = (
                    (),
                    True,
                    f"{type(error).__name__}: {error}",
                )

    def _enter(self, batch: PlanStep | Sequence[PlanStep]) -> None:
        """Start on a batch of steps, with what earlier calls already read or did of it."""
        self._batch = batch
        self._pending, self._open = {}, Counter()
        for step in self._steps():
            if step.label in self.facts:
                self._note_done(step)
            else:
                self._pending[step.label] = step
                self._open[step.output] += 1
        for step in list(self._pending.values()) if self._prefetched else ():
            if not step.changes:
                result = self._prefetched.pop(self._key(step.call), None)
                if result is not None:
                    self._learn_from(step, result)
        for call in list(self.off_plan_calls):
            match = self._match(call)
            if match and match.learn is None:
                self.off_plan_calls.remove(call)
                self._outdate_others()
                self._learn(match.label, None, change=True)
        for call, result in list(self._other.calls):
            self._credit(call, result)
        if self._other.effects:
            self._credit_effects(self._other.effects)

    def _with_claim(self) -> Plan:
        yield from self._plan()
        yield CLAIM

    def __getstate__(self) -> dict[str, Any]:
        # A running script cannot be pickled; it is started again and given the facts again.
        return {
            **vars(self),
            "_belief": OfficeBelief(),
            "_unindexed": dict.fromkeys(self._lines),
            "_script": None,
            "_batch": (),
            "_pending": {},
            "_completed": [],
            "_done_effects": {},
            "_unread": [],
            "_unexplained_calls": None,
            "_other_lines": None,
            "_open": Counter(),
            "_outputs": set(),
        }


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def steps_of(
    plan: Callable[[], Plan], play: Callable[[PlanStep], str]
) -> Iterator[tuple[PlanStep, str]]:
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
