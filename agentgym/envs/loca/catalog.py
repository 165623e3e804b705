"""Shop products."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.random import Generator

from agentgym.envs.loca.draws import load_texts, pick, shuffled, whole
from agentgym.envs.loca.writing.phrase_book import Phrase, PhraseBook, PhraseSlot, sentences

SLOTS = {"number": PhraseSlot(r"\d+", read=int)}

# The suffix is often empty, so that many product names are prefixes of other names.
_VARIANTS = ("", "", " Pro", " Mini", " Plus", " Pro Plus", " Classic", " Set")
_COLOURS = ("", "", " Red", " Blue", " Green", " Grey", " Blue Grey", " Oak")
# Lower bounds and exclusive upper bounds of the numbers of specific and general sentences.
_SENTENCES = ((3, 3), (5, 5))


@functools.cache
def _departments() -> Mapping[str, Mapping[str, Sequence[Phrase]]]:
    texts = dict(load_texts("products"))
    del texts["any"]
    return {department: _by_name(**table) for department, table in texts.items()}


def _by_name(
    names: Sequence[str], about: Mapping[str, Sequence[str]]
) -> Mapping[str, Sequence[Phrase]]:
    phrases: dict[str, list[Phrase]] = {name: [] for name in names}
    for key, some in about.items():
        shared = [Phrase(text, SLOTS) for text in some]
        chosen = names if key == "all" else key.split(", ")
        for name in chosen:
            phrases[name] += shared
    return phrases


@functools.cache
def products_book() -> PhraseBook:
    """Return the phrases that fit products of any department."""
    return PhraseBook(load_texts("products")["any"], SLOTS)


def make_products(rng: Generator, count: int) -> list[dict[str, str]]:
    """Draw products, at most 900,000 because SKUs are unique."""
    products: list[dict[str, str]] = []
    seen = Counter[str]()
    departments = _departments()
    for number in rng.choice(np.arange(100_000, 1_000_000), count, replace=False).tolist():
        department = pick(rng, list(departments))
        kind, about = pick(rng, list(departments[department].items()))
        name = f"{kind}{pick(rng, _VARIANTS)}{pick(rng, _COLOURS)}"
        seen[name] += 1
        if seen[name] > 1:
            name += f" No. {seen[name]}"
        products.append(
            {
                "name": name,
                "sku": f"{department[:3].upper()}-{number}",
                "description": _describe(rng, about),
                "department": department,
            }
        )
    return products


def _describe(rng: Generator, about: Sequence[Phrase]) -> str:
    def values() -> dict[str, int]:
        return {"number": whole(rng, 20, 91), "few_number": whole(rng, 3, 10)}

    count, more = rng.integers(*_SENTENCES).tolist()
    texts = [phrase.write(rng, values()) for phrase in shuffled(rng, about, count)]
    return " ".join([*texts, *products_book().write_some("about", rng, more, values)])


def add_note(rng: Generator, description: str, kind: str) -> str:
    """Insert a sentence of the given kind into a product description."""
    parts = sentences(description)
    note = products_book().write(kind, rng, few_number=whole(rng, 3, 10))
    parts.insert(whole(rng, len(parts) + 1), note)
    return " ".join(parts)


def has_note(description: str, kind: str) -> bool:
    """Return whether a description contains a sentence of the given kind."""
    return any(found == kind for found, _ in products_book().read(description))


def cents(rng: Generator, low: int, high: int) -> str:
    """Draw a price in `[low, high)` cents and return a decimal string."""
    return in_decimals(whole(rng, low, high))


def in_decimals(hundredths: int) -> str:
    """Format hundredths as a decimal string, such as 1234 as `12.34`."""
    return f"{hundredths // 100}.{hundredths % 100:02}"
