"""Fuzz several env ids: play episodes and count findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from agentgym.assemble.registry import resolve, spec
from agentgym.testing.cases import Case, Finding, all_ids
from agentgym.testing.episode import play
from agentgym.text.validation import check_int
from agentgym.training.evaluation import Table

# replies per episode
_TEXTS = 40
# An id is skipped after this many consecutive episodes without a reply.
_BARREN = 6
# Findings of these kinds are identified by a code location, which several worlds may share.
_NAMELESS = frozenset({"raise", "oracle"})


@dataclass
class Tally:
    """Counts of one id.

    Attributes:
        barren: The number of consecutive episodes in which the env could not start.
        causes: The distinct causes of the findings.
    """

    texts: int = 0
    calls: int = 0
    episodes: int = 0
    barren: int = 0
    causes: set[tuple[str, ...]] = field(default_factory=set)


class Campaign:
    """Fuzzing run that plays `texts` replies for each id."""

    def __init__(self, ids: Sequence[str] = (), *, texts: int = 200, seed: int = 0) -> None:
        check_int("texts", texts, 1, 10**9)
        check_int("seed", seed, 0, 10**9)
        self._texts, self._seed = texts, seed
        self.tallies: dict[str, Tally] = {env_id: Tally() for env_id in ids or all_ids()}
        for env_id in self.tallies:
            spec(env_id)
        self.findings: list[Finding] = []
        self._known: set[tuple[str, ...]] = set()

    def run(self, on_progress: Callable[[int], None] = lambda texts: None) -> None:
        """Play until every id has received enough replies."""
        for env_id, tally in self.tallies.items():
            while tally.texts < self._texts and tally.barren < _BARREN:
                self._play_episode(env_id, tally)
                on_progress(sum(each.texts for each in self.tallies.values()))

    def table(self) -> Table:
        """Return a table that counts the replies, calls and faults of each id."""
        rows = []
        for env_id, tally in self.tallies.items():
            rows.append([env_id, str(tally.texts), str(tally.calls), str(len(tally.causes))])
        return "Fuzzing", ["id", "texts", "calls", "faults"], rows

    def _play_episode(self, env_id: str, tally: Tally) -> None:
        texts = min(_TEXTS, self._texts - tally.texts)
        report = play(Case(env_id, self._seed, tally.episodes, texts))
        tally.texts += report.texts
        tally.calls += report.calls
        tally.episodes += 1
        tally.barren = 0 if report.texts else tally.barren + 1
        for finding in report.findings:
            cause: tuple[str, ...] = (finding.kind, finding.mark)
            if finding.kind not in _NAMELESS:
                cause += (resolve(env_id).partition("-")[0],)
            tally.causes.add(cause)
            if cause not in self._known:
                self._known.add(cause)
                self.findings.append(shorten(finding))


def shorten(finding: Finding) -> Finding:
    """Shorten the finding to its last reply if that reply alone reproduces the violation."""
    actions = list(finding.case.actions or ())[-1:]
    again = play(replace(finding.case, actions=actions)).findings
    cause = finding.kind, finding.mark
    return next((each for each in again if (each.kind, each.mark) == cause), finding)
