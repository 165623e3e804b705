"""Workbooks in the workspace, with the tools of excel-mcp-server 0.1.8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentgym.office.context import OfficeContext
from agentgym.office.disabled import with_disabled_tools
from agentgym.office.server import Server
from agentgym.office.spreadsheet import excel_sheets as sheets
from agentgym.office.spreadsheet.cells import Area
from agentgym.office.spreadsheet.excel_sheets import Workbooks, sheet_of, spot
from agentgym.office.spreadsheet.workbooks import library
from agentgym.text.tools import ToolError, echo, tool


@with_disabled_tools(Path(__file__).with_name("disabled_excel_tools.json"))
class Excel(Server):
    """Reads and changes the workbooks (.xlsx) of the workspace."""

    name = "excel"
    tool_order = tuple(
        """
        apply_formula validate_formula_syntax format_range read_data_from_excel
        write_data_to_excel create_workbook create_worksheet create_chart create_pivot_table
        create_table copy_worksheet delete_worksheet rename_worksheet get_workbook_metadata
        merge_cells unmerge_cells get_merged_cells copy_range delete_range validate_excel_range
        get_data_validation_info insert_rows insert_columns delete_sheet_rows
        delete_sheet_columns
        """.split()
    )

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self._books = Workbooks(self)

    @tool
    def read_data_from_excel(
        self,
        filepath: str,
        sheet_name: str,
        start_cell: str = "A1",
        end_cell: str | None = None,
        preview_only: bool = False,
    ) -> Any:
        """Read the values and validation rules of a range. Formulas are returned as text.

        Args:
            filepath: Path of the workbook.
            sheet_name: Title of the sheet.
            start_cell: First cell.
            end_cell: Last cell; by default the last row and column with data.
            preview_only: Whether to return only the first ten rows.
        """
        sheet = sheet_of(self._books.look(filepath), sheet_name)
        first, _, last = start_cell.partition(":")
        (top, left), corner = spot(first), last or end_cell
        filled = sheet.max_row, sheet.max_column
        bottom, right = filled
        if corner:
            bottom, right = spot(corner)
        elif (top, left) == (1, 1):
            top, left = sheet.min_row, sheet.min_column
        if preview_only:
            bottom = min(bottom, top + 9)
        if top > filled[0] or left > filled[1] or bottom < top or right < left:
            return "No data found in specified range"
        sheets.check_area(Area(top, left, bottom, right))
        cells = []
        for row in range(top, bottom + 1):
            for column in range(left, right + 1):
                cells.append(sheets.describe_cell(sheet, row, column))
        return {
            "range": f"{sheets.spot_name(top, left)}:{sheets.spot_name(bottom, right)}",
            "sheet_name": sheet_name,
            "cells": cells,
        }

    @tool
    def write_data_to_excel(
        self, filepath: str, sheet_name: str, data: list[list[Any]], start_cell: str = "A1"
    ) -> str:
        """Write rows of values, creating a missing sheet. A text that starts with = is written as
        an unchecked formula.

        Args:
            filepath: Path of the workbook.
            sheet_name: Title of the sheet.
            data: Rows of texts, numbers, true, false or null.
            start_cell: The upper left cell.
        """
        if not data:
            raise ToolError("invalid argument: data must have at least one row")
        with self._books.edit(filepath) as book:
            if sheet_name not in book.sheetnames:
                sheets.add_sheet(book, sheet_name)
            sheet, (top, left) = sheet_of(book, sheet_name), spot(start_cell)
            for row, values in enumerate(data, top):
                for column, value in enumerate(values, left):
                    sheets.put(sheet, row, column, value)
        return f"Data written to {sheet_name}"

    @tool
    def create_workbook(self, filepath: str) -> str:
        """Create a workbook with one empty sheet, Sheet1. An existing file is replaced.

        Args:
            filepath: Path of the workbook.
        """
        sheets.check_path(filepath)
        book = library().Workbook()
        book.active.title = "Sheet1"
        self._books.save(filepath, book, new=True)
        return f"Created workbook at {filepath}"

    @tool
    def create_worksheet(self, filepath: str, sheet_name: str) -> str:
        """Add an empty sheet to a workbook.

        Args:
            filepath: Path of the workbook.
            sheet_name: Title of the sheet.
        """
        with self._books.edit(filepath) as book:
            sheets.add_sheet(book, sheet_name)
        return f"Sheet {sheet_name} created successfully"

    @tool
    def delete_worksheet(self, filepath: str, sheet_name: str) -> str:
        """Delete a sheet; the last one cannot be deleted.

        Args:
            filepath: Path of the workbook.
            sheet_name: Title of the sheet.
        """
        with self._books.edit_sheet(filepath, sheet_name) as sheet:
            if len(sheet.parent.sheetnames) == 1:
                raise ToolError("conflict: the only sheet of a workbook cannot be deleted")
            sheet.parent.remove(sheet)
        return f"Sheet '{sheet_name}' deleted"

    @tool
    def rename_worksheet(self, filepath: str, old_name: str, new_name: str) -> str:
        """Rename a sheet.

        Args:
            filepath: Path of the workbook.
            old_name: Title of the sheet.
            new_name: New title.
        """
        with self._books.edit_sheet(filepath, old_name) as sheet:
            if new_name.lower() != old_name.lower():
                sheets.check_title(sheet.parent, new_name)
            else:
                sheet.title = "-"  # openpyxl would change a title that differs in case only
            sheet.title = new_name
        return f"Sheet renamed from '{old_name}' to '{new_name}'"

    @tool
    def get_workbook_metadata(self, filepath: str, include_ranges: bool = False) -> str:
        """Get a workbook's sheets, size and modification time.

        Args:
            filepath: Path of the workbook.
            include_ranges: Whether to include the used range of each sheet.
        """
        book = self._books.look(filepath)
        file = self.context.files.file(filepath)
        facts: dict[str, Any] = {
            "filename": filepath.rsplit("/", 1)[-1],
            "sheets": book.sheetnames,
            "size": len(file.data),
            "modified": file.modified.timestamp(),
        }
        if include_ranges:
            used = {}
            for sheet in book.worksheets:
                used[sheet.title] = str(Area(1, 1, sheet.max_row, sheet.max_column))
            facts["used_ranges"] = used
        return str(facts)

    @tool
    def insert_rows(self, filepath: str, sheet_name: str, start_row: int, count: int = 1) -> str:
        """Insert empty rows.

        Args:
            filepath: Path of the workbook.
            sheet_name: Title of the sheet.
            start_row: Insert before this row number.
            count: Number of rows.
        """
        return self._resize(filepath, sheet_name, "row", start_row, count)

    @tool
    def insert_columns(self, filepath: str, sheet_name: str, start_col: int, count: int = 1) -> str:
        """Insert empty columns.

        Args:
            filepath: Path of the workbook.
            sheet_name: Title of the sheet.
            start_col: Insert before this column number.
            count: Number of columns.
        """
        return self._resize(filepath, sheet_name, "column", start_col, count)

    @tool
    def delete_sheet_rows(
        self, filepath: str, sheet_name: str, start_row: int, count: int = 1
    ) -> str:
        """Delete rows.

        Args:
            filepath: Path of the workbook.
            sheet_name: Title of the sheet.
            start_row: Number of the first row.
            count: Number of rows.
        """
        return self._resize(filepath, sheet_name, "row", start_row, count, remove=True)

    def _resize(
        self, path: str, title: str, axis: str, start: int, count: int, *, remove: bool = False
    ) -> str:
        if count < 1:
            raise ToolError(f"invalid argument: count must be at least 1, got {echo(count)}")
        verb, change = ("Deleted", -count) if remove else ("Inserted", count)
        with self._books.edit_sheet(path, title) as sheet:
            sheets.resize(sheet, axis, start, change)
        return f"{verb} {count} {axis}(s) starting at {axis} {start} in sheet '{title}'"
