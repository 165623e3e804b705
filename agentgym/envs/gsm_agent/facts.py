"""Facts about quantities, and values that follow from facts.

A numeric fact contains the number that a premise states. A structural fact defines a quantity in
terms of other quantities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from agentgym.envs.gsm_agent.stories import Parts, parts_of, unit_of


class Quantity(NamedTuple):
    """A quantity, identified by an owner and a phrase."""

    owner: str
    phrase: str

    @property
    def parts(self) -> Parts:
        return parts_of(self.phrase)

    @property
    def unit(self) -> str:
        """The unit of measure; an empty string for countable things."""
        return unit_of(self.phrase)


CONVERSIONS: Mapping[tuple[str, str], int] = {
    ("hours", "minutes"): 60,
    ("days", "hours"): 24,
    ("weeks", "days"): 7,
    ("feet", "inches"): 12,
}
"""The second unit per first unit."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Definition of a quantity in terms of a number, other quantities, or both.

    Attributes:
        kind: Numeric kinds are `is` (no source), `more`, `fewer`, `times`, `part`, `rest` (all but
            a part), `percent`, `raise` and `cut` (one source). Structural kinds are `sum`, `minus`,
            `product`, `quotient`, `around` (twice the sum) and `convert`.
        number: The number of a numeric fact; None for structural facts.
        wording: The sentence pattern of a structural fact, ignored when comparing facts.
    """

    target: Quantity
    kind: str
    number: int | None = None
    sources: tuple[Quantity, ...] = ()
    wording: str = field(default="", compare=False)

    def value(self, values: Sequence[int]) -> int | None:
        """Compute the target from the source values; return None if the result is not whole."""
        number = self.number or 0
        if self.kind == "is":
            return number
        first, last = values[0], values[-1]
        units = self.sources[0].unit, self.target.unit
        results = {
            "more": (first + number, 1),
            "fewer": (first - number, 1),
            "times": (first * number, 1),
            "part": (first, number),
            "rest": (first * (number - 1), number),
            "percent": (first * number, 100),
            "raise": (first * (100 + number), 100),
            "cut": (first * (100 - number), 100),
            "sum": (first + last, 1),
            "minus": (first - last, 1),
            "product": (first * last, 1),
            "quotient": (first, last),
            "around": (2 * (first + last), 1),
            "convert": (first * CONVERSIONS.get(units, 0), 1),
        }
        return divide(*results[self.kind])

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners of all quantities of the fact, starting with the owner of the target."""
        return tuple(dict.fromkeys((self.target.owner, *(source.owner for source in self.sources))))


def owners_of(facts: Iterable[Fact]) -> tuple[str, ...]:
    """Return the owners of all quantities of the facts, in order of occurrence."""
    return tuple(dict.fromkeys(chain.from_iterable(fact.owners for fact in facts)))


def divide(value: int, divisor: int) -> int | None:
    """Return the quotient, or None if it is not a whole number."""
    if divisor == 0 or value % divisor != 0:
        return None
    return value // divisor


def solve(facts: Mapping[Quantity, Fact], target: Quantity) -> int | None:
    """Compute a quantity from facts; return None if facts are missing."""
    values: dict[Quantity, int | None] = {}
    pending = [target]
    while pending:
        quantity = pending[-1]
        fact = facts.get(quantity)
        if quantity in values:
            pending.pop()
        elif fact is None:
            values[quantity] = None
        # Skip pending sources, which would cause an endless loop.
        elif missing := [
            source for source in fact.sources if source not in values and source not in pending
        ]:
            pending.append(missing[0])
        else:
            numbers = [values.get(source) for source in fact.sources]
            present = [number for number in numbers if number is not None]
            values[quantity] = None
            if len(present) == len(numbers):
                values[quantity] = fact.value(present)
    return values[target]


def open_quantities(facts: Mapping[Quantity, Fact], targets: Sequence[Quantity]) -> list[Quantity]:
    """List the unknown quantities that the targets depend on, depth first."""
    seen: dict[Quantity, bool] = {}
    pending = list(reversed(targets))
    while pending:
        quantity = pending.pop()
        if quantity in seen:
            continue
        seen[quantity] = quantity not in facts
        if quantity in facts:
            pending.extend(reversed(facts[quantity].sources))
    return [quantity for quantity, missing in seen.items() if missing]
