"""Access to workbooks, sheets and cells for the `excel` tools."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentgym.office.server_state import ServerState
from agentgym.office.spreadsheet.cell_values import check_content
from agentgym.office.spreadsheet.cells import Area, column_name, parse_cell
from agentgym.office.spreadsheet.workbooks import (
    MAX_COLUMNS,
    MAX_ROWS,
    MAX_TEXT,
    check_workbook,
    open_workbook,
    save_workbook,
)
from agentgym.text.tools import ToolError, echo

MAX_AREA = 50_000  # maximum cells per call
MAX_SHEETS = 200  # as in Google Sheets; Excel is limited by memory

# Larger workbooks are not cached, because memory use is sixty times the file size.
_CACHED_BYTES = 2**19
# Characters that are not allowed in XML.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
# The maximum number and openpyxl's names of rows and columns.
_AXES = {"row": (MAX_ROWS, "max_row", "rows"), "column": (MAX_COLUMNS, "max_column", "cols")}
# Valid titles in Excel.
_TITLE = re.compile(r"[^\[\]:*?/\\\x00-\x1f\ufffe\uffff]{1,31}")


class Workbooks(ServerState):
    """The .xlsx workbooks in the workspace."""

    def _read(self, path: str) -> bytes:
        check_path(path)
        if not self.context.files.is_file(path):
            raise ToolError(f"not found: there is no workbook {echo(path)}")
        return self.context.files.read(path)

    def look(self, path: str) -> Any:
        """Return a shared workbook, which callers must not change."""
        data = self._read(path)
        return _opened(data) if len(data) <= _CACHED_BYTES else open_workbook(data)

    def save(self, path: str, book: Any, *, new: bool = False) -> None:
        """Write a workbook; with `new`, set the creation time to now."""
        now = self.context.clock.now()
        data = save_workbook(book, now, created=now if new else None)
        check_workbook(data)
        self.context.files.write(path, data)

    @contextmanager
    def edit(self, path: str) -> Iterator[Any]:
        """Open a workbook, and save the changes unless the block raises."""
        book = open_workbook(self._read(path))
        try:
            yield book
            self.save(path, book)
        except (ToolError, ImportError, MemoryError):
            raise
        except Exception as error:
            raise ToolError(
                f"invalid argument: the workbook cannot store this value: {str(error)[:300]}"
            ) from error

    @contextmanager
    def edit_sheet(self, path: str, title: str) -> Iterator[Any]:
        """Open one sheet for editing; see `edit`."""
        with self.edit(path) as book:
            yield sheet_of(book, title)


@functools.lru_cache(maxsize=2)
def _opened(data: bytes) -> Any:
    return open_workbook(data)


def check_path(path: str) -> None:
    """Raise if a path does not end with .xlsx."""
    if not path.lower().endswith(".xlsx"):
        raise ToolError(
            f"invalid argument: the path of a workbook must end with .xlsx, got {echo(path)}"
        )


def sheet_of(book: Any, title: str) -> Any:
    """Return the sheet with a given title."""
    for sheet in book.worksheets:
        if sheet.title == title:
            return sheet
    raise ToolError(
        f"not found: there is no sheet {echo(title)}; the sheets are {', '.join(book.sheetnames)}"
    )


def check_title(book: Any, title: str) -> None:
    """Raise if the title is invalid or taken."""
    is_quoted = title.startswith("'") or title.endswith("'")
    if is_quoted or not title.strip() or not _TITLE.fullmatch(title):
        raise ToolError(
            "invalid argument: a sheet title must have 1 to 31 characters except []:*?/\\, not "
            f"only spaces, and no apostrophe at an end, got {echo(title)}"
        )
    for other in book.sheetnames:
        if title.lower() == other.lower():
            raise ToolError(f"conflict: sheet {echo(other)} already exists")


def add_sheet(book: Any, title: str) -> None:
    """Add an empty sheet."""
    check_title(book, title)
    if len(book.sheetnames) >= MAX_SHEETS:
        raise ToolError(f"limit exceeded: a workbook may have at most {MAX_SHEETS} sheets")
    book.create_sheet(title)


def spot(text: str) -> tuple[int, int]:
    """Return a cell's row and column; raise if they are too large."""
    row, column = parse_cell(text)
    if row > MAX_ROWS or column > MAX_COLUMNS:
        raise ToolError(
            f"limit exceeded: {echo(text)} is beyond {MAX_ROWS} rows or {MAX_COLUMNS} columns"
        )
    return row, column


def check_area(area: Area) -> None:
    """Raise if a bounded area is too large."""
    spot(spot_name(area.bottom or 0, area.right or 0))
    if area.height * area.width > MAX_AREA:
        raise ToolError(
            f"limit exceeded: {area} must have at most {MAX_AREA} cells, got "
            f"{area.height * area.width}"
        )


def put(sheet: Any, row: int, column: int, value: Any) -> None:
    """Write a value to a cell."""
    check_content(value, MAX_TEXT)
    if isinstance(value, str) and _NO_TEXT.search(value):
        raise ToolError(
            f"invalid argument: a cell cannot contain control characters, got {echo(value)}"
        )
    if isinstance(value, (int, float)) and abs(value) >= 10**308:
        raise ToolError(f"invalid argument: {echo(value)} is too large for a cell")
    cell = sheet.cell(row, column)
    if type(cell).__name__ == "MergedCell":
        raise ToolError(
            f"conflict: {cell.coordinate} is inside a merged range; write to its first cell"
        )
    cell.value = value


def resize(sheet: Any, axis: str, start: int, count: int) -> None:
    """Insert rows or columns before `start`; a negative `count` deletes rows or columns.

    Like the published server, this function does not adjust formulas, tables or merged ranges.
    """
    most, size, lines = _AXES[axis]
    if start < 1 or start > most or abs(count) > most:
        raise ToolError(
            f"invalid argument: start and count must be between 1 and {most}, got "
            f"{echo(start)} and {echo(abs(count))}"
        )
    if count < 0 and start > getattr(sheet, size):
        raise ToolError(f"invalid argument: {axis} {start} is beyond the last {axis} with data")
    verb = "insert" if count > 0 else "delete"
    getattr(sheet, f"{verb}_{lines}")(start, abs(count))


def describe_cell(sheet: Any, row: int, column: int) -> dict[str, Any]:
    """Return a cell's value and validation rule, in the published format."""
    name = spot_name(row, column)
    facts: dict[str, Any] = {"has_validation": False}
    if (rule := _rule_at(sheet, row, column)) is not None:
        facts = {
            "cell": name,
            "has_validation": True,
            "validation_type": rule.type,
            "operator": rule.operator,
            "formula1": rule.formula1,
            "formula2": rule.formula2,
        }
    cell = sheet._cells.get((row, column))  # does not create the cell
    return {
        "address": name,
        "value": _to_jsonable(getattr(cell, "value", None)),
        "row": row,
        "column": column,
        "validation": facts,
    }


def _rule_at(sheet: Any, row: int, column: int) -> Any:
    for rule in sheet.data_validations.dataValidation:
        for area in rule.sqref.ranges:
            if area.min_row <= row <= area.max_row and area.min_col <= column <= area.max_col:
                return rule
    return None


def _to_jsonable(value: Any) -> Any:
    """Convert a cell's value for JSON; dates become strings."""
    value = getattr(value, "text", value)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


def spot_name(row: int, column: int) -> str:
    """Return a cell's address."""
    return f"{column_name(column)}{row}"
