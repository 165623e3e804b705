"""Grade-school problems drawn without a model: a question and its premises, with whole numbers.

A problem is a tree of quantities. Each premise is a numeric fact; structural facts define
composites. Numbers are drawn from the leaves up and leave whole numbers in range for the quantities
that depend on them, so no draw is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated

from pydantic import Field

from agentgym.envs.gsm_agent.facts import Fact, Quantity, solve
from agentgym.envs.gsm_agent.questions import Question
from agentgym.envs.gsm_agent.vocabulary import (
    CONTAINERS,
    EVENTS,
    MODIFIERS,
    NOUNS,
    PARTINGS,
    PLACES,
)
from agentgym.world.config import Choice, Config

OPERATORS = ("more", "fewer", "times", "part", "sum", "minus", "product", "gap", "share")
MOST_PREMISES = 128  # nine times the paper's longest problem
LOG_MEAN, LOG_SIGMA, MOST_DRAWN = 1.4116, 0.380, 14
"""Documents per task, as in table 3 of the paper: a rounded log-normal number from 1 to 14."""

# Dead ends are a matter of chance. With fewer drafts, kinds that fail more often would be rarer.
_PLANS, _DRAFTS = 10, 20
# Premises per part that splitting a quantity requires; or the parts get none.
_ROOM = 40
# People in a problem; a gap is between two people and needs a third for its premises.
_CAST = (2, 3)


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with the facts that determine its answer."""

    question: Question
    facts: Mapping[Quantity, Fact]
    answer: int

    def premises(self) -> list[tuple[Fact, ...]]:
        """Return the facts of each document: one numeric fact after the structural facts that lead
        to it.
        """
        order: list[tuple[Fact, ...]] = []
        carried: list[Fact] = []
        pending = list(reversed(self.question.targets))
        while pending:
            fact = self.facts[pending.pop()]
            carried.append(fact)
            if fact.number is not None:
                order.append(tuple(carried))
                carried = []
            pending.extend(reversed(fact.sources))
        return order

    def needs_several_searches(self) -> bool:
        """Return whether a document names nobody from the question."""
        named = {target.owner for target in self.question.targets}
        return any(
            named.isdisjoint(owner for fact in facts for owner in fact.owners)
            for facts in self.premises()
        )


