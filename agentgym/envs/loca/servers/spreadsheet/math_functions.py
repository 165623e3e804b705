"""Functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, ROUND_UP, Decimal
from typing import Any

from agentgym.envs.loca.servers.spreadsheet.cell_values import NUMBER, FormulaError
from agentgym.envs.loca.servers.spreadsheet.conversions import to_int, to_number

_MAX_FACTORIAL = 170
"""The factorial of a larger number is no double."""


def _round(mode: str) -> Callable[..., float]:
    def rounded(value: Any, digits: Any = 0) -> float:
        places = to_int(digits)
        if abs(places) > 20:
            raise FormulaError(NUMBER)
        exact = Decimal(repr(to_number(value)))
        return float((exact.scaleb(places)).to_integral_value(mode).scaleb(-places))

    return rounded


def _multiple(mode: str) -> Callable[..., float]:
    def rounded(value: Any, step: Any = 1.0) -> float:
        unit = Decimal(repr(to_number(step)))
        if not unit:
            return 0.0
        return float((Decimal(repr(to_number(value))) / unit).to_integral_value(mode) * unit)

    return rounded


def _power(base: Any, exponent: Any) -> float:
    power = to_number(base) ** to_number(exponent)
    if isinstance(power, complex):
        raise FormulaError(NUMBER)
    return float(power)


def _domain(function: Callable[..., float]) -> Callable[..., float]:
    """Return a function for which numbers that it does not have are `#NUM!`."""

    def computed(*values: Any) -> float:
        arguments = [to_number(value) for value in values]
        try:
            return float(function(*arguments))
        except ValueError:
            raise FormulaError(NUMBER) from None

    return computed


def _whole(function: Callable[..., int], most: int = 2**53) -> Callable[..., float]:
    """Return a function of whole numbers from 0 on."""

    def computed(*values: Any) -> float:
        arguments = [to_int(value) for value in values]
        if not all(0 <= value <= most for value in arguments):
            raise FormulaError(NUMBER)
        return float(function(*arguments))

    return computed


def _parity(odd: int) -> Callable[[Any], float]:
    def rounded(value: Any) -> float:
        exact = to_number(value)
        size = math.ceil(abs(exact))
        return math.copysign(size + (size % 2 != odd), exact)

    return rounded


def _sign(value: Any) -> float:
    exact = to_number(value)
    return float((exact > 0) - (exact < 0))


MATH: dict[str, Callable[..., Any]] = {
    "ABS": lambda a: abs(to_number(a)),
    "INT": lambda a: float(math.floor(to_number(a))),
    "SIGN": _sign,
    "MOD": lambda a, b: to_number(a) % to_number(b),
    "QUOTIENT": lambda a, b: float(math.trunc(to_number(a) / to_number(b))),
    "POWER": _power,
    "SQRT": _domain(math.sqrt),
    "EXP": _domain(math.exp),
    "LN": _domain(math.log),
    "LOG": lambda a, base=10.0: _domain(math.log)(a, base),
    "LOG10": _domain(math.log10),
    "PI": lambda: math.pi,
    "SIN": _domain(math.sin),
    "COS": _domain(math.cos),
    "TAN": _domain(math.tan),
    "ASIN": _domain(math.asin),
    "ACOS": _domain(math.acos),
    "ATAN": _domain(math.atan),
    "ATAN2": lambda x, y: math.atan2(to_number(y), to_number(x)),
    "RADIANS": _domain(math.radians),
    "DEGREES": _domain(math.degrees),
    "GCD": _whole(math.gcd),
    "LCM": _whole(math.lcm),
    "FACT": _whole(math.factorial, _MAX_FACTORIAL),
    "COMBIN": _whole(math.comb, _MAX_FACTORIAL),
    "EVEN": _parity(0),
    "ODD": _parity(1),
    "ISEVEN": lambda a: math.trunc(to_number(a)) % 2 == 0,
    "ISODD": lambda a: math.trunc(to_number(a)) % 2 == 1,
    "ROUND": _round(ROUND_HALF_UP),
    "ROUNDUP": _round(ROUND_UP),
    "ROUNDDOWN": _round(ROUND_DOWN),
    "TRUNC": _round(ROUND_DOWN),
    "MROUND": _multiple(ROUND_HALF_UP),
    "CEILING": _multiple(ROUND_CEILING),
    "FLOOR": _multiple(ROUND_FLOOR),
}
"""Functions of single numbers, by name."""
