"""Cells and validation rules of a sheet, converted to JSON."""

from __future__ import annotations

import math
from typing import Any

from agentgym.office.spreadsheet.cells import column_name


def describe_cell(sheet: Any, row: int, column: int) -> dict[str, Any]:
    """Return a cell's value and validation rule, in the published format."""
    name = spot_name(row, column)
    facts: dict[str, Any] = {"has_validation": False}
    rules = (
        rule
        for rule in sheet.data_validations.dataValidation
        for area in rule.sqref.ranges
        if area.min_row <= row <= area.max_row and area.min_col <= column <= area.max_col
    )
    if (rule := next(rules, None)) is not None:
        facts = {
            "cell": name,
            "has_validation": True,
            "validation_type": rule.type,
            "operator": rule.operator,
            "formula1": rule.formula1,
            "formula2": rule.formula2,
        }
    return {
        "address": name,
        "value": value_at(sheet, row, column),
        "row": row,
        "column": column,
        "validation": facts,
    }


def value_at(sheet: Any, row: int, column: int) -> Any:
    """Return a cell's value, or None, without creating the cell."""
    cell = sheet._cells.get((row, column))
    return None if cell is None else to_jsonable(cell.value)


def to_jsonable(value: Any) -> Any:
    """Convert a cell's value for JSON; dates become strings."""
    value = getattr(value, "text", value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def spot_name(row: int, column: int) -> str:
    """Return a cell's address."""
    return f"{column_name(column)}{row}"
