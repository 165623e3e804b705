"""Plain sheets are written without the library, with the same bytes."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest

from agentgym.office.spreadsheet import workbooks
from agentgym.office.spreadsheet.workbooks import read_workbook, write_workbook

openpyxl = pytest.importorskip("openpyxl")

PLAIN = (
    "Name", "x & y < z > w", 'a "quote"', "it's", "Zürich – 東京 🎉", "1 = 2", "1.50", "A1",
    0, -3, 2**53, 2.5, -0.0, 0.1 + 0.2, 1e20, 1e-9, 123456.789, None,
)  # fmt: skip
OTHER = (
    "=1+1", "=", "#N/A", "#note", " blank", "blank ", "two\nlines", "tab\t", "a\rb", "", "\xa0x",
    True, False, 2**53 + 1, 10**400, float("nan"), float("inf"), date(2025, 1, 2), "x" * 40_000,
    np.float64(2.5),
)  # fmt: skip


def by_library(monkeypatch: pytest.MonkeyPatch, sheets: Any) -> bytes | type[Exception]:
    with monkeypatch.context() as patch:
        patch.setattr(workbooks, "_is_plain_sheet", lambda rows: False)
        return written(sheets)


def written(sheets: Any) -> bytes | type[Exception]:
    try:
        return write_workbook(sheets)
    except Exception as error:  # noqa: BLE001 - of the library
        return type(error)


@pytest.mark.parametrize("value", [*PLAIN, *OTHER], ids=lambda value: repr(value)[:20])
def test_a_cell_has_the_bytes_of_the_library(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sheets = {"First": [["Year", value], [], [None, value]], "Second": [[1, 2.5]], "Third": []}
    assert written(sheets) == by_library(monkeypatch, sheets)


def test_random_sheets_have_the_bytes_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        size = (int(rng.integers(1, 30)), int(rng.integers(1, 60)))
        rows = [[PLAIN[k] for k in row] for row in rng.integers(len(PLAIN), size=size).tolist()]
        sheets = {"Data": rows, "More": rows[:1]}
        assert write_workbook(sheets) == by_library(monkeypatch, sheets)


def test_the_library_makes_no_cells_for_plain_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = openpyxl.worksheet._write_only.WriteOnlyWorksheet
    monkeypatch.setattr(writer, "append", None)
    rows = [[f"row {k}", *range(10)] for k in range(100)]
    assert read_workbook(write_workbook({"Data": rows, "None": []})) == {"Data": rows, "None": []}
