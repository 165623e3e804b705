"""Google Sheets server, which computes formulas when cells are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.office.context import OfficeContext
from agentgym.office.disabled import with_disabled_tools
from agentgym.office.server import Server
from agentgym.office.spreadsheet.cell_values import from_python
from agentgym.office.spreadsheet.spreadsheets import (
    GRID,
    SCHEMA,
    Cells,
    Spreadsheets,
    Values,
    shown,
    typed,
)
from agentgym.text.tools import ToolError, tool


@with_disabled_tools(Path(__file__).with_name("disabled_sheet_tools.json"))
class GoogleSheet(Server):
    """A Google Sheets account."""

    name = "google_sheet"
    schema = SCHEMA
    tool_order = tuple(
        """
        get_sheet_data get_sheet_formulas update_cells batch_update_cells add_rows add_columns
        list_sheets copy_sheet rename_sheet get_multiple_sheet_data
        get_multiple_spreadsheet_summary create_spreadsheet create_sheet list_spreadsheets
        share_spreadsheet
        """.split()
    )

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self._books = Spreadsheets(self)

    def add_spreadsheet(self, title: str, sheets: Mapping[str, Iterable[Sequence[Any]]]) -> str:
        """Create a spreadsheet from Python values; strings are not parsed."""
        spreadsheet = self._books.add(title)
        for name, rows in sheets.items():
            height, width = GRID
            lines: Cells = {}
            for number, row in enumerate(rows, 1):
                cells = lines[number] = {}
                for column, value in enumerate(row, 1):
                    if value not in (None, ""):
                        cells[column] = from_python(value)
                        width = max(width, column)
            sheet = self._books.add_sheet(spreadsheet, name, max(height, len(lines)), width)
            self._books.put(sheet, lines)
        return spreadsheet

    def titles(self) -> dict[str, str]:
        """Return spreadsheet titles by id, oldest first."""
        return {row["id"]: row["title"] for row in self.store.find("spreadsheets", order="rowid")}

    def values(self, spreadsheet: str, sheet: str) -> Values:
        """Return the values of a sheet without trailing empty rows and cells.

        Formulas are computed. Empty cells are None, and typed dates are strings.
        """
        return self._books.exact_values(self._books.sheet(spreadsheet, sheet))

    def sheet_titles(self, spreadsheet: str) -> list[str]:
        """Return a spreadsheet's sheet titles, in order."""
        return [row["title"] for row in self._books.sheets(spreadsheet)]

    def size(self, spreadsheet: str, sheet: str) -> tuple[int, int]:
        """Return the size of a sheet as (rows, columns)."""
        row = self._books.sheet(spreadsheet, sheet)
        return row["row_count"], row["column_count"]

    @tool
    def get_sheet_data(
        self,
        spreadsheet_id: str,
        sheet: str,
        range: str | None = None,
        include_grid_data: bool = False,
    ) -> Any:
        """Read the values of a sheet with formulas computed. Empty rows and cells at the end are
        omitted.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            range: Cells in A1 notation, such as A1:C10, A:F or 2:5; the whole sheet by default.
            include_grid_data: Only false is supported.
        """
        if include_grid_data:
            raise ToolError(
                "not supported: include_grid_data; get_sheet_formulas returns the cells as entered"
            )
        row = self._books.sheet(spreadsheet_id, sheet)
        value_range = {
            "range": self._books.range_name(row, range),
            "values": self._books.read(row, range, shown),
        }
        return {"spreadsheetId": spreadsheet_id, "valueRanges": [value_range]}

    @tool
    def get_sheet_formulas(self, spreadsheet_id: str, sheet: str, range: str | None = None) -> Any:
        """Read the cells of a sheet as entered, with formulas as text.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            range: Cells in A1 notation; the whole sheet by default.
        """
        return self._books.read(self._books.sheet(spreadsheet_id, sheet), range, typed)

    @tool
    def update_cells(
        self, spreadsheet_id: str, sheet: str, range: str, data: list[list[Any]]
    ) -> Any:
        """Enter values into a range, row by row, as if typed: formulas, numbers and dates in texts
        are recognised.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            range: Cells in A1 notation; a single cell is the upper left corner.
            data: Rows of values; null keeps a cell, an empty text clears it.
        """
        row = self._books.sheet(spreadsheet_id, sheet)
        return {
            "spreadsheetId": spreadsheet_id,
            "updatedCells": self._books.enter(row, range, data),
            "updatedRows": len(data),
            "updatedColumns": max(map(len, data), default=0),
        }

    @tool
    def batch_update_cells(
        self, spreadsheet_id: str, sheet: str, ranges: dict[str, list[list[Any]]]
    ) -> Any:
        """Enter values into several ranges of a sheet; if one fails, none is changed.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            ranges: Rows of values by range in A1 notation.
        """
        row = self._books.sheet(spreadsheet_id, sheet)
        with self.store.change():
            responses = [
                {"range": area, "updatedCells": self._books.enter(row, area, data)}
                for area, data in ranges.items()
            ]
        return {
            "spreadsheetId": spreadsheet_id,
            "totalUpdatedCells": sum(each["updatedCells"] for each in responses),
            "responses": responses,
        }

    @tool
    def add_rows(
        self, spreadsheet_id: str, sheet: str, count: int, start_row: int | None = None
    ) -> Any:
        """Insert empty rows.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            count: Number of rows.
            start_row: Index of the first new row, from 0; by default after the last row.
        """
        return self._insert(spreadsheet_id, sheet, "row", count, start_row)

    @tool
    def add_columns(
        self, spreadsheet_id: str, sheet: str, count: int, start_column: int | None = None
    ) -> Any:
        """Insert empty columns.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            count: Number of columns.
            start_column: Index of the first new column, from 0; by default after the last column.
        """
        return self._insert(spreadsheet_id, sheet, "column", count, start_column)

    @tool
    def list_sheets(self, spreadsheet_id: str) -> list[str]:
        """List the titles of a spreadsheet's sheets.

        Args:
            spreadsheet_id: Id of the spreadsheet.
        """
        return self.sheet_titles(spreadsheet_id)

    @tool
    def rename_sheet(self, spreadsheet: str, sheet: str, new_name: str) -> Any:
        """Rename a sheet; formulas that refer to it are updated.

        Args:
            spreadsheet: Id of the spreadsheet.
            sheet: Title of the sheet.
            new_name: New title.
        """
        row = self._books.sheet(spreadsheet, sheet)
        if new_name.lower() != row["title"].lower():
            self._books.check_title(spreadsheet, new_name)
        self._books.retitle(row, new_name)
        self._books.touch(spreadsheet)
        renamed = {"properties": {"title": new_name}}
        return {"spreadsheetId": spreadsheet, "replies": [{"updateSheetProperties": renamed}]}

    @tool
    def create_spreadsheet(self, title: str) -> Any:
        """Create a spreadsheet with one empty sheet, Sheet1.

        Args:
            title: Title of the spreadsheet.
        """
        spreadsheet = self._books.add(title)
        self._books.add_sheet(spreadsheet, "Sheet1", *GRID)
        return {"spreadsheetId": spreadsheet, "title": title, "folder": "root"}

    @tool
    def create_sheet(self, spreadsheet_id: str, title: str) -> Any:
        """Add an empty sheet to a spreadsheet.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            title: Title of the new sheet.
        """
        self._books.sheets(spreadsheet_id)
        row = self._books.add_sheet(spreadsheet_id, title, *GRID)
        self._books.touch(spreadsheet_id)
        return {
            "sheetId": row["number"],
            "title": title,
            "index": row["number"],
            "spreadsheetId": spreadsheet_id,
        }

    @tool
    def list_spreadsheets(self) -> list[dict[str, str]]:
        """List the ids and titles of the spreadsheets, oldest first."""
        return self.store.rows("SELECT id, title FROM spreadsheets ORDER BY rowid")

    def _insert(
        self, spreadsheet: str, sheet: str, axis: str, count: int, start: int | None
    ) -> dict[str, Any]:
        self._books.insert(spreadsheet, sheet, axis, count, start)
        inserted = {"dimension": f"{axis.upper()}S", f"inserted{axis.capitalize()}s": count}
        return {"spreadsheetId": spreadsheet, "replies": [{"insertDimension": inserted}]}
