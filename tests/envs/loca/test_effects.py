from __future__ import annotations

from typing import Any

import pytest

from agentgym import ToolCall
from agentgym.envs.loca.calls import effects_of, things_changed

SHEET = {"spreadsheet_id": "s", "sheet": "A"}
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
}
OTHERS = [
    ("update_cells", {**SHEET, "range": "A1", "data": [[1]]}, {**SHEET, "range": "A2", "data": [[1]]}),
    ("woo_products_update", {"productId": 1, "productData": {"x": 1}}, {"productId": 2, "productData": {"x": 1}}),
    ("storage_create_bucket", {"bucket_name": "a"}, {"bucket_name": "b"}),
]  # fmt: skip


def effects(*calls: tuple[str, dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for call in calls:
        found |= effects_of(ToolCall(*call))
    return found


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
        ("update_cells", {**SHEET, "range": "nowhere", "data": [[1]]}),
        ("update_cells", {**SHEET, "range": "A1", "data": 7}),
        ("woo_products_batch_update", {"update": [{"x": 1}]}),
        ("read_file", {"path": "a"}),
    ],
)
def test_what_is_no_change_has_no_effects(tool: str, arguments: Any) -> None:
    assert effects_of(ToolCall(tool, arguments)) == {}


FILES = ("a.csv", "b.xlsx")
CHANGED = {
    "a program that names a file": ("python_execute", {"code": "open('a.csv', 'w')"}, {"file a.csv"}),
    "a program that names none": ("run_command", {"command": "ls"}, set()),
    "a file by its path": ("write_file", {"path": "/workspace/a.csv", "content": ""}, {"file a.csv"}),
    "another file": ("write_file", {"path": "d/a.csv", "content": ""}, set()),
    "a file that is moved": ("move_file", {"source": "a.csv", "destination": "b.xlsx"}, {"file a.csv", "file b.xlsx"}),
    "a look at a file": ("read_text_file", {"path": "a.csv"}, set()),
    "a workbook": ("insert_rows", {"filepath": "./b.xlsx", "sheet_name": "A", "start_row": 1}, {"file b.xlsx"}),
    "cells": ("batch_update_cells", {**SHEET, "ranges": {}}, {"spreadsheets"}),
    "a new sheet": ("create_sheet", {"spreadsheet_id": "s", "title": "B"}, {"spreadsheets"}),
    "a look at cells": ("get_sheet_data", SHEET, set()),
    "a statement": ("write_query", {"query": "/* x */ merge into T"}, {"tables"}),
    "a query": ("bigquery_run_query", {"query": "SELECT updated FROM t"}, set()),
    "an object": ("storage_delete_object", {}, {"storage"}),
    "a list of objects": ("storage_list_objects", {}, set()),
    "an event": ("update_event", {"eventId": "1"}, {"events"}),
    "a list of events": ("list_events", {}, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_calls_change_things(name: str) -> None:
    tool, arguments, things = CHANGED[name]
    assert things_changed(ToolCall(tool, arguments), FILES) == things
