from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from agentgym.envs.loca.tasks.payable_invoice_checker import (
    COMMENT,
    FLAG,
    INVOICES,
    ME,
    PAYMENTS,
    SUBJECT,
    key_of,
)
from agentgym.envs.loca.writing.invoices import LAYOUTS, SUPPLIERS, draw_invoice
from agentgym.office.email.server import Email
from agentgym.office.files.pdfs import read_pdf
from agentgym.office.warehouse.snowflake import Snowflake
from tests.envs.loca.office import final_state_tests

TASK = "PayableInvoiceChecker"
LENGTH, SEED = 40_000, 2


def new(world: Any) -> dict[str, Any]:
    return next(
        invoice
        for k, invoice in enumerate(world.truth["invoices"])
        if k not in world.truth["entered"]
    )


def old(world: Any) -> str:
    return str(world.truth["rows"][0]["INVOICE_ID"])


def sql(text: str, which: Callable[[Any], str] | None = None) -> Callable[[Any], None]:
    def apply(world: Any) -> None:
        key = which(world) if which else new(world)["id"]
        world.office.call(
            "write_query",
            {
                "query": text.replace("?", f"'{key}'")
                .replace("$INV", INVOICES)
                .replace("$PAY", PAYMENTS)
            },
        )

    return apply


def in_columns(**changes: Any) -> Callable[[Any], None]:
    """Change a column's definition directly, because SQL statements would also change rows."""

    def apply(world: Any) -> None:
        engine = world.office.get(Snowflake).engine
        name = key_of(INVOICES)
        table = engine.tables[name]
        columns = [table.columns[0], replace(table.columns[1], **changes), *table.columns[2:]]
        engine.tables[name] = replace(table, columns=tuple(columns))

    return apply


def mails(
    change: Callable[[dict[str, Any]], list[dict[str, Any]]], every: bool = False
) -> Callable[[Any], None]:
    def apply(world: Any) -> None:
        email = world.office.get(Email)
        sent = email.sent()
        email.store.delete("mails", folder="Sent")
        for mail in sent:
            email.store.delete("mails", folder="INBOX")
            email.store.delete("messages", message_id=mail.message_id)
        for k, mail in enumerate(sent):
            told = {"to": mail.recipients[0], "subject": mail.subject, "body": mail.body}
            for each in change(told) if every or k == 0 else [told]:
                world.office.call("send_email", each)

    return apply


def names(told: dict[str, Any]) -> list[str]:
    return re.findall(r"\S+\.pdf", told["body"])


def paid_file(world: Any) -> None:
    file = next(
        invoice["file"]
        for invoice in world.truth["invoices"]
        if invoice["paid"] == invoice["cents"]
    )
    mails(lambda told: [told | {"body": f"{told['body']}\n{file}"}])(world)


def enter_again(world: Any) -> None:
    row = next(row for row in world.truth["rows"] if row["INVOICE_ID"] == entered(world))
    sql(f"INSERT INTO $PAY VALUES (?, {row['PAYMENT_AMOUNT']}, {row[FLAG]})", entered)(world)


def entered(world: Any) -> str:
    return str(world.truth["invoices"][world.truth["entered"][0]]["id"])


