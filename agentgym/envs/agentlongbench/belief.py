"""Knowledge of the hidden item from the feedback and the lists of a chat."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.envs.agentlongbench.engine import Feedback, dumps, to_atoms, to_conditions
from agentgym.envs.agentlongbench.items import Atom, Value
from agentgym.tools import ToolError

_NONE, _ALL = -(2**62), 2**62  # beyond every number, and still 64 bits for numpy
_STATE = re.compile(
    r"Known of the hidden item: (?P<known>\[.*\])\nThe candidates meet: (?P<listed>\[.*\]|all of it)\n"
    r"Candidates left(?: \([0-9]+\))?: (?P<pool>not listed yet|all items but those guessed|\[.*\])"
    r"\nGuessed: "
    r"(?P<guessed>\[.*\])\n"
    r"Puzzle (?P<puzzle>[0-9]+), rounds left: (?P<left>[0-9]+)"
)

_ALL_ITEMS, _ALL_KNOWN = "all items but those guessed", "all of it"


@dataclass
class _SectionFacts:
    """Facts about one section; numbers lie strictly between the bounds."""

    has: dict[Value, None] = field(default_factory=dict)
    lacks: dict[Value, None] = field(default_factory=dict)
    low: int = _NONE
    high: int = _ALL


@dataclass
class Constraints:
    """A conjunction of atoms, without those that follow from others."""

    _sections: dict[str, _SectionFacts] = field(default_factory=dict)

    @classmethod
    def of(cls, atoms: Iterable[Atom]) -> Constraints:
        """Return the constraints that atoms make."""
        constraints = cls()
        for atom in atoms:
            constraints.add(atom)
        return constraints

    def add(self, atom: Atom) -> None:
        """Take in an atom."""
        section, operator, value = atom
        facts = self._sections.setdefault(section, _SectionFacts())
        if operator == "has":
            facts.has[value] = None
        elif operator == "lacks":
            facts.lacks[value] = None
        if isinstance(value, int) and operator in (">", "=="):
            facts.low = max(facts.low, value if operator == ">" else value - 1)
        if isinstance(value, int) and operator in ("<", "=="):
            facts.high = min(facts.high, value if operator == "<" else value + 1)

    def implies(self, atom: Atom) -> bool:
        """Return whether an atom follows."""
        section, operator, value = atom
        facts = self._sections.get(section)
        if facts is None:
            return False
        if operator == "has":
            return value in facts.has
        if operator == "lacks":
            return value in facts.lacks
        if not isinstance(value, int):
            return False
        above = operator == "<" or facts.low >= value - (operator == "==")
        below = operator == ">" or facts.high <= value + (operator == "==")
        return above and below

    def covers(self, other: Constraints) -> bool:
        """Return whether all of other constraints follow from these."""
        return all(map(self.implies, other.atoms()))

    def atoms(self) -> list[Atom]:
        """Return the shortest equivalent list of atoms, section by section."""
        atoms: list[Atom] = []
        for section, facts in self._sections.items():
            atoms += [(section, "has", value) for value in facts.has]
            atoms += [(section, "lacks", value) for value in facts.lacks]
            if facts.high - facts.low == 2:
                atoms.append((section, "==", facts.low + 1))
                continue
            if facts.low > _NONE:
                atoms.append((section, ">", facts.low))
            if facts.high < _ALL:
                atoms.append((section, "<", facts.high))
        return atoms


@dataclass
class Belief:
    """Knowledge of one hidden item.

    Attributes:
        known: The constraints on the hidden item from feedback.
        listed: The constraints that all candidates are known to meet, from the queries
            whose lists they were in.
        pool: The candidates in the order of the lists: the hidden item is among them. None before
            the first list.
        guessed: The names that were guessed.
        puzzle: The number of the puzzle.
        left: The rounds that remain for the item.
        items: The names of all items in order, where the puzzle lists them.
    """

    known: Constraints = field(default_factory=Constraints)
    listed: Constraints = field(default_factory=Constraints)
    pool: list[str] | None = None
    guessed: dict[str, None] = field(default_factory=dict)
    puzzle: int = 1
    left: int = 0
    items: Sequence[str] = ()

    @property
    def exact(self) -> bool:
        """Return whether the candidates are just the items that agree with all feedback, or one."""
        return self.pool is not None and (len(self.pool) == 1 or self.listed.covers(self.known))

    def add_feedback(self, feedback: Feedback) -> None:
        """Take in the feedback on a guess."""
        for atom in feedback.atoms:
            self.known.add(atom)
        self.guessed[feedback.name] = None
        self.left = feedback.left
        if self.pool is not None:
            self.pool = [name for name in self.pool if name != feedback.name]

    def add_lists(self, lists: Iterable[tuple[Sequence[Atom], Sequence[str]]]) -> None:
        """Take in the lists of a query, each with the atoms that its items meet; only those that
        are known to hold the hidden item count.
        """
        for atoms, names in lists:
            if not all(map(self.known.implies, atoms)):
                continue
            order = names if self.pool is None else self.pool
            remaining = set(names) - self.guessed.keys()
            self.pool = [name for name in order if name in remaining]
            for atom in atoms:
                self.listed.add(atom)

    def makes_exact(self, conditions: object) -> bool:
        """Return whether the result of a query would make the candidates exact."""
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
        """Write the knowledge in words."""
        pool = "not listed yet" if self.pool is None else dumps(self.pool)
        if self.items and self.pool == self._unguessed():
            pool = _ALL_ITEMS
        number = "" if self.pool is None else f" ({len(self.pool)})"
        known, listed = dumps(self.conditions()), dumps(to_conditions(self.listed.atoms()))
        return [
            f"Known of the hidden item: {known}",
            f"The candidates meet: {_ALL_KNOWN if listed == known != '[]' else listed}",
            f"Candidates left{number}: {pool}",
            f"Guessed: {dumps(list(self.guessed))}",
            f"Puzzle {self.puzzle}, rounds left: {self.left}",
        ]

    def _unguessed(self) -> list[str]:
        return [name for name in self.items if name not in self.guessed]

    @classmethod
    def from_lines(cls, text: str, items: Sequence[str]) -> Belief:
        """Read the text of `lines`, for a puzzle that lists these items.

        Raises:
            ValueError: The text is not one that `lines` wrote.
        """
        match = _STATE.fullmatch(text)
        if match is None:
            raise ValueError(f"this is not a state of a puzzle: {text[:100]!r}")
        known, listed = (
            [atom for condition in json.loads(part) for atom in to_atoms([condition])]
            for part in (
                match["known"],
                match["known" if match["listed"] == _ALL_KNOWN else "listed"],
            )
        )
        belief = cls(
            Constraints.of(known),
            Constraints.of(listed),
            None,
            dict.fromkeys(json.loads(match["guessed"])),
            int(match["puzzle"]),
            int(match["left"]),
            items,
        )
        if match["pool"] == _ALL_ITEMS:
            belief.pool = belief._unguessed()
        elif match["pool"] != "not listed yet":
            belief.pool = list(json.loads(match["pool"]))
        return belief
