"""Random choices, people's names and values for generated office texts."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

ItemT = TypeVar("ItemT")


def pick(rng: np.random.Generator, items: Sequence[ItemT]) -> ItemT:
    """Draw one item. Same draw as `rng.choice`, without its slow conversion to an array."""
    return items[int(rng.integers(len(items)))]


def shuffled(
    rng: np.random.Generator, items: Sequence[ItemT], count: int | None = None
) -> list[ItemT]:
    """Return `count` items (all by default) in random order."""
    return [items[k] for k in rng.permutation(len(items))[:count].tolist()]


def pick_by_share(rng: np.random.Generator, shares: Mapping[ItemT, float]) -> ItemT:
    """Draw an item by its probability; the last item gets the remaining probability."""
    items, limits = list(shares), list(itertools.accumulate(shares.values()))
    return items[min(bisect.bisect(limits, rng.random()), len(items) - 1)]


class DrawnValues(dict[str, Any]):
    """Values for the slots of sentences, some drawn on access: most sentences use one slot or none.

    Args:
        draws: Functions that draw a value, by slot.
        **known: The values of other slots.
    """

    def __init__(self, draws: Mapping[str, Callable[[], Any]], **known: Any) -> None:
        super().__init__(known)
        self._draws = draws

    def __missing__(self, slot: str) -> Any:
        return self._draws[slot]()


FIRST = (
    "Ada Adam Alan Alana Alex Alexa Amir Ana Anaya Ann Anna Ben Benita Bo Bruno Carl Carla Chen "
    "Clara Dan Dana Daniel Dora Elif "
    "Elin Ella Eva Evan Farid Finn Gia Hana Hanna Hugo Ida Ines Ivan Ivana Jan Jana Joan Joanna "
    "Jon Jonas Jun Kai Kaia Karl Karla "
    "Lea Lena Leo Leon Leona Lin Lina Mara Maria Mario Max Maxine Mei Mia Mika Mila Nils Nina Noa "
    "Noah Nora Omar Owen Paul Paula "
    "Ravi Rita Rosa Sam Samira Sara Sven Tara Theo Tim Timo Tina Uma Vera Victor Yan Yara Yusuf Zoe"
).split()
LAST = (
    "Abe Abel Adler Alves Amin Anders Anderson Bach Bacher Bauer Beck Becker Berg Berger Bianchi "
    "Blom Brand Brandt Braun Brown "
    "Browning Carter Castro Chan Chang Cole Coleman Costa Cruz Dahl Diaz Dias Dube Duran Eriks "
    "Eriksen Evans Fischer Ford Fox "
    "Franco Fuchs Garcia Gray Green Greene Haas Hall Hansen Hart Hartman Hill Hoff Hoffman Ito "
    "Jansen John Johns Johnson Kang "
    "Keller Khan Kim Kimura King Klein Kraus Lang Lange Larsen Lee Leeds Levi Levin Lima Lind "
    "Lindberg Lopez Lund Martin Martinez "
    "Mayer Mehta Meyer Mori Moritz Nair Nelson Novak Okada Olsen Ortiz Park Parker Patel Perez "
    "Perry Peters Petersen Pohl Popov "
    "Ramos Rao Reid Reyes Ricci Rich Richards Rob Roberts Robertson Rossi Roth Ruiz Sand Sanders "
    "Santos Sato Schmid Schmidt Shah "
    "Silva Singh Smith Smithson Sousa Stein Steiner Stone Suzuki Tan Tanaka Thomas Thompson Torres "
    "Vega Wagner Wang Ward Weber "
    "Weiss West Weston White Wong Wood Woods Wu Yamada Yang Young Zhang Zhao Zimmer"
).split()
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def people(rng: np.random.Generator, count: int) -> list[str]:
    """Draw different full names, at most 386,694; above 14,322 names have middle initials."""
    pairs = len(FIRST) * len(LAST)
    total = pairs if count <= pairs else pairs * (1 + len(_LETTERS))
    names = []
    for number in map(int, rng.choice(total, count, replace=False)):
        middle, pair = divmod(number, pairs)
        first, last = FIRST[pair // len(LAST)], LAST[pair % len(LAST)]
        names.append(f"{first} {_LETTERS[middle - 1]}. {last}" if middle else f"{first} {last}")
    return names


def address(name: str, number: int, domain: str) -> str:
    """Return an email address for a person; `number` makes it unique."""
    return f"{name.lower().replace('.', '').replace(' ', '.')}{number}@{domain}"
