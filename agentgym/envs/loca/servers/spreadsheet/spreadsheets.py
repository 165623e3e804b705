"""What Google Sheets keeps: spreadsheets, their sheets, the filled cells of each row, and with whom they are shared."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentgym.envs.loca.servers.context import iso
from agentgym.envs.loca.servers.server import Server
from agentgym.envs.loca.servers.spreadsheet.cell_input import fitting, plain, shown, typed
from agentgym.envs.loca.servers.spreadsheet.cell_values import text_of
from agentgym.envs.loca.servers.spreadsheet.cells import Area, parse_area, quote_title, split_sheet
from agentgym.envs.loca.servers.spreadsheet.formulas import Calculator, rewrite, shift, with_sheet
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo

MAX_CELLS = 10_000_000
"""Cells of the sheets of one spreadsheet, filled or not, as in the real service."""
MAX_COLUMNS = 18_278
MAX_READ = 200_000
"""Cells that one call gives."""
MAX_SHEETS = 200
ROLES = ("reader", "commenter", "writer")
GRID = (1000, 26)
"""Rows and columns of a new sheet."""

SCHEMA = """
CREATE TABLE spreadsheets (id TEXT PRIMARY KEY, title TEXT NOT NULL, created TEXT NOT NULL, modified TEXT NOT NULL);
CREATE TABLE sheets (
    id INTEGER PRIMARY KEY, spreadsheet TEXT NOT NULL REFERENCES spreadsheets(id), number INTEGER NOT NULL,
    title TEXT NOT NULL COLLATE NOCASE, row_count INTEGER NOT NULL, column_count INTEGER NOT NULL,
    UNIQUE (spreadsheet, number), UNIQUE (spreadsheet, title)
);
CREATE TABLE lines (
    sheet INTEGER NOT NULL REFERENCES sheets(id), row INTEGER NOT NULL, cells TEXT NOT NULL, PRIMARY KEY (sheet, row)
) WITHOUT ROWID;
CREATE TABLE permissions (
    id TEXT PRIMARY KEY, spreadsheet TEXT NOT NULL REFERENCES spreadsheets(id), email_address TEXT NOT NULL COLLATE NOCASE,
    role TEXT NOT NULL, notified BOOL NOT NULL, UNIQUE (spreadsheet, email_address)
);
"""


class Spreadsheets(Server):
    """The spreadsheets of an account, without tools. A row is kept as the JSON of its filled cells by column."""

    schema: ClassVar[str] = SCHEMA

    def _add(self, title: str) -> str:
        if not title.strip() or len(title) > 255:
            raise ToolError("invalid argument: a spreadsheet needs a title of 1 to 255 characters")
        made, now = self.context.new_id("spreadsheet", 44), iso(self.context.clock.tick())
        self.store.insert("spreadsheets", id=made, title=title, created=now, modified=now)
        return made

    def _sheets(self, spreadsheet: str) -> list[Row]:
        self.store.get("spreadsheets", spreadsheet)
        return self.store.find("sheets", order="number", spreadsheet=spreadsheet)

    def _sheet(self, spreadsheet: str, title: str) -> Row:
        found = self.store.row("SELECT * FROM sheets WHERE spreadsheet = ? AND title = ?", spreadsheet, title)
        if found is None:
            titles = ", ".join(row["title"] for row in self._sheets(spreadsheet))
            raise ToolError(f"not found: the spreadsheet has no sheet {echo(title)}; its sheets: {titles}")
        return found

    def _check_title(self, spreadsheet: str, title: str) -> None:
        if not title.strip() or len(title) > 100:
            raise ToolError("invalid argument: a sheet needs a title of 1 to 100 characters")
        if self.store.find("sheets", spreadsheet=spreadsheet, title=title):
            raise ToolError(f"conflict: the spreadsheet has a sheet {echo(title)} already")

    def _add_sheet(self, spreadsheet: str, title: str, rows: int, columns: int) -> Row:
        self._check_title(spreadsheet, title)
        self._check_size(spreadsheet, rows * columns)
        number = len(self.store.find("sheets", spreadsheet=spreadsheet))
        if number >= MAX_SHEETS:
            raise ToolError(f"limit exceeded: a spreadsheet has at most {MAX_SHEETS} sheets")
        size = {"row_count": rows, "column_count": columns}
        return self.store.get("sheets", self.store.insert("sheets", spreadsheet=spreadsheet, number=number, title=title, **size))

    def _check_size(self, spreadsheet: str, more: int) -> None:
        held = self.store.value("SELECT total(row_count * column_count) FROM sheets WHERE spreadsheet = ?", spreadsheet)
        if held + more > MAX_CELLS:
            raise ToolError(f"limit exceeded: a spreadsheet has at most {MAX_CELLS} cells")

    def _touch(self, spreadsheet: str) -> None:
        self.store.update("spreadsheets", spreadsheet, modified=iso(self.context.clock.tick()))

    def _lines(self, sheet: Row, first: int = 1, last: int = MAX_CELLS) -> dict[int, dict[int, Any]]:
        """The filled cells of some rows, by row and column."""
        sql = "SELECT row, cells FROM lines WHERE sheet = ? AND row BETWEEN ? AND ? ORDER BY row"
        found = self.store.rows(sql, sheet["id"], first, last)
        return {line["row"]: {int(column): cell for column, cell in json.loads(line["cells"]).items()} for line in found}

    def _put(self, sheet: Row, lines: Mapping[int, Mapping[int, Any]]) -> None:
        """Replace rows."""
        if self.store.value("SELECT 1 FROM lines WHERE sheet = ?", sheet["id"]):
            for row in lines:
                self.store.delete("lines", sheet=sheet["id"], row=row)
        texts = ((row, json.dumps(dict(sorted(cells.items())), ensure_ascii=False)) for row, cells in lines.items() if cells)
        self.store.insert_all("lines", ({"sheet": sheet["id"], "row": row, "cells": text} for row, text in texts))

    def _area(self, sheet: Row, text: str | None) -> Area:
        """The area of a sheet that a reference names, within the sheet."""
        title, rest = split_sheet(text) if text else (None, "")
        if title is not None and title.lower() != sheet["title"].lower():
            raise ToolError(f"invalid argument: the range {echo(text)} names another sheet than {echo(sheet['title'])}")
        area = parse_area(rest) if rest else Area(1, 1, None, None)
        rows, columns = sheet["row_count"], sheet["column_count"]
        if max(area.top, area.bottom or 0) > rows or max(area.left, area.right or 0) > columns:
            raise ToolError(f"invalid argument: range {echo(text)} exceeds grid limits: {rows} rows, {columns} columns")
        return area.clip(rows, columns)

    def _name(self, sheet: Row, text: str | None) -> str:
        return f"{quote_title(sheet['title'])}!{self._area(sheet, text)}"

    def _calculator(self, spreadsheet: str) -> Calculator:
        @functools.cache
        def load(title: str) -> dict[int, dict[int, Any]] | None:
            found = self.store.row("SELECT * FROM sheets WHERE spreadsheet = ? AND title = ?", spreadsheet, title)
            return None if found is None else self._lines(found)

        return Calculator(load, self.context.clock.now())

    def _values(self, sheet: Row, text: str | None, show: Any, *, whole: bool = False) -> list[list[Any]]:
        """Rows of an area without what is empty at the end; `show` tells how to give a cell, None asks for what was entered."""
        area = self._area(sheet, text)
        lines = self._lines(sheet, area.top, area.bottom or 0)
        held = {row: {k: cell for k, cell in cells.items() if area.left <= k <= (area.right or 0)} for row, cells in lines.items()}
        held = {row: cells for row, cells in held.items() if cells}
        width = {row: max(cells) - area.left + 1 for row, cells in held.items()}
        if not whole and sum(width.values()) > MAX_READ:
            raise ToolError(f"limit exceeded: {sum(width.values())} cells, a call gives at most {MAX_READ}; name a smaller range")
        calculator = self._calculator(sheet["spreadsheet"])

        def give(row: int, column: int) -> Any:
            cell = held[row].get(column, "")
            if isinstance(cell, dict) and "f" in cell:
                value = calculator.value(sheet["title"], row, column) if show else cell["f"]
                return text_of(value) if show is shown else fitting(value)
            return (show or plain)(cell) if isinstance(cell, dict) or show is shown else cell

        rows = range(area.top, max(held, default=area.top - 1) + 1)
        return [[give(row, k) for k in range(area.left, area.left + width.get(row, 0))] for row in rows]

    def _grid_data(self, sheet: Row, text: str | None) -> Any:
        area = self._area(sheet, text)
        parts = [self._values(sheet, text, show) for show in (None, plain, shown)]
        lines = (zip(*line, strict=True) for line in zip(*parts, strict=True))
        rows = [{"values": [_cell_data(*cell) if cell[0] != "" else {} for cell in line]} for line in lines]
        data = {"startRow": area.top - 1, "startColumn": area.left - 1, "rowData": rows}
        title = self.store.get("spreadsheets", sheet["spreadsheet"])["title"]
        sheets = [{"properties": properties_of(sheet), "data": [data]}]
        return {"spreadsheetId": sheet["spreadsheet"], "properties": {"title": title}, "sheets": sheets}

    def _enter(self, sheet: Row, text: str, data: Sequence[Sequence[Any]]) -> dict[str, Any]:
        area = self._area(sheet, text)
        single = (area.height, area.width) == (1, 1)
        height, width = len(data), max(map(len, data), default=0)
        room = Area(area.top, area.left, None, None).clip(sheet["row_count"], sheet["column_count"]) if single else area
        if height > room.height or width > room.width:
            needed, held = f"{height} rows of {width} cells", self._name(sheet, text)
            raise ToolError(f"invalid argument: {needed} do not fit into {held}; add_rows and add_columns make room")
        lines = self._lines(sheet, area.top, area.top + height - 1)
        for row, values in enumerate(data, area.top):
            cells = lines.setdefault(row, {})
            for column, value in enumerate(values, area.left):
                cell = typed(value)
                if cell is not None:
                    cells[column] = cell
                elif value is not None:
                    cells.pop(column, None)
        self._put(sheet, lines)
        self._touch(sheet["spreadsheet"])
        given = Area(area.top, area.left, area.top + max(height, 1) - 1, area.left + max(width, 1) - 1)
        return {
            "spreadsheetId": sheet["spreadsheet"],
            "updatedRange": f"{quote_title(sheet['title'])}!{given}",
            "updatedRows": height,
            "updatedColumns": width,
            "updatedCells": sum(value is not None for values in data for value in values),
        }

    def _insert(self, spreadsheet: str, title: str, axis: str, count: int, start: int) -> Any:
        with self.store.change():
            sheet = self._sheet(spreadsheet, title)
            rows, columns = sheet["row_count"], sheet["column_count"]
            held, other = (rows, columns) if axis == "row" else (columns, rows)
            if count < 1 or not 0 <= start <= held:
                raise ToolError(
                    f"invalid argument: count must be at least 1, start 0 to {held}; got {echo(count)} and {echo(start)}"
                )
            if axis == "column" and columns + count > MAX_COLUMNS:
                raise ToolError(f"limit exceeded: a sheet has at most {MAX_COLUMNS} columns")
            self._check_size(spreadsheet, count * other)
            self.store.update("sheets", sheet["id"], **{f"{axis}_count": held + count})
            lines = self._lines(sheet)
            self.store.delete("lines", sheet=sheet["id"])
            self._put(sheet, _spread(lines, axis, start, count))
            same = sheet["title"].lower()

            def follow(own: str, named: str | None, rest: str) -> str:
                moved = shift(rest, axis, start + 1, count) if (named or own).lower() == same else rest
                return with_sheet(named, moved)

            self._rewrite(spreadsheet, follow)
            self._touch(spreadsheet)
        return {"spreadsheetId": spreadsheet, "replies": [{}]}

    def _rewrite(self, spreadsheet: str, change: Any) -> None:
        """Change all references; `change` gets the title of the formula's sheet, that of the reference, and its rest."""
        for sheet in self._sheets(spreadsheet):
            changed = {}
            sql = "SELECT row FROM lines WHERE sheet = ? AND instr(cells, '{\"f\": ')"
            for line in self.store.rows(sql, sheet["id"]):
                cells = self._lines(sheet, line["row"], line["row"])[line["row"]]
                for cell in cells.values():
                    if isinstance(cell, dict) and "f" in cell:
                        cell["f"] = rewrite(cell["f"], functools.partial(change, sheet["title"]))
                changed[line["row"]] = cells
            self._put(sheet, changed)

    def _summary(self, sheet: Row, rows: int) -> dict[str, Any]:
        last = min(rows, sheet["row_count"])
        first, *others = self._values(sheet, f"1:{last}", shown) or [[]]
        return {"title": sheet["title"], "sheet_id": sheet["number"], "headers": first, "first_rows": others, "error": None}

    def _share(self, spreadsheet: str, recipient: Mapping[str, str], *, notified: bool) -> dict[str, Any]:
        address, role = recipient.get("email_address", ""), recipient.get("role", "writer")
        if address.count("@") != 1 or address.strip() != address or address[0] == "@" or address[-1] == "@" or len(address) > 254:
            return {"email_address": address, "error": "invalid argument: email_address must be an address like name@example.com"}
        if role not in ROLES:
            error = f"invalid argument: role must be one of {', '.join(ROLES)}, got {echo(role)}"
            return {"email_address": address, "error": error}
        held = self.store.find("permissions", spreadsheet=spreadsheet, email_address=address)
        made = held[0]["id"] if held else self.context.new_id("permission", 20)
        if held:
            self.store.update("permissions", made, role=role, notified=notified)
        else:
            shared = {"email_address": address, "role": role, "notified": notified}
            self.store.insert("permissions", id=made, spreadsheet=spreadsheet, **shared)
        return {"email_address": address, "role": role, "permissionId": made}


def properties_of(sheet: Row) -> dict[str, Any]:
    """A sheet as the service describes it."""
    grid = {"rowCount": sheet["row_count"], "columnCount": sheet["column_count"]}
    number = sheet["number"]
    return {"sheetId": number, "title": sheet["title"], "index": number, "sheetType": "GRID", "gridProperties": grid}


def _cell_data(entered: Any, value: Any, formatted: str) -> dict[str, Any]:
    given = {"formulaValue": entered} if isinstance(entered, str) and entered.startswith("=") else {_kind(entered): entered}
    return {"userEnteredValue": given, "effectiveValue": {_kind(value): value}, "formattedValue": formatted}


def _kind(value: Any) -> str:
    return "boolValue" if isinstance(value, bool) else "stringValue" if isinstance(value, str) else "numberValue"


def _spread(lines: Mapping[int, Mapping[int, Any]], axis: str, start: int, count: int) -> dict[int, dict[int, Any]]:
    """Rows after `count` rows or columns were inserted behind the first `start`."""
    if axis == "row":
        return {row + count if row > start else row: dict(cells) for row, cells in lines.items()}
    return {row: {k + count if k > start else k: cell for k, cell in cells.items()} for row, cells in lines.items()}
