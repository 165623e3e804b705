"""Numeric functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, ROUND_UP, Decimal
from functools import partial
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    NUMBER,
    FormulaError,
    to_int,
    to_number,
)


def _round(mode: str, value: Any, digits: Any = 0) -> float:
    places = to_int(digits)
    if abs(places) > 20:
        raise FormulaError(NUMBER)
    exact = Decimal(repr(to_number(value)))
    return float((exact.scaleb(places)).to_integral_value(mode).scaleb(-places))


def _multiple(mode: str, value: Any, step: Any = 1.0) -> float:
    unit = Decimal(repr(to_number(step)))
    if not unit:
        return 0.0
    return float((Decimal(repr(to_number(value))) / unit).to_integral_value(mode) * unit)


def _power(base: Any, exponent: Any) -> float:
    power = to_number(base) ** to_number(exponent)
    if isinstance(power, complex):
        raise FormulaError(NUMBER)
    return float(power)


def _domain(function: Callable[..., float], *values: Any) -> float:
    """Call a function; arguments outside its domain give `#NUM!`."""
    arguments = [to_number(value) for value in values]
    try:
        return float(function(*arguments))
    except ValueError:
        raise FormulaError(NUMBER) from None


def _sign(value: Any) -> float:
    exact = to_number(value)
    return float((exact > 0) - (exact < 0))


# Functions of single numbers.
MATH: dict[str, Callable[..., Any]] = {
    "ABS": lambda a: abs(to_number(a)),
    "INT": lambda a: float(math.floor(to_number(a))),
    "SIGN": _sign,
    "MOD": lambda a, b: to_number(a) % to_number(b),
    "QUOTIENT": lambda a, b: float(math.trunc(to_number(a) / to_number(b))),
    "POWER": _power,
    "SQRT": partial(_domain, math.sqrt),
    "EXP": partial(_domain, math.exp),
    "LN": partial(_domain, math.log),
    "LOG": lambda a, base=10.0: _domain(math.log, a, base),
    "LOG10": partial(_domain, math.log10),
    "PI": lambda: math.pi,
    "ISEVEN": lambda a: math.trunc(to_number(a)) % 2 == 0,
    "ISODD": lambda a: math.trunc(to_number(a)) % 2 == 1,
    "ROUND": partial(_round, ROUND_HALF_UP),
    "ROUNDUP": partial(_round, ROUND_UP),
    "ROUNDDOWN": partial(_round, ROUND_DOWN),
    "TRUNC": partial(_round, ROUND_DOWN),
    "MROUND": partial(_multiple, ROUND_HALF_UP),
    "CEILING": partial(_multiple, ROUND_CEILING),
    "FLOOR": partial(_multiple, ROUND_FLOOR),
}
