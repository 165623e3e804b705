"""Notes of customers in the orders of shops."""

from __future__ import annotations

import functools
from typing import Literal, TypeAlias

import numpy as np

from agentgym.envs.loca.phrase_book import PhraseBook, load_texts
from agentgym.envs.loca.slots import COMMON_SLOTS

Shop: TypeAlias = Literal["furniture", "books"]


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
        rate: The probability of a remark on delivery, before the sentence or after it.
    """
    book = notes_book(shop)
    texts = [book.write(kind, rng)] if kind else []
    if rng.random() < rate:
        remark = book.write("remark", rng, number=int(rng.integers(13, 29)))
        texts.insert(int(rng.integers(len(texts) + 1)), remark)
    return " ".join(texts)


def note_says(shop: Shop, note: str, kind: str) -> bool:
    """Return whether a note has a sentence of a kind."""
    return any(found == kind for found, _ in notes_book(shop).read(note))
