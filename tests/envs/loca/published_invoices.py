"""States of PayableInvoiceChecker in the published form, written without the package's code."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reportlab.pdfgen import canvas  # type: ignore[import-untyped]

from tests.envs.loca.published_states import write_json, write_mailbox

# Sizes of header and body, and the line spacing.
STYLES = {
    "government": (12, 10, 18),
    "modern": (14, 11, 20),
    "traditional": (12, 10, 16),
    "corporate": (13, 10, 19),
    "minimalist": (11, 9, 15),
    "tabular": (10, 8, 12),
}
HEIGHT = 841.89


class Received(NamedTuple):
    """An invoice with its layout and the text on its payment."""

    style: str
    buyer: str
    total: float
    paid: float
    note: str


def heads_of(invoice: Received, key: str, day: str) -> Mapping[float, str]:
    if invoice.style == "government":
        return {50: f"Document ID: {key}", 350: f"Processing Date: {day}"}
    if invoice.style == "tabular":
        return {50: f"Invoice: {key}", 250: f"Date: {day}", 400: f"Amount: ${invoice.total:.2f}"}
    return {50: f"Invoice ID: {key}", 350: f"Date: {day}"}


def write_pdf(path: Path, key: str, day: str, supplier: str, invoice: Received) -> None:
    """Draw the texts where the published generator draws them, in its order."""
    header, body, space = STYLES[invoice.style]
    formal, tabular = invoice.style == "government", invoice.style == "tabular"
    page = canvas.Canvas(str(path), pagesize=(595.28, HEIGHT))

    def put(x: float, below: float, text: str, size: float = body, bold: bool = False) -> None:
        page.setFont("Helvetica-Bold" if bold else "Helvetica", size)
        page.drawString(x, HEIGHT - below, text)

    put(50, 40, "INVOICE REPORT" if tabular else "Invoice", header + 4, bold=True)
    y: float = 70
    for x, text in heads_of(invoice, key, day).items():
        put(x, y, text, header)
    if formal:
        y += space
        put(50, y, "Department: Accounts Payable", header)
    y += 1.5 * space
    label = "Supplier:"
    if formal or tabular:
        label = "VENDOR INFORMATION:" if formal else "Vendor:"
    put(50, y, label, header, bold=True)
    y += space
    put(50, y, supplier)
    put(50, y + (12 if tabular else 15), "Industrial Park, Suzhou New District")
    y += 1.5 * space + 12 if tabular else 2.5 * space
    if tabular:
        put(300, y - space, "Bill To:", header, bold=True)
        put(350, y - 1.5 * space, "Purchasing Dept")
        put(350, y - 1.5 * space + 12, invoice.buyer)
    else:
        to = "DEPARTMENT INFORMATION:" if formal else "Bill To:"
        put(300, y - 2.5 * space, to, header, bold=True)
        put(300, y - space, "Purchasing Department")
        put(300, y - space + 15, f"Contact: {invoice.buyer}")
    put(50, y, "LINE ITEMS:" if formal else "Items:", header, bold=True)
    y += 1.5 * space
    for cells in (
        ("Description", "Qty", "Unit Price", "Total"),
        ("Testing", "1", "$9.50", "$9.50"),
    ):
        for x, text in zip((50, 250, 350, 450), cells, strict=True):
            put(x, y, text)
        y += space
    y += 45
    put(350, y, f"Total Amount: ${invoice.total:.2f}", header, bold=True)
    y += 2 * space
    put(50, y, "Terms: Net 30" if tabular else "Payment Terms: Net 30 days")
    put(50, y + 15, "Account: 6228" if tabular else "Bank Account: 6228")
    y += 15 + space
    boxed = invoice.note.startswith("PAYMENT STATUS")
    put(55 if boxed else 50, y, invoice.note, 16 if boxed else body, bold=boxed)
    if boxed and "PARTIAL" in invoice.note:
        put(55, y + 20, f"Remaining Balance: ${invoice.total - invoice.paid:.2f}")
    put(50, y + 50, "Authorized Signature: David Brown")
    put(350, y + 50, "Date: 2024-12-28")
    page.save()


def fill_warehouse(
    database: sqlite3.Connection,
    entries: Sequence[Mapping[str, Any]],
    payments: Sequence[Mapping[str, Any]],
) -> None:
    """Write the two tables as the published server stores them."""
    columns = {
        "INVOICES": "SUPPLIER_NAME TEXT, INVOICE_AMOUNT TEXT, PURCHASER_EMAIL TEXT, INVOICE_DATE TEXT",
        "INVOICE_PAYMENTS": "PAYMENT_AMOUNT TEXT, OUTSTANDING_FLAG REAL",
    }
    for (name, kinds), rows in zip(columns.items(), (entries, payments), strict=True):
        table = f"PURCHASE_INVOICE_PUBLIC_{name}"
        database.execute(f"CREATE TABLE {table} (INVOICE_ID TEXT, {kinds})")
        for row in rows:
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO {table} VALUES ({marks})", [*row.values()])
    database.commit()


def write_lines(path: Path, records: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")


def write_invoices(
    state: Path, invoices: Mapping[str, Received], others: Sequence[tuple[str, float]]
) -> None:
    """Write a state with received invoices by number, and paid ones in the tables."""
    files, truth = state / "agent_workspace" / "files", state / "groundtruth_workspace"
    files.mkdir(parents=True)
    records = []
    for k, (key, each) in enumerate(invoices.items(), 1):
        day, supplier = f"2024-03-{k:02}", f"Supplier {k} Co., Ltd."
        write_pdf(files / f"{key}.pdf", key, day, supplier, each)
        status = {
            "paid_amount": each.paid,
            "flag": int(each.paid < each.total),
            "show_status": True,
        }
        records.append(
            {"invoice_id": key, "date": day, "supplier": supplier, "buyer_email": each.buyer,
             "total_amount": each.total, "items": [], "payment_status": status}
        )  # fmt: skip
    write_lines(truth / "invoice.jsonl", records)
    entries = [
        {"invoice_id": key, "supplier_name": "Lamp's Inc.", "invoice_amount": amount,
         "purchaser_email": "JSmith@mcp.com", "invoice_date": "2022-05-06"}
        for key, amount in others
    ]  # fmt: skip
    paid = [
        {"invoice_id": key, "payment_amount": amount, "outstanding_flag": 0}
        for key, amount in others
    ]
    write_lines(truth / "interference_invoices.jsonl", entries)
    write_lines(truth / "interference_payments.jsonl", paid)
    folder = state / "local_db" / "snowflake"
    write_json(folder / "insights.json", [])
    with contextlib.closing(sqlite3.connect(folder / "snowflake.db")) as database:
        fill_warehouse(database, entries, paid)
    users = {"walkera@mcp.com": "Anthony Walker", "JSmith@mcp.com": "J Smith"}
    users |= {each.buyer: "Purchasing" for each in invoices.values()}
    write_mailbox(state, users, "walkera@mcp.com", [])
