"""What an agent can know of the hidden item from the feedback and the lists that it was shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.envs.agentlongbench.engine import Feedback, dumps, read_lists, to_atoms, to_conditions
from agentgym.envs.agentlongbench.items import Atom, Value
from agentgym.tools import ToolError

_NONE, _ALL = -(2**62), 2**62
_STATE = re.compile(
    r"Known of the hidden item: (?P<known>\[.*\])\nThe candidates meet: (?P<listed>\[.*\])\n"
    r"Candidates left(?: \([0-9]+\))?: (?P<pool>not listed yet|\[.*\])\nGuessed: "
    r"(?P<guessed>\[.*\])\n"
    r"Puzzle (?P<puzzle>[0-9]+), rounds left: (?P<left>[0-9]+)"
)


@dataclass
class _Facts:
    """What is known of one section; numbers lie strictly between the bounds."""

    has: dict[Value, None] = field(default_factory=dict)
    lacks: dict[Value, None] = field(default_factory=dict)
    low: int = _NONE
    high: int = _ALL


@dataclass
class Constraints:
    """A conjunction of atoms, without those that follow from others."""

    _sections: dict[str, _Facts] = field(default_factory=dict)

    @classmethod
    def of(cls, atoms: Iterable[Atom]) -> Constraints:
        """The constraints that atoms make."""
        made = cls()
        for atom in atoms:
            made.add(atom)
        return made

    def add(self, atom: Atom) -> None:
        """Take in an atom."""
        section, operator, value = atom
        facts = self._sections.setdefault(section, _Facts())
        if operator == "has":
            facts.has[value] = None
        elif operator == "lacks":
            facts.lacks[value] = None
        if isinstance(value, int) and operator in (">", "=="):
            facts.low = max(facts.low, value if operator == ">" else value - 1)
        if isinstance(value, int) and operator in ("<", "=="):
            facts.high = min(facts.high, value if operator == "<" else value + 1)

    def implies(self, atom: Atom) -> bool:
        """Whether an atom follows."""
        section, operator, value = atom
        facts = self._sections.get(section)
        if facts is None:
            return False
        if operator in ("has", "lacks"):
            return value in (facts.has if operator == "has" else facts.lacks)
        above = operator == "<" or (
            isinstance(value, int) and facts.low >= value - (operator == "==")
        )
        below = operator == ">" or (
            isinstance(value, int) and facts.high <= value + (operator == "==")
        )
        return above and below

    def covers(self, other: Constraints) -> bool:
        """Whether all of other constraints follow from these."""
        return all(map(self.implies, other.atoms()))

    def atoms(self) -> list[Atom]:
        """The shortest list of atoms that says the same, section by section."""
        found: list[Atom] = []
        for section, facts in self._sections.items():
            found += [(section, "has", value) for value in facts.has]
            found += [(section, "lacks", value) for value in facts.lacks]
            if facts.high - facts.low == 2:
                found.append((section, "==", facts.low + 1))
                continue
            found += [(section, ">", facts.low)] if facts.low > _NONE else []
            found += [(section, "<", facts.high)] if facts.high < _ALL else []
        return found


@dataclass
class Belief:
    """What was found out in the present puzzle.

    Attributes:
        known: What feedback told of the hidden item.
        listed: What all candidates are known to meet, from the queries whose lists they were in.
        pool: The candidates in the order of the lists: the hidden item is among them. None before
            the first list.
        guessed: The names that were guessed.
        puzzle: The number of the puzzle.
        left: The rounds that remain in it.
    """

    known: Constraints = field(default_factory=Constraints)
    listed: Constraints = field(default_factory=Constraints)
    pool: list[str] | None = None
    guessed: dict[str, None] = field(default_factory=dict)
    puzzle: int = 1
    left: int = 0

    @property
    def exact(self) -> bool:
        """Whether the candidates are exactly the items that agree with all feedback, or there is
        but one.
        """
        return self.pool is not None and (len(self.pool) == 1 or self.listed.covers(self.known))

    def hear(self, feedback: Feedback) -> None:
        """Take in the feedback on a guess."""
        for atom in feedback.atoms:
            self.known.add(atom)
        self.guessed[feedback.name] = None
        self.left = feedback.left
        if self.pool is not None:
            self.pool = [name for name in self.pool if name != feedback.name]

    def see(self, conditions: Sequence[Mapping[str, Any]], result: str) -> None:
        """Take in the result of a query. Only lists that the hidden item is known to be in tell of
        it.

        Raises:
            ValueError: The text is not a result.
        """
        for atoms, names in read_lists(conditions, result):
            if not all(map(self.known.implies, atoms)):
                continue
            kept = set(names) if self.pool is None else set(names) & set(self.pool)
            self.pool = [
                name for name in (self.pool or names) if name in kept and name not in self.guessed
            ]
            for atom in atoms:
                self.listed.add(atom)

    def settles(self, conditions: object) -> bool:
        """Whether the result of a query would make the candidates exact."""
        try:
            atoms = to_atoms(conditions if isinstance(conditions, list) else [])
        except (ToolError, KeyError, TypeError, AttributeError):
            return False
        if not all(map(self.known.implies, atoms)):
            return False
        return Constraints.of([*self.listed.atoms(), *atoms]).covers(self.known)

    def conditions(self) -> list[dict[str, Any]]:
        """All that is known of the hidden item, as the conditions of a query."""
        return to_conditions(self.known.atoms())

    def lines(self) -> list[str]:
        """What was found out, in words."""
        told = "not listed yet" if self.pool is None else dumps(self.pool)
        number = "" if self.pool is None else f" ({len(self.pool)})"
        return [
            f"Known of the hidden item: {dumps(self.conditions())}",
            f"The candidates meet: {dumps(to_conditions(self.listed.atoms()))}",
            f"Candidates left{number}: {told}",
            f"Guessed: {dumps(list(self.guessed))}",
            f"Puzzle {self.puzzle}, rounds left: {self.left}",
        ]

    @classmethod
    def from_lines(cls, text: str) -> Belief:
        """What `lines` told.

        Raises:
            ValueError: The text is not one that `lines` wrote.
        """
        found = _STATE.fullmatch(text)
        if found is None:
            raise ValueError(f"this is not a state of a puzzle: {text[:100]!r}")
        known, listed = (
            [a for c in json.loads(found[name]) for a in to_atoms([c])]
            for name in ("known", "listed")
        )
        pool = None if found["pool"] == "not listed yet" else list(json.loads(found["pool"]))
        guessed = dict.fromkeys(json.loads(found["guessed"]))
        return cls(
            Constraints.of(known),
            Constraints.of(listed),
            pool,
            guessed,
            int(found["puzzle"]),
            int(found["left"]),
        )
