"""Cells and validation rules of a sheet, converted to JSON."""

from __future__ import annotations

import math
from typing import Any

from agentgym.office.spreadsheet.cells import column_name


def describe_cell(sheet: Any, row: int, column: int) -> dict[str, Any]:
    """Return a cell's value and validation rule, in the published format."""
    name = spot_name(row, column)
    facts: dict[str, Any] = {"has_validation": False}
    if (rule := _rule_at(sheet, row, column)) is not None:
        facts = {
            "cell": name,
            "has_validation": True,
            "validation_type": rule.type,
            "operator": rule.operator,
            "formula1": rule.formula1,
            "formula2": rule.formula2,
        }
    cell = sheet._cells.get((row, column))  # does not create the cell
    return {
        "address": name,
        "value": _to_jsonable(getattr(cell, "value", None)),
        "row": row,
        "column": column,
        "validation": facts,
    }


def _rule_at(sheet: Any, row: int, column: int) -> Any:
    for rule in sheet.data_validations.dataValidation:
        for area in rule.sqref.ranges:
            if area.min_row <= row <= area.max_row and area.min_col <= column <= area.max_col:
                return rule
    return None


def _to_jsonable(value: Any) -> Any:
    """Convert a cell's value for JSON; dates become strings."""
    value = getattr(value, "text", value)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


def spot_name(row: int, column: int) -> str:
    """Return a cell's address."""
    return f"{column_name(column)}{row}"
