"""Fuzzing over many ids: distribute the episodes over worker processes, minimise the findings, and
count.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentgym.assemble.registry import resolve, spec
from agentgym.testing.cases import Case, Finding, Report, all_ids
from agentgym.testing.checks import parting
from agentgym.testing.processes import PATIENCE, FuzzWorker
from agentgym.text.validation import check_float, check_int
from agentgym.training.evaluation import Table
from agentgym.training.rollout.storage import append_text

Play = Callable[[Case], Report]
WholeT = TypeVar("WholeT", list[str], str)

# Runs that minimising a finding may take.
TRIALS = 120
# The same for findings that kill a process or take long, because each run waits for that.
TRIALS_OF_HANGS = 8
_SLOW_KINDS = ("hang", "death", "slow", "growth", "memory")
# Runs for shortening texts, so that a long episode leaves some for them.
_MAX_TEXT_TRIALS = 60
STEP_SECONDS = 60.0
"""CPU seconds after which a step counts as hung, six times the longest legal query."""

# Consecutive episodes of an id, as many as share an instance that the worker caches.
_BLOCK = 8
# One episode in this many is also played in a process with another hash seed, time zone and locale.
_MIRROR_EVERY = 8
# Episodes without a text after which an id is given up because it cannot be made.
_BARREN = 6
# Maximum records per id of findings that could not be reproduced.
_UNSURE = 3
_ENVIRONMENT = {"PYTHONHASHSEED": "1"}
_MIRROR = {"PYTHONHASHSEED": "4242", "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
# Kinds whose marks name a place in the code, so that one cause is counted once for all worlds.
_NAMELESS = frozenset({"raise", "oracle"})


@dataclass
class Tally:
    """Counts of one id.

    Attributes:
        texts: The number of replies.
        calls: The number of parsed calls.
        episodes: The number of episodes.
        slowest: The slowest step of an episode as a multiple of its median.
        causes: How often each cause was found.
    """

    texts: int = 0
    calls: int = 0
    episodes: int = 0
    slowest: float = 0.0
    barren: int = 0
    causes: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Count an episode."""
        self.texts += report.texts
        self.calls += report.calls
        self.episodes += 1
        self.barren = 0 if report.texts else self.barren + 1
        if report.median:
            self.slowest = max(self.slowest, report.slowest / report.median)


