"""The published Google Sheets server's calls, and the differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from tests.office.published import DISABLED, Call, Difference

ROWS = [["Team", "Points", "Open"], ["A", 3, True], ["B", 5, None]]


def prepared() -> GoogleSheet:
    server = GoogleSheet()
    server.add_spreadsheet("Season", {"Table": ROWS})
    return server


def season(answers: list[Any], **others: Any) -> dict[str, Any]:
    return {"spreadsheet_id": answers[0][0]["id"], "sheet": "Table", **others}


CALLS = [
    Call("list_spreadsheets", {}),
    Call("list_sheets", lambda seen: {"spreadsheet_id": seen[0][0]["id"]}),
    Call("update_cells", lambda seen: season(seen, range="D1", data=[["Sum"], ["x"], ["=B2+B3"]])),
    Call("batch_update_cells", lambda seen: season(seen, ranges={"E1": [["x"]], "F3": [[1]]})),
    Call("get_sheet_data", season),
    Call("get_sheet_data", lambda seen: season(seen, include_grid_data=True)),
    Call("get_sheet_formulas", lambda seen: season(seen, range="A1:B3")),
    Call("add_rows", lambda seen: season(seen, count=2)),
    Call("add_columns", lambda seen: season(seen, count=1, start_column=0)),
    Call("create_spreadsheet", {"title": "New"}),
    Call(
        "create_sheet", lambda seen: {"spreadsheet_id": seen[-1]["spreadsheetId"], "title": "More"}
    ),
    Call(
        "copy_sheet",
        lambda seen: {
            "src_spreadsheet": seen[0][0]["id"],
            "src_sheet": "Table",
            "dst_spreadsheet": seen[-1]["spreadsheetId"],
            "dst_sheet": "Copy",
        },
    ),
    Call(
        "rename_sheet",
        lambda seen: {"spreadsheet": seen[0][0]["id"], "sheet": "Table", "new_name": "T"},
    ),
    Call(
        "share_spreadsheet",
        lambda seen: {
            "spreadsheet_id": seen[0][0]["id"],
            "recipients": [
                {"email_address": "a@example.com", "role": "writer"},
                {"email_address": "nobody", "role": "reader"},
            ],
        },
    ),
]

_UNKNOWN = "An unknown spreadsheet or sheet is an error, as in the real service."
DIFFERENCES = {
    "list_sheets": Difference(_UNKNOWN),
    "create_sheet": Difference(
        "A title that another sheet of the spreadsheet has, and an unknown spreadsheet, are errors."
    ),
    "get_sheet_data": Difference(
        "Formulas are computed, values begin at the range that is asked "
        "for, a wrong range is an error, and grid data holds the cells.",
    ),
    "get_sheet_formulas": Difference(
        f"Values begin at the range that is asked for. {_UNKNOWN}",
    ),
    "update_cells": Difference(
        "Texts are entered as if they were typed, so that formulas can count with them, null leaves "
        "a cell as it is, and data that does not fit into the range is an error, as in the real "
        "service.",
    ),
    "batch_update_cells": Difference(_UNKNOWN),
    "get_multiple_sheet_data": replace(DISABLED, params={"queries[].range"}),
    "get_multiple_spreadsheet_summary": DISABLED,
    "share_spreadsheet": Difference(
        "An unknown spreadsheet is an error, and an address that is none is among the failures.",
    ),
}
