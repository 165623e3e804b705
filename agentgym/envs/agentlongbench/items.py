"""Items, their profiles, and the items that satisfy a condition (AgentLongBench, section 2.1.1)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agentgym.text.tools import ToolError, echo

Operator = Literal["has", "lacks", ">", "<", "=="]
Value: TypeAlias = str | int
Atom: TypeAlias = tuple[str, Operator, Value]
"""A possible fact about an item: section, operator, value."""
Mask: TypeAlias = NDArray[np.bool_]
"""bool, shape `(items,)`: the selected items."""

# Maximum length of a name in characters, to limit the normalisation time.
_LONGEST_NAME = 1_000
_DROPPED = str.maketrans("", "", " -_'\"’.:")
_COMPARISONS: Mapping[Operator, Callable[[NDArray[np.int64], int], Mask]] = {
    ">": np.greater,
    "<": np.less,
    "==": np.equal,
}


@dataclass(frozen=True, slots=True)
class Section:
    """A section of every profile; `weight` is used in the weighted summation task."""

    name: str
    numeric: bool
    weight: int


class ItemTable:
    """An immutable table of items; all lists keep the table order.

    Args:
        names: The distinct item names.
        labels: The item names as they appear in feedback.
        columns: For each section, the values of each item: one number, or one or more strings.
    """

    def __init__(
        self,
        sections: Sequence[Section],
        names: Sequence[str],
        labels: Sequence[str],
        columns: Sequence[Sequence[tuple[Value, ...]]],
    ) -> None:
        self.sections, self.names, self.labels = tuple(sections), tuple(names), tuple(labels)
        self.columns = tuple(map(tuple, columns))
        self._places = {section.name: place for place, section in enumerate(self.sections)}

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), (self.sections, self.names, self.labels, self.columns)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __len__(self) -> int:
        return len(self.names)

    def part(self, places: Iterable[int], sections: Iterable[int]) -> ItemTable:
        """Return a table of the given items and sections, in the given order."""
        places, sections = list(places), list(sections)
        columns = []
        for k in sections:
            columns.append([self.columns[k][place] for place in places])
        names = [self.names[place] for place in places]
        labels = [self.labels[place] for place in places]
        return ItemTable([self.sections[k] for k in sections], names, labels, columns)

    def find(self, name: str) -> int:
        """Return the index of the item with this name, after normalisation, or raise ToolError."""
        place = self._by_name.get(normalize_name(name))
        if place is None:
            raise ToolError(f"there is no item called {echo(name)}")
        return place

    def mask(self, atom: Atom) -> Mask:
        """Return a mask of the items for which a fact holds.

        Raise ToolError if the section or value does not exist, or does not support the operator.
        """
        name, operator, value = atom
        place = self._places.get(name)
        if place is None:
            raise ToolError(
                f"there is no section {echo(name)}; the sections are {', '.join(self._places)}"
            )
        if self.sections[place].numeric != (operator in _COMPARISONS):
            kind = "numeric" if self.sections[place].numeric else "value"
            raise ToolError(f"section {echo(name)} accepts only conditions of type {kind!r}")
        if isinstance(value, int):
            bounded = max(-(2**62), min(2**62, value))  # numpy compares 64-bit integers
            return _COMPARISONS[operator](self._numbers[place], bounded)
        holders = self._holders[place].get(value)
        if holders is None:
            raise ToolError(f"section {echo(name)} has no value {echo(value)}")
        return holders if operator == "has" else ~holders

    def meet(self, atoms: Iterable[Atom]) -> Mask:
        """Return a mask of the items for which all facts hold."""
        mask = np.ones(len(self), bool)
        for atom in atoms:
            mask &= self.mask(atom)
        return mask

    def listed(self, mask: Mask) -> list[str]:
        """Return the names of the selected items in table order."""
        return [self.names[place] for place in np.flatnonzero(mask)]

    def feedback_atoms(self, guess: int, target: int) -> list[Atom]:
        """List the facts about the target that a guess reveals, in section order."""
        atoms: list[Atom] = []
        for section, column in zip(self.sections, self.columns, strict=True):
            for value in column[guess]:
                operator: Operator = "has" if value in column[target] else "lacks"
                if section.numeric:
                    operator = compare(value, column[target][0])
                atoms.append((section.name, operator, value))
        return atoms

    def feedback(self, guess: int, target: int) -> str:
        """Write a line for each section of a guessed item, with a verdict on each value."""
        lines: dict[str, list[str]] = {}
        for name, operator, value in self.feedback_atoms(guess, target):
            lines.setdefault(name, []).append(f"{value} ({VERDICTS[operator]})")
        return write_profile(lines)

    def isolable(self, target: int, least: int = 1) -> bool:
        """Return whether queries with at least `least` items per list can identify the target."""
        left = np.ones(len(self), bool)
        atoms = set[Atom]()
        for guess in range(len(self)):
            if guess != target:
                atoms.update(self.feedback_atoms(guess, target))
        for mask in map(self.mask, atoms):
            if mask.sum() >= least:
                left &= mask
        return int(left.sum()) == 1

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return {normalize_name(name): place for place, name in enumerate(self.names)}

    @cached_property
    def _holders(self) -> tuple[Mapping[Value, Mask], ...]:
        holders: list[dict[Value, Mask]] = []
        for section, column in zip(self.sections, self.columns, strict=True):
            places: dict[Value, list[int]] = {}
            if not section.numeric:
                for place, values in enumerate(column):
                    for value in values:
                        places.setdefault(value, []).append(place)
            masks = np.zeros((len(places), len(self)), bool)
            for mask, where in zip(masks, places.values(), strict=True):
                mask[where] = True
            holders.append(dict(zip(places, masks, strict=True)))
        return tuple(holders)

    @cached_property
    def _numbers(self) -> tuple[NDArray[np.int64], ...]:
        # The digest of an instance, and so its split, covers this attribute and its type.
        numbers = []
        for section, column in zip(self.sections, self.columns, strict=True):
            values = [value for (value,) in column] if section.numeric else []
            numbers.append(np.array(values, np.int64))
        return tuple(numbers)


VERDICTS: Mapping[Operator, str] = {
    "has": "correct",
    "lacks": "wrong",
    "==": "correct",
    ">": "wrong, too low",
    "<": "wrong, too high",
}
"""Verdicts by the fact about the target."""
OPERATORS: Mapping[str, tuple[Operator, Operator]] = {
    "correct": ("has", "=="),
    "wrong": ("lacks", "lacks"),
    "wrong, too low": (">", ">"),
    "wrong, too high": ("<", "<"),
}
"""Facts about the target by verdict, for a text and for a number."""


def compare(guess: Value, target: Value) -> Operator:
    """Compare the target with the guess; return `==`, `>` or `<`."""
    if guess == target:
        return "=="
    if int(guess) < int(target):
        return ">"
    return "<"


def write_profile(sections: Mapping[str, Iterable[str]]) -> str:
    """Write a line for each section."""
    return "\n".join(f"  - {name}: {'; '.join(texts)}" for name, texts in sections.items())


def normalize_name(name: str) -> str:
    """Convert a name to lower case and remove accents, spaces and punctuation."""
    # NFKD separates letters from their accents.
    letters = unicodedata.normalize("NFKD", name[:_LONGEST_NAME].casefold()).translate(_DROPPED)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
