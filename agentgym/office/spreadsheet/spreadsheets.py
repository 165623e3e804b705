"""Google Sheets records: spreadsheets, sheets, the cells of each row, and permissions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from agentgym.office.context import iso
from agentgym.office.server import Server
from agentgym.office.spreadsheet.cell_values import (
    SerialDate,
    parse_input,
    text_of,
    trim,
    validate,
)
from agentgym.office.spreadsheet.cells import Area, parse_area, quote_title, split_sheet
from agentgym.office.spreadsheet.evaluation import Evaluator, Results, SheetCells, check_supported
from agentgym.office.spreadsheet.formulas import retitle
from agentgym.office.store import Row, Store
from agentgym.text.tools import ToolError, echo

MAX_CELLS = 10_000_000  # including empty cells, as in Google Sheets
MAX_COLUMNS = 18_278  # the last column is ZZZ, as in Google Sheets
MAX_READ = 200_000  # maximum cells read per call; a few megabytes as JSON
MAX_SHEETS = 200  # as in Google Sheets
GRID = (1000, 26)  # rows and columns of a new sheet, as in Google Sheets

_to_json = json.JSONEncoder(ensure_ascii=False).encode  # creating an encoder is slow

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")


class SheetCell(NamedTuple):
    """The content of a non-empty cell, and a formula's result."""

    content: Any
    result: Any

    @property
    def typed(self) -> Any:
        if isinstance(self.content, dict):
            return self.content["f" if "f" in self.content else "s"]
        return self.content

    @property
    def shown(self) -> Any:
        """The value in tool results: entries as typed, formulas computed, dates as strings."""
        if not isinstance(self.content, dict) or "f" not in self.content:
            return self.typed
        return (
            text_of(self.result) if isinstance(self.result, SerialDate) else validate(self.result)
        )

    @property
    def exact(self) -> Any:
        """Like `shown`, but typed numbers and booleans are parsed."""
        is_number = isinstance(self.content, dict) and "v" in self.content
        return self.content["v"] if is_number and not self.content.get("k") else self.shown


def count_cells(rows: Sequence[Sequence[Any]], before: int = 0) -> int:
    """Return the number of cells that a call has read; raise if there are too many."""
    count = before + sum(map(len, rows))
    if count > MAX_READ:
        raise ToolError(
            f"limit exceeded: a call can read at most {MAX_READ} cells, got {count}; use a "
            "smaller range"
        )
    return count


