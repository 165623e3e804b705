from __future__ import annotations

import ast
import copy
import io
import json
import re
import zipfile
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import openpyxl
import pytest

from agentgym.office.spreadsheet import excel_sheets
from agentgym.office.spreadsheet.excel import Excel
from agentgym.office.spreadsheet.workbooks import open_workbook, read_workbook, write_workbook
from agentgym.text.tools import ToolError, tools_of
from tests.office.prepared import BOOK, spreadsheets
from tests.office.test_laws import refused

PATH = "in/book.xlsx"
ROWS = [
    ["team", "place", "goals", "rank"],
    ["Kings", "H", 3, 1],
    ["Bruins", "A", 5, 2],
    ["Kings", "A", 4, 3],
]


@pytest.fixture
def server() -> Excel:
    return spreadsheets()


def values(server: Excel, title: str = "Games") -> list[list[Any]]:
    return read_workbook(server.context.files.read(PATH))[title]


def opened(server: Excel) -> Any:
    return openpyxl.load_workbook(io.BytesIO(server.context.files.read(PATH)))


def test_rows_come_back_as_they_were_written() -> None:
    dated = [datetime(2025, 1, 15, 9, 30), date(2025, 1, 15), time(9, 30), -(10**12), "007"]
    rows: list[list[Any]] = [["é", 1, 2.5, True, None, "x"], [], dated]
    data = write_workbook({"One": rows, "Two": [["=1+1", None]], "Empty": []})
    read = read_workbook(data)
    assert read["One"][:2] == rows[:2]
    assert read["One"][2] == [rows[2][0], datetime(2025, 1, 15), *rows[2][2:]]
    assert (read["Two"], read["Empty"], list(read)) == ([], [], ["One", "Two", "Empty"])
    assert openpyxl.load_workbook(io.BytesIO(data))["Two"]["A1"].value == "=1+1"


def test_the_same_rows_are_the_same_bytes() -> None:
    data = write_workbook({"Games": ROWS, "Other one": []})
    assert data == BOOK
    assert {entry.date_time for entry in zipfile.ZipFile(io.BytesIO(data)).infolist()} == {
        (1980, 1, 1, 0, 0, 0)
    }
    made = openpyxl.load_workbook(
        io.BytesIO(write_workbook({"S": ROWS}, datetime(2030, 5, 1, tzinfo=UTC)))
    ).properties
    assert (made.created, made.modified) == (datetime(2030, 5, 1), datetime(2030, 5, 1))


def test_a_workbook_takes_its_times_from_the_clock(server: Excel) -> None:
    server.create_workbook("new.xlsx")
    first = open_workbook(server.context.files.read("new.xlsx")).properties
    server.context.clock.tick()
    server.write_data_to_excel("new.xlsx", "Sheet1", [[1]])
    second = open_workbook(server.context.files.read("new.xlsx")).properties
    assert first.created == first.modified == second.created == datetime(2025, 1, 15, 9)
    assert second.modified == datetime(2025, 1, 15, 9, 0, 1)
    told = ast.literal_eval(server.get_workbook_metadata("new.xlsx", include_ranges=True))
    assert told == {
        "filename": "new.xlsx",
        "sheets": ["Sheet1"],
        "size": server.context.files.size("new.xlsx"),
        "modified": datetime(2025, 1, 15, 9, 0, 1, tzinfo=UTC).timestamp(),
        "used_ranges": {"Sheet1": "A1"},
    }


@pytest.mark.parametrize(
    ("value", "error"), [("x" * 32_768, "limit exceeded"), (10**400, "too large")]
)
def test_cells_have_limits(server: Excel, value: Any, error: str) -> None:
    data = {"sheet_name": "Games", "data": [["changed"], [value]]}
    refused(server, "write_data_to_excel", error, filepath=PATH, **data)


def test_sheets_have_limits(server: Excel) -> None:
    data = {"sheet_name": "Games", "data": [[1] * 16_385]}
    refused(server, "write_data_to_excel", "limit exceeded", filepath=PATH, **data)
    refused(server, "create_worksheet", "1 to 31 characters", filepath=PATH, sheet_name="x" * 32)


