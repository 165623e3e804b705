"""Effects of calls: equal results have equal effects."""

from __future__ import annotations

from typing import Any

import pytest

from agentgym import ToolCall
from agentgym.envs.loca.calls import effects_of
from agentgym.envs.loca.progress import OtherChanges

SHEET = {"spreadsheet_id": "s", "sheet": "A"}
BOOK = {"filepath": "/workspace/b.xlsx", "sheet_name": "A"}
PARTS = {
    "products": (
        [("woo_products_batch_update", {"update": [{"id": 1, "x": 2}, {"id": 3, "x": 4.0}]})],
        [
            ("woo_products_update", {"productId": 3, "productData": {"x": "4"}}),
            ("woo_products_update", {"productId": 1, "productData": {"x": 2}}),
        ],
    ),
    "cells": (
        [("update_cells", {**SHEET, "range": "B2:C3", "data": [["5.70", "x"], [1, None]]})],
        [
            (
                "batch_update_cells",
                {**SHEET, "ranges": {"C2:C3": [[" x "], [None]], "b2:b3": [[5.7], ["1"]]}},
            )
        ],
    ),
    "a workbook": (
        [("write_data_to_excel", {**BOOK, "data": [["a", "b"], [1, 2]]})],
        [
            (
                "write_data_to_excel",
                {**BOOK, "filepath": "b.xlsx", "data": [[1, 2]], "start_cell": "A2"},
            ),
            ("write_data_to_excel", {**BOOK, "data": [["a", "b"]], "start_cell": "A1"}),
        ],
    ),
    "rows": (
        [("bigquery_run_query", {"query": "INSERT INTO d.t (a, b) VALUES (1, 'x'), (2, NULL)"})],
        [
            ("bigquery_run_query", {"query": "insert `d.t` (B, a) values (null, 2)"}),
            ("bigquery_run_query", {"query": '/* new */ INSERT d.t (a, b) VALUES (1, "x");'}),
        ],
    ),
}
OTHERS = [
    ("bigquery_run_query", {"query": "INSERT INTO d.t (a, b) VALUES (1, 'x')"},
     {"query": "INSERT INTO d.t (a, b) VALUES (1, 'X')"}),
    ("bigquery_run_query", {"query": "INSERT INTO d.t (a, b) VALUES (1, 2)"}, {"query": "INSERT INTO d.t (b, a) VALUES (1, 2)"}),
    ("bigquery_run_query", {"query": "INSERT INTO d.t (a) VALUES (1)"}, {"query": "INSERT INTO d.u (a) VALUES (1)"}),
    ("update_cells", {**SHEET, "range": "A1", "data": [[1]]}, {**SHEET, "range": "A2", "data": [[1]]}),
    ("create_spreadsheet", {"title": "A"}, {"title": "B"}),
]  # fmt: skip


def effects(*calls: tuple[str, dict[str, Any]]) -> dict[str, str]:
    changes = OtherChanges()
    for call in calls:
        changes.add(ToolCall(*call), "")
    return changes.effects


@pytest.mark.parametrize("name", PARTS)
def test_many_calls_have_the_effects_of_one(name: str) -> None:
    whole, parts = PARTS[name]
    assert effects(*whole) == effects(*parts) != {}
    assert effects(*parts[1:]).items() < effects(*whole).items()


@pytest.mark.parametrize(("tool", "one", "other"), OTHERS)
def test_other_changes_have_other_effects(tool: str, one: Any, other: Any) -> None:
    assert effects((tool, one)) != effects((tool, other))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("bigquery_run_query", {"query": "SELECT 'insert' FROM d.t"}),
        ("bigquery_run_query", {"query": "INSERT INTO d.t (a) SELECT 1"}),
        ("bigquery_run_query", {"query": "INSERT INTO d.t (a, b) VALUES (1)"}),
        ("bigquery_run_query", {"query": f"INSERT INTO d.t (a) VALUES {'(' * 10_000}"}),
        ("bigquery_run_query", {"query": 5}),
        ("update_cells", {**SHEET, "range": "nowhere", "data": [[1]]}),
        ("update_cells", {**SHEET, "range": "A1", "data": 7}),
        ("write_data_to_excel", {"data": []}),
        ("woo_products_batch_update", {"update": [{"x": 1}]}),
        ("woo_products_categories_create", {"categoryData": []}),
        ("read_file", {"path": "a"}),
    ],
)
def test_what_is_no_change_has_no_effects(tool: str, arguments: Any) -> None:
    assert effects_of(ToolCall(tool, arguments)) == {}
