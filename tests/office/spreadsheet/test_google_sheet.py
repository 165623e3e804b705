from __future__ import annotations

import json
import math
import re
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from agentgym.office.spreadsheet.cell_values import parse_input, text_of
from agentgym.office.spreadsheet.cells import (
    column_name,
    column_number,
    parse_area,
    parse_cell,
    quote_title,
    split_sheet,
)
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.text.tools import ToolError, tools_of


@pytest.fixture
def server() -> GoogleSheet:
    return GoogleSheet()


def sheet(server: GoogleSheet, rows: list[list[Any]], title: str = "S") -> str:
    return server.add_spreadsheet("Book", {title: rows})


def show(server: GoogleSheet, spreadsheet: str, title: str = "S", area: str | None = None) -> Any:
    return server.get_sheet_data(spreadsheet, title, area)["valueRanges"][0]["values"]


def compute(formula: str, rows: list[list[Any]] | None = None) -> str:
    server = GoogleSheet()
    made = sheet(server, rows or [])
    server.update_cells(made, "S", "H50", [[formula]])
    return text_of(show(server, made, "S", "H50")[0][0])


@pytest.mark.parametrize(
    ("number", "name"), [(1, "A"), (26, "Z"), (27, "AA"), (702, "ZZ"), (703, "AAA")]
)
def test_columns_have_names(number: int, name: str) -> None:
    assert column_name(number) == name
    assert column_number(name) == number


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("B2", (2, 2, 2, 2)), ("$b$2:A$1", (1, 1, 2, 2)), ("A:F", (1, 1, None, 6)), ("F:A", (1, 1, None, 6)),
        ("2:5", (2, 1, 5, None)), ("A2:F", (2, 1, None, 6)), ("A1:C3", (1, 1, 3, 3)),
    ],
)  # fmt: skip
def test_references(text: str, area: tuple[Any, ...]) -> None:
    found = parse_area(text)
    assert (found.top, found.left, found.bottom, found.right) == area


@pytest.mark.parametrize(
    "text",
    [
        "", "A", "1", "A0", "1A", "A1:", ":", "A1:B2:C3", "A:5", "A1:5", "AAAA1", "A-1", "é1", "A1!",
        "A:B2", "5:A", "1:B2", "B:A1", "A:$B$2",
    ],
)  # fmt: skip
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(ToolError, match="is not a range; examples: ") as caught:
        parse_area(text)
    for example in str(caught.value).partition("examples: ")[2].split(", "):
        parse_area(example)
    with pytest.raises(ToolError, match=r"must be a single cell, such as B2$"):
        parse_cell(text)


@pytest.mark.parametrize(
    ("area", "height", "width"),
    [
        ("A1:B2", 3, 1), ("B2:C2", 1, 3), ("2:2", 2, 1), ("A:A", 1, 2), ("A1", 1, 27),
        ("A1:A9", 9, 27), ("A1000", 2, 1), ("Z999:Z1000", 3, 2), ("A2:A", 1000, 1), ("A:A", 1001, 1),
    ],
)  # fmt: skip
def test_the_remedy_for_values_that_do_not_fit_works(
    server: GoogleSheet, area: str, height: int, width: int
) -> None:
    made, data = sheet(server, []), [[1] * width] * height
    with pytest.raises(ToolError, match=r"do not fit into .*; use the range ") as caught:
        server.update_cells(made, "S", area, data)
    larger, _, before = str(caught.value).partition("use the range ")[2].partition(" after ")
    if before:
        server.add_rows(made, "S", height)
        server.add_columns(made, "S", width)
    assert server.update_cells(made, "S", larger, data)["updatedCells"] == height * width


def test_titles_in_references() -> None:
    assert split_sheet("'It''s one'!A1:B2") == ("It's one", "A1:B2")
    assert split_sheet("Plain!A1") == ("Plain", "A1")
    assert split_sheet("A1") == (None, "A1")
    assert [quote_title(title) for title in ("Sheet1", "My sheet", "It's")] == [
        "Sheet1",
        "'My sheet'",
        "'It''s'",
    ]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("12.50", {"v": 12.5, "s": "12.50"}), ("007", {"v": 7, "s": "007"}), ("-3", {"v": -3, "s": "-3"}),
        ("1e3", {"v": 1000, "s": "1e3"}), ("true", {"v": True, "s": "true"}), ("x", "x"), ("", None), ("'12", "12"), ("=", "="),
        (12.5, 12.5), (10**30, 1e30), (None, None), (False, False), ("CAT-00001", "CAT-00001"), ("4-2", "4-2"), ("1.2.3", "1.2.3"),
        ("10%", {"v": 0.1, "s": "10%"}), ("$1,234.50", {"v": 1234.5, "s": "$1,234.50"}), ("12,34", "12,34"),
        ("2024-10-08", {"v": 45573.0, "s": "2024-10-08", "k": "date"}),
        ("10/8/2024", {"v": 45573.0, "s": "10/8/2024", "k": "date"}),
        ("2025-02-30", "2025-02-30"), ("6:00 PM", {"v": 0.75, "s": "6:00 PM"}), ("25:00", "25:00"), ("=A1", {"f": "=A1"}),
    ],
)  # fmt: skip
def test_what_is_typed(value: Any, cell: Any) -> None:
    assert parse_input(value) == cell


