"""LOCA-bench's invoices: PDF layouts, states and the success rule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from agentgym.envs.loca.published.files import finite_or, read_json_lines
from agentgym.envs.loca.records import Record, Rows
from agentgym.office.email.server import Email
from agentgym.office.files.pdfs import read_pdf
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.text.tools import ToolError

_TOTAL = "Total Amount: $"  # only in LOCA-bench's layouts
_FACTS = {
    "id": re.compile(r"(?:Document ID|Invoice ID|Invoice): ([\w-]+?)\s*(?:Processing )?Date:"),
    "supplier": re.compile(r"(?:VENDOR INFORMATION|Vendor|Supplier):\s*\n(.+)"),
    "mail": re.compile(r"([\w.]+@mcp\.com)"),
    "day": re.compile(r"Date: (\d{4}-\d\d-\d\d)"),
    "cents": re.compile(re.escape(_TOTAL) + r"(\d+\.\d\d)"),
}
_PART = re.compile(
    r"(?:PARTIAL \(|Partial payment received: |Payment in progress: |Partial settlement: )\$(\d+\.\d\d)"
)
_FULL = re.compile(
    r"\bPAID \(|Payment received and confirmed|Invoice paid in full|Payment completed|Fully settled"
)
_SUBJECT, _COMMENT, _LIMIT = "process outstanding invoices", "0=Paid, 1=Outstanding", 0.01 + 1e-9
# Names of users who must not receive a payment request, in the checker's spelling.
_STRANGERS = "JSmith MBrown AWilliams RJohnson LDavis KWilson TMiller SAnderson".split()
_Amount: TypeAlias = Annotated[float, Field(ge=0, le=1e10)]
_Flag: TypeAlias = Literal[0, 1]


@dataclass(frozen=True)
class _Status:
    paid_amount: _Amount
    flag: _Flag


@dataclass(frozen=True)
class _Invoice:
    invoice_id: Annotated[str, Field(pattern=r"^[\w-]+$")]
    date: date
    supplier: str
    buyer_email: str
    total_amount: _Amount
    payment_status: _Status

    def facts(self) -> Record:
        return {
            "id": self.invoice_id,
            "supplier": self.supplier,
            "mail": self.buyer_email,
            "day": self.date.isoformat(),
            "cents": round(100 * self.total_amount),
            "paid": round(100 * self.payment_status.paid_amount),
        }


@dataclass(frozen=True)
class _Entry:
    invoice_id: str
    supplier_name: str
    invoice_amount: _Amount
    purchaser_email: str
    invoice_date: date


@dataclass(frozen=True)
class _Payment:
    invoice_id: str
    payment_amount: _Amount
    outstanding_flag: _Flag


def read_layout(text: str) -> Record | None:
    """Return an invoice's facts, with amounts in cents, or None if the layout is unknown."""
    if _TOTAL not in text:
        return None
    facts = find_facts(text, _FACTS)
    facts["paid"] = 0
    if part := _PART.search(text):
        facts["paid"] = int(part[1].replace(".", ""))
    elif _FULL.search(text):
        facts["paid"] = facts["cents"]
    return facts


def find_facts(text: str, patterns: Mapping[str, re.Pattern[str]]) -> Record:
    """Return the text that each pattern captures; the pattern `cents` captures an amount."""
    facts: Record = {}
    for name, pattern in patterns.items():
        match = pattern.search(text)
        if not match:
            raise ValueError(f"the text must contain {name}")
        facts[name] = (match[1] or match[2]).strip()
    facts["cents"] = int(re.sub("[,.]", "", facts["cents"]))
    return facts


