"""How much of an office state a task requires reading."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.texts import mean_share_read, values_read

LENGTH = 64_000
# In these tasks, a quarter of the prose tokens is read.
QUARTER = (
    "ApplyPhDEmail",
    "CanvasArrangeExam",
    "CanvasListTest",
    "CourseAssistant",
    "FilterLowSellingProducts",
    "SetConfCrDdl",
    "UpdateMaterialInventory",
    "WoocommerceNewWelcome",
    "WoocommerceStockAlert",
)


@pytest.mark.parametrize("name", QUARTER)
def test_a_quarter_of_the_tokens_is_read(name: str) -> None:
    assert mean_share_read(name, LENGTH) >= 0.245  # rounded: a quarter


def ages(text: str) -> Any:
    rows = json.loads(text)
    return rows[0]["age"] + rows[0]["age"], rows[1].get("born")


def test_values_that_are_read_are_counted_once_and_without_keys() -> None:
    rows = [{"name": {"first": "Ada", "last": "Beck"}, "age": 3}, {"name": "Bo", "age": 4}]
    assert values_read(ages, json.dumps(rows)) == ["3"]
    assert values_read(lambda text: json.loads(text)[0]["name"]["last"], json.dumps(rows)) == [
        "Beck"
    ]
    assert values_read(lambda text: len(json.loads(text)), json.dumps([5, "x"])) == ["5", "x"]
    assert values_read(str.split, "Dear Ada, yours Bo") == ["Dear Ada, yours Bo"]
    assert json.loads("{}") == {}
