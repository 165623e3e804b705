"""Write the documents of problems and their near-duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from agentgym.envs.gsm_agent.documents import Document, write_document
from agentgym.envs.gsm_agent.facts import Fact, Quantity
from agentgym.envs.gsm_agent.problems import Problem
from agentgym.envs.gsm_agent.vocabulary import TOWNS


@dataclass
class Writer:
    """Writes documents; `DatabaseOptions` describes `near_duplicates` and `anonymised`.

    `spare` lists the months without any tasks.
    """

    near_duplicates: float
    anonymised: float
    spare: Sequence[str]
    _defined: set[tuple[str, Quantity]] = field(default_factory=set)

    def write(
        self, problem: Problem, stamp: str, dated: bool, rng: Random
    ) -> tuple[list[Document], list[Document]]:
        """Return the documents of a problem and their near-duplicates.

        Near-duplicates from another month are written only if the question is `dated`.
        """
        told, others = [], []
        town = rng.choice(TOWNS)
        for facts in problem.premises():
            corrected = rng.random() < self.near_duplicates
            mark = "corrected" if corrected else ""
            told.append(self._document(facts, stamp, town, rng, mark))
            if corrected:
                others.append(self._document(_change(facts, rng), stamp, town, rng, "outdated"))
            if corrected and dated and self.spare and rng.random() < 0.5:
                others += self._elsewhen(_change(facts, rng), town, rng)
        return told, others

    def _document(
        self, facts: Sequence[Fact], stamp: str, town: str, rng: Random, mark: str = ""
    ) -> Document:
        anonymous = rng.random() < self.anonymised
        return write_document(facts, stamp, town, anonymous, rng, mark)

    def _elsewhen(self, facts: Sequence[Fact], town: str, rng: Random) -> Iterator[Document]:
        stamp = rng.choice(self.spare)
        targets = {(stamp, fact.target) for fact in facts}
        # Skip quantities already defined in that month, because two definitions could conflict.
        if self._defined.isdisjoint(targets):
            self._defined |= targets
            yield self._document(facts, stamp, town, rng)


def _change(facts: Sequence[Fact], rng: Random) -> list[Fact]:
    fact = facts[-1]
    number = fact.number or 0
    numbers: Sequence[int] = range(max(2, number // 2), number + number // 2 + 4)
    if fact.kind in ("percent", "raise", "cut"):
        numbers = range(5, 100, 5)
    if fact.kind in ("times", "part", "rest"):
        numbers = range(3, 6)
    others = [other for other in numbers if other != number]
    return [*facts[:-1], replace(fact, number=rng.choice(others))]