def test_no_cell_holds_a_list_or_a_long_text() -> None:
    for value in ([1], {"a": 1}):
        with pytest.raises(ToolError, match="invalid argument: a cell must be"):
            parse_input(value)
    with pytest.raises(ToolError, match="limit exceeded"):
        parse_input("x" * 50_001)
    with pytest.raises(ToolError, match="too large"):
        parse_input(10**400)


TABLE = [["a", 1, 10], ["b", 2, 20], ["a", 3, 30], [None, None, "x"]]


FORMULAS = [
    line.split("\t") for line in Path(__file__).with_name("formulas.tsv").read_text().splitlines()
]


@pytest.mark.parametrize(
    ("formula", "shown"), [*FORMULAS, ("=" + "(" * 200 + "1" + ")" * 200, "#ERROR!")]
)
def test_formulas_are_computed(formula: str, shown: str) -> None:
    assert compute(formula, TABLE) == shown


def test_formulas_of_other_sheets_and_chains(server: GoogleSheet) -> None:
    made = server.add_spreadsheet("Book", {"It's": [[5]], "S": []})
    server.update_cells(made, "S", "A1", [[1]] + [[f"=A{row}+1"] for row in range(1, 1000)])
    server.update_cells(made, "S", "B1", [["='It''s'!A1*2"], ["=B3"], ["=B2"], ['=B2&"x"']])
    assert show(server, made, area="A1000") == [[1000]]
    assert show(server, made, area="B1:B4") == [[10], ["#REF!"], ["#REF!"], ["#REF!"]]


def test_too_much_work_ends_in_errors(server: GoogleSheet) -> None:
    made = sheet(server, [[k] for k in range(1000)])
    formulas = [f'=SUM(A1:A{900 + k % 100})+COUNTIF(A{k + 1}:A1000,">=0")' for k in range(1000)]
    server.update_cells(made, "S", "B1:B1000", [[formula] for formula in formulas])
    values = [row[1] for row in server.values(made, "S")]
    assert values[0] == sum(range(900)) + 1000
    assert values[-1] == "#ERROR!"


def test_texts_of_tasks_stay_texts_and_dates_become_dates(server: GoogleSheet) -> None:
    made = sheet(
        server,
        [["12.5", "=A1", date(2024, 10, 8), datetime(2024, 10, 8, 12), time(9, 30), 2.0, True]],
    )
    assert show(server, made) == [
        ["12.5", "=A1", "2024-10-08", "2024-10-08 12:00:00", "09:30:00", "2", "TRUE"]
    ]
    assert server.get_sheet_formulas(made, "S") == show(server, made)
    assert server.values(made, "S")[0][:3] == ["12.5", "=A1", "2024-10-08"]


def test_rows_and_columns_are_added_at_the_end_only(server: GoogleSheet) -> None:
    made = sheet(server, [["a"], ["b"]])
    for add in (server.add_rows, server.add_columns):
        with pytest.raises(ToolError, match="not supported: inserting"):
            add(made, "S", 1, 0)
        add(made, "S", 1)
    assert server.size(made, "S") == (1001, 27)
    server.update_cells(made, "S", "AA1001", [["end"]])
    assert show(server, made, area="AA1001") == [["end"]]


def test_ids_are_those_of_the_seed() -> None:
    def made(seed: int) -> list[str]:
        server = GoogleSheet()
        server.context.seed = seed
        return [server.create_spreadsheet("Book")["spreadsheetId"] for _ in range(2)]

    assert made(1) == made(1)
    assert len({*made(1), *made(2)}) == 4
    assert all(str(UUID(each)) == each for each in made(3))


