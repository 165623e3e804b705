"""Random choices, names and text files for generated offices."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from numpy.random import Generator

from agentgym.envs import reading
from agentgym.envs.loca.records import Fields

ItemT = TypeVar("ItemT")


def whole(rng: Generator, low: int, high: int | None = None) -> int:
    """Draw an integer from `[low, high)`, or from `[0, low)` if `high` is None."""
    return int(rng.integers(low, high))


def pick(rng: Generator, items: Sequence[ItemT]) -> ItemT:
    """Draw one item."""
    # `rng.choice` draws the same items, but first converts them to an array, which is slow.
    return items[int(rng.integers(len(items)))]


def shuffled(rng: Generator, items: Sequence[ItemT], count: int | None = None) -> list[ItemT]:
    """Return `count` items (all by default) in random order."""
    return [items[k] for k in rng.permutation(len(items))[:count].tolist()]


def pick_by_share(rng: Generator, shares: Mapping[ItemT, float]) -> ItemT:
    """Draw an item by probability; the last item gets any remaining probability."""
    items, limits = list(shares), list(itertools.accumulate(shares.values()))
    return items[min(bisect.bisect(limits, rng.random()), len(items) - 1)]


class DrawnValues(dict[str, Any]):
    """Dictionary of slot values that draws a missing value on access."""

    def __init__(self, draws: Mapping[str, Callable[[], Any]], **known: Any) -> None:
        super().__init__(known)
        self._draws = draws

    def __missing__(self, slot: str) -> Any:
        return self._draws[slot]()


@functools.cache
def load_texts(name: str) -> Fields:
    """Return the tables of a TOML file in the folder `texts`, which callers must not modify."""
    return reading.load_texts(__file__, name)


def text_of(file: str, key: str) -> str:
    """Return a string from a TOML file in the folder `texts`."""
    return str(load_texts(file)[key])


_NAMES = load_texts("names")
FIRST: Sequence[str] = _NAMES["first"]
LAST: Sequence[str] = _NAMES["last"]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def people(rng: Generator, count: int) -> list[str]:
    """Draw distinct full names, at most 386,694."""
    pairs = len(FIRST) * len(LAST)
    total = pairs if count <= pairs else pairs * (1 + len(_LETTERS))
    names = []
    for number in map(int, rng.choice(total, count, replace=False)):
        middle, pair = divmod(number, pairs)
        parts = [FIRST[pair // len(LAST)], LAST[pair % len(LAST)]]
        if middle:
            parts.insert(1, f"{_LETTERS[middle - 1]}.")
        names.append(" ".join(parts))
    return names


def address(name: str, number: int, domain: str) -> str:
    """Return an email address; `number` makes it unique."""
    return f"{name.lower().replace('.', '').replace(' ', '.')}{number}@{domain}"