def read_invoices(state: Path) -> Mapping[str, tuple[Record, bytes]]:
    """Return the facts and the PDF file of each invoice, by file name."""
    path = state / "groundtruth_workspace" / "invoice.jsonl"
    records = read_json_lines(path, TypeAdapter(_Invoice))
    names = [f"{record.invoice_id}.pdf" for record in records]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{path}: each invoice_id must occur once, got {names}")
    folder = state / "agent_workspace"
    paths = filter(Path.is_file, folder.rglob("*"))
    found = sorted(path.relative_to(folder).as_posix() for path in paths)
    expected = sorted(f"files/{name}" for name in names)
    if found != expected:
        raise ValueError(f"{folder} must contain only the files {expected}, got {found}")
    invoices = {}
    for name, record in zip(names, records, strict=True):
        file, facts = folder / "files" / name, record.facts()
        data = file.read_bytes()
        try:
            shown = read_layout("\n".join(read_pdf(data)))
        except (ToolError, ValueError) as error:
            raise ValueError(f"{file}: {error}") from None
        if shown != facts or record.payment_status.flag != (facts["paid"] < facts["cents"]):
            raise ValueError(f"{file} must match {path}, got {shown}")
        invoices[name] = facts, data
    return invoices


def read_entries(state: Path) -> list[Record]:
    """Return the rows of the invoice and payment tables, joined by invoice."""
    folder = state / "groundtruth_workspace"
    entries = read_json_lines(folder / "interference_invoices.jsonl", TypeAdapter(_Entry))
    path = folder / "interference_payments.jsonl"
    payments = read_json_lines(path, TypeAdapter(_Payment))
    if [payment.invoice_id for payment in payments] != [entry.invoice_id for entry in entries]:
        raise ValueError(f"{path} must contain the same ids as interference_invoices.jsonl")
    rows = []
    for entry, payment in zip(entries, payments, strict=True):
        row = {
            "INVOICE_ID": entry.invoice_id,
            "SUPPLIER_NAME": entry.supplier_name,
            "INVOICE_AMOUNT": round(entry.invoice_amount, 2),
            "PURCHASER_EMAIL": entry.purchaser_email,
            "INVOICE_DATE": entry.invoice_date.isoformat(),
            "PAYMENT_AMOUNT": round(payment.payment_amount, 2),
            "OUTSTANDING_FLAG": payment.outstanding_flag,
        }
        rows.append(row)
    return rows


def invoice_failures(
    snowflake: Snowflake, email: Email, expected: Rows, buyers: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Check the invoice ids, the payments, the column comment and each buyer's INBOX.

    `expected` contains the old and new rows. `buyers` maps email addresses to the files of invoices
    that are not paid in full.
    """
    invoices = "PURCHASE_INVOICE.PUBLIC.INVOICES"
    payments = "PURCHASE_INVOICE.PUBLIC.INVOICE_PAYMENTS"
    entered = {str(row["INVOICE_ID"]) for row in snowflake.rows(invoices)}
    paid = {}
    for entry in snowflake.rows(payments):
        paid[str(entry["INVOICE_ID"])] = (entry["PAYMENT_AMOUNT"], entry["OUTSTANDING_FLAG"])
    comment = snowflake.comments(payments)["OUTSTANDING_FLAG"]
    wanted = {row["INVOICE_ID"]: row for row in expected}
    if entered != wanted.keys():
        yield f"INVOICES lacks or has beside: {sorted(entered ^ wanted.keys())}"
    for key, row in wanted.items():
        amount, flag = paid.get(key, (-1.0, -1))
        # Like the published rule, accept a cell that does not contain a number.
        if abs(finite_or(amount, row["PAYMENT_AMOUNT"]) - row["PAYMENT_AMOUNT"]) > _LIMIT:
            yield f"{key} has the payment {amount}, expected {row['PAYMENT_AMOUNT']}"
        if int(finite_or(flag, row["OUTSTANDING_FLAG"])) != row["OUTSTANDING_FLAG"]:
            yield f"{key} has the flag {flag}, expected {row['OUTSTANDING_FLAG']}"
    if comment.strip() != _COMMENT:
        yield f"the comment is {comment!r}"
    yield from _request_failures(email, buyers)


def _request_failures(email: Email, buyers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    known = {user["email"] for user in email.users()}
    strangers: dict[str, Sequence[str]] = {f"{name}@mcp.com": [] for name in _STRANGERS}
    for address, names in {**strangers, **buyers}.items():
        mails = email.messages(address, "INBOX") if address in known else []
        stems = [name.removesuffix(".pdf") for name in names]
        right = 0
        for mail in mails:
            if _SUBJECT in mail.subject.lower() and all(stem in mail.body for stem in stems):
                right += 1
        if right != bool(names):
            yield f"{address} has {right} mails with {names}"