def test_thousands_of_rows_are_filled_at_once(server: GoogleSheet) -> None:
    rows = [["2024-10-08", f"team {k % 7}", k] for k in range(5000)]
    made = server.add_spreadsheet("Games", {"G": [["Date", "Team", "N"], *rows]})
    assert server.values(made, "G")[1:] == rows
    server.create_sheet(made, "T")
    server.update_cells(made, "T", "A1", [['=COUNTIF(G!B:B,"team 3")', "=SUM(G!C:C)"]])
    assert server.values(made, "T") == [[sum(k % 7 == 3 for k in range(5000)), sum(range(5000))]]


def legal_call(
    rng: np.random.Generator, books: list[str], titles: list[str]
) -> tuple[str, dict[str, Any]]:
    def pick(items: list[Any]) -> Any:
        return items[int(rng.integers(len(items)))]

    book, title = pick(books), pick(titles)
    cell = f"{column_name(int(rng.integers(1, 5)))}{int(rng.integers(1, 9))}"
    cells = ["x", 1, 2.5, "", None, True, "2025-01-02", "5%", [], {}]
    cells += [f"={cell}+1", f"=SUM(A1:{cell})", f"='{pick(titles)}'!{cell}", "=A:A", "=("]
    data = [[pick(cells) for _ in range(int(rng.integers(4)))] for _ in range(int(rng.integers(4)))]
    where = {"spreadsheet_id": book, "sheet": title}
    return pick([
        ("update_cells", {**where, "range": pick([cell, f"{cell}:D9", "A:C", "2:4", "A1001", "x"]), "data": data}),
        ("update_cells", {**where, "range": cell, "data": data}),
        ("batch_update_cells", {**where, "ranges": {cell: data, "A1": [[1]]}}),
        ("add_rows", {**where, "count": int(rng.integers(-1, 4)), "start_row": int(rng.integers(10))}),
        ("add_columns", {**where, "count": int(rng.integers(-1, 3)), "start_column": int(rng.integers(5))}),
        ("create_sheet", {"spreadsheet_id": book, "title": title}),
        ("rename_sheet", {"spreadsheet": book, "sheet": title, "new_name": pick(titles)}),
        ("get_sheet_data", {**where, "range": pick([cell, "A:C", "1:3"])}),
        ("get_sheet_formulas", where),
    ])  # fmt: skip


def entries(server: GoogleSheet, books: list[str]) -> list[Any]:
    return [
        server.get_sheet_formulas(book, title)
        for book in books
        for title in server.list_sheets(book)
    ]


@pytest.mark.parametrize("seed", range(2))
def test_random_calls_keep_the_records_whole(seed: int) -> None:
    shown = []
    for _ in range(2):
        rng, server = np.random.default_rng(seed), GoogleSheet()
        books = [server.create_spreadsheet(title)["spreadsheetId"] for title in "PQ"]
        told = []
        for _ in range(200):
            name, arguments = legal_call(rng, books, ["Sheet1", "It's", "T 2", "U"])
            before = entries(server, books)
            try:
                told.append(json.dumps(tools_of(server)[name](arguments), allow_nan=False))
            except ToolError as error:
                told.append(str(error))
                assert entries(server, books) == before
        assert server.store.rows("PRAGMA foreign_key_check") == []
        for book in books:
            assert len(set(server.list_sheets(book))) == len(server.list_sheets(book))
            for title in server.list_sheets(book):
                values = server.values(book, title)
                assert not values or values[-1]
                assert all(
                    not isinstance(v, float) or math.isfinite(v) for row in values for v in row
                )
        shown.append(told)
    assert shown[0] == shown[1]
    errors = [text for text in shown[0] if not text.startswith(("{", "["))]
    assert len(errors) < 140
    assert all(
        re.match("invalid argument|not found|not supported|conflict|limit exceeded", text)
        for text in errors
    )


def test_writes_agree_with_a_dict_of_cells() -> None:
    rng, server, model = np.random.default_rng(11), GoogleSheet(), {}
    made = sheet(server, [])
    for _ in range(200):
        row, column, count = (int(rng.integers(1, 12)) for _ in range(3))
        value = [f"t{count}", count, None, ""][int(rng.integers(4))]
        server.update_cells(made, "S", f"{column_name(column)}{row}", [[value]])
        if value is not None:
            model[row, column] = value
    held = {}
    for row, values in enumerate(server.values(made, "S"), 1):
        held |= {(row, column): v for column, v in enumerate(values, 1) if v is not None}
    assert held == {spot: value for spot, value in model.items() if value != ""}
