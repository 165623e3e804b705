"""The published workbook server's calls, and the differences."""

from __future__ import annotations

from typing import Any

from agentgym.office.spreadsheet.excel import Excel
from agentgym.office.spreadsheet.workbooks import write_workbook
from tests.office.published import DISABLED, Call, Difference

BOOK = "/workspace/games.xlsx"
ROWS = [["Team", "Points"], ["A", 3], ["B", 5], ["A", 4]]


def prepared() -> Excel:
    server = Excel()
    server.context.files.write(BOOK, write_workbook({"Games": ROWS}))
    return server


def games(**others: Any) -> dict[str, Any]:
    return {"filepath": BOOK, "sheet_name": "Games", **others}


CALLS = [
    Call("create_workbook", {"filepath": "/workspace/new.xlsx"}, r"Created .* /workspace/new\.xlsx"),
    Call("create_worksheet", {"filepath": BOOK, "sheet_name": "More"}, r"Sheet More .*created.*"),
    Call("write_data_to_excel", {**games(), "sheet_name": "More", "data": [["x"]]}, r"Data written to More"),
    Call("read_data_from_excel", games(end_cell="B2")),
    Call("get_workbook_metadata", {"filepath": BOOK, "include_ranges": True},
         r"\{'filename': 'games\.xlsx', 'sheets': \['Games', 'More'\], 'size': \d+, 'modified': \d+\.\d+, 'used_ranges': \{.*\}\}"),
    Call("apply_formula", games(cell="D1", formula="=SUM(B2:B4)"), r"Applied formula '=SUM\(B2:B4\)' to cell D1"),
    Call("validate_formula_syntax", games(cell="A1", formula="=1+1"), r"Formula is valid but cell contains no formula"),
    Call("format_range", games(start_cell="A1", end_cell="B1", bold=True), r"[^\n]+"),
    Call("copy_worksheet", {"filepath": BOOK, "source_sheet": "Games", "target_sheet": "Copy"}, r"Sheet 'Games' copied to 'Copy'"),
    Call("rename_worksheet", {"filepath": BOOK, "old_name": "Copy", "new_name": "Old"}, r"Sheet renamed from 'Copy' to 'Old'"),
    Call("delete_worksheet", {"filepath": BOOK, "sheet_name": "Old"}, r"Sheet 'Old' deleted"),
    Call("merge_cells", games(start_cell="F1", end_cell="G1"), r"Range 'F1:G1' merged in sheet 'Games'"),
    Call("get_merged_cells", games(), r"\['F1:G1'\]"),
    Call("unmerge_cells", games(start_cell="F1", end_cell="G1"), r"Range 'F1:G1' unmerged successfully"),
    Call("insert_rows", games(start_row=6, count=2), r"Inserted 2 row\(s\) [^\n]*6 in sheet 'Games'"),
    Call("insert_columns", games(start_col=12), r"Inserted 1 column\(s\) [^\n]*12 in sheet 'Games'"),
    Call("delete_sheet_rows", games(start_row=4), r"Deleted 1 row\(s\) [^\n]*4 in sheet 'Games'"),
    Call("delete_sheet_columns", games(start_col=2), r"Deleted 1 column\(s\) [^\n]*2 in sheet 'Games'"),
]  # fmt: skip

DIFFERENCES = {
    "create_workbook": Difference(
        "Paths may be relative to /workspace in all tools; the published server takes absolute ones."
    ),
    "validate_formula_syntax": Difference(
        "A formula is also compared with that of a cell, where the published server breaks."
    ),
    "format_range": Difference("The answer names the range."),
    **dict.fromkeys(
        (
            "create_chart",
            "create_pivot_table",
            "create_table",
            "copy_range",
            "delete_range",
            "validate_excel_range",
            "get_data_validation_info",
        ),
        DISABLED,
    ),
}
