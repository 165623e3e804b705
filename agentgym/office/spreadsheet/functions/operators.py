"""Formula operators, and helpers for their operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import InvalidOperation
from statistics import StatisticsError
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    COMPARISONS,
    DIVISION,
    MAX_TEXT,
    NUMBER,
    VALUE,
    CellError,
    FormulaError,
    SerialDate,
    number,
    ordering,
    text_of,
)


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so its exceptions become cell errors."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except FormulaError as stop:
            return stop.error
        except ZeroDivisionError:
            return DIVISION
        except (OverflowError, InvalidOperation, StatisticsError):
            return NUMBER
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return VALUE  # wrong number or kind of arguments

    return call


def plain(value: Any) -> Any:
    """Return a value that a cell can contain, or an error."""
    if isinstance(value, float) and not math.isfinite(value):
        return NUMBER
    return value if isinstance(value, (str, int, float)) else VALUE


def size_of(value: Any) -> int:
    """Return a value's steps, because long texts take time."""
    return len(value) // 100 if isinstance(value, str) else 0


def operate(sign: str, *operands: Any) -> Any:
    """Apply an operator; an error operand is the result."""
    for operand in operands:
        if isinstance(operand, CellError):
            return operand
    if sign == "&":
        joined = "".join(map(text_of, operands))
        return joined if len(joined) <= MAX_TEXT else VALUE
    if sign in COMPARISONS:
        left, right = operands
        return COMPARISONS[sign](ordering(left, right), ordering(right, left))
    numbers = [number(operand) for operand in operands]
    for value in numbers:
        if isinstance(value, CellError):
            return value
    result = _arithmetic(sign, *numbers)
    dates = [isinstance(operand, SerialDate) for operand in operands]
    is_date = (
        sign in "+-"
        and (dates == [True, False] or (dates == [False, True] and sign == "+"))
        and isinstance(result, float)
    )
    return SerialDate(result) if is_date else result


def _arithmetic(sign: str, left: float, right: float | None = None) -> Any:
    if right is None:
        return {"%": left / 100, "-": -left, "+": left}[sign]
    if sign == "/":
        return left / right if right else DIVISION
    if sign == "^":
        try:
            power = left**right
        except (OverflowError, ZeroDivisionError):
            return NUMBER
        return NUMBER if isinstance(power, complex) else power
    result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return result if math.isfinite(result) else NUMBER
