"""Products for the shops of office tasks. Many names are prefixes of others, so a search by name is
ambiguous.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from agentgym.envs.loca.draws import pick, shuffled
from agentgym.envs.loca.writing.phrase_book import (
    Phrase,
    PhraseBook,
    PhraseSlot,
    load_texts,
    sentences,
)

SLOTS = {"number": PhraseSlot(r"\d+", read=int)}
"""Slot types of the product texts."""

# Empty variants and colours are twice as likely: plain names are prefixes of others.
_VARIANTS = ("", "", " Pro", " Mini", " Plus", " Pro Plus", " Classic", " Set")
_COLOURS = ("", "", " Red", " Blue", " Green", " Grey", " Blue Grey", " Oak")
# Ranges [low, high) of specific and of general sentences: together a paragraph.
_SENTENCES = ((3, 3), (5, 5))


@functools.cache
def _departments() -> Mapping[str, tuple[Sequence[str], Sequence[Phrase]]]:
    return {
        department: (texts["names"], [Phrase(text, SLOTS) for text in texts["about"]])
        for department, texts in load_texts("products").items()
        if "names" in texts
    }


@functools.cache
def products_book() -> PhraseBook:
    """Return the phrases that fit products of any department."""
    return PhraseBook(load_texts("products")["any"], SLOTS)


def make_products(rng: np.random.Generator, count: int) -> list[dict[str, str]]:
    """Draw products with `name`, `sku`, `description` and `department`.

    Names and SKUs are unique, and neither reveals the order.

    Args:
        rng: The random generator.
        count: The number of products, at most 900,000 (the number of SKUs).
    """
    products: list[dict[str, str]] = []
    seen = Counter[str]()
    departments = _departments()
    for number in rng.choice(np.arange(100_000, 1_000_000), count, replace=False).tolist():
        department = pick(rng, list(departments))
        names, about = departments[department]
        name = f"{pick(rng, names)}{pick(rng, _VARIANTS)}{pick(rng, _COLOURS)}"
        seen[name] += 1
        products.append(
            {
                "name": name if seen[name] == 1 else f"{name} No. {seen[name]}",
                "sku": f"{department[:3].upper()}-{number}",
                "description": _describe(rng, about),
                "department": department,
            }
        )
    return products


def _describe(rng: np.random.Generator, about: Sequence[Phrase]) -> str:

    def values() -> dict[str, int]:
        return {"number": int(rng.integers(20, 91)), "few_number": int(rng.integers(3, 10))}

    count, more = (int(each) for each in rng.integers(*_SENTENCES))
    texts = [phrase.write(rng, values()) for phrase in shuffled(rng, about, count)]
    return " ".join([*texts, *products_book().write_some("about", rng, more, values)])


def add_note(rng: np.random.Generator, description: str, kind: str) -> str:
    """Insert a sentence of a kind into a description, for example that the product is discontinued."""
    parts = sentences(description)
    note = products_book().write(kind, rng, few_number=int(rng.integers(3, 10)))
    parts.insert(int(rng.integers(len(parts) + 1)), note)
    return " ".join(parts)


def has_note(description: str, kind: str) -> bool:
    """Return whether a description contains a sentence of a kind."""
    return any(found == kind for found, _ in products_book().read(description))


def cents(rng: np.random.Generator, low: int, high: int) -> str:
    """Draw a price in `[low, high)` cents, formatted with two decimals."""
    return in_decimals(int(rng.integers(low, high)))


def in_decimals(hundredths: int) -> str:
    """Format hundredths with two decimals."""
    return f"{hundredths // 100}.{hundredths % 100:02}"
