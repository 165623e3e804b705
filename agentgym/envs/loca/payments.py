"""What invoices say about their payment: stamped in a box or told in a note among others."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import numpy as np

from agentgym.envs.loca.phrase_book import PhraseBook, Slot, load_texts
from agentgym.envs.loca.servers.files.pdf_blocks import Box
from agentgym.envs.loca.slots import COMMON_SLOTS

SLOTS: Mapping[str, Slot] = {
    **COMMON_SLOTS,
    "money": Slot(
        r"\$\d{1,3}(?:,\d{3})*\.\d\d",
        lambda value, rng: f"${value // 100:,}.{value % 100:02}",
        lambda text: int(text[1:].replace(",", "").replace(".", "")),
    ),
}
"""The types of slots in texts about payments; `money` is in cents."""

# The kinds of texts that fit a payment; open balances and returned sums are the hard ones.
_BOXES = {"all": ("full",), "part": ("received", "open"), "none": ("nothing",)}
_NOTES = {
    "all": ("full", "full", "received", "instalments"),
    "part": ("received", "open", "open", "corrected", "instalments"),
    "none": ("nothing", "returned"),
}


@functools.cache
def payment_books() -> dict[str, PhraseBook]:
    """Return the texts in boxes, the notes, and other remarks."""
    return {name: PhraseBook(texts, SLOTS) for name, texts in load_texts("payments").items()}


def write_payment(
    rng: np.random.Generator, paid: int, total: int, day: date, boxed: bool
) -> str | Box:
    """Draw what an invoice says about its payment.

    Args:
        rng: The generator to draw from.
        paid: The cents that were paid.
        total: The cents of the invoice.
        day: The day of the invoice.
        boxed: Whether a box says it, in place of a note.
    """
    status = "all" if paid == total else "part" if paid else "none"
    kinds = (_BOXES if boxed else _NOTES)[status]
    kind = kinds[int(rng.integers(len(kinds)))]
    first = paid * int(rng.integers(2, 8)) // 10
    values: dict[str, Any] = {
        "paid_money": paid,
        "open_money": total - paid,
        "old_money": total * int(rng.integers(10, 90)) // 100 + 1,
        "first_money": first,
        "second_money": paid - first,
        "first_date": (day + timedelta(days=5)).isoformat(),
        "second_date": (day + timedelta(days=9)).isoformat(),
    }
    books = payment_books()
    if boxed:
        return Box(books["boxes"].write(kind, rng, **values))
    notes = [books["notes"].write(kind, rng, **values)]
    for _ in range(int(rng.integers(1, 4))):
        more = books["fillers"].write("remark", rng, note_money=100 * int(rng.integers(20, 900)))
        notes.insert(int(rng.integers(len(notes) + 1)), more)
    return " ".join(dict.fromkeys(notes))


def read_payment(text: str, total: int) -> int:
    """Return the cents that were paid of an invoice, by its text.

    Raises:
        ValueError: The text says nothing of it.
    """
    books = payment_books()
    for book in (books["boxes"], books["notes"]):
        for kind, values in book.find(text):
            return _paid(kind, values, total)
    raise ValueError("the text says nothing of a payment")


def _paid(kind: str, values: Mapping[str, int], total: int) -> int:
    if kind == "full":
        return total
    if kind == "open":
        return total - values["open_money"]
    if kind == "instalments":
        return values["first_money"] + values["second_money"]
    return values["paid_money"] if kind in ("received", "corrected") else 0