@dataclass
class Draft:
    """A problem under construction.

    Attributes:
        cast: The people it may involve.
        largest: The maximum number of a quantity so far.
    """

    rng: Random
    cast: Sequence[str]
    operators: Sequence[str]
    facts: dict[Quantity, Fact] = field(default_factory=dict)
    largest: int = 0
    _items: set[str] = field(default_factory=set)
    _numbers: set[int] = field(default_factory=set)

    def item(self) -> str:
        """Draw an unused item."""
        while True:
            item = f"{self.rng.choice(MODIFIERS)} {self.rng.choice(NOUNS)}"
            if item not in self._items:
                self._items.add(item)
                return item

    def number(self, low: int, high: int) -> int:
        """Draw an unused number in [low, high], small ones more often.

        Raises:
            _DeadEndError: No such number exists.
        """
        for _ in range(30):
            # Log-uniform, which favours small numbers.
            number = int(low * ((high + 1) / low) ** self.rng.random()) if 0 < low <= high else 0
            if low <= number <= high and number not in self._numbers:
                break
        else:
            # Nearly all numbers are in use, so list the others.
            left = [number for number in range(low, high + 1) if number not in self._numbers]
            if not left:
                raise _DeadEndError
            number = self.rng.choice(left)
        self._numbers.add(number)
        return number

    def put(self, fact: Fact, values: Sequence[int] = ()) -> int:
        """Add a fact and return its value."""
        self.facts[fact.target] = fact
        value = fact.value(values)
        if value is None or value < 1:
            raise _DeadEndError
        self.largest = max(self.largest, value)
        return value

    def other(self, owner: str) -> str:
        """Draw the owner of a quantity to compare with; often the same owner."""
        return self.rng.choice(self.cast) if self.rng.random() < 0.5 else owner

    def count(self, target: Quantity, budget: int, most: int, item: str = "") -> int:
        """Draw a number of things from `budget` premises."""
        if budget == 1:
            return self.put(Fact(target, "is", self.number(3, max(3, min(most, 400)))))
        splits = [
            kind
            for kind in ("sum", "minus", "product")
            if kind in self.operators and item and most >= _ROOM * budget
        ]
        if not splits or self.rng.random() < 0.55:
            return self.relate(target, budget, most)
        kind = self.rng.choice(splits)
        if kind == "sum":
            first, last = (
                Quantity(target.owner, f"{item} {place}") for place in self.rng.sample(PLACES, 2)
            )
            part = self.rng.randint(1, budget - 1)
            room = max(20, most * part // budget), max(20, most * (budget - part) // budget)
            values = self.count(first, part, room[0]), self.count(last, budget - part, room[1])
        elif kind == "minus":
            first, last = (
                Quantity(target.owner, f"{item} {words}") for words in self.rng.choice(PARTINGS)
            )
            whole = self.count(first, budget - 1, most)
            values = whole, self.put(Fact(last, "is", self.number(2, whole - 1)))
        else:
            boxes, box = self.rng.choice(CONTAINERS)
            sources = (
                Quantity(target.owner, f"{boxes} of {item}"),
                Quantity(target.owner, f"{item} in each {box}"),
            )
            return self.product(target, sources, budget, most)
        return self.put(Fact(target, kind, None, (first, last)), values)

    def relate(self, target: Quantity, budget: int, most: int) -> int:
        """Draw a quantity relative to another, which gets the other premises."""
        item = self.item()
        phrase = f"bill for the {item}" if target.money else item
        source = Quantity(self.other(target.owner), phrase)
        draw = self.bill if target.money else self.count
        value = draw(source, budget - 1, most - 10, item)
        kinds = [kind for kind in ("more", "fewer", "times", "part") if kind in self.operators]
        self.rng.shuffle(kinds)
        for kind in kinds:
            draw_number = self.factor if kind in ("times", "part") else self.step
            number = draw_number(kind, value, most)
            if number is not None:
                return self.put(Fact(target, kind, number, (source,)), [value])
        raise _DeadEndError

    def factor(self, kind: str, value: int, most: int) -> int | None:
        """Draw a factor for multiplying or dividing, if possible."""
        factors = [
            n
            for n in (2, 3, 4)
            if n not in self._numbers
            and (n * value <= most if kind == "times" else value % n == 0 and value > n)
        ]
        if not factors:
            return None
        number = self.rng.choice(factors)
        self._numbers.add(number)
        return number

    def step(self, kind: str, value: int, most: int) -> int | None:
        """Draw a number to add or subtract, if possible."""
        limit = most - value if kind == "more" else value - 2
        return self.spare(2, min(limit, max(150, most // 8))) if limit >= 5 else None

    def spare(self, low: int, high: int) -> int | None:
        """Draw an unused number in [low, high], if possible."""
        try:
            return self.number(low, high)
        except _DeadEndError:
            return None

    def product(
        self,
        target: Quantity,
        sources: tuple[Quantity, Quantity],
        budget: int,
        most: int,
        item: str = "",
    ) -> int:
        """Draw a product, or a relation if no number is left."""
        each = self.spare(2, min(60, most // (_ROOM // 4 * budget)))
        if each is None:
            return self.relate(target, budget, most)
        whole = self.count(sources[0], budget - 1, most // each, item)
        values = whole, self.put(Fact(sources[1], "is", each))
        return self.put(Fact(target, "product", None, sources), values)

    def bill(self, target: Quantity, budget: int, most: int, item: str) -> int:
        """Draw the dollars for an item."""
        if budget == 1:
            return self.put(Fact(target, "is", self.number(3, max(3, min(most, 400)))))
        if "product" not in self.operators or most < _ROOM * budget or self.rng.random() < 0.3:
            return self.relate(target, budget, most)
        things, price = Quantity(target.owner, item), Quantity(target.owner, f"price of the {item}")
        return self.product(target, (things, price), budget, most, item)

    def money(self, owner: str, budget: int, most: int) -> Quantity:
        """Draw a question about one or two bills."""
        kinds = ["bill", *(kind for kind in ("minus", "sum") if kind in self.operators)]
        kind = self.rng.choice(kinds) if budget > 1 else "bill"
        item = self.item()
        bill = Quantity(owner, f"bill for the {item}")
        if kind == "bill":
            self.bill(bill, budget, most, item)
            return bill
        if kind == "minus":
            target, last = (
                Quantity(owner, f"{word} for the {item}") for word in ("payment", "coupon")
            )
            whole = self.bill(bill, budget - 1, most, item)
            values = whole, self.put(Fact(last, "is", self.number(2, whole - 1)))
        else:
            second = self.item()
            target, last = (
                Quantity(owner, f"spending at the {self.rng.choice(EVENTS)}"),
                Quantity(owner, f"bill for the {second}"),
            )
            part = self.rng.randint(1, budget - 1)
            values = (
                self.bill(bill, part, most // 2, item),
                self.bill(last, budget - part, most // 2, second),
            )
        self.put(Fact(target, kind, None, (bill, last)), values)
        return target

    def target(self, owner: str, budget: int, most: int, dollars: bool) -> Quantity:
        """Draw a quantity for a question."""
        if dollars:
            return self.money(owner, budget, most)
        item = self.item()
        target = Quantity(owner, item)
        self.count(target, budget, most, item)
        return target

    def question(self, kind: str, budget: int, most: int) -> Question:
        """Draw a question and the facts that determine its answer."""
        owner, dollars = self.cast[0], self.rng.random() < 0.35 and kind != "share"
        if kind == "total":
            return Question(kind, (self.target(owner, budget, most, dollars),))
        if kind == "gap":
            other = self.cast[-1]
            part = self.rng.randint(1, budget - 1)
            targets = [
                self.target(owner, part, most, dollars),
                self.target(other, budget - part, most, dollars),
            ]
            # Larger first: the answer must not be negative.
            targets.sort(key=lambda target: -(solve(self.facts, target) or 0))
            return Question(kind, tuple(targets))
        target = self.target(owner, budget - 1, most, dollars=False)
        value = solve(self.facts, target) or 0
        # Only divisors leave a whole share.
        shares = [
            n for n in range(2, 31) if value % n == 0 and value > n and n not in self._numbers
        ]
        if not shares:
            raise _DeadEndError
        helpers = Quantity(owner, f"helpers sharing the {target.phrase}")
        self.put(Fact(helpers, "is", self.rng.choice(shares)))
        return Question(kind, (target, helpers))


class _DeadEndError(Exception):
    """No number in range is left for the draft."""


@dataclass(frozen=True, kw_only=True)
class ProblemOptions(Config):
    """Options of the problems.

    Attributes:
        premises: The number of premises per problem; None for the paper's distribution (1 to 14, 4.4
            on average).
        operators: The relations that premises may use. They must include `more`, which is always
            possible.
        max_answer: The maximum number of a quantity.
    """

    premises: Annotated[int, Field(ge=1, le=MOST_PREMISES)] | None = None
    operators: tuple[Annotated[str, Choice(OPERATORS)], ...] = OPERATORS
    max_answer: Annotated[int, Field(ge=100, le=1_000_000)] = 2_000

    def __post_init__(self) -> None:
        # JSON specs contain lists instead of tuples.
        object.__setattr__(self, "operators", tuple(self.operators))
        super().__post_init__()
        if "more" not in self.operators:
            raise ValueError(
                f"operators must hold 'more', which is always possible, got {list(self.operators)}"
            )


def draw_problem(
    rng: Random, people: Sequence[str], options: ProblemOptions, several_searches: bool = True
) -> Problem:
    """Draw a problem for `people`.

    With `several_searches`, which takes at least three names, some document names nobody from the
    question. This has no effect on a single premise.

    Raises:
        ValueError: No numbers fit these options.
    """
    budget = options.premises or min(
        max(round(rng.lognormvariate(LOG_MEAN, LOG_SIGMA)), 1), MOST_DRAWN
    )
    kinds = ["total", "total", *(kind for kind in ("gap", "share") if kind in options.operators)]
    for _ in range(_PLANS):
        # Both premises of a short gap or share concern people whom the question names.
        kind = rng.choice(kinds) if budget > 2 else "total"
        size = max(_CAST) if kind == "gap" else rng.choice(_CAST)
        cast = rng.sample(people, min(size, len(people)))
        for _ in range(_DRAFTS):
            problem = _draft_problem(Draft(rng, cast, options.operators), kind, budget, options)
            if problem is None:
                continue
            if budget == 1 or not several_searches or problem.needs_several_searches():
                return problem
    raise ValueError(
        f"no problem with {budget} premises was found below max_answer={options.max_answer}; raise "
        "max_answer"
    )


def _draft_problem(draft: Draft, kind: str, budget: int, options: ProblemOptions) -> Problem | None:
    try:
        question = draft.question(kind, budget, options.max_answer)
    except _DeadEndError:
        return None
    answer = question.answer(draft.facts)
    # A gap of 0 gives nothing to ask for.
    if not answer or answer < 0 or draft.largest > options.max_answer:
        return None
    return Problem(question, draft.facts, answer)
