"""The published workbook server's calls, and the differences."""

from __future__ import annotations

from typing import Any

from agentgym.office.spreadsheet.excel import Excel
from agentgym.office.spreadsheet.workbooks import write_workbook
from tests.office.published import Call, Difference

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
    Call("create_chart", games(data_range="A1:B4", chart_type="bar", target_cell="F2"), r"Bar chart [^\n]+"),
    Call("create_pivot_table", games(data_range="A1:B4", rows=["Team"], values=["Points"]), r"[^\n]+"),
    Call("create_table", games(data_range="A1:B4"), r"[^\n]+'Table_[0-9a-f]{8}'[^\n]+'Games'\."),
    Call("copy_worksheet", {"filepath": BOOK, "source_sheet": "Games", "target_sheet": "Copy"}, r"Sheet 'Games' copied to 'Copy'"),
    Call("rename_worksheet", {"filepath": BOOK, "old_name": "Copy", "new_name": "Old"}, r"Sheet renamed from 'Copy' to 'Old'"),
    Call("delete_worksheet", {"filepath": BOOK, "sheet_name": "Old"}, r"Sheet 'Old' deleted"),
    Call("merge_cells", games(start_cell="F1", end_cell="G1"), r"Range 'F1:G1' merged in sheet 'Games'"),
    Call("get_merged_cells", games(), r"\['F1:G1'\]"),
    Call("unmerge_cells", games(start_cell="F1", end_cell="G1"), r"Range 'F1:G1' unmerged successfully"),
    Call("copy_range", games(source_start="A1", source_end="B2", target_start="H1"), r"[^\n]+"),
    Call("delete_range", games(start_cell="H1", end_cell="I2"), r"Range H1:I2 deleted successfully"),
    Call("validate_excel_range", games(start_cell="A1", end_cell="B2"), r"Range 'A1:B2' is valid\. [^\n]* 'A1:D4'"),
    Call("get_data_validation_info", games(), r"No data validation rules found[^\n]*"),
    Call("insert_rows", games(start_row=6, count=2), r"Inserted 2 row\(s\) [^\n]*6 in sheet 'Games'"),
    Call("insert_columns", games(start_col=12), r"Inserted 1 column\(s\) [^\n]*12 in sheet 'Games'"),
    Call("delete_sheet_rows", games(start_row=4), r"Deleted 1 row\(s\) [^\n]*4 in sheet 'Games'"),
    Call("delete_sheet_columns", games(start_col=2), r"Deleted 1 column\(s\) [^\n]*2 in sheet 'Games'"),
]  # fmt: skip

DIFFERENCES = {
    "create_workbook": Difference(
        "Paths may be relative to /workspace in all tools; the published server takes absolute ones."
    ),
    "create_pivot_table": Difference(
        "A call without `agg_func` computes the mean, the default, which the published server "
        "always refuses."
    ),
    "validate_excel_range": Difference("A cell that no sheet can have, such as ZZZ, is an error."),
    "validate_formula_syntax": Difference(
        "A formula is also compared with that of a cell, where the published server breaks."
    ),
    "format_range": Difference("The answer names the range."),
}
