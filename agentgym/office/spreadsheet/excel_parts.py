"""A sheet's styles, rules and cells."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from typing import Any

from agentgym.office.spreadsheet.cells import Area, column_name
from agentgym.office.spreadsheet.workbooks import library
from agentgym.text.tools import ToolError, echo

# Effects outside the workbook; the published server refuses these, too.
UNSAFE = frozenset(
    ("CALL", "DGET", "HYPERLINK", "INDIRECT", "REGISTER", "REGISTER.ID", "RTD", "WEBSERVICE")
)
MAX_FORMULA = 8_192  # characters, as in Excel

_COLOUR = re.compile(r"#?([0-9A-Fa-f]{2})?([0-9A-Fa-f]{6})")


def colour(text: str) -> str:
    """Return eight hexadecimal digits with opacity, or raise `ToolError`."""
    match = _COLOUR.fullmatch(text)
    if not match:
        raise ToolError(
            f"invalid argument: {echo(text)} is no colour; write one as RRGGBB, such as FF0000 for "
            "red"
        )
    return f"{match[1] or 'FF'}{match[2]}".upper()


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


def style(cell: Any, changes: Mapping[str, Any]) -> None:
    """Apply style changes; `changes` contains the tool's arguments."""
    styles, size, ink = library().styles, changes["font_size"], changes["font_color"]
    if size is not None and not 1 <= size <= 409:
        raise ToolError(f"invalid argument: font_size must be 1 to 409, got {echo(size)}")
    font = {
        "bold": changes["bold"] or None,
        "italic": changes["italic"] or None,
        "underline": "single" if changes["underline"] else None,
        "size": size,
        "color": None if ink is None else colour(ink),
    }
    _change(cell, "font", font)
    if changes["bg_color"] is not None:
        cell.fill = styles.PatternFill(
            "solid", start_color=colour(changes["bg_color"]), end_color=colour(changes["bg_color"])
        )
    if changes["border_style"] is not None:
        side = styles.Side(
            style=changes["border_style"], color=colour(changes["border_color"] or "000000")
        )
        cell.border = styles.Border(left=side, right=side, top=side, bottom=side)
    alignment = {"horizontal": changes["alignment"], "wrap_text": changes["wrap_text"] or None}
    _change(cell, "alignment", alignment)
    if changes["number_format"] is not None:
        cell.number_format = changes["number_format"]


def _change(cell: Any, style: str, changes: Mapping[str, Any]) -> None:
    given = {name: value for name, value in changes.items() if value is not None}
    if given:
        copied = copy.copy(getattr(cell, style))
        for name, value in given.items():
            setattr(copied, name, value)
        setattr(cell, style, copied)


def overlap(area: Area, reference: str) -> bool:
    """Return whether a closed area overlaps a reference such as `B2:C4`."""
    left, top, right, bottom = library().utils.cell.range_boundaries(reference)
    return bool(
        area.left <= right
        and left <= (area.right or 0)
        and area.top <= bottom
        and top <= (area.bottom or 0)
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
