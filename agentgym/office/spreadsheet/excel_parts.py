"""A sheet's styles, rules and cells."""

from __future__ import annotations

import math
from typing import Any

from agentgym.office.spreadsheet.cells import column_name
from agentgym.office.spreadsheet.workbooks import library
from agentgym.text.tools import ToolError, echo

# Effects outside the workbook; the published server refuses these, too.
UNSAFE = frozenset(
    ("CALL", "DGET", "HYPERLINK", "INDIRECT", "REGISTER", "REGISTER.ID", "RTD", "WEBSERVICE")
)
MAX_FORMULA = 8_192  # characters, as in Excel


def check_formula(formula: str) -> None:
    """Raise `ToolError` for formulas that Excel cannot read or that act outside the file."""
    if not formula.startswith("=") or len(formula) > MAX_FORMULA:
        raise ToolError(
            f"invalid argument: a formula begins with = and has at most {MAX_FORMULA} characters, "
            f"got {echo(formula)}"
        )
    tokenizer = library().formula.tokenizer
    depth = 0
    try:
        items = tokenizer.Tokenizer(formula).items
    except (tokenizer.TokenizerError, IndexError) as error:
        raise ToolError(f"invalid argument: the formula cannot be read: {error}") from None
    for item in items:
        if item.type == "FUNC" and item.subtype == "OPEN" and item.value[:-1].upper() in UNSAFE:
            raise ToolError(f"invalid argument: unsafe function {item.value[:-1].upper()}")
        depth += {"OPEN": 1, "CLOSE": -1}.get(item.subtype, 0)
    if depth or not items:
        raise ToolError(
            "invalid argument: the formula has a parenthesis that is not closed, or nothing in it"
        )


def describe_cell(sheet: Any, row: int, column: int) -> dict[str, Any]:
    """Describe a cell like the published server."""
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
    """Return a cell's value; `sheet.cell` would create a missing cell."""
    cell = sheet._cells.get((row, column))
    return None if cell is None else to_jsonable(cell.value)


def to_jsonable(value: Any) -> Any:
    """Return a cell's value for JSON: dates as text, formulas as written."""
    value = getattr(value, "text", value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def spot_name(row: int, column: int) -> str:
    """Return a cell's address."""
    return f"{column_name(column)}{row}"
