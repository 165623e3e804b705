"""Facts: statements about quantities, written as sentences and parsed back.

A numeric fact contains a premise's number; a structural fact defines a quantity from others. One
table writes and parses several wordings of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random
from typing import NamedTuple

from agentgym.envs.gsm_agent.vocabulary import ROLES
from agentgym.envs.reading import load_texts


class Quantity(NamedTuple):
    """A noun phrase and its owner."""

    owner: str
    phrase: str

    @property
    def money(self) -> bool:
        """Return whether the quantity is in dollars."""
        return self.phrase.startswith(
            ("bill for", "price of", "payment for", "coupon for", "spending at")
        )


@dataclass(frozen=True, slots=True)
class Fact:
    """Definition of a quantity by a number and other quantities.

    Attributes:
        kind: `is`, `more`, `fewer`, `times`, `part` (numeric; all except `is` have one source), or
            `sum`, `minus`, `product`.
        number: None in a structural fact.
    """

    target: Quantity
    kind: str
    number: int | None = None
    sources: tuple[Quantity, ...] = ()

    def value(self, values: Sequence[int]) -> int | None:
        """Compute the target from the sources; None if it is not whole."""
        number = self.number or 0
        if self.kind == "is":
            return number
        first, last = values[0], values[-1]
        if self.kind == "part":
            return first // number if number and first % number == 0 else None
        results = {
            "more": first + number,
            "fewer": first - number,
            "times": first * number,
            "sum": first + last,
            "minus": first - last,
            "product": first * last,
        }
        return results[self.kind]

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners of its quantities, the target's first."""
        return tuple(dict.fromkeys((self.target.owner, *(source.owner for source in self.sources))))


_WORDS = {
    ("times", 2): "twice",
    ("times", 3): "three times",
    ("times", 4): "four times",
    ("part", 2): "half",
    ("part", 3): "a third",
    ("part", 4): "a quarter",
}
NUMBER_WORDS = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen"
    r"|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|dozen|once|twice|thrice|double|triple|half"
    r"|third|thirds|quarter|quarters|single|pair|couple|first|second|both|percent)\b",
    re.IGNORECASE,
)
_WORDINGS = load_texts(__file__, "wordings")
_COUNTS: Mapping[str, Sequence[str]] = _WORDINGS["counts"]
_MONEY: Mapping[str, Sequence[str]] = _WORDINGS["money"]
# Full names or roles, the only owners of facts.
_SOMEBODY = re.compile(rf"(?:[A-Z][a-z]+ [A-Z][a-z]+|[Tt]he (?:{'|'.join(ROLES)}))")
_FACTORS = {word: key for key, word in _WORDS.items()}


def number_word(fact: Fact) -> str:
    """Write a fact's number: digits, or a word such as `twice`."""
    return _WORDS.get((fact.kind, fact.number or 0), str(fact.number))


def write_fact(fact: Fact, rng: Random, names: Mapping[str, str] | None = None) -> str:
    """Write a fact as a sentence; `names` replaces owners."""
    owners = [(names or {}).get(owner, owner) for owner in fact.owners]
    kind = "times" if fact.kind == "part" else fact.kind
    table = _MONEY if fact.target.money else _COUNTS
    first, last, *_ = [*(source.phrase for source in fact.sources), "", ""]
    text = rng.choice(table[f"{kind}2" if len(owners) == 2 else kind]).format(
        w=owners[0],
        w2=owners[-1],
        p=fact.target.phrase,
        a=first,
        b=last,
        n=fact.number,
        f=number_word(fact),
    )
    return f"{text[0].upper()}{text[1:]}."


@lru_cache(maxsize=4096)  # scripted policies read the same documents at every step
def read_facts(text: str, names: tuple[str, ...]) -> tuple[Fact, ...]:
    """Parse the facts in a document; a role stands for the first name in its metadata."""
    # A cheap filter: most sentences of a record contain no fact.
    sentences = filter(_SOMEBODY.search, re.split(r"(?<=\.)\s+|\n", text))
    return tuple(fact for sentence in sentences if (fact := _read_sentence(sentence, names)))


def _read_sentence(sentence: str, names: Sequence[str]) -> Fact | None:
    for kind, money, pattern in _patterns():
        match = pattern.search(sentence)
        if match is None:
            continue
        parts = match.groupdict()
        owner, other = (_owner(parts.get(key, ""), names) for key in ("w", "w2"))
        sources = [Quantity(other or owner, parts[key]) for key in ("a", "b") if key in parts]
        target = Quantity(owner, parts["p"])
        if target.money != money or not owner:
            continue
        if "f" in parts:
            factor, number = _FACTORS[parts["f"]]
            return Fact(target, factor, number, tuple(sources))
        return Fact(target, kind, int(parts["n"]) if "n" in parts else None, tuple(sources))
    return None


def _owner(text: str, names: Sequence[str]) -> str:
    role = text.removeprefix("the ").removeprefix("The ")
    return names[0] if names and role in ROLES else text


@cache
def _patterns() -> tuple[tuple[str, bool, re.Pattern[str]], ...]:
    """Return the wordings as patterns, longest first, because they may contain shorter ones."""
    slots = {key: rf"(?P<{key}>{_SOMEBODY.pattern})" for key in ("w", "w2")} | {
        key: rf"(?P<{key}>[a-z ]+?)" for key in "pab"
    }
    slots |= {"n": "(?P<n>[0-9]+)", "f": f"(?P<f>{'|'.join(_FACTORS)})"}
    order = ("more2", "fewer2", "times2", "more", "fewer", "times", "sum", "minus", "product", "is")
    patterns = []
    for money, table in ((True, _MONEY), (False, _COUNTS)):
        for kind in order:
            for wording in table[kind]:
                # Introductions may precede a sentence.
                text = re.sub("^The ", "[Tt]he ", wording).format(**slots)
                patterns.append((kind.removesuffix("2"), money, re.compile(rf"^{text}\.$")))
    return tuple(sorted(patterns, key=lambda item: order.index(item[0])))


def solve(facts: Mapping[Quantity, Fact], target: Quantity) -> int | None:
    """Compute a quantity from facts; None if something is missing."""
    values: dict[Quantity, int | None] = {}
    pending = [target]
    while pending:
        quantity = pending[-1]
        fact = facts.get(quantity)
        if quantity in values:
            pending.pop()
        elif fact is None:
            values[quantity] = None
        # A source that is pending already would be a cycle; it stays unknown.
        elif missing := [
            source for source in fact.sources if source not in values and source not in pending
        ]:
            pending.append(missing[0])
        else:
            numbers = [values.get(source) for source in fact.sources]
            present = [number for number in numbers if number is not None]
            values[quantity] = fact.value(present) if len(present) == len(numbers) else None
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
