"""Random choices and values for office texts, of which a state has thousands."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

ItemT = TypeVar("ItemT")


def pick(rng: np.random.Generator, items: Sequence[ItemT]) -> ItemT:
    """Draw one of some items, the one that `rng.choice` draws, which makes an array of them first
    and takes five times as long.
    """
    return items[int(rng.integers(len(items)))]


def pick_by_share(rng: np.random.Generator, shares: Mapping[ItemT, float]) -> ItemT:
    """Draw one of some items, each with its probability; what is missing to 1 goes to the last."""
    items, limits = list(shares), list(itertools.accumulate(shares.values()))
    return items[min(bisect.bisect(limits, rng.random()), len(items) - 1)]


class DrawnValues(dict[str, Any]):
    """Values for the slots of sentences. Some are drawn each time that a sentence asks for them, as
    most sentences have one slot or none.

    Args:
        draws: Functions that draw a value, by slot.
        **known: The values of other slots.
    """

    def __init__(self, draws: Mapping[str, Callable[[], Any]], **known: Any) -> None:
        super().__init__(known)
        self._draws = draws

    def __missing__(self, slot: str) -> Any:
        return self._draws[slot]()
