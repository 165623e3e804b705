"""Track an agent's progress along the plan of an office task, using only the chat.

An off-plan call counts as a plan step if both have the same effects. The next steps are the plan
steps whose effects the office still lacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from agentgym.envs.loca.belief import OfficeBelief
from agentgym.envs.loca.calls import SESSION, Effects, effects_of, things_changed
from agentgym.envs.loca.plan import CLAIM, SENSELESS, Batch, Canonicalizer, Plan, PlanStep
from agentgym.text.messages import ToolCall

# Maximum number of stored results, to bound the memory that random reads can use.
MAX_PREFETCHED = 1_000
# Maximum number of cached canonical calls; most plans have fewer pending steps.
_MAX_CANONICAL = 4_096

# Prefix of a line about a planned change.
_DONE = "done: "
# Prefix of a line about an off-plan call that may replace later steps.
_OTHER = "also changed"
# Line prefixes for files and sheets that off-plan calls have changed or damaged.
_UNSEEN, _RUINED = "to look at", "to make anew"
# Prefix of the line about the records that the agent has added.
_OWN = "own records"
# JSON escape for `=>`, because this arrow separates the label and the fact in a line.
_ARROW = "\\u003d>"


def _identity(call: ToolCall) -> ToolCall:
    return call


class Progress:
    """Progress along a plan, inferred from the tool results in the chat.

    `lost` is the error that stops the plan, for example after the agent has changed unread data.
    """

    def __init__(
        self,
        plan: Callable[[], Plan],
        canonicalize: Canonicalizer = _identity,
        files: Collection[str] = (),
        remade: Collection[str] = (),
    ) -> None:
        self._plan = plan
        self._make_canonical = canonicalize
        self._files = files
        self._remade = remade
        self._reset()

    def _reset(self) -> None:
        self.facts: dict[str, Any] = {}
        self.off_plan_calls: list[ToolCall] = []
        self.lost = ""
        self._script: Plan | None = None
        self._batch: Batch = ()
        self._pending: dict[str, PlanStep] = {}
        self._exhausted = False
        self._completed: list[PlanStep] = []
        self._lines: dict[str, str] = {}
        self._prefetched: dict[str, str] = {}
        self._others: list[ToolCall] = []  # off-plan calls listed in the state
        self._effects: dict[str, str] = {}  # latest value that off-plan calls gave each item
        self._unseen: dict[str, str] = {}  # line prefix for each changed file or kind of record
        self._own_records: Sequence[Any] = ()
        # Effects of off-plan calls since the last `look` step, by kind of record.
        self._touched: dict[str, list[Effects]] = {}
        self._things: dict[str, str] = {}
        self._done_effects: dict[str, tuple[str, str]] = {}
        self._belief = OfficeBelief()
        self._unindexed: dict[str, None] = {}
        self._canonical: dict[int, tuple[ToolCall, ToolCall]] = {}

    def pending(self) -> list[PlanStep]:
        """Return the steps that may run now, in plan order, or `CLAIM` at the end of the plan."""
        self._advance()
        return list(self._pending.values())

    def completed(self) -> list[PlanStep]:
        """Return the completed steps in plan order."""
        self._advance()
        return [*self._completed, *(step for step in self._steps() if step.label in self.facts)]

    def counts(self, step: PlanStep, call: ToolCall) -> bool:
        """Return whether a call achieves a step, possibly with additional effects."""
        needed = step.effects
        return step.counts(call, self._canonicalize) or bool(
            needed and needed.items() <= effects_of(call).items()
        )

    def record(
        self,
        call: ToolCall,
        result: str,
        lasting: bool,
        changed_files: Mapping[str, bool] | None = None,
        own_records: Sequence[Any] | None = None,
    ) -> None:
        """Record an executed call; `lasting` means that no later call can undo the effects.

        `changed_files` maps each changed file, as `file <path>`, to whether the file is readable.
        `own_records` contains the records that the agent has added, or is None if unchanged.
        """
        self._advance()
        step = self._match(call)
        if step is not None:
            self._learn_from(step, result)
            self._advance()
        elif lasting:
            self.off_plan_calls.append(call)
        elif (effects := effects_of(call)) or self._changed(call):
            self._record_change(call, effects)
        elif len(self._prefetched) < MAX_PREFETCHED:
            self._prefetched[self._key(call)] = result  # a later step may make the same call
        if step is None and own_records is not None:
            self._own_records = own_records
        for thing, is_readable in (changed_files or {}).items():
            if step is None or step.thing != thing:
                self._hide(thing, _UNSEEN if is_readable else _RUINED)
        self._advance()

    def _record_change(self, call: ToolCall, effects: Effects) -> None:
        if effects:
            self._add_other(call)
            self._reopen(effects)
            self._advance()
            self._credit_effects(effects)
        for thing in sorted(self._changed(call)):
            if not effects:
                self._hide(thing)
            elif thing not in self._unseen:
                self._touched.setdefault(thing, []).append(effects)
        self._explain()
        self._advance()

    def _changed(self, call: ToolCall) -> frozenset[str]:
        return things_changed(call, self._files)

    def _explain(self) -> None:
        for thing, touches in list(self._touched.items()):
            wanted: dict[str, str] = {}
            steps = [step for step in (*self._completed, *self._steps()) if step.thing == thing]
            for step in steps:
                wanted |= step.effects
            is_known = any(step.changes for step in steps)
            if is_known and not all(each.items() <= wanted.items() for each in touches):
                self._hide(thing)

    def _hide(self, thing: str, prefix: str = _UNSEEN) -> None:
        self._touched.pop(thing, None)
        if thing not in self._remade:
            self._unseen[thing] = prefix
        for label in list(self.facts):
            if self._things.get(label) == thing:
                self._forget(label)
        self._script = None

    def _match(self, call: ToolCall) -> PlanStep | None:
        for step in self._pending.values():
            if step.counts(call, self._canonicalize):
                return step
        return None

    def _canonicalize(self, call: ToolCall) -> ToolCall:
        # Cached by identity, because every call is compared with all pending steps.
        if id(call) not in self._canonical:
            if len(self._canonical) >= _MAX_CANONICAL:
                self._canonical.clear()
            self._canonical[id(call)] = call, self._make_canonical(call)  # keeps the id in use
        return self._canonical[id(call)][1]

    def _key(self, call: ToolCall) -> str:
        canonical = self._canonicalize(call)
        return _dump([canonical.name, sorted(canonical.arguments.items())])

    def is_spoiled(self) -> bool:
        """Return whether some off-plan call cannot be undone."""
        made = [call for call in self._unexplained() if call.name == "storage_create_bucket"]
        return bool(self.off_plan_calls or made)

    def lines(self) -> list[str]:
        """Return the facts as lines, which `restore` can read."""
        self._advance()
        lines = list(self._lines.values())
        for call in self.off_plan_calls:
            lines.append(f"also done: {call.name} {_dump(call.arguments)}")
        for call in self._unexplained():
            lines.append(f"{_OTHER}: {call.name} {_dump(call.arguments)}")
        lines += [f"{prefix}: {thing}" for thing, prefix in self._unseen.items()]
        if self._own_records:
            lines.append(f"{_OWN}: {_dump(self._own_records)}")
        return lines

    def finished(self) -> set[str]:
        """Return the completed outputs, or an empty set while a reading step is pending."""
        pending = {step.output for step in self.pending()}
        if "" in pending:
            return set()
        return {step.output for step in self.completed()} - pending

    def brief(self, needed: frozenset[str], room: int) -> list[str]:
        """Return the relevant facts; see `OfficeBelief.brief`."""
        self._advance()
        for label in self._unindexed:
            if self._lines[label].startswith(_DONE):
                self._belief.change(label)
            else:
                self._belief.learn(label, self.facts[label])
        self._unindexed = {}
        off_plan = [*self.off_plan_calls, *self._unexplained()]
        return self._belief.brief(needed, room, off_plan)

    def restore(self, lines: Sequence[str]) -> None:
        """Replace all facts; raise ValueError for a line that `lines` did not write."""
        self._reset()
        for line in lines:
            kind, _, rest = line.partition(": ")
            if kind == "also done":
                self.off_plan_calls.append(_read_call(rest))
            elif kind == _OTHER:
                call = _read_call(rest)
                self._add_other(call)
                for thing in self._changed(call):
                    self._touched.setdefault(thing, []).append(effects_of(call))
            elif kind in (_UNSEEN, _RUINED):
                self._unseen[rest] = kind
            elif kind == _OWN:
                self._own_records = json.loads(rest)
            elif kind == "done":
                self._learn(rest, None, change=True)
            else:
                label, mark, fact = line.rpartition(" => ")
                if not mark:
                    raise ValueError(f"expected LABEL => FACT, got {line!r}")
                self._learn(label, json.loads(fact), change=False)

    def _steps(self) -> Sequence[PlanStep]:
        return (self._batch,) if isinstance(self._batch, PlanStep) else self._batch

    def _learn_from(self, step: PlanStep, result: str) -> None:
        try:
            fact = None if step.learn is None else json.loads(_dump(step.learn(result)))
            if step.mark_own is not None:
                fact = step.mark_own(fact, self._effects, self._own_records)
        except SENSELESS:
            return
        if step.is_look:
            self._unseen.pop(step.thing, None)
            self._touched.pop(step.thing, None)
            self._drop_others(step.thing)
        self._learn(step.label, fact, change=step.learn is None)

    def _learn(self, label: str, fact: Any, change: bool) -> None:
        self._forget(label)
        self.facts[label] = fact
        line = f"{_DONE}{label}" if change else f"{label} => {_dump(fact).replace('=>', _ARROW)}"
        self._lines[label] = line
        self._unindexed[label] = None
        if step := self._pending.pop(label, None):
            self._note_done(step)

    def _forget(self, label: str) -> None:
        if label in self.facts:
            del self._lines[label], self.facts[label]
            self._unindexed.pop(label, None)
            self._belief.forget(label)

    def _note_done(self, step: PlanStep) -> None:
        self._things[step.label] = step.thing
        for thing, value in step.effects.items():
            self._done_effects[thing] = (value, step.label)

    def _reopen(self, effects: Effects) -> None:
        undone = set()
        for thing, value in effects.items():
            done_value, label = self._done_effects.get(thing, (value, ""))
            # Steps with a fact stay done, because later steps depend on the fact.
            if done_value != value and (thing == SESSION or self.facts.get(label) is None):
                undone.add(label)
        for label in undone:
            self._forget(label)
            self._script = None

    def _add_other(self, call: ToolCall) -> None:
        self._others.append(call)
        self._effects |= effects_of(call)

    def _drop_others(self, thing: str) -> None:
        calls = [call for call in self._others if thing not in self._changed(call)]
        self._others, self._effects = [], {}
        for call in calls:
            self._add_other(call)

    def _credit_effects(self, effects: Effects) -> None:
        for step in list(self._pending.values()):
            needed = step.effects
            is_new = not needed.keys().isdisjoint(effects)
            if is_new and needed.items() <= self._effects.items():
                self._learn_from(step, "")

    def _unexplained(self) -> list[ToolCall]:
        done = {thing: value for thing, (value, _) in self._done_effects.items()}
        return [call for call in self._others if not effects_of(call).items() <= done.items()]

    def _advance(self) -> None:
        while self._script is None or not (self._pending or self._exhausted):
            try:
                if self._script is None:
                    self._script = self._with_claim()
                    self._completed, self._pending, self._exhausted = [], {}, False
                    self._done_effects = {}
                    self.lost = ""
                    self._enter(next(self._script))
                    continue
                self._completed += [step for step in self._steps() if step.label in self.facts]
                # The fact of an unnecessary reading step is None.
                facts = [self.facts.get(step.label) for step in self._steps()]
                is_single = isinstance(self._batch, PlanStep)
                self._enter(self._script.send(facts[0] if is_single else facts))
            except StopIteration:
                self._batch, self._exhausted = (), True
            except SENSELESS as error:
                self._batch, self._exhausted = (), True
                self.lost = f"{type(error).__name__}: {error}"

    def _enter(self, batch: Batch) -> None:
        self._batch = batch
        self._pending = {}
        for step in self._steps():
            if step.label in self.facts:
                self._note_done(step)
            elif not step.is_look or step.thing in self._unseen:
                self._pending[step.label] = step
        self._credit_earlier_calls()
        self._explain()

    def _credit_earlier_calls(self) -> None:
        for step in list(self._pending.values()):
            if step.is_look and self._unseen.get(step.thing) == _RUINED:
                self._learn_from(step, "")  # treat a damaged file like a missing file
            elif not step.changes and not step.thing and self._prefetched:
                result = self._prefetched.pop(self._key(step.call), None)
                if result is not None:
                    self._learn_from(step, result)
        for call in list(self.off_plan_calls):
            match = self._match(call)
            if match and match.learn is None:
                self.off_plan_calls.remove(call)
                self._learn(match.label, None, change=True)
        if self._effects:
            self._credit_effects(self._effects)

    def _with_claim(self) -> Plan:
        yield from self._plan()
        yield CLAIM

    def __getstate__(self) -> dict[str, Any]:
        # Generators cannot be pickled, so the copy restarts the plan and replays the facts.
        return {
            **vars(self),
            "_belief": OfficeBelief(),
            "_unindexed": dict.fromkeys(self._lines),
            "_canonical": {},
            "_script": None,
            "_batch": (),
            "_pending": {},
            "_completed": [],
        }


def _read_call(text: str) -> ToolCall:
    name, _, arguments = text.partition(" ")
    return ToolCall(name, json.loads(arguments))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def steps_of(
    plan: Callable[[], Plan], play: Callable[[PlanStep], str]
) -> Iterator[tuple[PlanStep, str]]:
    """Yield each plan step except `CLAIM`, with the result."""
    progress = Progress(plan)
    while steps := progress.pending():
        for step in steps:
            if step is CLAIM:
                return
            result = play(step)
            progress.record(step.call, result, lasting=False)
            if step.label not in progress.facts:
                raise ValueError(
                    f"the step {step.label!r} cannot interpret its result: {result[:500]}"
                )
            yield step, result
    if progress.lost:
        raise ValueError(f"the plan failed: {progress.lost}")
