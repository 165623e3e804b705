"""Write and read PDF invoices in several layouts."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta

from numpy.random import Generator

from agentgym.envs.loca.draws import load_texts, pick, whole
from agentgym.envs.loca.published.invoices import find_facts, read_layout
from agentgym.envs.loca.records import Fields, Record
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook, PhraseSlot
from agentgym.office.files.pdfs import Block, Box, PdfTable, Text, write_pdf

_FACTS = {
    "id": re.compile(r"(?:Invoice number:|Invoice no\.|Invoice) ([A-Z]+-\d{4}-\d+)"),
    "supplier": re.compile(r"(?:Supplier|Seller|From|Issued by): (.+)"),
    "mail": re.compile(
        r"(?:Purchaser|Purchasing manager|Ordered by \(purchaser\)): .{0,200}?(?<![\w.])([\w.]{1,64}@mcp\.com)"
    ),
    "day": re.compile(r"(?:Invoice date|Date of invoice|Issued on): (.+)|Invoice no\. \S+ of (.+)"),
    "cents": re.compile(
        r"(?:Invoice total|Total with tax|Grand total): (?:\$|USD )?([\d,]+\.\d\d)"
    ),
}
# Probabilities that an unsettled invoice is partly paid, and that the payment is stated in a box
# instead of a note.
_PARTIAL_RATE, _BOX_RATE = 0.6, 0.4
# Values of the slot `money` are in cents.
SLOTS: Mapping[str, PhraseSlot] = {
    **COMMON_SLOTS,
    "money": PhraseSlot(
        r"\$\d{1,3}(?:,\d{3})*\.\d\d",
        lambda value, rng: f"${_money(value)}",
        lambda text: int(text[1:].replace(",", "").replace(".", "")),
    ),
}

# Kinds of phrases by payment status.
_BOXES = {"all": ("full",), "part": ("received", "open"), "none": ("nothing",)}
_NOTES = {
    "all": ("full", "full", "received", "instalments"),
    "part": ("received", "open", "open", "corrected", "instalments"),
    "none": ("nothing", "returned"),
}


@functools.cache
def payment_books() -> dict[str, PhraseBook]:
    """Return the phrase books for the boxes, notes and other remarks in invoices."""
    return {name: PhraseBook(texts, SLOTS) for name, texts in load_texts("payments").items()}


def write_payment(rng: Generator, paid: int, total: int, day: date, boxed: bool) -> str | Box:
    """Draw a note or a box about the payment of an invoice. Amounts are in cents."""
    status = "part"
    if paid == total:
        status = "all"
    elif not paid:
        status = "none"
    kind = pick(rng, (_BOXES if boxed else _NOTES)[status])
    first = paid * whole(rng, 2, 8) // 10
    values: Record = {
        "paid_money": paid,
        "open_money": total - paid,
        "old_money": total * whole(rng, 10, 90) // 100 + 1,
        "first_money": first,
        "second_money": paid - first,
        "first_date": (day + timedelta(days=5)).isoformat(),
        "second_date": (day + timedelta(days=9)).isoformat(),
    }
    books = payment_books()
    if boxed:
        return Box(books["boxes"].write(kind, rng, **values))
    notes = [books["notes"].write(kind, rng, **values)]
    for _ in range(whole(rng, 1, 4)):
        more = books["fillers"].write("remark", rng, note_money=100 * whole(rng, 20, 900))
        notes.insert(whole(rng, len(notes) + 1), more)
    return " ".join(dict.fromkeys(notes))


def read_payment(text: str, total: int) -> int:
    """Return the paid amount in cents, or raise ValueError if the text mentions no payment."""
    books = payment_books()
    found = [*books["boxes"].find(text), *books["notes"].find(text)]
    if not found:
        raise ValueError(f"the text must mention a payment in a box or a note, got {text!r}")
    kind, values = found[0]
    if kind == "full":
        return total
    if kind == "open":
        return int(total - values["open_money"])
    if kind == "instalments":
        return int(values["first_money"] + values["second_money"])
    return int(values.get("paid_money", 0))  # 0 if nothing was paid or the payment was returned


_TEXTS = load_texts("invoices")
SUPPLIERS: Mapping[str, str] = _TEXTS["suppliers"]
LAYOUTS: Sequence[Sequence[str]] = _TEXTS["layouts"]


def draw_invoice(
    rng: Generator, key: str, buyer: tuple[str, str], other: str, paid_rate: float
) -> tuple[Record, bytes]:
    """Draw an invoice, and return the facts (amounts in cents) and the PDF file."""
    net = 0
    table = [["Item", "Quantity", "Price", "Sum"]]
    lines = []
    for name in rng.choice(_TEXTS["goods"], whole(rng, 2, 7), replace=False).tolist():
        count, cents = whole(rng, 1, 41), whole(rng, 250, 90_000)
        net += count * cents
        price, cost = _money(cents), _money(count * cents)
        table.append([name, str(count), price, cost])
        lines.append(f"{count} x {name} at {price}: {cost}")
    tax = net * int(rng.choice([0, 7, 19])) // 100
    total = net + tax
    day = date(2024, 6, 1) + timedelta(days=whole(rng, 0, 200))
    paid = _draw_paid(rng, total, paid_rate)
    payment = write_payment(rng, paid, total, day, boxed=rng.random() < _BOX_RATE)
    supplier = SUPPLIERS[key.partition("-")[0]]
    host = re.sub(r"[^a-z]+", "-", supplier.lower()).strip("-")
    facts = {
        "id": key,
        "supplier": supplier,
        "mail": buyer[0],
        "name": buyer[1],
        "other": other,
        "host": host,
        "due": day + timedelta(days=30),
        "order": whole(rng, 100, 9999),
        "day": day,
        "net": _money(net),
        "tax": _money(tax),
        "total": _money(total),
    }
    parts: dict[str, Sequence[Block]] = {"|": [PdfTable(table)], "=": lines, "!": [payment]}
    pdf = write_pdf(_pages(pick(rng, LAYOUTS), facts, parts), title=host)
    known = {"id": key, "mail": buyer[0], "day": day.isoformat(), "cents": total, "paid": paid}
    return known, pdf


def _draw_paid(rng: Generator, total: int, full_rate: float) -> int:
    if rng.random() < full_rate:
        return total
    if rng.random() >= _PARTIAL_RATE:
        return 0
    # In half of the cases, only a cent or a dollar remains unpaid.
    share = total * whole(rng, 10, 81) // 100
    return int(rng.choice([share, share, total - 1, total - 100]))


def _pages(
    layout: Sequence[str], facts: Fields, parts: Mapping[str, Sequence[Block]]
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


def read_invoice(text: str) -> Record:
    """Return the facts in an invoice from agentgym or LOCA-bench, with amounts in cents."""
    published = read_layout(text)
    if published:
        return published
    facts = find_facts(text, _FACTS)
    facts["day"] = _read_day(facts["day"])
    facts["paid"] = read_payment(text, facts["cents"])
    return facts


def _read_day(text: str) -> str:
    for form in ("%Y-%m-%d", "%d %B %Y", "%B %d, %Y", "%d-%b-%Y"):
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, form).date().isoformat()
    raise ValueError(f"expected a date, got {text!r}")
