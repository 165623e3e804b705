"""Enter PDF invoices into Snowflake, and email the purchasers (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from agentgym.envs.loca.checks import (
    Same,
    file_state,
    hides_text,
    identical,
    loose,
    number,
    parts_of,
    row_failures,
    same_subject,
    set_failures,
)
from agentgym.envs.loca.draws import address, people, pick, shuffled, text_of
from agentgym.envs.loca.fragments import as_records, mail_of
from agentgym.envs.loca.plan import Piece, Plan, PlanStep, look, look_on, read, write
from agentgym.envs.loca.published.invoices import invoice_failures, read_entries, read_invoices
from agentgym.envs.loca.published.states import PublishedConfig, load_mail
from agentgym.envs.loca.records import Fields, Record, Rows
from agentgym.envs.loca.results import data_rows
from agentgym.envs.loca.task import OfficeTask
from agentgym.envs.loca.writing.invoices import SUPPLIERS, draw_invoice, read_invoice
from agentgym.office.email.messages import Mail
from agentgym.office.warehouse.engine import Table, TableName
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.text.messages import ToolCall
from agentgym.text.tools import echo

ME = "walkera@mcp.com"
FOLDER = "invoices"
SUBJECT = "Process Outstanding Invoices"
INVOICES = "PURCHASE_INVOICE.PUBLIC.INVOICES"
PAYMENTS = "PURCHASE_INVOICE.PUBLIC.INVOICE_PAYMENTS"
FLAG = "OUTSTANDING_FLAG"
COMMENT = "0=Paid, 1=Outstanding"
TABLES = {
    INVOICES: {
        "INVOICE_ID": "VARCHAR",
        "SUPPLIER_NAME": "VARCHAR",
        "INVOICE_AMOUNT": "NUMBER(12,2)",
        "PURCHASER_EMAIL": "VARCHAR",
        "INVOICE_DATE": "DATE",
    },
    PAYMENTS: {"INVOICE_ID": "VARCHAR", "PAYMENT_AMOUNT": "NUMBER(12,2)", FLAG: "INTEGER"},
}
CELLS: Mapping[str, Mapping[str, Same]] = {
    INVOICES: {
        "INVOICE_ID": identical,
        "SUPPLIER_NAME": identical,
        "INVOICE_AMOUNT": number(0.001),
        "PURCHASER_EMAIL": loose,
        "INVOICE_DATE": identical,
    },
    PAYMENTS: {"INVOICE_ID": identical, "PAYMENT_AMOUNT": number(0.001), FLAG: number()},
}
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
        self._load_table(INVOICES, rows)
        self._load_table(PAYMENTS, shuffled(self.rng, rows))
        snowflake.set_comment(INVOICES, "INVOICE_DATE", "Date on the invoice")
        comment = pick(self.rng, ["", "1 = open", "0=Outstanding, 1=Paid"])
        snowflake.set_comment(PAYMENTS, FLAG, comment)
        users = [(mail, "", name) for mail, name in buyers.items()]
        self.email.add_users([(ME, "walker-2025", "Anthony Walker"), *users])
        self.email.login_as(ME)
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
        load_mail(state, self.email, ME, [facts["mail"] for facts in invoices])
        self.email.login_as(ME)
        self._set_truth(invoices, [], rows, published=True)

    def _load_table(self, table: str, rows: Rows) -> None:
        columns = TABLES[table]
        cells = list(map(itemgetter(*columns), rows))
        self.office.get(Snowflake).load(table, columns, cells, keys=["INVOICE_ID"])

    def _set_truth(self, invoices: Rows, entered: Sequence[int], rows: Rows, **more: Any) -> None:
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

    def _other(self, key: str, mails: Sequence[str]) -> Record:
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
        entries = yield from _enter_rows(list(map(_row, invoices)), self.outputs)
        unpaid: dict[str, list[str]] = {}
        for name, invoice in zip(names, invoices, strict=True):
            if invoice["paid"] < invoice["cents"]:
                unpaid.setdefault(invoice["mail"], []).append(name)
        for mail, files in sorted(unpaid.items()):
            entries.append(
                write(
                    f"Write to {mail}.",
                    self.outputs[3],
                    "send_email",
                    same=("to",),
                    accepts=functools.partial(_is_mail_about, files=files, others=set(names)),
                    to=mail,
                    subject=SUBJECT,
                    body="These invoices are not paid in full:\n\n" + "\n".join(files),
                )
            )
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
        return invoice_failures(self.office.get(Snowflake), self.email, rows, buyers)

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
        for mail in self.email.sent():
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


def _pages_of(name: str) -> Record:
    return {"pdf_file_path": f"{FOLDER}/{name}", "start_page": 1, "end_page": 9}


def _read_names(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.endswith(".pdf")]
    return [line.removeprefix("[FILE] ") for line in lines]


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


def _row(invoice: Fields) -> Record:
    return {
        "INVOICE_ID": invoice["id"],
        "SUPPLIER_NAME": invoice.get("supplier") or SUPPLIERS[invoice["id"].partition("-")[0]],
        "INVOICE_AMOUNT": invoice["cents"] / 100,
        "PURCHASER_EMAIL": invoice["mail"],
        "INVOICE_DATE": invoice["day"],
        "PAYMENT_AMOUNT": invoice["paid"] / 100,
        FLAG: int(invoice["paid"] < invoice["cents"]),
    }


def _is_mail_about(arguments: Fields, files: Collection[str], others: Collection[str]) -> bool:
    mail = mail_of(arguments)
    is_attached = mail.attachments.keys() <= set(files)
    return is_attached and not any(_mail_faults(mail, files, others))


def _enter_rows(rows: Rows, outputs: Sequence[str]) -> Piece:
    """Read the tables and remove wrong rows; return the steps that add rows and a column comment.

    `rows` contains one row per invoice file, with the columns of both tables. `outputs` contains
    the names of both tables and of the column comment.
    """
    ids = ", ".join(_quoted(row["INVOICE_ID"]) for row in rows)
    known = read(
        "Look which invoices were entered before.",
        lambda text: [row["INVOICE_ID"] for row in data_rows(text)],
        "read_query",
        query=f"SELECT INVOICE_ID FROM {INVOICES} WHERE INVOICE_ID IN ({ids}) "
        f"AND INVOICE_ID IN (SELECT INVOICE_ID FROM {PAYMENTS})",
    )
    *columns, entered = yield [*map(_describe, TABLES), known]
    seen = yield from _look_at_tables(ids)
    step = functools.partial(write, thing="tables")
    removals, entries = [], []
    for table, names, output in zip(TABLES, columns, outputs, strict=False):
        if seen is None:
            missing = [row for row in rows if row["INVOICE_ID"] not in entered]
        else:
            wrong, missing = _compare_rows(table, seen[table], rows)
            if wrong:
                label = f"Remove the wrong rows of {table}."
                query = f"DELETE FROM {table} WHERE INVOICE_ID IN ({', '.join(wrong)})"
                removals.append(step(label, output, "write_query", query=query))
        if missing:
            label = f"Enter the invoices into {table}."
            query = _merge_rows(table, names, missing)
            entries.append(step(label, output, "write_query", query=query))
    yield removals  # remove wrong rows before entering correct rows
    if seen is None or seen[FLAG] != COMMENT:
        label = f"Set the comment of {FLAG}."
        query = f"COMMENT ON COLUMN {PAYMENTS}.{FLAG} IS {_quoted(COMMENT)}"
        entries.append(step(label, outputs[2], "write_query", query=query))
    return entries


def _describe(table: str) -> PlanStep:
    def learn(text: str) -> list[str]:
        return [column["COLUMN_NAME"] for column in data_rows(text)]

    return read(f"Describe {table}.", learn, "describe_table", table_name=table)


def _look_at_tables(ids: str) -> Generator[PlanStep, Any, Fields | None]:
    query = f"SELECT * FROM {INVOICES} WHERE INVOICE_ID IN ({ids})"
    rows = yield look("tables", f"Look at {INVOICES}.", data_rows, "read_query", query=query)
    if rows is None:
        return None
    query = f"SELECT * FROM {PAYMENTS} WHERE INVOICE_ID IN ({ids})"
    payments = yield look_on("tables", f"Look at {PAYMENTS}.", data_rows, "read_query", query=query)
    label = f"Look at the comment of {FLAG}."
    comment = yield look_on("tables", label, _read_comment, "describe_table", table_name=PAYMENTS)
    return {INVOICES: rows, PAYMENTS: payments, FLAG: comment}


def _read_comment(text: str) -> str:
    return next(row["COMMENT"] for row in data_rows(text) if row["COLUMN_NAME"] == FLAG)


def _compare_rows(table: str, actual: Rows, expected: Rows) -> tuple[list[str], list[Fields]]:
    wrong, missing = [], []
    for row in expected:
        found = [each for each in actual if each["INVOICE_ID"] == row["INVOICE_ID"]]
        if any(row_failures(table, found, [row], CELLS[table], ("INVOICE_ID",))):
            missing.append(row)
            if found:
                wrong.append(_quoted(row["INVOICE_ID"]))
    return wrong, missing


def key_of(table: str) -> TableName:
    """Return a table's schema and name."""
    schema, _, name = table.rpartition(".")
    return schema, name


