"""Plan steps and checks for the tables of PayableInvoiceChecker."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from agentgym.envs.loca.checks import Same, identical, loose, number, row_failures
from agentgym.envs.loca.plan import Piece, PlanStep, look, look_on, read, write
from agentgym.envs.loca.published.files import Rows
from agentgym.envs.loca.results import data_rows
from agentgym.office.warehouse.engine import Table, TableName

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


def enter_rows(rows: Rows, outputs: Sequence[str]) -> Piece:
    """Read the tables and remove wrong rows; return the steps that add rows and a column comment.

    `rows` contains one row per invoice file, with the columns of both tables. `outputs` contains
    the names of both tables and of the column comment.
    """
    ids = ", ".join(_quoted(row["INVOICE_ID"]) for row in rows)
    *columns, entered = yield [*map(_describe, TABLES), _read_entered(ids)]
    seen = yield from _look_at_tables(ids)
    removals, entries = [], []
    for table, names, output in zip(TABLES, columns, outputs, strict=False):
        if seen is None:
            missing = [row for row in rows if row["INVOICE_ID"] not in entered]
        else:
            wrong, missing = _compare_rows(table, seen[table], rows)
            if wrong:
                removals.append(_remove_rows(table, wrong, output))
        if missing:
            entries.append(_enter(table, names, missing, output))
    yield removals  # remove wrong rows before entering correct rows
    if seen is None or seen[FLAG] != COMMENT:
        entries.append(_set_comment(outputs[2]))
    return entries


def _describe(table: str) -> PlanStep:
    def learn(text: str) -> list[str]:
        return [column["COLUMN_NAME"] for column in data_rows(text)]

    return read(f"Describe {table}.", learn, "describe_table", table_name=table)


def _read_entered(ids: str) -> PlanStep:
    return read(
        "Look which invoices were entered before.",
        lambda text: [row["INVOICE_ID"] for row in data_rows(text)],
        "read_query",
        query=f"SELECT INVOICE_ID FROM {INVOICES} WHERE INVOICE_ID IN ({ids}) "
        f"AND INVOICE_ID IN (SELECT INVOICE_ID FROM {PAYMENTS})",
    )


def _enter(table: str, columns: Sequence[str], rows: Rows, output: str) -> PlanStep:
    query = _merge_rows(table, columns, rows)
    label = f"Enter the invoices into {table}."
    return write(label, output, "write_query", thing="tables", query=query)


def _look_at_tables(ids: str) -> Generator[PlanStep, Any, Mapping[str, Any] | None]:
    first, second = TABLES
    where = f"WHERE INVOICE_ID IN ({ids})"
    rows = yield look(
        "tables",
        f"Look at {first}.",
        data_rows,
        "read_query",
        query=f"SELECT * FROM {first} {where}",
    )
    if rows is None:
        return None
    query = f"SELECT * FROM {second} {where}"
    payments = yield look_on("tables", f"Look at {second}.", data_rows, "read_query", query=query)
    label = f"Look at the comment of {FLAG}."
    comment = yield look_on("tables", label, _read_comment, "describe_table", table_name=second)
    return {first: rows, second: payments, FLAG: comment}


def _read_comment(text: str) -> str:
    return next(row["COMMENT"] for row in data_rows(text) if row["COLUMN_NAME"] == FLAG)


def _compare_rows(
    table: str, actual: Rows, expected: Rows
) -> tuple[list[str], list[Mapping[str, Any]]]:
    wrong, missing = [], []
    for row in expected:
        found = [each for each in actual if each["INVOICE_ID"] == row["INVOICE_ID"]]
        if any(row_failures(table, found, [row], CELLS[table], ("INVOICE_ID",))):
            missing.append(row)
            if found:
                wrong.append(row["INVOICE_ID"])
    return wrong, missing


def _remove_rows(table: str, ids: Sequence[str], output: str) -> PlanStep:
    listed = ", ".join(map(_quoted, ids))
    query = f"DELETE FROM {table} WHERE INVOICE_ID IN ({listed})"
    label = f"Remove the wrong rows of {table}."
    return write(label, output, "write_query", thing="tables", query=query)


def _set_comment(output: str) -> PlanStep:
    query = f"COMMENT ON COLUMN {PAYMENTS}.{FLAG} IS {_quoted(COMMENT)}"
    return write(f"Set the comment of {FLAG}.", output, "write_query", thing="tables", query=query)


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
