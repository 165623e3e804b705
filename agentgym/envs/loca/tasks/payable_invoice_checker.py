"""Enter PDF invoices into Snowflake, and email the purchasers (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from agentgym.envs.loca.checks import (
    file_state,
    hides_text,
    parts_of,
    row_failures,
    same_subject,
    set_failures,
)
from agentgym.envs.loca.draws import address, people, pick, shuffled, text_of
from agentgym.envs.loca.fragments import as_records, mail_of
from agentgym.envs.loca.plan import Plan, PlanStep, read, write
from agentgym.envs.loca.published.files import Rows
from agentgym.envs.loca.published.invoices import invoice_failures, read_entries, read_invoices
from agentgym.envs.loca.published.states import PublishedConfig, load_mail
from agentgym.envs.loca.task import OfficeTask
from agentgym.envs.loca.tasks.invoice_tables import (
    CELLS,
    COMMENT,
    FLAG,
    INVOICES,
    PAYMENTS,
    TABLES,
    enter_rows,
    form_of,
    key_of,
    records_of,
)
from agentgym.envs.loca.writing.invoices import SUPPLIERS, draw_invoice, read_invoice
from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.text.messages import ToolCall
from agentgym.text.tools import echo

ME = "walkera@mcp.com"
FOLDER = "invoices"
SUBJECT = "Process Outstanding Invoices"
# Probabilities that an invoice is paid in full, and that the invoice is already in the tables.
_PAID_RATE, _ENTERED_RATE = 0.7, 0.1


@dataclass(frozen=True, kw_only=True)
class PayableInvoiceCheckerConfig(PublishedConfig):
    """The size is the number of invoices in the folder.

    Attributes:
        num_interference: The number of invoices that are only in the tables. Default: about 35 per
            invoice in the folder.
    """

    num_interference: Annotated[int, Field(ge=0, le=100_000)] | None = None


class PayableInvoiceChecker(OfficeTask[PayableInvoiceCheckerConfig]):
    """Enter PDF invoices into two tables, and mail the purchasers of unpaid invoices."""

    Config = PayableInvoiceCheckerConfig
    servers = (
        "filesystem",
        "terminal",
        "python_execute",
        "pdf_tools",
        "email",
        "snowflake",
        "claim_done",
    )
    outputs = ("rows of INVOICES", "rows of INVOICE_PAYMENTS", "comment", "mails")
    mutable_tables = (f"snowflake.{INVOICES}", f"snowflake.{PAYMENTS}")
    tokens_per_unit = 3_740.0
    text = text_of("prompts", "PayableInvoiceChecker")

    def draw(self, size: int) -> None:
        count = self.config.num_interference
        if count is None:
            count = round(35 * size + 10 * size**0.5 * self.rng.uniform(-1, 1))
        buyers = {}
        for k, name in enumerate(people(self.rng, 8 + min(40, 2 + size // 2))):
            buyers[address(name, k, "mcp.com")] = name
        ids = _ids(self.rng, size, count)
        mails = list(buyers)[8:]
        invoices, pdfs = [], []
        for k, key in enumerate(ids[:size]):
            mail = pick(self.rng, mails)
            other = pick(self.rng, list(buyers)[:8])
            # The first invoice is unpaid, so that at least one email is required.
            paid_rate = _PAID_RATE if k else 0.0
            invoice, pdf = draw_invoice(self.rng, key, (mail, buyers[mail]), other, paid_rate)
            invoices.append(invoice)
            pdfs.append(pdf)
        entered = [k for k in range(1, size) if self.happens(_ENTERED_RATE)]
        rows = [self._other(key, list(buyers)) for key in ids[size:]]
        rows += [_row(invoices[k]) for k in entered]
        rows = shuffled(self.rng, rows)
        snowflake = self.office.get(Snowflake)
        email = self.office.get(Email)
        self._load_table(INVOICES, rows)
        self._load_table(PAYMENTS, shuffled(self.rng, rows))
        snowflake.set_comment(INVOICES, "INVOICE_DATE", "Date on the invoice")
        comment = pick(self.rng, ["", "1 = open", "0=Outstanding, 1=Paid"])
        snowflake.set_comment(PAYMENTS, FLAG, comment)
        email.add_users(
            [
                (ME, "walker-2025", "Anthony Walker"),
                *((mail, "", name) for mail, name in buyers.items()),
            ]
        )
        email.login_as(ME)
        for name, k in self._file_names(ids[:size]).items():
            self.files.write(f"{FOLDER}/{name}", pdfs[k])
            invoices[k]["file"] = name
        self._set_truth(invoices, entered, rows)

    def _load(self, state: Path) -> None:
        invoices = []
        for name, (facts, pdf) in read_invoices(state).items():
            self.files.write(f"{FOLDER}/{name}", pdf)
            invoices.append({**facts, "file": name})
        rows = read_entries(state)
        for table in TABLES:
            self._load_table(table, rows)
        self.office.get(Snowflake).set_comment(PAYMENTS, FLAG, COMMENT)
        email = self.office.get(Email)
        load_mail(state, email, ME, [facts["mail"] for facts in invoices])
        email.login_as(ME)
        self._set_truth(invoices, [], rows, published=True)

    def _load_table(self, table: str, rows: Rows) -> None:
        columns = TABLES[table]
        cells = list(map(itemgetter(*columns), rows))
        self.office.get(Snowflake).load(table, columns, cells, keys=["INVOICE_ID"])

    def _set_truth(
        self,
        invoices: Rows,
        entered: Sequence[int],
        rows: Rows,
        **more: Any,
    ) -> None:
        snowflake = self.office.get(Snowflake)
        self.truth = {
            "invoices": invoices,
            "entered": entered,
            "rows": rows,
            "comments": {table: snowflake.comments(table) for table in TABLES},
            "forms": {table: form_of(snowflake.engine.tables[key_of(table)]) for table in TABLES},
            "files": file_state(self.files),
            **more,
        }

    def _file_names(self, ids: Sequence[str]) -> dict[str, int]:
        scans = self.rng.choice(np.arange(100, 10 * len(ids) + 200), len(ids), replace=False)
        scanned = self.rng.random(len(ids)) < 0.4
        names = {}
        for k, key in enumerate(ids):
            stem = f"scan_{scans[k]}" if scanned[k] else key
            names[f"{stem}.pdf"] = k
        return dict(sorted(names.items()))

    def _other(self, key: str, mails: Sequence[str]) -> dict[str, Any]:
        cents = self.whole(5_000, 5_000_000)
        paid = cents if self.happens(0.9) else cents * self.whole(0, 10) // 10
        day = date(int(key.split("-")[1]), 1, 1) + timedelta(days=self.whole(0, 150))
        facts = {"id": key, "mail": pick(self.rng, mails), "day": day.isoformat()}
        return _row({**facts, "cents": cents, "paid": paid})

    def plan(self) -> Plan:
        names = yield read(f"List the folder {FOLDER}.", _read_names, "list_directory", path=FOLDER)
        steps = []
        for name in names:
            steps.append(read(f"Read {name}.", read_invoice, "read_pdf_pages", **_pages_of(name)))
        invoices = yield steps
        entries = yield from enter_rows(list(map(_row, invoices)), self.outputs)
        unpaid: dict[str, list[str]] = {}
        for name, invoice in zip(names, invoices, strict=True):
            if invoice["paid"] < invoice["cents"]:
                unpaid.setdefault(invoice["mail"], []).append(name)
        for mail, files in sorted(unpaid.items()):
            entries.append(_mail(self.outputs[3], mail, files, names))
        yield entries

    def describe(self) -> Iterator[ToolCall]:
        yield ToolCall("list_directory", {"path": FOLDER})
        for invoice in self.truth["invoices"]:
            yield ToolCall("read_pdf_pages", _pages_of(invoice["file"]))
        for table in TABLES:
            yield ToolCall("describe_table", {"table_name": table})
            for start in range(0, len(self.truth["rows"]), 500):
                query = f"SELECT * FROM {table} ORDER BY INVOICE_ID LIMIT 500 OFFSET {start}"
                yield ToolCall("read_query", {"query": query})

    def published_failures(self) -> Iterator[str]:
        buyers: dict[str, list[str]] = {}
        for invoice in self.truth["invoices"]:
            unpaid = buyers.setdefault(invoice["mail"], [])
            if invoice["paid"] < invoice["cents"]:
                unpaid.append(invoice["file"])
        rows = [*self.truth["rows"], *map(_row, self.truth["invoices"])]
        snowflake = self.office.get(Snowflake)
        email = self.office.get(Email)
        yield from invoice_failures(snowflake, email, rows, buyers)

    def task_failures(self) -> Iterator[str]:
        new = []
        for k, invoice in enumerate(self.truth["invoices"]):
            if k not in self.truth["entered"]:
                new.append(_row(invoice))
        for table in TABLES:
            yield from self._table_failures(table, new)
        yield from self._mail_failures()

    def _table_failures(self, table: str, new: Rows) -> Iterator[str]:
        engine = self.office.get(Snowflake).engine
        columns = TABLES[table]
        if key_of(table) not in engine.tables:
            yield f"there is no table {table}"
            return
        actual_table = engine.tables[key_of(table)]
        if form_of(actual_table) != self.truth["forms"][table]:
            yield f"the columns of {table} were changed: {echo(form_of(actual_table))}"
            return
        for column in actual_table.columns:
            if column.default is not None:
                yield f"the column {column.name} of {table} has a default"
        comments = {column.name: column.comment for column in actual_table.columns}
        expected_comments = dict(self.truth["comments"][table])
        if table == PAYMENTS:
            expected_comments[FLAG] = COMMENT
        for column, text in expected_comments.items():
            if comments[column] != text:
                yield f"the comment of {column} in {table} is {echo(comments[column])}, expected {echo(text)}"
        ids = {row["INVOICE_ID"] for row in new}
        old_rows, new_rows = [], []
        for row in records_of(tuple(columns.values()), actual_table.data):
            if row[0] in ids:
                new_rows.append(row)
            else:
                old_rows.append(row)
        # The earlier rows must be identical, whereas cells of new rows may differ in notation.
        yield from set_failures(table, old_rows, map(itemgetter(*columns), self.truth["rows"]))
        records = as_records(columns, new_rows)
        yield from row_failures(table, records, new, CELLS[table], ("INVOICE_ID",))

    def _mail_failures(self) -> Iterator[str]:
        missing: dict[str, set[str]] = {}
        files = {invoice["file"] for invoice in self.truth["invoices"]}
        for invoice in self.truth["invoices"]:
            if invoice["paid"] < invoice["cents"]:
                missing.setdefault(invoice["mail"].lower(), set()).add(invoice["file"])
        for mail in self.office.get(Email).sent():
            expected = missing.pop(mail.recipients[0], None) if len(mail.recipients) == 1 else None
            if expected is None:
                yield f"the mail to {echo(', '.join(mail.recipients))} is unexpected or a duplicate"
                continue
            yield from _mail_faults(mail, expected, files)
            yield from self._attachment_failures(mail, expected)
        for buyer in missing:
            yield f"there is no mail to {buyer}"

    def _attachment_failures(self, mail: Mail, expected: set[str]) -> Iterator[str]:
        files = self.truth["files"]
        data = {name: files[f"/workspace/{FOLDER}/{name}"] for name in expected}
        for name, content in mail.attachments.items():
            if data.get(name) != content:
                yield f"the mail to {mail.recipients[0]} has the attachment {echo(name)}"


def _pages_of(name: str) -> dict[str, Any]:
    return {"pdf_file_path": f"{FOLDER}/{name}", "start_page": 1, "end_page": 9}


def _read_names(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.endswith(".pdf")]
    return [line.removeprefix("[FILE] ") for line in lines]


def _mail(output: str, to: str, files: Sequence[str], names: Sequence[str]) -> PlanStep:
    return write(
        f"Write to {to}.",
        output,
        "send_email",
        same=("to",),
        accepts=functools.partial(_is_mail_about, files=files, others=set(names)),
        to=to,
        subject=SUBJECT,
        body="These invoices are not paid in full:\n\n" + "\n".join(files),
    )


def _mail_faults(mail: Mail, expected: Collection[str], files: Collection[str]) -> Iterator[str]:
    to = mail.recipients[0]
    if not same_subject(mail, SUBJECT):
        yield f"the mail to {to} has the subject {echo(mail.subject)}"
    where = f"files in the mail to {to}"
    shown, *rest = parts_of(mail)
    wanted = {name.removesuffix(".pdf") for name in expected}
    others = {name.removesuffix(".pdf") for name in files} - wanted
    yield from set_failures(where, _listed(shown, others), wanted)
    yield from set_failures(where, _listed("\n".join(rest), others | wanted) - wanted, [])
    if hides_text(mail):
        yield f"the mail to {to} has text that is not shown"


def _listed(text: str, files: Collection[str]) -> set[str]:
    # A name that continues after `.pdf` belongs to another file.
    listed = set()
    for token in re.findall(r"[\w.-]+", text):
        name = token.strip("-_.")
        if ".pdf" in name.lower():
            listed.add(re.sub(r"\.pdf$", "", name, flags=re.IGNORECASE))
    words = re.findall(r"[\w-]+", text)
    return listed | {word.strip("-_") for word in words} & set(files)


def _ids(rng: np.random.Generator, size: int, others: int) -> list[str]:
    suppliers = list(SUPPLIERS)
    ids: dict[str, None] = {}  # ordered, so that draws do not depend on string hashes
    while len(ids) < size:
        ids[f"{pick(rng, suppliers)}-2024-{rng.integers(100, 10_000)}"] = None
    near = []  # IDs that resemble the IDs in the folder
    for k, key in enumerate(ids):
        near.append(f"{key}{rng.integers(10)}" if k % 2 else key.replace("-2024-", "-2023-"))
    ids |= dict.fromkeys(near[: others // 2])
    while len(ids) < size + others:
        key = f"{pick(rng, suppliers)}-{rng.integers(2022, 2025)}-{rng.integers(100, 100_000)}"
        ids[key] = None
    return list(ids)


def _row(invoice: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "INVOICE_ID": invoice["id"],
        "SUPPLIER_NAME": invoice.get("supplier") or SUPPLIERS[invoice["id"].partition("-")[0]],
        "INVOICE_AMOUNT": invoice["cents"] / 100,
        "PURCHASER_EMAIL": invoice["mail"],
        "INVOICE_DATE": invoice["day"],
        "PAYMENT_AMOUNT": invoice["paid"] / 100,
        FLAG: int(invoice["paid"] < invoice["cents"]),
    }


def _is_mail_about(
    arguments: Mapping[str, Any], files: Collection[str], others: Collection[str]
) -> bool:
    mail = mail_of(arguments)
    is_attached = mail.attachments.keys() <= set(files)
    return is_attached and not any(_mail_faults(mail, files, others))
