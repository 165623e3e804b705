"""Notes of customers in the orders of shops."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from agentgym.envs.loca.phrase_book import PhraseBook, Slot, load_texts
from agentgym.envs.loca.slots import COMMON_SLOTS, NUMBERS

Shop: TypeAlias = Literal["furniture", "books"]
Fact: TypeAlias = tuple[str, Mapping[str, Any]]
"""Something that a sentence says: its kind in the book, and the values by slot."""

_REMARKS = (3, 5)
"""The fewest and the most remarks on delivery; who has more to say calls."""
_ASIDES = 3
"""The most sentences on calls, parcels and paper in a note to the bookshop."""


def _write_count(value: int, rng: np.random.Generator) -> str:
    return NUMBERS[value - 1] if value <= len(NUMBERS) and rng.integers(4) else str(value)


def _read_count(text: str) -> int:
    return NUMBERS.index(text) + 1 if text in NUMBERS else int(text)


SLOTS: Mapping[str, Slot] = {
    **COMMON_SLOTS,
    "product": Slot(r"[A-Z][a-z]+ \d+|Gift Card|Assembly"),
    "count": Slot(rf"{'|'.join(NUMBERS)}|\d+", _write_count, _read_count),
}
"""The types of slots in notes: a product by the name on the order, and a number of pieces."""


@functools.cache
def notes_book(shop: Shop) -> PhraseBook:
    """Return the sentences of the customers of a shop."""
    return PhraseBook(load_texts("order_notes")[shop], SLOTS)


def write_note(
    rng: np.random.Generator, shop: Shop, facts: Iterable[Fact], asides: Iterable[Fact], rate: float
) -> str:
    """Write a note.

    Args:
        rng: The generator to draw from.
        shop: The shop.
        facts: What the note says, in this order.
        asides: What it says besides, anywhere.
        rate: The probability of asides and of remarks on delivery.
    """
    book = notes_book(shop)
    texts = [book.write(kind, rng, values) for kind, values in facts]
    if rng.random() < rate:
        idle = [book.write(kind, rng, values) for kind, values in asides]
        count = int(rng.integers(_REMARKS[0], _REMARKS[1] + 1))
        idle += book.write_some("remark", rng, count, lambda: {"number": int(rng.integers(13, 29))})
        for text in dict.fromkeys(idle):
            texts.insert(int(rng.integers(len(texts) + 1)), text)
    return " ".join(texts)


_DECLINING: Sequence[Sequence[str]] = (
    ("declined",),
    ("invited", "revoked"),
    ("declined", "resumed", "revoked"),
)
_ALLOWING: Sequence[Sequence[str]] = (
    (),
    ("invited",),
    ("declined", "resumed"),
    ("declined", "resumed"),
)
_WISHES = {"declined": True, "revoked": True, "invited": False, "resumed": False}
"""Whether a sentence asks for no mails, by its kind."""


def draw_mail_wish(rng: np.random.Generator, rate: float, *, declined: bool) -> str:
    """Draw the note of a customer who wants no mails, or does not say so in the end.

    Args:
        rng: The generator to draw from.
        rate: See `write_note`.
        declined: Whether the customer wants no mails.
    """
    stories = _DECLINING if declined else _ALLOWING
    story = stories[int(rng.integers(len(stories)))]
    asides: list[Fact] = [("elsewhere", {})] * int(rng.integers(1, _ASIDES + 1))
    return write_note(rng, "books", [(kind, {}) for kind in story], asides, rate)


def declines_mails(note: str) -> bool:
    """Return whether the last sentence of a note about mails asks for none."""
    wishes = [_WISHES[kind] for kind, _ in notes_book("books").read(note) if kind in _WISHES]
    return bool(wishes) and wishes[-1]
