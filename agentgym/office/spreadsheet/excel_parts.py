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
# Conditional formats: constructors and required arguments.
_RULES = {
    "color_scale": ("ColorScaleRule", ("start_type", "start_color", "end_type", "end_color")),
    "data_bar": ("DataBarRule", ("start_type", "end_type", "color")),
    "icon_set": ("IconSetRule", ("icon_style", "type", "values")),
    "formula": ("FormulaRule", ("formula",)),
    "cell_is": ("CellIsRule", ("operator", "formula")),
}


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
    if changes["protection"] is not None:
        cell.protection = styles.Protection(**changes["protection"])
    if changes["number_format"] is not None:
        cell.number_format = changes["number_format"]


def _change(cell: Any, style: str, changes: Mapping[str, Any]) -> None:
    given = {name: value for name, value in changes.items() if value is not None}
    if given:
        copied = copy.copy(getattr(cell, style))
        for name, value in given.items():
            setattr(copied, name, value)
        setattr(cell, style, copied)


def rule(conditional_format: Mapping[str, Any]) -> Any:
    """Return a conditional format; `fill` and `font` in `params` may be objects."""
    kind, params = conditional_format.get("type"), conditional_format.get("params", {})
    if not isinstance(kind, str) or kind not in _RULES or not isinstance(params, Mapping):
        raise ToolError(
            "invalid argument: conditional_format needs params and a type, one of "
            f"{', '.join(_RULES)}"
        )
    maker, needed = _RULES[kind]
    if any(params.get(name) is None for name in needed) or not all(
        isinstance(item, (str, int, float))
        for name in ("formula", "values")
        for item in params.get(name) or ()
    ):
        raise ToolError(
            f"invalid argument: params of {kind} must have {', '.join(needed)}; formula and values "
            "are lists"
        )
    parameters, styles = dict(params), library().styles
    if isinstance(parameters.get("fill"), Mapping):
        shade = colour(str(parameters["fill"].get("fgColor", "FFC7CE")))
        parameters["fill"] = styles.PatternFill("solid", start_color=shade, end_color=shade)
    if isinstance(parameters.get("font"), Mapping):
        parameters["font"] = styles.Font(**parameters["font"])
    return getattr(library().formatting.rule, maker)(**parameters)


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
        facts = {"cell": name, "has_validation": True, **validation(rule, sheet)}
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


def validation(rule: Any, sheet: Any) -> dict[str, Any]:
    """Describe a validation rule like the published server."""
    facts = {
        "validation_type": rule.type,
        "allow_blank": bool(rule.allowBlank),
        "operator": rule.operator,
        "prompt": rule.prompt,
        "prompt_title": rule.promptTitle,
        "error_message": rule.error,
        "error_title": rule.errorTitle,
    }
    if rule.type == "list":
        facts["allowed_values"] = _allowed_values(str(rule.formula1 or ""), sheet)
    else:
        facts |= {"formula1": rule.formula1, "formula2": rule.formula2}
    return {name: value for name, value in facts.items() if value is not None}


def _allowed_values(formula: str, sheet: Any) -> list[str]:
    if formula.startswith('"'):
        return [value.strip() for value in formula.strip('"').split(",") if value.strip()]
    title, _, cells = formula.lstrip("=").rpartition("!")
    book, name = sheet.parent, title.strip("'")
    source = book[name] if name in book.sheetnames else sheet
    if not re.fullmatch(r"\$?[A-Za-z]{1,3}\$?[0-9]{1,6}(:\$?[A-Za-z]{1,3}\$?[0-9]{1,6})?", cells):
        return [f"Range: {formula}"]
    left, top, right, bottom = library().utils.cell.range_boundaries(cells.replace("$", ""))
    bottom, right = min(bottom, source.max_row), min(right, source.max_column)
    values = (
        value_at(source, row, column)
        for row in range(top, bottom + 1)
        for column in range(left, right + 1)
    )
    return [str(value) for value in values if value is not None][:1000]


def to_jsonable(value: Any) -> Any:
    """Return a cell's value for JSON: dates as text, formulas as written."""
    value = getattr(value, "text", value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def spot_name(row: int, column: int) -> str:
    """Return a cell's address."""
    return f"{column_name(column)}{row}"
