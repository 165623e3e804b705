"""Google Sheets: spreadsheets with sheets of cells, whose formulas are computed when they are
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from agentgym.envs.loca.servers.context import OfficeContext
from agentgym.envs.loca.servers.server import Server
from agentgym.envs.loca.servers.spreadsheet import cell_input
from agentgym.envs.loca.servers.spreadsheet.formulas import with_sheet
from agentgym.envs.loca.servers.spreadsheet.spreadsheets import (
    GRID,
    SCHEMA,
    Spreadsheets,
    properties_of,
)
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

ROLES = ("reader", "commenter", "writer")
"""Roles that can be granted, as in the published server."""


class GoogleSheet(Server):
    """A Google Sheets account and what of its spreadsheets is shared with others."""

    name: ClassVar[str] = "google_sheet"
    schema: ClassVar[str] = SCHEMA

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self._books = Spreadsheets(self)

    # For the authors of tasks.

    def add_spreadsheet(self, title: str, sheets: Mapping[str, Iterable[Sequence[Any]]]) -> str:
        """Make a spreadsheet of rows of Python values, texts as they are; its id. Dates and times
        become such cells.
        """
        spreadsheet = self._books.add(title)
        for name, rows in sheets.items():
            lines = [
                {
                    k: cell_input.from_python(value)
                    for k, value in enumerate(row, 1)
                    if value not in (None, "")
                }
                for row in rows
            ]
            size = (
                max(GRID[0], len(lines)),
                max(GRID[1], *(max(line, default=0) for line in lines)) if lines else GRID[1],
            )
            self._books.put(
                self._books.add_sheet(spreadsheet, name, *size), dict(enumerate(lines, 1))
            )
        return spreadsheet

    def spreadsheet(self, title: str) -> str | None:
        """Return the id of the first made spreadsheet with a title, capitals aside, or None."""
        spreadsheet_id: str | None = self.store.value(
            "SELECT id FROM spreadsheets WHERE title = ? COLLATE NOCASE ORDER BY rowid", title
        )
        return spreadsheet_id

    def titles(self) -> dict[str, str]:
        """Return the title of each spreadsheet by its id, first made first."""
        return {row["id"]: row["title"] for row in self.store.find("spreadsheets", order="rowid")}

    def values(self, spreadsheet: str, sheet: str | None = None) -> list[list[Any]]:
        """Return the computed values of a sheet, the first one by default, down to the last filled
        row.

        Rows end with their last filled cell; an empty cell is None; a date that was typed in is the
        text that was typed.
        """
        sheet_row = (
            self._books.sheet(spreadsheet, sheet)
            if sheet is not None
            else self._books.sheets(spreadsheet)[0]
        )
        values = self._books.values(
            sheet_row, None, lambda cell: cell["s"] if cell.get("k") else cell["v"], whole=True
        )
        return [[value if value != "" else None for value in row] for row in values]

    def permissions(self, spreadsheet: str) -> dict[str, str]:
        """Return the role of each address that a spreadsheet is shared with."""
        return {
            row["email_address"]: row["role"]
            for row in self.store.find("permissions", order="rowid", spreadsheet=spreadsheet)
        }

    # The tools.

    @tool
    def get_sheet_data(
        self,
        spreadsheet_id: str,
        sheet: str,
        range: str | None = None,
        include_grid_data: bool = False,
    ) -> Any:
        """Values of a sheet as it shows them. Rows and cells that are empty at the end are left out.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            range: Cells in A1 notation, such as A1:C10, A:F or 2:5; the whole sheet by default.
            include_grid_data: Give of each cell what was entered and what it comes to besides.
        """
        row = self._books.sheet(spreadsheet_id, sheet)
        if include_grid_data:
            return self._grid_data(row, range)
        value_range = {
            "range": self._books.range_name(row, range),
            "values": self._books.values(row, range, cell_input.display),
        }
        return {"spreadsheetId": spreadsheet_id, "valueRanges": [value_range]}

    @tool
    def get_sheet_formulas(self, spreadsheet_id: str, sheet: str, range: str | None = None) -> Any:
        """What was entered into the cells of a sheet: formulas as such, other values bare.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            range: Cells in A1 notation; the whole sheet by default.
        """
        return self._books.values(self._books.sheet(spreadsheet_id, sheet), range, None)

    @tool
    def update_cells(
        self, spreadsheet_id: str, sheet: str, range: str, data: list[list[Any]]
    ) -> Any:
        """Enter values into a range, row by row, as if typed: numbers, dates and formulas in texts become such.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            range: Cells in A1 notation; a single cell is the upper left corner.
            data: Rows of values; null leaves a cell as it is, an empty text empties it.
        """
        with self.store.change():
            return self._books.enter(self._books.sheet(spreadsheet_id, sheet), range, data)

    @tool
    def batch_update_cells(
        self, spreadsheet_id: str, sheet: str, ranges: dict[str, list[list[Any]]]
    ) -> Any:
        """Enter values into several ranges of a sheet, all or none.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            ranges: Rows of values by range in A1 notation.
        """
        with self.store.change():
            row = self._books.sheet(spreadsheet_id, sheet)
            responses = [self._books.enter(row, area, data) for area, data in ranges.items()]
        total = {
            f"totalUpdated{what}": sum(each[f"updated{what}"] for each in responses)
            for what in ("Rows", "Columns", "Cells")
        }
        return {
            "spreadsheetId": spreadsheet_id,
            **total,
            "totalUpdatedSheets": int(bool(responses)),
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
            count: How many.
            start_row: Index of the first new row, from 0; at the top by default.
        """
        return self._books.insert(spreadsheet_id, sheet, "row", count, start_row or 0)

    @tool
    def add_columns(
        self, spreadsheet_id: str, sheet: str, count: int, start_column: int | None = None
    ) -> Any:
        """Insert empty columns.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            sheet: Title of the sheet.
            count: How many.
            start_column: Index of the first new column, from 0; at the left by default.
        """
        return self._books.insert(spreadsheet_id, sheet, "column", count, start_column or 0)

    @tool
    def list_sheets(self, spreadsheet_id: str) -> list[str]:
        """Titles of the sheets of a spreadsheet."""
        return [row["title"] for row in self._books.sheets(spreadsheet_id)]

    @tool
    def copy_sheet(
        self, src_spreadsheet: str, src_sheet: str, dst_spreadsheet: str, dst_sheet: str
    ) -> Any:
        """Copy a sheet into a spreadsheet, which may be the same.

        Args:
            src_spreadsheet: Id of the spreadsheet to copy from.
            src_sheet: Title of the sheet to copy.
            dst_spreadsheet: Id of the spreadsheet to copy to.
            dst_sheet: Title of the copy.
        """
        with self.store.change():
            source = self._books.sheet(src_spreadsheet, src_sheet)
            self._books.sheets(dst_spreadsheet)
            target = self._books.add_sheet(
                dst_spreadsheet, dst_sheet, source["row_count"], source["column_count"]
            )
            self._books.put(target, self._books.lines(source))
            self._books.touch(dst_spreadsheet)
        return {
            "copy": properties_of(target),
            "rename": {"spreadsheetId": dst_spreadsheet, "replies": [{}]},
        }

    @tool
    def rename_sheet(self, spreadsheet: str, sheet: str, new_name: str) -> Any:
        """Give a sheet another title; formulas that name it follow.

        Args:
            spreadsheet: Id of the spreadsheet.
            sheet: Title of the sheet.
            new_name: Its new title.
        """
        with self.store.change():
            row = self._books.sheet(spreadsheet, sheet)
            if new_name.lower() != row["title"].lower():
                self._books.check_title(spreadsheet, new_name)
            self.store.update("sheets", row["id"], title=new_name)
            same = row["title"].lower()
            self._books.rewrite_references(
                spreadsheet,
                lambda _, title, rest: with_sheet(
                    new_name if title and title.lower() == same else title, rest
                ),
            )
            self._books.touch(spreadsheet)
        return {"spreadsheetId": spreadsheet, "replies": [{}]}

    @tool
    def get_multiple_sheet_data(self, queries: list[dict[str, str]]) -> list[dict[str, Any]]:
        """Values of several ranges, each with its query; a query that fails has an `error` in place of `data`.

        Args:
            queries: Each with `spreadsheet_id`, `sheet` and, if not the whole sheet is wanted, `range`.
        """
        results: list[dict[str, Any]] = []
        for query in queries:
            try:
                row = self._books.sheet(query.get("spreadsheet_id", ""), query.get("sheet", ""))
                results.append(
                    {
                        **query,
                        "data": self._books.values(row, query.get("range"), cell_input.display),
                    }
                )
            except ToolError as error:
                results.append({**query, "error": str(error)})
        return results

    @tool
    def get_multiple_spreadsheet_summary(
        self, spreadsheet_ids: list[str], rows_to_fetch: int = 5
    ) -> list[dict[str, Any]]:
        """Titles, sheets and first rows of several spreadsheets; one that is not found has an `error`.

        Args:
            spreadsheet_ids: Ids of the spreadsheets.
            rows_to_fetch: Rows of each sheet, its headers among them.
        """
        if rows_to_fetch < 1:
            raise ToolError(
                f"invalid argument: rows_to_fetch must be at least 1, got {rows_to_fetch}"
            )
        results = []
        for spreadsheet in spreadsheet_ids:
            try:
                sheets = [
                    self._summary(sheet, rows_to_fetch) for sheet in self._books.sheets(spreadsheet)
                ]
                title = self.store.get("spreadsheets", spreadsheet)["title"]
                results.append(
                    {"spreadsheet_id": spreadsheet, "title": title, "sheets": sheets, "error": None}
                )
            except ToolError as error:
                results.append(
                    {
                        "spreadsheet_id": spreadsheet,
                        "title": None,
                        "sheets": [],
                        "error": str(error),
                    }
                )
        return results

    @tool
    def create_spreadsheet(self, title: str) -> Any:
        """Make a spreadsheet with one empty sheet, Sheet1."""
        with self.store.change():
            spreadsheet = self._books.add(title)
            self._books.add_sheet(spreadsheet, "Sheet1", *GRID)
        return {"spreadsheetId": spreadsheet, "title": title, "sheets": ["Sheet1"]}

    @tool
    def create_sheet(self, spreadsheet_id: str, title: str) -> Any:
        """Add an empty sheet to a spreadsheet."""
        with self.store.change():
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
        """Ids and titles of the spreadsheets, last changed first."""
        return self.store.rows(
            "SELECT id, title FROM spreadsheets ORDER BY modified DESC, rowid DESC"
        )

    @tool
    def share_spreadsheet(
        self, spreadsheet_id: str, recipients: list[dict[str, str]], send_notification: bool = True
    ) -> Any:
        """Share a spreadsheet with others, or change what they may do.

        Args:
            spreadsheet_id: Id of the spreadsheet.
            recipients: Each with `email_address` and `role`: reader, commenter or writer.
            send_notification: Whether they are told.
        """
        with self.store.change():
            self._books.sheets(spreadsheet_id)
            outcomes = [
                self._share(spreadsheet_id, recipient, notified=send_notification)
                for recipient in recipients
            ]
        return {
            "successes": [each for each in outcomes if "error" not in each],
            "failures": [each for each in outcomes if "error" in each],
        }

    # Shared by the tools.

    def _grid_data(self, sheet: Row, text: str | None) -> Any:
        area = self._books.area(sheet, text)
        parts = [
            self._books.values(sheet, text, show)
            for show in (None, cell_input.raw, cell_input.display)
        ]
        lines = (zip(*line, strict=True) for line in zip(*parts, strict=True))
        rows = [
            {"values": [_cell_data(*cell) if cell[0] != "" else {} for cell in line]}
            for line in lines
        ]
        data = {"startRow": area.top - 1, "startColumn": area.left - 1, "rowData": rows}
        title = self.store.get("spreadsheets", sheet["spreadsheet"])["title"]
        sheets = [{"properties": properties_of(sheet), "data": [data]}]
        return {
            "spreadsheetId": sheet["spreadsheet"],
            "properties": {"title": title},
            "sheets": sheets,
        }

    def _summary(self, sheet: Row, rows: int) -> dict[str, Any]:
        last = min(rows, sheet["row_count"])
        first, *others = self._books.values(sheet, f"1:{last}", cell_input.display) or [[]]
        return {
            "title": sheet["title"],
            "sheet_id": sheet["number"],
            "headers": first,
            "first_rows": others,
            "error": None,
        }

    def _share(
        self, spreadsheet: str, recipient: Mapping[str, str], *, notified: bool
    ) -> dict[str, Any]:
        address, role = recipient.get("email_address", ""), recipient.get("role", "writer")
        if (
            address.count("@") != 1
            or address.strip() != address
            or address[0] == "@"
            or address[-1] == "@"
            or len(address) > 254
        ):
            return {
                "email_address": address,
                "error": "invalid argument: email_address must be an address like name@example.com",
            }
        if role not in ROLES:
            error = f"invalid argument: role must be one of {', '.join(ROLES)}, got {echo(role)}"
            return {"email_address": address, "error": error}
        permissions = self.store.find("permissions", spreadsheet=spreadsheet, email_address=address)
        permission_id = (
            permissions[0]["id"] if permissions else self.context.new_id("permission", 20)
        )
        if permissions:
            self.store.update("permissions", permission_id, role=role, notified=notified)
        else:
            shared = {"email_address": address, "role": role, "notified": notified}
            self.store.insert("permissions", id=permission_id, spreadsheet=spreadsheet, **shared)
        return {"email_address": address, "role": role, "permissionId": permission_id}


def _cell_data(content: Any, value: Any, formatted: str) -> dict[str, Any]:
    entry = (
        {"formulaValue": content}
        if isinstance(content, str) and content.startswith("=")
        else {_kind(content): content}
    )
    return {
        "userEnteredValue": entry,
        "effectiveValue": {_kind(value): value},
        "formattedValue": formatted,
    }


def _kind(value: Any) -> str:
    return (
        "boolValue"
        if isinstance(value, bool)
        else "stringValue"
        if isinstance(value, str)
        else "numberValue"
    )
