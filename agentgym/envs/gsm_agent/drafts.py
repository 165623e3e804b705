"""Draft problems as trees of quantities.

Numbers are drawn from the leaves up, so that all quantities are whole numbers within range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import NamedTuple

from agentgym.envs.gsm_agent.facts import CONVERSIONS, Fact, Quantity
from agentgym.envs.gsm_agent.questions import Question
from agentgym.envs.gsm_agent.stories import (
    AGE,
    ASKS,
    SHARERS,
    STORIES,
    UNITS,
    Relation,
    Story,
    unit_of,
)

STEPS = ("more", "fewer", "times", "part", "raise", "cut")
_PARTS = ("percent", "part", "rest")
# Minimum value range per premise; in a smaller range, an operand could be zero.
_ROOM = 40
# The minimum and maximum count that a document states.
_LEAST, _LARGEST = 3, 400
# Questions about ages have one or three premises.
_AGE_PREMISES = (1, 3)
# These words occur in too many phrases to be useful for searching.
_PLAIN = frozenset(
    "the of in on at for to and a from with by into each along spent earned saved paid needed "
    f"measured {' '.join(UNITS)}".split()
)


def words_of(quantities: Iterable[Quantity]) -> set[str]:
    """Return the owners and the distinctive words of quantities."""
    found: set[str] = set()
    for quantity in quantities:
        found.add(quantity.owner)
        found.update(quantity.phrase.split())
    return found - _PLAIN


class Blank(NamedTuple):
    """A quantity whose phrase (`frame`) has a placeholder for the item."""

    owner: str
    frame: str
    item: str

    @property
    def quantity(self) -> Quantity:
        return Quantity(self.owner, self.frame.replace("{i}", self.item))


@dataclass
class Draft:
    """A problem under construction; `cast` lists the people in the problem.

    If one document must not share a word with the question, `asked` contains the question's words.
    """

    rng: Random
    cast: Sequence[str]
    story: Story
    asked: frozenset[str] = frozenset()
    facts: dict[Quantity, Fact] = field(default_factory=dict)
    values: dict[Quantity, int] = field(default_factory=dict)
    _claimed: set[Quantity] = field(default_factory=set)
    _asked: set[Quantity] = field(default_factory=set)
    _numbers: set[int] = field(default_factory=set)

    def number(self, low: int, high: int) -> int:
        """Draw an unused number in [low, high], usually small and round, or raise DeadEndError."""
        for _ in range(30):
            # A log-uniform distribution favours small numbers.
            number = 0
            if 0 < low <= high:
                number = int(low * ((high + 1) / low) ** self.rng.random())
            number -= number % self.rng.choice((1, 1, 5, 12))
            if low <= number <= high and number not in self._numbers:
                self._numbers.add(number)
                return number
        return self.pick(range(low, high + 1))

    def pick(self, numbers: Iterable[int]) -> int:
        """Draw an unused number from a list, or raise DeadEndError."""
        left = [number for number in numbers if number not in self._numbers]
        if not left:
            raise DeadEndError
        number = self.rng.choice(left)
        self._numbers.add(number)
        return number

    def put(self, fact: Fact, values: Sequence[int] = ()) -> int:
        """Add a fact and return its value."""
        self.facts[fact.target] = fact
        value = fact.value(values)
        if value is None or value < 1:
            raise DeadEndError
        self.values[fact.target] = value
        return value

    def leaf(self, term: Blank, numbers: Iterable[int]) -> int:
        """Define a quantity as one of the given numbers.

        Raise DeadEndError if the quantity is already defined, or if all numbers are in use.
        """
        self.claim(term)
        return self.put(Fact(term.quantity, "is", self.pick(numbers)))

    def claim(self, term: Blank) -> None:
        """Reserve a quantity; raise DeadEndError if it is in use."""
        if term.quantity in self._claimed:
            raise DeadEndError
        self._claimed.add(term.quantity)

    def count(self, term: Blank, budget: int, most: int) -> int:
        """Define a quantity with `budget` premises and return its value."""
        self.claim(term)
        quantity = term.quantity
        if budget == 1:
            high = min(most, UNITS.get(quantity.unit, _LARGEST))
            return self.put(Fact(quantity, "is", self.number(_LEAST, max(_LEAST, high))))
        schemas = self.story.schemas.get(term.frame)
        # If `asked` is set, the last relation must use a quantity drawn by `far`.
        free = most >= _ROOM * budget and not (self.asked and budget == 2)
        if schemas and free and self.rng.random() < 0.6:
            return self.compose(term, self.rng.choice(schemas), budget, most)
        return self.relate(term, budget, most)

    def compose(self, term: Blank, schema: Relation, budget: int, most: int) -> int:
        """Define a quantity in terms of other quantities and return its value."""
        terms = [term._replace(frame=frame) for frame in schema.sources]
        first, last = terms[0], terms[-1]
        if schema.kind == "convert":
            factor = CONVERSIONS[first.quantity.unit, term.quantity.unit]
            values = [self.count(first, budget, most // factor)]
        elif schema.kind in ("sum", "around"):
            values = self.split(first, last, budget, most)
        else:
            each = 1
            if schema.kind == "product":
                each = min(60, most // (_ROOM // 4 * budget))
            whole = self.count(first, budget - 1, most // max(each, 1))
            numbers = {
                "product": range(2, each + 1),
                "minus": range(2, whole),
                "quotient": _divisors(whole),
            }
            try:
                values = [whole, self.leaf(last, numbers[schema.kind])]
            except DeadEndError:
                # The remainder must be smaller than the whole.
                kinds = ("fewer", "part", "cut") if schema.kind == "minus" else STEPS
                return self.derive(term, first, whole, kinds, most)
        wording = self.rng.choice(schema.texts).replace("{i}", term.item)
        sources = tuple(blank.quantity for blank in terms)
        return self.put(Fact(term.quantity, schema.kind, None, sources, wording), values)

    def split(self, first: Blank, last: Blank, budget: int, most: int) -> list[int]:
        """Define two quantities with `budget` premises in total and return both values."""
        part = self.rng.randint(1, budget - 1)
        values = []
        for term, premises in ((first, part), (last, budget - part)):
            values.append(self.count(term, premises, max(20, most * premises // budget)))
        return values

    def relate(self, term: Blank, budget: int, most: int) -> int:
        """Define a quantity relative to another, which is defined with `budget - 1` premises."""
        whole = Blank(term.owner, self.story.wholes.get(term.frame, ""), term.item)
        kinds: Sequence[str] = _PARTS
        known = not whole.frame or whole.quantity in self._claimed
        if known or self.rng.random() < 0.3:
            whole = self.far(term) if self.asked and budget == 2 else self.other(term)
            kinds = STEPS
        value = self.count(whole, budget - 1, most - 10)
        return self.derive(term, whole, value, kinds, most)

    def derive(
        self, term: Blank, source: Blank, value: int, kinds: Sequence[str], most: int
    ) -> int:
        """Define a quantity relative to a known quantity with the same unit."""
        if unit_of(term.frame) != unit_of(source.frame):
            raise DeadEndError
        if term.frame == AGE:
            kinds = ("more", "fewer", "times")
        usable = list(kinds)
        self.rng.shuffle(usable)
        # Fall back to `fewer`, because the value may not be divisible by any available number.
        for kind in (*usable, "fewer"):
            number = self.step(kind, value, most)
            if number is not None:
                return self.put(Fact(term.quantity, kind, number, (source.quantity,)), [value])
        raise DeadEndError

    def far(self, term: Blank) -> Blank:
        """Draw an unused quantity that shares no distinctive word with the question."""
        for _ in range(12):
            drawn = self.other(term)
            if self.asked.isdisjoint(words_of([drawn.quantity])):
                self.asked = frozenset()
                return drawn
        return self.other(term)

    def other(self, term: Blank) -> Blank:
        """Draw an unused quantity with the same unit, for a comparison."""
        for attempt in range(24):
            if attempt == 12:
                # This story may have no unused quantities left.
                self.story = STORIES[self.rng.choice(tuple(STORIES))]
            frames = self.story.frames.get(unit_of(term.frame), (term.frame,))
            # Usually change the person and the item, so that the quantity requires another search.
            owner, frame, item = self.rng.choice(self.cast), term.frame, term.item
            way = self.rng.random()
            if term.frame != AGE:
                if way >= 0.35:
                    frame = self.rng.choice(frames)
                if 0.15 <= way < 0.35 or way > 0.55:
                    item = self.rng.choice(self.story.items)
            # Avoid quantities that share a schema, because their values could be inconsistent.
            linked = self.story.linked.get(frame, (frame,))
            near = {Blank(owner, each, item).quantity for each in linked}
            if near.isdisjoint(self._claimed) and near.isdisjoint(self._asked):
                return Blank(owner, frame, item)
        raise DeadEndError

    def step(self, kind: str, value: int, most: int) -> int | None:
        """Draw a number for a relation; return None if no number fits."""
        try:
            rooms = {"more": most - value, "fewer": value - 2}
            if kind in rooms:
                return self.number(2, min(rooms[kind], max(150, most // 8)))
            if kind == "times":
                return self.pick(range(2, min(most // value, 5) + 1))
            least = {"part": 2, "rest": 3}
            if kind in least:
                return self.pick(_divisors(value, range(least[kind], 6)))
            room = 95
            if kind == "raise":
                room = min(room, 100 * most // value - 100)
            return self.pick(n for n in range(5, room + 1, 5) if value * n % 100 == 0)
        except DeadEndError:
            return None

    def start(self, budget: int) -> Blank:
        """Draw a quantity for the question."""
        frames = list(chain.from_iterable(self.story.frames.values()))
        if budget == 2 and self.asked:
            # Documents with the same unit of measure would share a word.
            frames = list(self.story.frames[""])
        composed = [frame for frame in frames if frame in self.story.schemas]
        frame = self.rng.choice(composed if self.rng.random() < 0.7 else frames)
        return Blank(self.cast[0], frame, self.rng.choice(self.story.items))

    def question(self, kind: str, budget: int, most: int) -> Question:
        """Draw a question and the facts that determine its answer."""
        first = self.start(budget)
        if kind == "total":
            if budget in _AGE_PREMISES and self.rng.random() < 0.06:
                first = first._replace(frame=AGE)
            self.ask(first)
            self.count(first, budget, most)
            return Question(kind, (first.quantity,))
        wording = ""
        if kind in ASKS:
            schema = self.rng.choice([ask for ask in self.story.asks if ask.kind == kind])
            wording = self.rng.choice(schema.texts)
            whole, part = schema.sources
            first, last = first._replace(frame=whole), first._replace(frame=part)
            if kind == "change":
                # Draw the price first, because the payment must exceed the price.
                first, last = last, first
        elif kind in ("left", "percentage"):
            part, whole = self.rng.choice(sorted(self.story.wholes.items()))
            first, last = first._replace(frame=whole), first._replace(frame=part)
        elif kind == "share":
            first = first._replace(frame=self.rng.choice(self.story.frames[""]))
            last = first._replace(frame=self.rng.choice(SHARERS))
        elif kind == "excess":
            kinds = [frame for frame in self.story.frames[""] if frame.startswith("{i}")]
            first = first._replace(frame=self.rng.choice(kinds))
            last = first._replace(item=self.rng.choice(self.story.items))
        else:
            last = first._replace(owner=self.cast[1])
        return self.pair(kind, first, last, budget, most, wording)

    def ask(self, *terms: Blank) -> None:
        """Record the quantities in the question and, if needed, the words of the question."""
        quantities = [term.quantity for term in terms]
        self._asked.update(quantities)
        if self.asked:
            self.asked = frozenset(words_of(quantities))

    def pair(
        self, kind: str, first: Blank, last: Blank, budget: int, most: int, wording: str
    ) -> Question:
        """Draw a question about two quantities."""
        self.ask(first, last)
        if kind in ("gap", "excess", "together", "area", "around"):
            values = self.split(first, last, budget, most if kind != "area" else 200)
        else:
            value = self.count(first, budget - 1, most)
            numbers = {
                "left": range(2, value),
                "need": range(2, value),
                "change": range(value + 1, value + 100),
                "share": _divisors(value),
                "percentage": [value * n // 100 for n in range(5, 100) if value * n % 100 == 0],
                "ratio": _divisors(value, range(2, value)),
                "average": range(_LEAST + (value + _LEAST) % 2, value + 60, 2),
            }
            values = [value, self.leaf(last, numbers[kind])]
        if kind == "change" or (kind in ("gap", "excess") and values[0] < values[-1]):
            first, last = last, first
        return Question(kind, (first.quantity, last.quantity), wording)


def _divisors(value: int, numbers: Iterable[int] = range(2, 41)) -> list[int]:
    return [n for n in numbers if value % n == 0 and value > n]


class DeadEndError(Exception):
    """Raised when a draft runs out of numbers or quantities."""
