"""Unusual formulas have a value or an error, in time linear in their length."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from agentgym.office.spreadsheet.cell_values import DIVISION, SYNTAX
from agentgym.office.spreadsheet.evaluation import Evaluator, SheetCells
from agentgym.office.spreadsheet.formulas import parse, references


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


def test_references_of_a_long_formula_come_from_left_to_right() -> None:
    areas = list(references(parse("=" + "+".join(f"A{k}" for k in range(1, 9_001)))))
    assert [area.top for _, area in areas] == list(range(1, 9_001))