class Campaign:
    """A fuzzing run over some ids.

    Args:
        ids: The ids, full or short; empty for all registered ones.
        texts: Replies per id; None for as many as time allows.
        seed: The seed of the run, which determines the episodes.
        minutes: Minutes after which no episode starts; None for no limit.
        workers: The number of worker processes.
        out: The JSONL file that receives findings as they occur; None for none.
        trials: The maximum number of runs for minimising a finding.
        step_seconds: CPU seconds after which a step counts as hung.
        patience: Seconds without a step after which a worker counts as hung.
        texts_per_episode: The maximum number of replies per episode.

    Attributes:
        tallies: The counts, by id.
        findings: The findings, one per cause.

    Raises:
        ValueError: An id or a number is invalid, or neither `texts` nor `minutes` is set.
    """

    def __init__(
        self,
        ids: Sequence[str] = (),
        *,
        texts: int | None = 200,
        seed: int = 0,
        minutes: float | None = None,
        workers: int = 1,
        out: Path | None = None,
        trials: int = TRIALS,
        step_seconds: float = STEP_SECONDS,
        patience: float = PATIENCE,
        texts_per_episode: int = 40,
    ) -> None:
        if texts is None and minutes is None:
            raise ValueError("give texts, or minutes, or both: neither would never end")
        if texts is not None:
            check_int("texts", texts, 1, 10**9)
        if minutes is not None:
            check_float("minutes", minutes, 0, 10**6)
        check_int("seed", seed, 0, 10**9)
        check_int("workers", workers, 1, 1_024)
        check_int("texts_per_episode", texts_per_episode, 1, 100_000)
        self._ids = list(dict.fromkeys(ids or all_ids()))
        for env_id in self._ids:
            spec(env_id)
        self._texts, self._seed, self._minutes, self._workers = texts, seed, minutes, workers
        self._out, self._trials = out, trials
        self._step_seconds, self._patience = step_seconds, patience
        self._per_episode = texts_per_episode
        self.tallies: dict[str, Tally] = {env_id: Tally() for env_id in self._ids}
        self.findings: list[Finding] = []
        self._known: set[tuple[str, ...]] = set()
        self._queue = deque(self._ids)
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, on_progress: Callable[[int], None] = lambda texts: None) -> None:
        """Play until all ids have their texts or time is up.

        Args:
            on_progress: Called with the number of texts after each episode.
        """
        end = None if self._minutes is None else time.monotonic() + 60 * self._minutes
        with ThreadPoolExecutor(self._workers) as pool:
            players = [pool.submit(self._play, end, on_progress) for _ in range(self._workers)]
            try:
                for player in players:
                    player.result()
            finally:
                self._stop.set()

    def table(self) -> Table:
        """Return a row per id: texts, calls, distinct faults, and the slowest step of an episode as
        a multiple of its median.
        """
        rows = [
            [env_id, str(t.texts), str(t.calls), str(len(t.causes)), f"{t.slowest:.0f}"]
            for env_id, t in self.tallies.items()
        ]
        return "Fuzzing", ["id", "texts", "calls", "faults", "slowest step : median"], rows

    def _play(self, end: float | None, on_progress: Callable[[int], None]) -> None:
        """Play blocks of episodes with a worker, and repeat some of them in another."""
        with (
            closing(FuzzWorker(self._step_seconds, self._patience, _ENVIRONMENT)) as worker,
            closing(FuzzWorker(self._step_seconds, self._patience, _MIRROR)) as mirror,
        ):
            while (env_id := self._next_id()) is not None:
                tally = self.tallies[env_id]
                for _ in range(_BLOCK):
                    if end is not None and time.monotonic() > end:
                        self._stop.set()
                    if self._is_over(tally) or self._stop.is_set():
                        break
                    self._play_episode(env_id, tally, worker, mirror)
                    on_progress(sum(each.texts for each in self.tallies.values()))
                if not self._is_over(tally):
                    with self._lock:
                        self._queue.append(env_id)

    def _next_id(self) -> str | None:
        with self._lock:
            return self._queue.popleft() if self._queue and not self._stop.is_set() else None

    def _is_over(self, tally: Tally) -> bool:
        is_full = self._texts is not None and tally.texts >= self._texts
        return is_full or tally.barren >= _BARREN

    def _play_episode(
        self, env_id: str, tally: Tally, worker: FuzzWorker, mirror: FuzzWorker
    ) -> None:
        rest = self._per_episode if self._texts is None else self._texts - tally.texts
        index = tally.episodes
        case = Case(env_id, self._seed, index, min(self._per_episode, rest))
        mirrored = index % _MIRROR_EVERY == 0
        report = worker.play(case, ledger="shared", full=mirrored)
        tally.add(report)
        findings = report.findings
        if mirrored and not findings:
            findings = _compare(report, mirror, case)
        for finding in findings:
            world = () if finding.kind in _NAMELESS else (resolve(env_id).partition("-")[0],)
            cause = (finding.kind, finding.mark, *world)
            tally.causes[cause] += 1
            with self._lock:
                is_new = cause not in self._known
                self._known.add(cause)
            if is_new and not self._add(finding, worker):
                # It was not reproduced, and must not hide another finding with the same mark.
                self._known -= {cause} if tally.causes[cause] < _UNSURE else set()

    def _add(self, finding: Finding, worker: FuzzWorker) -> bool:
        """Minimise a finding and write it; return False if it was not reproduced."""
        smallest = (
            finding
            if finding.kind == "elsewhere"  # reproducing it takes two processes
            else minimize(finding, player(finding, worker), self._trials)
        )
        with self._lock:
            self.findings.append(smallest)
            if self._out is not None:
                self._out.parent.mkdir(parents=True, exist_ok=True)
                append_text(self._out, smallest.to_json() + "\n")
        return smallest.reproduced is not False


