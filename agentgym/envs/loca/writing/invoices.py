"""Invoices as PDF files: six layouts that put the same facts in other words, orders and forms, and
what they say about their payment, stamped in a box or told in a note among others.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from agentgym.envs.loca.draws import pick
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook, Slot, load_texts
from agentgym.office.files.pdf_blocks import Block, Box, PdfTable, Text
from agentgym.office.files.pdfs import write_pdf

SLOTS: Mapping[str, Slot] = {
    **COMMON_SLOTS,
    "money": Slot(
        r"\$\d{1,3}(?:,\d{3})*\.\d\d",
        lambda value, rng: f"${_money(value)}",
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
    kind = pick(rng, (_BOXES if boxed else _NOTES)[status])
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


SUPPLIERS = {
    "NS": "Northern Steel", "NSW": "Northern Steel Works", "ON": "O'Neil & Sons", "MW": "Müller Werkzeuge", "BP": "Baker Paper",
    "BPL": "Baker Paper Ltd.", "AC": "Alpha Cable", "HL": "Harbor Logistics, Inc.", "QT": "Quick Toner", "GV": "Green Valley Foods",
    "SE": "Sato Electronics", "LB": "Lindberg Bros.",
}  # fmt: skip
GOODS = ("Steel bolts|Copper wire|Toner|Copy paper|Safety gloves|Drill bits|Cable ducts|LED panels|Coffee beans|Pallets|Labels|"
         "Adhesive tape|Bearings|Filters|Batteries|Monitors").split("|")  # fmt: skip
# Signs at the beginning of a line: `#` a title, `|` a table of goods, `=` goods in lines, `!` what
# was paid, `/` a new page.
LAYOUTS = (
    ("#INVOICE", "Invoice number: {id}", "Supplier: {supplier}", "Invoice date: {iso}", "Payable until: {due:%Y-%m-%d}",
     "Purchaser: {name}, {mail}", "|", "Subtotal: ${net}", "Tax: ${tax}", "Invoice total: ${total}", "!"),
    ("#{supplier}", "!", "Seller: {supplier}", "Invoice no. {id} of {long}", "Your order: PO-{year}-{order}",
     "Purchasing manager: {name} ({mail})", "|", "Net USD {net} plus tax USD {tax}", "Total with tax: USD {total}"),
    ("Please pay within 30 days, that is until {due:%d %B %Y}.", "#Invoice {id}", "Date of invoice: {us}", "From: {supplier}",
     "Goods taken in by: {other}", "Ordered by (purchaser): {mail}", "=", "Total with tax: ${total} (of which tax ${tax})", "!"),
    ("#Delivery and invoice", "Replaces our quotation QU-{year}-{order}.", "Supplier: {supplier}", "Purchaser: {mail}", "=", "/",
     "#Payment", "Invoice number: {id}", "Issued on: {long}", "Amount without tax: ${net}", "Invoice total: ${total}", "!"),
    ("Questions? billing@{host}.example.com", "#Bill", "Issued by: {supplier}", "Invoice number: {id}", "Issued on: {short}",
     "Due on: {due:%d-%b-%Y}", "!", "|", "Grand total: USD {total}", "The tax in it is USD {tax}.", "Purchasing manager: {mail}"),
    ("#Invoice {id}", "=", "Sum of the goods: {net}", "Tax: {tax}", "Grand total: {total}", "All amounts in USD.", "!", "/",
     "Seller: {supplier}", "Invoice date: {us}", "Delivered on: {due:%B %d, %Y}", "Purchaser: {name}, {mail}",
     "Copy for the files to: {other}"),
)  # fmt: skip


def draw_invoice(
    rng: np.random.Generator,
    key: str,
    buyer: tuple[str, str],
    other: str,
    rates: Mapping[str, float],
) -> tuple[dict[str, Any], bytes]:
    """Draw an invoice.

    Args:
        rng: The generator to draw from.
        key: Its number, which begins with the letters of its supplier.
        buyer: Address and name of the purchaser.
        other: Another address that may be on it.
        rates: The probabilities that it is paid in full (`paid`), that otherwise a part is paid
            (`partial`), and that a box shows it (`box`).

    Returns:
        Its facts, amounts in cents, and its file.
    """
    goods = [
        (str(name), int(rng.integers(1, 41)), int(rng.integers(250, 90_000)))
        for name in rng.choice(GOODS, int(rng.integers(2, 7)), replace=False)
    ]
    net = sum(amount * price for _, amount, price in goods)
    tax = net * int(rng.choice([0, 7, 19])) // 100
    day = date(2024, 6, 1) + timedelta(days=int(rng.integers(0, 200)))
    paid = _draw_paid(rng, net + tax, rates)
    payment = write_payment(rng, paid, net + tax, day, boxed=rng.random() < rates["box"])
    supplier = SUPPLIERS[key.partition("-")[0]]
    host = re.sub(r"[^a-z]+", "-", supplier.lower()).strip("-")
    facts = {
        "id": key,
        "supplier": supplier,
        "mail": buyer[0],
        "name": buyer[1],
        "other": other,
        "host": host,
        "year": day.year,
        "due": day + timedelta(days=30),
        "order": int(rng.integers(100, 9999)),
        "iso": f"{day}",
        "us": f"{day:%B %d, %Y}",
        "net": _money(net),
        "tax": _money(tax),
        "total": _money(net + tax),
        "long": f"{day.day} {day:%B %Y}",
        "short": f"{day:%d-%b-%Y}",
    }
    table = [
        ["Item", "Quantity", "Price", "Sum"],
        *([n, f"{q}", _money(p), _money(q * p)] for n, q, p in goods),
    ]
    lines = [f"{q} x {n} at {_money(p)}: {_money(q * p)}" for n, q, p in goods]
    parts: dict[str, Sequence[Block]] = {"|": [PdfTable(table)], "=": lines, "!": [payment]}
    pdf = write_pdf(_pages(pick(rng, LAYOUTS), facts, parts), title=host)
    return {
        "id": key,
        "mail": buyer[0],
        "day": day.isoformat(),
        "cents": net + tax,
        "paid": paid,
    }, pdf


def _draw_paid(rng: np.random.Generator, total: int, rates: Mapping[str, float]) -> int:
    """Draw the cents paid of an invoice."""
    if rng.random() < rates["paid"]:
        return total
    if rng.random() >= rates["partial"]:
        return 0
    # As often as not little is missing, down to a cent.
    share = total * int(rng.integers(10, 81)) // 100
    return int(rng.choice([share, share, total - 1, total - 100]))


def _pages(
    layout: Sequence[str], facts: Mapping[str, Any], parts: Mapping[str, Sequence[Block]]
) -> list[list[Block]]:
    pages: list[list[Block]] = [[]]
    for line in layout:
        if line == "/":
            pages.append([])
        elif line in parts:
            pages[-1] += parts[line]
        else:
            text = line.removeprefix("#").format(**facts)
            pages[-1].append(Text(text, 16, bold=True) if line[0] == "#" else text)
    return pages


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"