class Spreadsheets:
    """The spreadsheets of an account; each row is stored as JSON."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._computed: tuple[Store | None, int, dict[str, Results]] = (None, 0, {})

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_computed": (None, 0, {})}

    def add(self, title: str) -> str:
        """Create a spreadsheet without sheets and return its id."""
        if not title.strip() or len(title) > 255:
            raise ToolError("invalid argument: a spreadsheet needs a title of 1 to 255 characters")
        context = self._server.context
        new_id, now = str(UUID(context.new_id("spreadsheet", 32))), iso(context.clock.tick())
        self._server.store.insert("spreadsheets", id=new_id, title=title, created=now, modified=now)
        return new_id

    def sheets(self, spreadsheet: str) -> list[Row]:
        """Return the sheets of a spreadsheet, in order."""
        self._server.store.get("spreadsheets", spreadsheet)
        return self._server.store.find("sheets", order="number", spreadsheet=spreadsheet)

    def sheet(self, spreadsheet: str, title: str) -> Row:
        """Return the sheet with a given title."""
        sheet = self._sheet_or_none(spreadsheet, title)
        if sheet is None:
            titles = ", ".join(row["title"] for row in self.sheets(spreadsheet))
            raise ToolError(
                f"not found: the spreadsheet has no sheet {echo(title)}; the sheets are {titles}"
            )
        return sheet

    def _sheet_or_none(self, spreadsheet: str, title: str) -> Row | None:
        return self._server.store.row(
            "SELECT * FROM sheets WHERE spreadsheet = ? AND title = ?", spreadsheet, title
        )

    def check_title(self, spreadsheet: str, title: str) -> None:
        """Raise if a sheet title is invalid or already used."""
        if not title.strip() or len(title) > 100:
            raise ToolError("invalid argument: a sheet needs a title of 1 to 100 characters")
        if self._sheet_or_none(spreadsheet, title) is not None:
            raise ToolError(f"conflict: the spreadsheet already has a sheet {echo(title)}")

    def add_sheet(self, spreadsheet: str, title: str, rows: int, columns: int) -> Row:
        """Create an empty sheet."""
        self.check_title(spreadsheet, title)
        self._check_size(spreadsheet, rows * columns)
        store = self._server.store
        number = len(store.find("sheets", spreadsheet=spreadsheet))
        if number >= MAX_SHEETS:
            raise ToolError(f"limit exceeded: a spreadsheet may have at most {MAX_SHEETS} sheets")
        sheet = {
            "spreadsheet": spreadsheet,
            "number": number,
            "title": title,
            "row_count": rows,
            "column_count": columns,
        }
        return store.get("sheets", store.insert("sheets", **sheet))

    def _check_size(self, spreadsheet: str, more: int) -> None:
        sql = "SELECT total(row_count * column_count) FROM sheets WHERE spreadsheet = ?"
        if self._server.store.value(sql, spreadsheet) + more > MAX_CELLS:
            raise ToolError(f"limit exceeded: a spreadsheet may have at most {MAX_CELLS} cells")

    def touch(self, spreadsheet: str) -> None:
        """Set the modification time of a spreadsheet to now."""
        self._server.store.update(
            "spreadsheets", spreadsheet, modified=iso(self._server.context.clock.tick())
        )

    def lines(self, sheet: Row, first: int = 1, last: int = MAX_CELLS) -> dict[int, dict[int, Any]]:
        """Return the non-empty cells by row and column."""
        sql = "SELECT row, cells FROM lines WHERE sheet = ? AND row BETWEEN ? AND ? ORDER BY row"
        rows = self._server.store.tuples(sql, sheet["id"], first, last)
        lines = json.loads(f"[{','.join(cells for _, cells in rows)}]")
        return {
            row: {int(column): cell for column, cell in cells.items()}
            for (row, _), cells in zip(rows, lines, strict=True)
        }

    def put(self, sheet: Row, lines: Mapping[int, Mapping[int, Any]]) -> None:
        """Replace the given rows; a row without cells is deleted."""
        store, sheet_id = self._server.store, sheet["id"]
        if store.value("SELECT 1 FROM lines WHERE sheet = ?", sheet_id):
            for row in lines:
                store.delete("lines", sheet=sheet_id, row=row)
        store.insert_all(
            "lines",
            (
                {"sheet": sheet_id, "row": row, "cells": _to_json(dict(sorted(cells.items())))}
                for row, cells in lines.items()
                if cells
            ),
        )

    def area(self, sheet: Row, text: str | None) -> Area:
        """Return the area of a reference or, without a reference, of the whole sheet."""
        title, rest = split_sheet(text) if text else (None, "")
        if title is not None and title.lower() != sheet["title"].lower():
            raise ToolError(
                f"invalid argument: the range {echo(text)} must refer to the sheet "
                f"{echo(sheet['title'])}"
            )
        area = parse_area(rest) if rest else Area(1, 1, None, None)
        rows, columns = sheet["row_count"], sheet["column_count"]
        if max(area.top, area.bottom or 0) > rows or max(area.left, area.right or 0) > columns:
            raise ToolError(
                f"invalid argument: range {echo(text)} exceeds grid limits: {rows} rows, {columns} "
                "columns"
            )
        return area.clip(rows, columns)

    def range_name(self, sheet: Row, text: str | None) -> str:
        """Return a reference that includes the sheet title."""
        return f"{quote_title(sheet['title'])}!{self.area(sheet, text)}"

    def _cells(self, sheet: Row, area: Area) -> list[list[SheetCell | None]]:
        results = self._results(sheet["spreadsheet"]).get(sheet["title"].lower(), {})
        filled: dict[int, dict[int, SheetCell]] = {}
        for row, cells in self.lines(sheet, area.top, area.bottom or 0).items():
            for column, cell in cells.items():
                if area.left <= column <= (area.right or 0):
                    filled.setdefault(row, {})[column] = SheetCell(cell, results.get((row, column)))
        columns = {row: range(area.left, max(cells) + 1) for row, cells in filled.items()}
        return [
            [filled[row].get(column) for column in columns[row]] if row in filled else []
            for row in range(area.top, max(filled, default=area.top - 1) + 1)
        ]

    def cells(self, sheet: Row, text: str | None) -> list[list[SheetCell | None]]:
        """Return the cells of an area, without trailing empty rows and cells."""
        cells = self._cells(sheet, self.area(sheet, text))
        count_cells(cells)
        return cells

    def values(self, sheet: Row, text: str | None) -> list[list[Any]]:
        """Return the displayed values of an area, with formulas computed."""
        return [[cell.shown if cell else "" for cell in row] for row in self.cells(sheet, text)]

    def entries(self, sheet: Row, text: str | None) -> list[list[Any]]:
        """Return the contents of an area as typed, with formulas as strings."""
        rows = [[cell.typed if cell else "" for cell in row] for row in self.cells(sheet, text)]
        return trim([trim(row, "") for row in rows], [])

    def exact_values(self, sheet: Row) -> list[list[Any]]:
        """Return the `SheetCell.exact` values of a sheet, without a size limit."""
        rows = self._cells(sheet, self.area(sheet, None))
        return [[cell.exact if cell else None for cell in row] for row in rows]

    def _results(self, spreadsheet: str) -> Results:
        store = self._server.store
        if self._computed[:2] != (store, store.changes):
            self._computed = (store, store.changes, {})
        results = self._computed[2]
        if spreadsheet not in results:
            results[spreadsheet] = self._compute(spreadsheet)
        return results[spreadsheet]

    def _compute(self, spreadsheet: str) -> Results:
        store = self._server.store
        sheets = {row["title"].lower(): row for row in self.sheets(spreadsheet)}
        with_formulas = [key for key, row in sheets.items() if self._formula_rows(row)]
        if not with_formulas:
            return {}

        def load(title: str) -> SheetCells | None:
            row = sheets.get(title)
            if row is None:
                return None
            return SheetCells(self.lines(row), row["row_count"], row["column_count"])

        changed = store.get("spreadsheets", spreadsheet)["modified"]
        return Evaluator(load, datetime.fromisoformat(changed)).results(with_formulas)

    def enter(self, sheet: Row, text: str, data: Sequence[Sequence[Any]]) -> int:
        """Enter rows of values, and return the number of values.

        If the range is a single cell, the values may extend beyond it.
        """
        area = self.area(sheet, text)
        height, width = len(data), max(map(len, data), default=0)
        room = (
            Area(area.top, area.left, sheet["row_count"], sheet["column_count"])
            if (area.height, area.width) == (1, 1)
            else area
        )
        if height > room.height or width > room.width:
            raise ToolError(
                f"invalid argument: {height} rows of {width} cells do not fit into "
                f"{self.range_name(sheet, text)}; use add_rows or add_columns first"
            )
        lines = self.lines(sheet, area.top, area.top + height - 1)
        for row, values in enumerate(data, area.top):
            cells = lines.setdefault(row, {})
            for column, value in enumerate(values, area.left):
                cell = parse_input(value)
                if isinstance(cell, dict) and "f" in cell:
                    check_supported(cell["f"])
                if cell is not None:
                    cells[column] = cell
                elif value is not None:
                    cells.pop(column, None)
        self.put(sheet, lines)
        self.touch(sheet["spreadsheet"])
        return sum(value is not None for values in data for value in values)

    def insert(
        self, spreadsheet: str, title: str, axis: str, count: int, start: int | None
    ) -> None:
        """Add empty rows or columns at the end; raise `ToolError` for any other position."""
        sheet = self.sheet(spreadsheet, title)
        rows, columns = sheet["row_count"], sheet["column_count"]
        size, other = (rows, columns) if axis == "row" else (columns, rows)
        start = size if start is None else start
        if count < 1 or not 0 <= start <= size:
            raise ToolError(
                f"invalid argument: count must be at least 1 and start between 0 and {size}, got "
                f"{echo(count)} and {echo(start)}"
            )
        if start < size:  # insertion would have to move cells and update formulas
            raise ToolError(
                f"not supported: inserting {axis}s between others; omit start_{axis} to add "
                f"{axis}s at the end"
            )
        if axis == "column" and columns + count > MAX_COLUMNS:
            raise ToolError(f"limit exceeded: a sheet may have at most {MAX_COLUMNS} columns")
        self._check_size(spreadsheet, count * other)
        self._server.store.update("sheets", sheet["id"], **{f"{axis}_count": size + count})
        self.touch(spreadsheet)

    def _formula_rows(self, sheet: Row) -> list[int]:
        sql = "SELECT row FROM lines WHERE sheet = ? AND instr(cells, '{\"f\": ')"
        return [row for (row,) in self._server.store.tuples(sql, sheet["id"])]

    def retitle(self, sheet: Row, title: str) -> None:
        """Rename a sheet and update the formulas that refer to it."""
        self._server.store.update("sheets", sheet["id"], title=title)
        for each in self.sheets(sheet["spreadsheet"]):
            changed: dict[int, dict[int, Any]] = {}
            for row in self._formula_rows(each):
                changed |= self.lines(each, row, row)
            for cells in changed.values():
                for cell in cells.values():
                    if isinstance(cell, dict) and "f" in cell:
                        cell["f"] = retitle(cell["f"], sheet["title"], title)
            self.put(each, changed)