def test_a_sheet_is_renamed_in_a_full_workbook_and_by_case_only(
    server: Excel, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["Games", "-", "a" * 31, "s"]
    monkeypatch.setattr(excel_sheets, "MAX_SHEETS", len(names))
    server.context.files.write(PATH, write_workbook({name: [["x"]] for name in names}))
    refused(server, "create_worksheet", "at most 4 sheets", filepath=PATH, sheet_name="new")
    for old, new in (("Games", "GAMES"), ("-", "-"), ("a" * 31, "A" * 31), ("s", "Two")):
        server.rename_worksheet(PATH, old, new)
        names[names.index(old)] = new
    assert opened(server).sheetnames == names


def test_a_preview_has_ten_rows(server: Excel) -> None:
    rows = [[datetime(2025, 1, 15, 9, 30)], *([k] for k in range(30))]
    server.context.files.write(PATH, write_workbook({"Games": rows}))
    cells = server.read_data_from_excel(PATH, "Games", preview_only=True)["cells"]
    assert (cells[0]["value"], len(cells)) == ("2025-01-15 09:30:00", 10)


def test_rows_and_columns_are_inserted_and_deleted(server: Excel) -> None:
    server.insert_rows(PATH, "Games", 3, 2)
    server.insert_columns(PATH, "Games", 1)
    moved = [[None, *row] for row in ROWS]
    assert values(server) == [*moved[:2], [], [], *moved[2:]]
    server.delete_sheet_rows(PATH, "Games", 3, 2)
    assert values(server) == moved
    for start, count in ((0, 1), (1, 0), (10**9, 1), (1, 10**9), (99, 1)):
        with pytest.raises(ToolError, match=r"invalid argument|limit"):
            server.delete_sheet_rows(PATH, "Games", start, count)


def test_only_the_first_cell_of_a_merged_range_is_written(server: Excel) -> None:
    book = opened(server)
    book["Games"].merge_cells("A1:B1")
    book.save(out := io.BytesIO())
    server.context.files.write(PATH, out.getvalue())
    data = {"filepath": PATH, "sheet_name": "Games", "data": [["x"]]}
    refused(server, "write_data_to_excel", "B1 is inside a merged range", **data, start_cell="B1")
    server.write_data_to_excel(**data, start_cell="A1")


def test_rules_for_what_may_be_entered_are_told(server: Excel) -> None:
    book = opened(server)
    make = openpyxl.worksheet.datavalidation.DataValidation
    rules = [("list", '"H, A"', None, "B2:B4"), ("whole", "1", "9", "C2")]
    for kind, first, second, cells in rules:
        rule = make(type=kind, formula1=first, formula2=second, operator="between")
        rule.add(cells)
        book["Games"].add_data_validation(rule)
    book.save(out := io.BytesIO())
    server.context.files.write(PATH, out.getvalue())
    told = [
        server.read_data_from_excel(PATH, "Games", cell, cell)["cells"][0]["validation"]
        for cell in ("B2", "C2", "A1")
    ]
    assert [rule["has_validation"] for rule in told] == [True, True, False]
    assert (told[0]["formula1"], told[1]["formula1"], told[1]["formula2"]) == ('"H, A"', "1", "9")


def repacked(**parts: str | bytes) -> bytes:
    out = io.BytesIO()
    names = {
        "sheet": "xl/worksheets/sheet1.xml",
        "strings": "xl/sharedStrings.xml",
        "more": "xl/more.xml",
        "image": "xl/i.png",
    }
    with (
        zipfile.ZipFile(io.BytesIO(write_workbook({"S": [["a"]]}))) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            if name not in [names[key] for key in parts]:
                target.writestr(name, source.read(name))
        for key, data in parts.items():
            target.writestr(names[key], data)
    return out.getvalue()


MAIN = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{}</sheetData>{}</worksheet>'


@pytest.mark.parametrize(
    "data",
    [
        b"", b"PK", b"no archive" * 99, write_workbook({"S": [["a"]]})[:-30], repacked(sheet="<worksheet"), repacked(sheet="x"),
        repacked(more=b"\0" * (65 * 2**20)),
        repacked(sheet='<!DOCTYPE a [<!ENTITY b "bbb">]>' + MAIN.format("", "")),
        repacked(sheet=MAIN.format('<row r="1048576"><c r="A1048576"><v>1</v></c></row>', "")),
        repacked(sheet=MAIN.format('<row r="1"><c r="XFE1"><v>1</v></c></row>', "")),
        repacked(sheet=MAIN.format("".join(f'<row r="{k}"><c r="XFD{k}"><v>1</v></c></row>' for k in range(1, 200)), "")),
        repacked(sheet=MAIN.format("<row>" + "<c/>" * 300_000 + "</row>", "")),
        repacked(sheet=MAIN.format("", '<mergeCells><mergeCell x="&gt;" ref="A1:XFD1048576"/></mergeCells>')),
        repacked(sheet=MAIN.format("", '<hyperlinks><hyperlink ref="A1:XFD9999" location="x"/></hyperlinks>')),
        repacked(sheet=MAIN.format("<c><f t='shared'>" + "A1+" * 999 + "1</f></c>" + "<c><f t='shared'/></c>" * 999, "")),
        repacked(image=MAIN.format('<row r="1048576"/>', "").encode("utf-16")),
        repacked(sheet=MAIN.format('<row r="x"><c r="!"/></row>', "")), repacked(sheet="\ufeff" + "<a>" * 100_001),
    ],
)  # fmt: skip
def test_bombs_and_broken_files_are_refused(data: bytes) -> None:
    server = Excel()
    server.context.files.write(PATH, data)
    for call in (read_workbook, open_workbook):
        with pytest.raises(ToolError, match=r"^(invalid argument|limit exceeded): "):
            call(data)
    with pytest.raises(ToolError, match=r"^(invalid argument|limit exceeded): "):
        server.write_data_to_excel(PATH, "S", [[1]])
    assert server.context.files.read(PATH) == data


def legal_call(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    def pick(items: list[Any]) -> Any:
        return items[int(rng.integers(len(items)))]

    def cell() -> str:
        return f"{pick(list('ABCDE'))}{int(rng.integers(1, 7))}"

    title = pick(["Games", "Other one", "T"])
    start = int(rng.integers(0, 6))
    data = [
        [pick(["x", 1, None, f"={cell()}+1", f"='V''w'!{cell()}", [], 2.5, ""]) for _ in range(3)]
        for _ in range(2)
    ]
    name, more = pick([
        ("write_data_to_excel", {"data": data, "start_cell": cell()}),
        ("insert_rows", {"start_row": start}), ("insert_columns", {"start_col": start, "count": 2}),
        ("delete_sheet_rows", {"start_row": start}), ("create_worksheet", {}),
        ("read_data_from_excel", {"start_cell": cell()}),
    ])  # fmt: skip
    return name, {"filepath": PATH, "sheet_name": title, **more}


@pytest.mark.parametrize("seed", [0, 1])
def test_random_calls_leave_a_workbook_that_opens(server: Excel, seed: int) -> None:
    shown, servers = [], [server, copy.deepcopy(server)]
    for each in servers:
        rng, told = np.random.default_rng(seed), []
        for _ in range(25):
            name, arguments = legal_call(rng)
            before = each.context.files.file(PATH)
            try:
                told.append(json.dumps(tools_of(each)[name](arguments), allow_nan=False))
            except ToolError as error:
                told.append(str(error))
                assert each.context.files.file(PATH) == before
        shown.append([*told, each.context.files.read(PATH)])
        assert read_workbook(each.context.files.read(PATH)).keys() == set(opened(each).sheetnames)
    assert shown[0] == shown[1]
    errors = [text for text in told if text[0] not in '{["']
    assert len(errors) < 20
    assert all(
        re.match("invalid argument|not found|conflict|limit exceeded", text) for text in errors
    )
    assert not [text for text in errors if "cannot store this" in text]
