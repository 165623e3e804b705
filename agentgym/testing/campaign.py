"""Fuzzing of several ids: play episodes, count findings, and minimise them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from agentgym.assemble.registry import resolve, spec
from agentgym.testing.cases import Case, Finding, Report, all_ids
from agentgym.testing.episode import play
from agentgym.text.validation import check_float, check_int
from agentgym.training.evaluation import Table

Play = Callable[[Case], Report]
WholeT = TypeVar("WholeT", list[str], str)

# runs to minimise a finding; few if each takes seconds
TRIALS, _SLOW_TRIALS = 120, 8
_SLOW_KINDS = ("slow", "memory")
# runs for shortening texts; a long episode would use them all
_MAX_TEXT_TRIALS = 60
# replies per episode
_TEXTS = 40
# Consecutive episodes of an id share a drawn instance.
_BLOCK = 8
# An id is skipped after this many episodes without a text, since its env cannot start.
_BARREN = 6
# Marks of these kinds name a place in the code, so one cause counts once for all worlds.
_NAMELESS = frozenset({"raise", "oracle"})


@dataclass
class Tally:
    """Counts of one id.

    Attributes:
        barren: Consecutive episodes without a reply, because the env cannot start.
        causes: The number of findings of each cause.
    """

    texts: int = 0
    calls: int = 0
    episodes: int = 0
    barren: int = 0
    causes: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Count an episode."""
        self.texts += report.texts
        self.calls += report.calls
        self.episodes += 1
        self.barren = 0 if report.texts else self.barren + 1


class Campaign:
    """A fuzzing run over some ids, or all registered ones.

    It ends after `texts` replies per id or `minutes`.
    """

    def __init__(
        self,
        ids: Sequence[str] = (),
        *,
        texts: int | None = 200,
        seed: int = 0,
        minutes: float | None = None,
    ) -> None:
        if texts is None and minutes is None:
            raise ValueError("give texts, or minutes, or both: neither would never end")
        if texts is not None:
            check_int("texts", texts, 1, 10**9)
        if minutes is not None:
            check_float("minutes", minutes, 0, 10**6)
        check_int("seed", seed, 0, 10**9)
        self._texts, self._seed, self._minutes = texts, seed, minutes
        self.tallies: dict[str, Tally] = {env_id: Tally() for env_id in ids or all_ids()}
        for env_id in self.tallies:
            spec(env_id)
        self.findings: list[Finding] = []
        self._known: set[tuple[str, ...]] = set()

    def run(self, on_progress: Callable[[int], None] = lambda texts: None) -> None:
        """Play until all ids have their texts or time is up."""
        end = None if self._minutes is None else time.monotonic() + 60 * self._minutes
        queue = deque(self.tallies)
        while queue:
            env_id = queue.popleft()
            for _ in range(_BLOCK):
                if end is not None and time.monotonic() > end:
                    return
                if not self._is_over(env_id):
                    self._play_episode(env_id)
                    on_progress(sum(each.texts for each in self.tallies.values()))
            if not self._is_over(env_id):
                queue.append(env_id)

    def table(self) -> Table:
        """Return a row per id: texts, calls and faults."""
        rows = [
            [env_id, str(tally.texts), str(tally.calls), str(len(tally.causes))]
            for env_id, tally in self.tallies.items()
        ]
        return "Fuzzing", ["id", "texts", "calls", "faults"], rows

    def _is_over(self, env_id: str) -> bool:
        tally = self.tallies[env_id]
        is_full = self._texts is not None and tally.texts >= self._texts
        return is_full or tally.barren >= _BARREN

    def _play_episode(self, env_id: str) -> None:
        tally = self.tallies[env_id]
        rest = _TEXTS if self._texts is None else self._texts - tally.texts
        report = play(Case(env_id, self._seed, tally.episodes, min(_TEXTS, rest)))
        tally.add(report)
        for finding in report.findings:
            world = () if finding.kind in _NAMELESS else (resolve(env_id).partition("-")[0],)
            cause = (finding.kind, finding.mark, *world)
            tally.causes[cause] += 1
            if cause not in self._known:
                self._known.add(cause)
                self.findings.append(minimize(finding))


def replay(finding: Finding, play: Play = play) -> Finding | None:
    """Return the finding that replaying a case produces; None without the same law and cause."""
    cause = finding.kind, finding.mark
    again = play(finding.case).findings
    return next((each for each in again if (each.kind, each.mark) == cause), None)


def minimize(finding: Finding, play: Play = play, trials: int = TRIALS) -> Finding:
    """Return a finding with fewer and shorter replies, unchanged if it cannot be reproduced."""
    return _Minimizer(finding, play, trials).run()


class _Minimizer:
    def __init__(self, finding: Finding, play: Play, trials: int) -> None:
        self._play, self._best = play, finding
        self._trials = min(trials, _SLOW_TRIALS) if finding.kind in _SLOW_KINDS else trials

    def run(self) -> Finding:
        if not self._fails(list(self._best.case.actions or ())):
            return replace(self._best, reproduced=False)
        actions = list(self._best.case.actions or ())
        # The last reply is nearly always the cause.
        if len(actions) > 1 and self._fails(actions[-1:]):
            actions = actions[-1:]
        actions = self._without_parts(actions, len(actions) // 2, self._fails)
        if self._best.kind not in _SLOW_KINDS:
            self._trials = min(self._trials, _MAX_TEXT_TRIALS)
            for k in reversed(range(len(actions))):
                before, text, after = actions[:k], actions[k], actions[k + 1 :]
                fails = partial(self._fails_with, before, after)
                text = self._without_parts(text, max(1, len(text) // 2), fails)
                actions = [*before, text, *after]
        return replace(self._best, minimal=True, reproduced=True)

    def _fails(self, actions: list[str]) -> bool:
        if self._trials <= 0:
            return False
        self._trials -= 1
        case = replace(self._best.case, actions=actions)
        again = replay(replace(self._best, case=case), self._play)
        if again is None:
            return False
        # An episode may end before the last reply.
        self._best = again
        return True

    def _fails_with(self, before: list[str], after: list[str], text: str) -> bool:
        return self._fails([*before, text, *after])

    def _without_parts(self, whole: WholeT, size: int, fails: Callable[[WholeT], bool]) -> WholeT:
        """Remove parts of replies or of a text, halving the part size down to 1."""
        while size and self._trials:
            start = 0
            while start < len(whole) and self._trials:
                shorter = whole[:start] + whole[start + size :]
                if fails(shorter):
                    whole = shorter
                else:
                    start += size
            size //= 2
        return whole
