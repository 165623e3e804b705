"""Knowledge about a puzzle's hidden items, gathered from the feedback and lists in a chat."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from agentgym.envs.agentlongbench.engine import (
    TOOL,
    Feedback,
    dumps,
    read_feedback,
    read_lists,
    to_atoms,
    to_conditions,
)
from agentgym.envs.agentlongbench.items import Atom, Value
from agentgym.envs.reading import expect
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError
from agentgym.world.world import CallSet

_NONE, _ALL = -(2**62), 2**62
_STATE = re.compile(
    r"Known of the hidden item: (?P<known>\[.*\])\nThe candidates meet: (?P<listed>\[.*\]|all of it)\n"
    r"Candidates left(?: \([0-9]+\))?: (?P<pool>not listed yet|all items but those guessed|\[.*\])"
    r"\nGuessed: "
    r"(?P<guessed>\[.*\])\n"
    r"Puzzle (?P<puzzle>[0-9]+), rounds left: (?P<left>[0-9]+)"
)

_LISTED = "All items: "
_HEAD = re.compile(r"Hidden item ([0-9]+)( \(next\))?:\n")
_ALL_ITEMS, _ALL_KNOWN = "all items but those guessed", "all of it"


@dataclass
class _SectionFacts:
    """Known values of one section of a profile; `low` and `high` are exclusive bounds."""

    has: dict[Value, None] = field(default_factory=dict)
    lacks: dict[Value, None] = field(default_factory=dict)
    low: int = _NONE
    high: int = _ALL


@dataclass
class Constraints:
    """A conjunction of facts about an item, without redundant facts."""

    _sections: dict[str, _SectionFacts] = field(default_factory=dict)

    @classmethod
    def of(cls, atoms: Iterable[Atom]) -> Constraints:
        constraints = cls()
        constraints.update(atoms)
        return constraints

    def update(self, atoms: Iterable[Atom]) -> None:
        """Add atoms in place."""
        for section, operator, value in atoms:
            facts = self._sections.setdefault(section, _SectionFacts())
            if operator == "has":
                facts.has[value] = None
            elif operator == "lacks":
                facts.lacks[value] = None
            elif isinstance(value, int):
                exact = operator == "=="
                if operator in (">", "=="):
                    facts.low = max(facts.low, value - exact)
                if operator in ("<", "=="):
                    facts.high = min(facts.high, value + exact)

    def implies(self, atom: Atom) -> bool:
        """Return whether these constraints imply a fact."""
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
        return above and (operator == ">" or facts.high <= value + (operator == "=="))

    def covers(self, other: Constraints) -> bool:
        """Return whether these constraints imply the other constraints."""
        return all(map(self.implies, other.atoms()))

    def atoms(self) -> list[Atom]:
        """Return the shortest equivalent list of facts, grouped by section."""
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
    """Knowledge about one hidden item.

    Attributes:
        known: The constraints that the feedback imposes on the hidden item.
        listed: The conditions of past queries; every candidate satisfies all these conditions.
        pool: The remaining candidates; None before the first list is read.
        items: The names of all items, if the puzzle lists them.
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
        """Whether the candidates are exactly the items consistent with all feedback."""
        return self.pool is not None and (len(self.pool) == 1 or self.listed.covers(self.known))

    def add_feedback(self, feedback: Feedback) -> None:
        """Add the feedback on a guess."""
        self.known.update(feedback.atoms)
        self.guessed[feedback.name] = None
        self.left = feedback.left
        if self.pool is not None:
            self.pool = [name for name in self.pool if name != feedback.name]

    def add_lists(self, lists: Iterable[tuple[Sequence[Atom], Sequence[str]]]) -> None:
        """Add a query's lists, each with the facts that all items in the list share."""
        for atoms, names in lists:
            # Skip lists that might not contain the hidden item.
            if not all(map(self.known.implies, atoms)):
                continue
            if self.pool is None:
                self.pool = list(names)
            remaining = set(names) - self.guessed.keys()
            self.pool = [name for name in self.pool if name in remaining]
            self.listed.update(atoms)

    def makes_exact(self, conditions: object) -> bool:
        """Return whether a query would exclude every item that contradicts the feedback."""
        if not isinstance(conditions, list):
            return False
        try:
            atoms = to_atoms(conditions)
        # Models may write any JSON as arguments.
        except (ToolError, KeyError, TypeError, AttributeError):
            return False
        if not all(map(self.known.implies, atoms)):
            return False
        return Constraints.of([*self.listed.atoms(), *atoms]).covers(self.known)

    def conditions(self) -> list[dict[str, Any]]:
        """Return the known constraints as query conditions."""
        return to_conditions(self.known.atoms())

    def lines(self) -> list[str]:
        """Format the knowledge."""
        pool = ": not listed yet"
        if self.pool is not None:
            names = _ALL_ITEMS
            if not self.items or self.pool != self._unguessed():
                names = dumps(self.pool)
            pool = f" ({len(self.pool)}): {names}"
        known, listed = dumps(self.conditions()), dumps(to_conditions(self.listed.atoms()))
        if listed == known != "[]":
            listed = _ALL_KNOWN
        return [
            f"Known of the hidden item: {known}",
            f"The candidates meet: {listed}",
            f"Candidates left{pool}",
            f"Guessed: {dumps(list(self.guessed))}",
            f"Puzzle {self.puzzle}, rounds left: {self.left}",
        ]

    def _unguessed(self) -> list[str]:
        return [name for name in self.items if name not in self.guessed]

    @classmethod
    def from_lines(cls, text: str, items: Sequence[str]) -> Belief:
        match = expect(_STATE.fullmatch(text), "a state of a puzzle", text)
        listed = match["listed"]
        if listed == _ALL_KNOWN:
            listed = match["known"]
        belief = cls(
            _read_constraints(match["known"]),
            _read_constraints(listed),
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


def _read_constraints(conditions: str) -> Constraints:
    constraints = Constraints()
    for condition in json.loads(conditions):
        constraints.update(to_atoms([condition]))
    return constraints


@dataclass
class Hunt:
    """Knowledge about a puzzle's remaining hidden items, which are numbered from 1."""

    beliefs: dict[int, Belief] = field(default_factory=dict)
    number: int = 1

    @classmethod
    def from_opening(cls, feedback: str, puzzle: int) -> Self:
        """Return the knowledge after the first feedback in a puzzle with one hidden item."""
        heard = read_feedback(feedback)
        if not heard:
            raise ValueError(f"expected feedback, got {feedback[:100]!r}")
        belief = Belief(puzzle=puzzle)
        belief.add_feedback(heard[-1])
        return cls({1: belief})

    @classmethod
    def begin(cls, items: Sequence[str], hidden: int, puzzle: int, rounds: int) -> Self:
        """Return the initial knowledge about a puzzle with several hidden items."""
        hunt = cls()
        for number in range(1, hidden + 1):
            hunt.beliefs[number] = Belief(pool=[*items], puzzle=puzzle, left=rounds, items=items)
        return hunt

    @property
    def belief(self) -> Belief:
        return self.beliefs[self.number]

    def add_result(self, conditions: Sequence[Mapping[str, Any]], result: str) -> None:
        """Update the knowledge about each hidden item from a query's result."""
        lists = read_lists(conditions, result)
        for belief in self.beliefs.values():
            belief.add_lists(lists)

    def advance(self, *, solved: bool) -> None:
        """Move on to the next hidden item."""
        if solved:
            del self.beliefs[self.number]
        later = [number for number in self.beliefs if number > self.number]
        self.number = min(later or self.beliefs, default=self.number)

    def lines(self) -> list[str]:
        """Format the knowledge; include the item list unless the task contains it."""
        lines = []
        if self.belief.puzzle > 1 and self.belief.items:
            lines.append(f"{_LISTED}{dumps(list(self.belief.items))}\n")
        for number, belief in self.beliefs.items():
            mark = " (next)" if number == self.number else ""
            lines += [f"Hidden item {number}{mark}:", *belief.lines(), ""]
        return lines

    @classmethod
    def from_lines(cls, text: str, items: Sequence[str]) -> Self:
        hunt = cls()
        for part in text.rstrip("\n").split("\n\n"):
            head = _HEAD.match(part)
            if part.startswith(_LISTED):
                items = json.loads(part[len(_LISTED) :])
            elif head is None:
                raise ValueError(f"this is not a state of a puzzle: {text[:100]!r}")
            else:
                number = int(head[1])
                hunt.beliefs[number] = Belief.from_lines(part[head.end() :], items)
                if head[2]:
                    hunt.number = number
        return hunt


class OptimalMoves(Sequence[ToolCall]):
    """Optimal calls before the last turn; there are too many optimal queries to enumerate.

    An optimal query excludes every candidate that contradicts the feedback on a hidden item. If the
    candidates for the next item are exactly the items consistent with all feedback, guessing any
    candidate is optimal too.
    """

    def __init__(self, hunt: Hunt) -> None:
        # Compute these values now, because labels are computed only after the call.
        belief = hunt.belief
        self._listed: Sequence[ToolCall] = (ToolCall(TOOL, {"conditions": belief.conditions()}),)
        if belief.exact:
            self._listed = CallSet("guess", "name", belief.pool or ())
        self._open = [belief for belief in hunt.beliefs.values() if not belief.exact]

    def __contains__(self, call: object) -> bool:
        if isinstance(call, ToolCall) and call.name == TOOL:
            conditions = call.arguments.get("conditions")
            return any(belief.makes_exact(conditions) for belief in self._open)
        return call in self._listed

    def __iter__(self) -> Iterator[ToolCall]:
        return iter(self._listed)

    def __getitem__(self, index: Any) -> Any:
        return self._listed[index]

    def __len__(self) -> int:
        return len(self._listed)