NEAR_MISSES: dict[str, tuple[Callable[[Any], object], str]] = {
    "an invoice is missing": (sql("DELETE FROM $INV WHERE INVOICE_ID = ?"), "is missing"),
    "a payment is missing": (sql("DELETE FROM $PAY WHERE INVOICE_ID = ?"), "is missing"),
    "an invoice twice": (sql("INSERT INTO $INV SELECT * FROM $INV WHERE INVOICE_ID = ?"), "should not be there"),
    "an invoice that was entered before": (enter_again, "should not be there"),
    "an invoice that is nowhere": (sql("INSERT INTO $PAY VALUES ('ZZ-2024-1', 1, 0)"), "should not be there"),
    "a cent more": (sql("UPDATE $INV SET INVOICE_AMOUNT = INVOICE_AMOUNT + 0.01 WHERE INVOICE_ID = ?"), "INVOICE_AMOUNT of"),
    "a cent less paid": (sql("UPDATE $PAY SET PAYMENT_AMOUNT = PAYMENT_AMOUNT - 0.01 WHERE INVOICE_ID = ?"), "PAYMENT_AMOUNT of"),
    "another flag": (sql(f"UPDATE $PAY SET {FLAG} = 1 - {FLAG} WHERE INVOICE_ID = ?"), f"{FLAG} of"),
    "no flag": (sql(f"UPDATE $PAY SET {FLAG} = NULL WHERE INVOICE_ID = ?"), f"{FLAG} of"),
    "another supplier": (sql("UPDATE $INV SET SUPPLIER_NAME = SUPPLIER_NAME || ' Ltd.' WHERE INVOICE_ID = ?"), "SUPPLIER_NAME of"),
    "another purchaser": (sql(f"UPDATE $INV SET PURCHASER_EMAIL = '{ME}' WHERE INVOICE_ID = ?"), "PURCHASER_EMAIL of"),
    "the day it is due": (sql("UPDATE $INV SET INVOICE_DATE = DATEADD(day, 30, INVOICE_DATE) WHERE INVOICE_ID = ?"), "DATE of"),
    "names without .pdf": (mails(lambda told: [told | {"body": told["body"].replace(".pdf", "")}], every=True), "is missing"),
    "HTML that says another thing": (mails(lambda told: [told | {"html_body": "<p>All invoices are paid.</p>"}]), "is missing"),
    "HTML that hides the names": (
        mails(lambda told: [told | {"html_body": f'<p style="display: none">{told["body"]}</p>'}]),
        "not shown",
    ),
    "a table more": (sql("CREATE TABLE PURCHASE_INVOICE.PUBLIC.KEPT AS SELECT * FROM $INV"), "snowflake.tables"),
    "a description": (sql("COMMENT ON TABLE $INV IS 'done'"), "snowflake.tables"),
    "an old row is gone": (sql("DELETE FROM $INV WHERE INVOICE_ID = ?", old), "is missing"),
    "an old payment was changed": (sql("UPDATE $PAY SET PAYMENT_AMOUNT = 1 WHERE INVOICE_ID = ?", old), "is missing"),
    "a table was emptied": (sql("DELETE FROM $PAY"), "is missing"),
    "a table was dropped": (sql("DROP TABLE $INV"), "there is no table"),
    "a column more": (sql("CREATE OR REPLACE TABLE $PAY AS SELECT *, 1 AS NOTE FROM $PAY"), "columns of"),
    "no comment": (sql(f"COMMENT ON COLUMN $PAY.{FLAG} IS ''"), "the comment of"),
    "another comment": (sql(f"COMMENT ON COLUMN $PAY.{FLAG} IS '0=paid, 1=outstanding'"), "the comment of"),
    "the comment of another column": (sql(f"COMMENT ON COLUMN $INV.INVOICE_DATE IS '{COMMENT}'"), "the comment of"),
    "the subject in small letters": (mails(lambda told: [told | {"subject": SUBJECT.lower()}]), "has the subject"),
    "names of other files": (mails(lambda told: [told | {"body": told["body"].replace(".pdf", ".pdf.exe")}]), "is missing"),
    "a name that goes on": (mails(lambda told: [told | {"body": f"{told['body']}.bak"}]), "should not be there"),
    "names that are struck out": (
        mails(lambda told: [told | {"html_body": f"<p><s>{told['body']}</s></p>"}]),
        "not shown",
    ),
    "a default of a column": (in_columns(default="'x'"), "has a default"),
    "another key": (in_columns(key=True), "columns of"),
    "a blank behind a value": (
        sql("UPDATE $INV SET SUPPLIER_NAME = SUPPLIER_NAME || ' ' WHERE INVOICE_ID = ?"),
        "SUPPLIER_NAME of",
    ),
    "a file is missing": (mails(lambda told: [told | {"body": "\n".join(names(told)[1:])}]), "is missing"),
    "a file that is paid": (paid_file, "should not be there"),
    "a file that is not there": (mails(lambda told: [told | {"body": f"{told['body']}\nscan_1.pdf"}]), "should not be there"),
    "all files in all mails": (
        lambda w: mails(lambda told: [told | {"body": " ".join(i["file"] for i in w.truth["invoices"])}], every=True)(w),
        "should not be there",
    ),
}  # fmt: skip

EQUIVALENTS: dict[str, Callable[[Any], object]] = {
    "the rows in another order": sql(
        "UPDATE $PAY SET PAYMENT_AMOUNT = PAYMENT_AMOUNT WHERE INVOICE_ID = ?", old
    ),
    "an insert of its own": lambda world: (
        sql("CREATE TABLE PURCHASE_INVOICE.PUBLIC.KEPT AS SELECT * FROM $INV WHERE INVOICE_ID = ?")(
            world
        ),
        sql("DELETE FROM $INV WHERE INVOICE_ID = ?")(world),
        sql("INSERT INTO $INV SELECT * FROM PURCHASE_INVOICE.PUBLIC.KEPT")(world),
        sql("DROP TABLE PURCHASE_INVOICE.PUBLIC.KEPT")(world),
    ),
    "an address in capitals": sql(
        "UPDATE $INV SET PURCHASER_EMAIL = UPPER(PURCHASER_EMAIL) WHERE INVOICE_ID = ?"
    ),
    "the comment by another statement": sql(
        f"ALTER TABLE $PAY MODIFY COLUMN {FLAG} COMMENT '{COMMENT}'"
    ),
    "in a sentence": mails(
        lambda told: [told | {"body": f"Open: {', '.join(names(told))}. Please look at them."}],
        every=True,
    ),
    "as a list": mails(
        lambda told: [told | {"body": "".join(f"- {name}\n" for name in names(told)[::-1])}],
        every=True,
    ),
    "as HTML": mails(
        lambda told: [
            told
            | {
                "body": "See below.",
                "html_body": "".join(f"<li>{name}</li>" for name in names(told)),
            }
        ],
        every=True,
    ),
    "in an HTML table": mails(
        lambda told: [told | {"html_body": "".join(f"<td>{name}</td>" for name in names(told))}],
        every=True,
    ),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, length=LENGTH, seed=SEED
)