def player(finding: Finding, worker: FuzzWorker) -> Callable[[Case], Report]:
    """Return a function that replays the case of a finding with every check at every step."""
    return lambda case: worker.play(
        case, ledger="fresh" if finding.kind == "leak" else "none", full=True
    )


def replay_findings(
    findings: Sequence[Finding],
    step_seconds: float = STEP_SECONDS,
    patience: float = PATIENCE,
) -> list[tuple[Finding, Finding | None]]:
    """Replay recorded cases; return each with its outcome, None if it no longer fails."""
    with (
        closing(FuzzWorker(step_seconds, patience, _ENVIRONMENT)) as worker,
        closing(FuzzWorker(step_seconds, patience, _MIRROR)) as mirror,
    ):
        return [(finding, _replay_with(finding, worker, mirror)) for finding in findings]


def _replay_with(finding: Finding, worker: FuzzWorker, mirror: FuzzWorker) -> Finding | None:
    if finding.kind != "elsewhere":
        return replay(finding, player(finding, worker))
    report = worker.play(replace(finding.case, quick=True), full=True)
    return next(iter(_compare(report, mirror, finding.case)), None)


def _compare(report: Report, mirror: FuzzWorker, case: Case) -> list[Finding]:
    """Play the replies of an episode in a process with another environment; return a finding if the
    outcomes differ.
    """
    given = replace(
        case,
        options=report.options,
        env_seed=case.instance,
        actions=report.actions,
        quick=True,
    )
    if not (when := parting(report.marks, mirror.play(given, full=True).marks)):
        return []
    text = f"the episode differs after {when} in a process with {_MIRROR}"
    return [Finding("elsewhere", text, "elsewhere", replace(given, quick=False))]


def replay(finding: Finding, play: Play) -> Finding | None:
    """Return the finding that replaying a case produces, if it breaks the same law for the same
    cause; else None.
    """
    cause = finding.kind, finding.mark
    again = play(finding.case).findings
    return next((each for each in again if (each.kind, each.mark) == cause), None)


def minimize(finding: Finding, play: Play, trials: int = TRIALS) -> Finding:
    """Return a finding with fewer and shorter replies; one that cannot be reproduced stays
    unchanged.

    Args:
        finding: The finding.
        play: Plays a case with every check at every step.
        trials: The maximum number of runs.
    """
    return _Minimizer(finding, play, trials).run()


class _Minimizer:
    def __init__(self, finding: Finding, play: Play, trials: int) -> None:
        self._play, self._best = play, finding
        self._trials = min(trials, TRIALS_OF_HANGS) if finding.kind in _SLOW_KINDS else trials

    def run(self) -> Finding:
        if not self._fails(list(self._best.case.actions or ())):
            return replace(self._best, reproduced=False)
        actions = list(self._best.case.actions or ())
        # Try the last reply alone first, because it is nearly always the cause.
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
        """Play the case with other replies; keep the finding if it occurs again."""
        if self._trials <= 0:
            return False
        self._trials -= 1
        case = replace(self._best.case, actions=actions)
        again = replay(replace(self._best, case=case), self._play)
        if again is None:
            return False
        # Keep the replies that were played; an episode may end before the last.
        self._best = replace(again, case=replace(again.case, smaller=case.smaller))
        return True

    def _fails_with(self, before: list[str], after: list[str], text: str) -> bool:
        return self._fails([*before, text, *after])

    def _without_parts(self, whole: WholeT, size: int, fails: Callable[[WholeT], bool]) -> WholeT:
        """Remove parts of replies or of a text, halving the size of the parts down to 1."""
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
