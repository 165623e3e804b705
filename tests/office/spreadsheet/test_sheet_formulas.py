from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from agentgym.office.spreadsheet.cell_values import DIVISION, SYNTAX
from agentgym.office.spreadsheet.evaluation import MAX_STEPS, Evaluator, SheetCells
from agentgym.office.spreadsheet.functions import FUNCTIONS
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.text.tools import ToolError, tools_of
from tests.helpers import calls_of

ROWS = [
    ["Name", "Team", "Points", "Day"],
    ["Ada", "red", 7, "2025-01-03"],
    ["Bob", "blue", 4, "2025-01-01"],
    ["Cid", "red", 1, "2025-01-02"],
    ["Dee", "blue", 9, "2025-02-01"],
]


@pytest.fixture
def server() -> GoogleSheet:
    return GoogleSheet()


def book(server: GoogleSheet, rows: list[list[Any]] | None = None) -> str:
    made = server.add_spreadsheet("Book", {"T": []})
    server.update_cells(made, "T", "A1", ROWS if rows is None else rows)
    return made


def show(server: GoogleSheet, made: str, area: str) -> Any:
    return server.get_sheet_data(made, "T", area)["valueRanges"][0]["values"]


@pytest.mark.parametrize(
    "name",
    ["QUERY", "Sparkline", "rand", "TEXTJOIN", "__IMPORT__"],
)
def test_functions_that_are_not_computed_are_refused(server: GoogleSheet, name: str) -> None:
    made = book(server)
    with pytest.raises(ToolError, match=f'not supported: the function "{name.upper()}"; '):
        server.update_cells(made, "T", "H1", [[f'=1+{name}("x")']])
    assert show(server, made, "H1") == []


def test_results_are_kept_until_something_changes_and_follow_undone_changes() -> None:
    server = GoogleSheet()
    tools, made = tools_of(server), book(server, [[1, "=A1+1"]])
    where = {"spreadsheet_id": made, "sheet": "T"}
    assert server.values(made, "T") == [[1, 2]]
    with pytest.raises(ToolError):
        tools["batch_update_cells"]({**where, "ranges": {"A1": [[5]], "bad": [[1]]}})
    assert server.values(made, "T") == [[1, 2]]

    def write_and_fail() -> None:
        with server.transaction():
            server.update_cells(made, "T", "A1", [[7]])
            assert server.values(made, "T") == [[7, 8]]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert server.values(made, "T") == [[1, 2]]
    server.update_cells(made, "T", "A1", [[6]])
    assert server.values(made, "T") == [[6, 7]]


# Each formula would take a long time without a limit on work.
HOSTILE = [
    "=CONCATENATE(" + "A1:D9," * 8_000 + "A1)",
    '=COUNTIF(A:Z,"' + "*a" * 200 + '")',
    "=SUM(" + ",".join(["A:Z"] * 200) + ")",
    "=SUMIFS(A:A," + ",".join(["A:A,1"] * 50) + ")",
    "=TRIM(" * 30 + "A1" + ")" * 30,
]


@pytest.mark.parametrize("formula", HOSTILE, ids=range(len(HOSTILE)))
def test_no_formula_takes_long(server: GoogleSheet, formula: str) -> None:
    made = book(server)
    server.update_cells(made, "T", "H1", [[formula]] * 3)
    assert calls_of(server.get_sheet_data, made, "T") < 12 * MAX_STEPS
    json.dumps(server.get_sheet_data(made, "T"), allow_nan=False)


@pytest.mark.parametrize(
    "formula",
    ["=SUM(A1:A{n})", '=COUNTIF(A1:A{n},">5")', "=VLOOKUP(-1,A1:B{n},2,FALSE)", "=MAX(A1:A{n})"],
)
def test_work_grows_with_the_cells(formula: str) -> None:
    rng = np.random.default_rng(0)

    def work(n: int) -> int:
        server = GoogleSheet()
        rows = [[int(k), f"t{k % 7}"] for k in rng.integers(0, 1000, n)]
        made = server.add_spreadsheet("Book", {"T": rows})
        server.update_cells(made, "T", "H1", [[formula.format(n=n)]])
        calls = calls_of(show, server, made, "H1")
        assert show(server, made, "H1") != [["#ERROR!"]]
        return calls

    assert work(4000) < 1.3 * 4 * work(1000)


ATOMS = [
    "1", "-2.5", '"a"', '""', "TRUE", "A1", "A1:C5", "A:B", "x", '"2025-01-03"', "1E308",
    "#N/A", "", "1/0", "99999999", '"A1:B2"',
]  # fmt: skip


def random_formula(rng: np.random.Generator, depth: int) -> str:
    def pick(items: list[str]) -> str:
        return items[int(rng.integers(len(items)))]

    if depth == 0 or rng.random() < 0.4:
        return pick(ATOMS)
    parts = [random_formula(rng, depth - 1) for _ in range(int(rng.integers(5)))]
    if rng.random() < 0.2:
        return pick(["+", "*", "&", "=", "<", "^", "/"]).join(parts[:2])
    return f"{pick([*FUNCTIONS])}({','.join(parts)})"


@pytest.mark.parametrize("seed", range(3))
def test_any_formula_has_a_value_that_json_can_hold(server: GoogleSheet, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(60):
        made = book(server)
        formulas = [["=" + random_formula(rng, 3)] for _ in range(20)]
        server.update_cells(made, "T", "F7", formulas)
        shown = server.get_sheet_data(made, "T")
        json.dumps(shown, allow_nan=False)
        assert server.get_sheet_data(made, "T") == shown


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("=" + "1+" * 20_000 + "1", 20_001.0),
        ("=" + "1&" * 5_000 + "1", "1" * 5_001),
        ("=64" + "/2" * 6 + "^1" * 9_000, 1.0),
        ("=1" + "%" * 20_000, 0.0),
        ("=" + "-" * 20_000 + "1", SYNTAX),
        ("=" + "(" * 9_000 + "1" + ")" * 9_000, SYNTAX),
        ("=" + "SUM(" * 9_000 + "1" + ")" * 9_000, SYNTAX),
        ("=SUM(" + "1," * 20_000 + "1)", 20_001.0),
        ("=1/0" + "+1" * 20_000, DIVISION),
        ("=" + "1=" * 10_000 + "2", False),
    ],
)
def test_formulas_of_any_length_have_a_value(formula: str, value: Any) -> None:
    evaluator = Evaluator(lambda title: SheetCells({1: {1: {"f": formula}}}), datetime(2025, 1, 1))
    assert evaluator.results(["sheet1"])["sheet1"][1, 1] == value


def test_a_text_that_doubles_from_cell_to_cell_ends_in_errors(server: GoogleSheet) -> None:
    made = book(server, [["x" * 40_000]])
    chain = [[f"=A{row}&A{row}"] for row in range(1, 30)]
    server.update_cells(made, "T", "A2", chain)
    assert show(server, made, "A2:A30") == [["#VALUE!"]] * 29
