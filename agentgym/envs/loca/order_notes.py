"""Notes of customers in the orders of shops."""

from __future__ import annotations

import functools
from typing import Literal, TypeAlias

import numpy as np

from agentgym.envs.loca.phrase_book import PhraseBook, load_texts
from agentgym.envs.loca.slots import COMMON_SLOTS

Shop: TypeAlias = Literal["furniture", "books"]

_REMARKS = 3
"""The most remarks of a customer; who has more to say calls."""


@functools.cache
def notes_book(shop: Shop) -> PhraseBook:
    """Return the sentences of the customers of a shop."""
    return PhraseBook(load_texts("order_notes")[shop], COMMON_SLOTS)


def draw_note(rng: np.random.Generator, shop: Shop, kind: str, rate: float) -> str:
    """Draw a note with a sentence of a kind; an empty kind stands for no such sentence.

    Args:
        rng: The generator to draw from.
        shop: The shop.
        kind: The kind of the sentence.
        rate: The probability of remarks on delivery, around the sentence.
    """
    book = notes_book(shop)
    count = int(rng.integers(1, _REMARKS + 1)) if rng.random() < rate else 0
    texts = book.write_some("remark", rng, count, lambda: {"number": int(rng.integers(13, 29))})
    if kind:
        texts.insert(int(rng.integers(len(texts) + 1)), book.write(kind, rng))
    return " ".join(texts)


def note_says(shop: Shop, note: str, kind: str) -> bool:
    """Return whether a note has a sentence of a kind."""
    return any(found == kind for found, _ in notes_book(shop).read(note))
