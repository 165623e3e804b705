"""Minimisation of findings: the fewest replies, and the shortest texts, that still break the law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentgym.training.audit.cases import Case, Finding, Report

TRIALS = 120
"""Runs that the minimisation of a finding may take."""
TRIALS_OF_HANGS = 8
"""The same for what ends a process or takes long, since each run waits for that."""
_SLOW_KINDS = ("hang", "death", "slow", "growth", "memory")
_MAX_TEXT_TRIALS = 60
"""Runs for the texts, so that a long episode leaves some for them."""

Play = Callable[[Case], Report]


def replay(finding: Finding, play: Play) -> Finding | None:
    """Return what a finding leads to when its case is played again, if that breaks the same law for
    the same cause; else None.
    """
    found = play(finding.case).findings
    return next((each for each in found if _is_same(each, finding)), None)


def minimize(finding: Finding, play: Play, trials: int = TRIALS) -> Finding:
    """Return a finding with fewer and shorter replies; one that does not come again stays as it is.

    Args:
        finding: The finding.
        play: Plays a case, with every check at every step.
        trials: The most runs.
    """
    return _Minimizer(finding, play, trials).run()


def _is_same(one: Finding, other: Finding) -> bool:
    return (one.kind, one.mark) == (other.kind, other.mark)


class _Minimizer:
    def __init__(self, finding: Finding, play: Play, trials: int) -> None:
        self._play = play
        self._best = finding
        few = finding.kind in _SLOW_KINDS
        self._trials = min(trials, TRIALS_OF_HANGS) if few else trials

    def run(self) -> Finding:
        actions = list(self._best.case.actions or ())
        if not self._fails(actions):
            return replace(self._best, reproduced=False)
        actions = self._without_actions(list(self._best.case.actions or ()))
        if self._best.kind not in _SLOW_KINDS:
            self._trials = min(self._trials, _MAX_TEXT_TRIALS)
            for k in reversed(range(len(actions))):
                actions = self._with_shorter_text(actions, k)
        return replace(self._best, minimal=True, reproduced=True)

    def _fails(self, actions: list[str]) -> bool:
        """Play the case with other replies; remember the finding if it comes again."""
        if self._trials <= 0:
            return False
        self._trials -= 1
        case = replace(self._best.case, actions=actions)
        again = replay(replace(self._best, case=case), self._play)
        if again is None:
            return False
        # The replies that were played: an episode may be over before the last one.
        self._best = replace(again, case=replace(again.case, smaller=case.smaller))
        return True

    def _without_actions(self, actions: list[str]) -> list[str]:
        """Leave out replies: halves, quarters, and so on to single ones. The last is tried alone
        first, since it is nearly always the one.
        """
        if len(actions) > 1 and self._fails(actions[-1:]):
            return actions[-1:]
        size = len(actions) // 2
        while size:
            start = 0
            while start < len(actions):
                shorter = actions[:start] + actions[start + size :]
                if shorter != actions and self._fails(shorter):
                    actions = shorter
                else:
                    start += size
            size //= 2
        return actions

    def _with_shorter_text(self, actions: list[str], k: int) -> list[str]:
        """Leave out parts of a reply: halves, quarters, and so on to single characters."""
        text = actions[k]
        size = max(1, len(text) // 2)
        while size and self._trials:
            start = 0
            while start < len(text) and self._trials:
                shorter = text[:start] + text[start + size :]
                if self._fails([*actions[:k], shorter, *actions[k + 1 :]]):
                    text = shorter
                else:
                    start += size
            size //= 2
        return [*actions[:k], text, *actions[k + 1 :]]
