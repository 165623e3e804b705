"""Google Sheets records: spreadsheets, sheets, the cells of each row, and permissions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from agentgym.office.server import Server
from agentgym.office.server_state import ServerState
from agentgym.office.spreadsheet.cell_values import (
    SerialDate,
    is_formula,
    parse_input,
    text_of,
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


Cells: TypeAlias = dict[int, dict[int, Any]]
"""Cells by row and column."""
Values: TypeAlias = list[list[Any]]
"""Rows of values."""


View: TypeAlias = Callable[[Any, Any], Any]
"""Function of a non-empty cell's content and a formula's result."""


def typed(content: Any, _: Any) -> Any:
    """Return a cell's content as typed, with formulas as strings."""
    if isinstance(content, dict):
        return content.get("f", content.get("s"))
    return content


def shown(content: Any, result: Any) -> Any:
    """Return a cell's displayed value, with formulas computed."""
    if not is_formula(content):
        return typed(content, result)
    if isinstance(result, SerialDate):
        return text_of(result)
    return validate(result)


def _exact(content: Any, result: Any) -> Any:
    if not isinstance(content, dict) or "v" not in content or content.get("k"):
        return shown(content, result)
    return content["v"]


class Spreadsheets(ServerState):
    """The spreadsheets of an account; each row is stored as JSON."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._computed: tuple[Store | None, int, dict[str, Results]] = (None, 0, {})

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_computed": (None, 0, {})}

    def add(self, title: str) -> str:
        """Create a spreadsheet without sheets and return its id."""
        if not title.strip() or len(title) > 255:
            raise ToolError("invalid argument: a spreadsheet needs a title of 1 to 255 characters")
        new_id, now = str(UUID(self.context.new_id("spreadsheet", 32))), self.tick()
        self.store.insert("spreadsheets", id=new_id, title=title, created=now, modified=now)
        return new_id

    def sheets(self, spreadsheet: str) -> list[Row]:
        """Return the sheets of a spreadsheet, in order."""
        self.store.get("spreadsheets", spreadsheet)
        return self.store.find("sheets", order="number", spreadsheet=spreadsheet)

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
        sql = "SELECT * FROM sheets WHERE spreadsheet = ? AND title = ?"
        return self.store.row(sql, spreadsheet, title)

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
        number = len(self.store.find("sheets", spreadsheet=spreadsheet))
        if number >= MAX_SHEETS:
            raise ToolError(f"limit exceeded: a spreadsheet may have at most {MAX_SHEETS} sheets")
        sheet = {
            "spreadsheet": spreadsheet,
            "number": number,
            "title": title,
            "row_count": rows,
            "column_count": columns,
        }
        return self.store.get("sheets", self.store.insert("sheets", **sheet))

    def _check_size(self, spreadsheet: str, more: int) -> None:
        # Unlike `total`, `sum` is an integer, which can be added to integers of any size.
        sql = "SELECT ifnull(sum(row_count * column_count), 0) FROM sheets WHERE spreadsheet = ?"
        if self.store.value(sql, spreadsheet) + more > MAX_CELLS:
            raise ToolError(f"limit exceeded: a spreadsheet may have at most {MAX_CELLS} cells")

    def touch(self, spreadsheet: str) -> None:
        """Set the modification time of a spreadsheet to now."""
        self.store.update("spreadsheets", spreadsheet, modified=self.tick())

    def lines(self, sheet: Row, first: int = 1, last: int = MAX_CELLS) -> Cells:
        """Return the non-empty cells by row and column."""
        sql = "SELECT row, cells FROM lines WHERE sheet = ? AND row BETWEEN ? AND ? ORDER BY row"
        rows = self.store.tuples(sql, sheet["id"], first, last)
        lines: Cells = {}
        for row, cells in rows:
            lines[row] = {int(column): cell for column, cell in json.loads(cells).items()}
        return lines

    def put(self, sheet: Row, lines: Mapping[int, Mapping[int, Any]]) -> None:
        """Replace the given rows; a row without cells is deleted."""
        sheet_id = sheet["id"]
        if self.store.value("SELECT 1 FROM lines WHERE sheet = ?", sheet_id):
            for row in lines:
                self.store.delete("lines", sheet=sheet_id, row=row)
        records = []
        for row, cells in lines.items():
            if cells:  # empty rows are not stored
                content = _to_json(dict(sorted(cells.items())))
                records.append({"sheet": sheet_id, "row": row, "cells": content})
        self.store.insert_all("lines", records)

    def area(self, sheet: Row, text: str | None) -> Area:
        """Return the area of a reference or, without a reference, of the whole sheet."""
        title, rest = split_sheet(text or "")
        if title is not None and title.lower() != sheet["title"].lower():
            raise ToolError(
                f"invalid argument: the range {echo(text)} must refer to the sheet "
                f"{echo(sheet['title'])}"
            )
        area = parse_area(rest) if rest else Area(1, 1, None, None)
        rows, columns = sheet["row_count"], sheet["column_count"]
        bottom, right = area.bottom or area.top, area.right or area.left
        if bottom > rows or right > columns:
            raise ToolError(
                f"invalid argument: range {echo(text)} exceeds grid limits: {rows} rows, {columns} "
                "columns"
            )
        return Area(area.top, area.left, area.bottom or rows, area.right or columns)

    def range_name(self, sheet: Row, text: str | None) -> str:
        """Return a reference that includes the sheet title."""
        return f"{quote_title(sheet['title'])}!{self.area(sheet, text)}"

    def _cells(self, sheet: Row, text: str | None, view: View, empty: Any) -> Values:
        """Return a view of each cell, without trailing empty rows and cells."""
        area = self.area(sheet, text)
        results = self._results(sheet["spreadsheet"]).get(sheet["title"].lower(), {})  # formulas
        filled: Cells = {}
        lines = self.lines(sheet, area.top, area.bottom or 0)
        for row, cells in lines.items():
            for column, content in cells.items():
                if area.left <= column <= (area.right or 0):
                    value = view(content, results.get((row, column)))
                    filled.setdefault(row, {})[column] = value
        rows = []
        for row in range(area.top, max(filled, default=area.top - 1) + 1):
            cells = filled.get(row, {})
            columns = range(area.left, max(cells, default=area.left - 1) + 1)
            rows.append([cells.get(column, empty) for column in columns])
        return rows

    def read(self, sheet: Row, text: str | None, view: View) -> Values:
        """Return a view of each cell of an area, or raise `ToolError` if the area is too large."""
        rows = self._cells(sheet, text, view, "")
        count = sum(map(len, rows))
        if count > MAX_READ:
            raise ToolError(
                f"limit exceeded: a call can read at most {MAX_READ} cells, got {count}; use a "
                "smaller range"
            )
        return rows

    def exact_values(self, sheet: Row) -> Values:
        """Return the values of a sheet with typed numbers parsed, without a size limit."""
        return self._cells(sheet, None, _exact, None)

    def _results(self, spreadsheet: str) -> Results:
        store = self.store
        if self._computed[:2] != (store, store.changes):
            self._computed = (store, store.changes, {})
        results = self._computed[2]
        if spreadsheet not in results:
            results[spreadsheet] = self._compute(spreadsheet)
        return results[spreadsheet]

    def _compute(self, spreadsheet: str) -> Results:
        sheets = {row["title"].lower(): row for row in self.sheets(spreadsheet)}
        with_formulas = [key for key, row in sheets.items() if self._formula_rows(row)]
        if not with_formulas:
            return {}

        def load(title: str) -> SheetCells | None:
            row = sheets.get(title)
            if row is None:
                return None
            return SheetCells(self.lines(row), row["row_count"], row["column_count"])

        changed = self.store.get("spreadsheets", spreadsheet)["modified"]
        return Evaluator(load, datetime.fromisoformat(changed)).results(with_formulas)

    def enter(self, sheet: Row, text: str, data: Sequence[Sequence[Any]]) -> int:
        """Enter rows of values, and return the number of values.

        If the range is a single cell, the values may extend beyond it.
        """
        area = self.area(sheet, text)
        height, width = len(data), max(map(len, data), default=0)
        room = area
        if (area.height, area.width) == (1, 1):
            room = Area(area.top, area.left, sheet["row_count"], sheet["column_count"])
        if height > room.height or width > room.width:
            bottom, right = area.top + height - 1, area.left + width - 1
            outside = bottom > sheet["row_count"] or right > sheet["column_count"]
            raise ToolError(
                f"invalid argument: {height} rows of {width} cells do not fit into "
                f"{self.range_name(sheet, text)}; use the range "
                f"{Area(area.top, area.left, bottom, right)}"
                f"{' after add_rows or add_columns' if outside else ''}"
            )
        lines = self.lines(sheet, area.top, area.top + height - 1)
        count = 0
        for row, values in enumerate(data, area.top):
            cells = lines.setdefault(row, {})
            for column, value in enumerate(values, area.left):
                if value is None:  # retains the cell
                    continue
                count += 1
                cell = parse_input(value)
                if is_formula(cell):
                    check_supported(cell["f"])
                if cell is None:
                    cells.pop(column, None)
                else:
                    cells[column] = cell
        self.put(sheet, lines)
        self.touch(sheet["spreadsheet"])
        return count

    def insert(
        self, spreadsheet: str, title: str, axis: str, count: int, start: int | None
    ) -> None:
        """Add empty rows or columns at the end; raise `ToolError` for any other position."""
        sheet = self.sheet(spreadsheet, title)
        rows, columns = sheet["row_count"], sheet["column_count"]
        size, other = (rows, columns) if axis == "row" else (columns, rows)
        if start is None:
            start = size
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
        self.store.update("sheets", sheet["id"], **{f"{axis}_count": size + count})
        self.touch(spreadsheet)

    def _formula_rows(self, sheet: Row) -> list[int]:
        # Strings cannot contain this text, because JSON escapes their quotation marks.
        sql = "SELECT row FROM lines WHERE sheet = ? AND instr(cells, '{\"f\": ')"
        return [row for (row,) in self.store.tuples(sql, sheet["id"])]

    def retitle(self, sheet: Row, title: str) -> None:
        """Rename a sheet and update the formulas that refer to it."""
        self.store.update("sheets", sheet["id"], title=title)
        for each in self.sheets(sheet["spreadsheet"]):
            changed: Cells = {}
            for row in self._formula_rows(each):
                changed |= self.lines(each, row, row)
            for cells in changed.values():
                for cell in cells.values():
                    if is_formula(cell):
                        cell["f"] = retitle(cell["f"], sheet["title"], title)
            self.put(each, changed)
