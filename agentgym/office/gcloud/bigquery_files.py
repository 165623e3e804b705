"""CSV loading for BigQuery."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime

from agentgym.office.warehouse.engine import SQLEngine
from agentgym.office.warehouse.tables import Column, TableName
from agentgym.text.tools import ToolError, echo

_MAX_COLUMNS = 1000  # a tenth of BigQuery's limit; no task needs more


def load_csv(
    engine: SQLEngine, name: TableName, data: bytes, skip: int, disposition: str, now: datetime
) -> int:
    """Load CSV rows into a table and return their number.

    Raises:
        ToolError: The file does not fit the table, which is unchanged.
    """
    head, rows = _parse(data, skip)
    table = engine.tables.get(name)
    if table is None:
        if not re.fullmatch(r"[\w\- ]{1,1024}", name[1]):
            raise ToolError(
                f"invalid argument: {echo(name[1])} is not a valid table name: use letters, digits, '_', "
                "'-' and spaces"
            )
        columns = _infer_columns(head, rows)
    elif table.view:
        raise ToolError(f"invalid argument: {'.'.join(name)} is a view")
    else:
        columns = list(table.columns)
    if disposition == "WRITE_EMPTY" and table and engine.table(name).rows:
        raise ToolError(
            f"conflict: Already Exists: table {'.'.join(name)} has rows, and write_mode is "
            "WRITE_EMPTY"
        )
    wrong = next((k for k, row in enumerate(rows) if len(row) != len(columns)), None)
    if wrong is not None:
        raise ToolError(
            f"invalid argument: row {wrong + skip + 1} has {len(rows[wrong])} values, the table "
            f"{len(columns)} columns"
        )
    values: list[list[str | None]] = [list(row) for row in rows]
    for k, column in enumerate(columns):
        if column.type != "VARCHAR":  # an empty text is null
            for record in values:
                record[k] = record[k] or None
    engine.append_rows(name, columns, values, now, replace_rows=disposition == "WRITE_TRUNCATE")
    return len(rows)


def _parse(data: bytes, skip: int) -> tuple[list[str] | None, list[list[str]]]:
    try:
        text = data.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    except UnicodeDecodeError:
        raise ToolError("invalid argument: the file is not text in UTF-8") from None
    except csv.Error as error:
        raise ToolError(f"invalid argument: the file is not valid CSV: {error}") from None
    if "\0" in text:
        raise ToolError("invalid argument: the file has a NUL character")
    head = None
    if 0 < skip <= len(rows):
        head = rows[skip - 1]
    return head, rows[skip:]


def _infer_columns(head: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> list[Column]:
    width = len(rows[0]) if rows else 0
    if head is not None:
        width = len(head)
    if not 1 <= width <= _MAX_COLUMNS:
        raise ToolError(
            f"invalid argument: a table has 1 to {_MAX_COLUMNS} columns, the file has {width}"
        )
    names = []
    for k, name in enumerate(head or [""] * width):
        names.append(re.sub(r"\W", "_", name.strip()) or f"column_{k}")
    if len({name.lower() for name in names}) != width:
        raise ToolError("invalid argument: two columns of the file have the same name")
    columns = []
    for k, name in enumerate(names):
        values = [row[k] for row in rows if k < len(row) and row[k] != ""]
        columns.append(Column(name, _infer_type(values)))
    return columns


def _infer_type(values: Sequence[str]) -> str:
    """Return the first type that fits all values, or text."""
    for kind, fits in _TYPES.items():
        if values and all(fits(value) for value in values):
            return kind
    return "VARCHAR"


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_moment(text: str) -> bool:
    try:
        return len(text) > 15 and bool(datetime.fromisoformat(text.replace(" UTC", "Z")))
    except ValueError:
        return False


# Tests for the types of non-text columns.
_TYPES: dict[str, Callable[[str], object]] = {
    "BIGINT": re.compile(r"[+-]?\d{1,18}", re.ASCII).fullmatch,
    "DOUBLE": re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII).fullmatch,
    "BOOLEAN": lambda text: text.lower() in ("true", "false"),
    "DATE": _is_date,
    "TIMESTAMP WITH TIME ZONE": _is_moment,
}