def form_of(table: Table) -> list[Any]:
    """Return the name, type, nullability and key of each column."""
    columns = [[column.name, column.type, column.nullable, column.key] for column in table.columns]
    return ["", *columns]  # removing the empty string would change instance keys


@functools.lru_cache(maxsize=8)
def records_of(kinds: Sequence[str], data: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return a table's records, cached because the check runs after each call."""
    columns: list[list[Any]] = []
    for kind, values in zip(kinds, data, strict=True):
        convert: Callable[[Any], Any] = str
        if kind == "INTEGER":
            convert = int
        elif kind[0] == "N":
            convert = float
        columns.append([None if v is None else convert(v) for v in json.loads(values)])
    return list(zip(*columns, strict=True))


def _merge_rows(table: str, columns: Sequence[str], rows: Rows) -> str:
    names = ", ".join(columns)
    new_names = ", ".join(f"n.{name}" for name in columns)
    tuples = []
    for row in rows:
        values = ", ".join(_quoted(row[name]) for name in columns)
        tuples.append(f"({values})")
    return (
        f"MERGE INTO {table} t USING (SELECT * FROM VALUES {', '.join(tuples)} AS v ({names})) n ON t.INVOICE_ID = n.INVOICE_ID "
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({new_names})"
    )


def _quoted(value: Any) -> str:
    if not isinstance(value, str):
        return str(value)
    return "'" + value.replace("'", "''") + "'"