FULL = re.compile(
    r"PAID IN FULL|SETTLED|RECEIPTED|payment in full|(paid|settled) completely|covered the whole|Nothing remains"
    r"|no balance left|paid all of it|one sum and on time|direct debit, complete|amount was collected|only for your files"
    r"|account is balanced|not pay again|remainder has been|Our reminder crossed"
)
NOTHING = re.compile(
    r"UNPAID|AWAITING|FULL AMOUNT DUE|returned by the bank|bounced|another customer|debit of|You announced|sent back"
    r"|nothing received|has not reached us|No payment has|still waiting|whole amount is open|not received any|Not a cent"
    r"|received nothing so far|no money has arrived|full sum remains|of which nothing has been"
)
MONEY = r"\$([\d,]+\.\d\d)"
BOTH = re.compile(
    rf"(?:We received|Received on [^$;]{{5,25}}:|[Yy]ou paid|booked:|After|deposit of) {MONEY}[^$.!?]*{MONEY}"
)
CORRECTED = re.compile(rf"(?:, but|came to|was for|it to the|the one of|has only) {MONEY}")
OPEN = re.compile(
    r"(?:BALANCE DUE:|STILL OPEN:|balance of|All but|owe us|the missing|total,|payment was|Only|Apart from|except"
    rf"|your payment is|deducted|have another) {MONEY}"
)
# Handwritten pattern, independent of the package's parsers.
RECEIVED = re.compile(
    r"(?:PARTIALLY PAID:|PAID SO FAR:|payment of|progress:|So far|A sum of|you have paid|bank shows|have booked"
    rf"|of the month|for the|cheque for) {MONEY}"
)


def paid_by(text: str, total: int) -> int:
    if BOTH.search(text) is None and (FULL.search(text) or NOTHING.search(text)):
        return total if FULL.search(text) else 0
    for pattern in (BOTH, CORRECTED, OPEN, RECEIVED):
        if match := pattern.search(text):
            cents = sum(int(re.sub("[,.]", "", part)) for part in match.groups())
            return total - cents if pattern is OPEN else cents
    raise AssertionError(text)


def test_every_layout_has_all_the_facts() -> None:
    """The labels in this test are handwritten, independently of the plan."""
    seen, rng = set(), np.random.default_rng(1)
    for _ in range(100):
        key = f"{rng.choice(list(SUPPLIERS))}-2024-{rng.integers(100, 10_000)}"
        invoice, pdf = draw_invoice(
            rng, key, ("ada.lima9@mcp.com", "Ada Lima"), "ada.lim10@mcp.com", 0.5
        )
        text = "\n".join(read_pdf(pdf))
        day, dollars = date.fromisoformat(invoice["day"]), f"{invoice['cents'] / 100:,.2f}"
        forms = (f"{day}", f"{day.day} {day:%B %Y}", f"{day:%B %d, %Y}", f"{day:%d-%b-%Y}")
        assert re.search(rf"(?i)\binvoice( number:| no\.)? {invoice['id']}\b", text)
        assert (
            SUPPLIERS[invoice["id"].split("-")[0]] in text.splitlines()
            or f": {SUPPLIERS[invoice['id'].split('-')[0]]}\n" in text
        )
        assert invoice["mail"] in text
        assert any(form in text for form in forms)
        assert re.search(rf"(total|Total with tax): (\$|USD )?{re.escape(dollars)}", text)
        note = " ".join(text.split())
        assert paid_by(note, invoice["cents"]) == invoice["paid"], note
        sums = BOTH.search(note) is not None
        seen |= {next(k for k, layout in enumerate(LAYOUTS) if layout_of(layout, text)), sums}
        seen |= {("missing", min(2, invoice["cents"] - invoice["paid"]))}
    assert set(range(len(LAYOUTS))) <= seen
    assert ("missing", 1) in seen, "a cent is missing of some"


def layout_of(layout: tuple[str, ...], text: str) -> bool:
    parts = [
        re.split(r"\{[^}]*\}", line.removeprefix("#"))
        for line in layout
        if line not in ("|", "=", "!", "/")
    ]
    return all(part.strip() in text for line in parts for part in line)
