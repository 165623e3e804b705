"""Functions of single numbers, texts and dates."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, ROUND_UP, Decimal
from functools import partial
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    MAX_TEXT,
    NUMBER,
    VALUE,
    FormulaError,
    SerialDate,
    limited,
    serial,
    to_int,
    to_moment,
    to_number,
    to_text,
    to_truth,
)


def _round(mode: str, value: Any, digits: Any = 0) -> float:
    places = to_int(digits)
    if abs(places) > 20:
        raise FormulaError(NUMBER)
    # Decimal arithmetic rounds the shown digits: ROUND(-1.005, 2) is -1.01.
    exact = Decimal(repr(to_number(value)))
    return float((exact.scaleb(places)).to_integral_value(mode).scaleb(-places))


def _power(base: Any, exponent: Any) -> float:
    power = to_number(base) ** to_number(exponent)
    if isinstance(power, complex):
        raise FormulaError(NUMBER)
    return float(power)


def _search(part: Any, text: Any, start: Any = 1.0) -> float:
    return to_text(text).lower().index(to_text(part).lower(), to_int(start) - 1) + 1.0


def _cut(text: Any, start: int | None, length: Any) -> str:
    whole, size = to_text(text), to_int(length)
    first = max(0, len(whole) - size) if start is None else start
    return whole[first : first + size] if size >= 0 and first >= 0 else VALUE


def _substitute(text: Any, old: Any, new: Any) -> str:
    whole, part, other = to_text(text), to_text(old), to_text(new)
    if not part:
        return whole
    # A short formula could otherwise build a text of gigabytes.
    if len(whole) + whole.count(part) * (len(other) - len(part)) > MAX_TEXT:
        raise FormulaError(VALUE)
    return whole.replace(part, other)


def _date(year: Any, month: Any, day: Any) -> SerialDate:
    months = to_int(year) * 12 + to_int(month) - 1
    first = datetime(months // 12, months % 12 + 1, 1)
    return SerialDate(serial(first + timedelta(days=to_int(day) - 1)))


SCALARS: dict[str, Callable[..., Any]] = {
    "NOT": lambda a: not to_truth(a),
    "ABS": lambda a: abs(to_number(a)),
    "INT": lambda a: float(math.floor(to_number(a))),
    "MOD": lambda a, b: to_number(a) % to_number(b),
    "POWER": _power,
    "ROUND": partial(_round, ROUND_HALF_UP),
    "ROUNDUP": partial(_round, ROUND_UP),
    "ROUNDDOWN": partial(_round, ROUND_DOWN),
    "LEN": lambda a: float(len(to_text(a))),
    "LEFT": lambda a, n=1.0: _cut(a, 0, n),
    "RIGHT": lambda a, n=1.0: _cut(a, None, n),
    "MID": lambda a, start, n: _cut(a, to_int(start) - 1, n),
    "TRIM": lambda a: " ".join(to_text(a).split()),
    "UPPER": lambda a: to_text(a).upper(),
    "LOWER": lambda a: to_text(a).lower(),
    "SUBSTITUTE": _substitute,
    "SEARCH": _search,
    "CONCAT": lambda a, b: limited(to_text(a) + to_text(b)),
    "VALUE": to_number,
    "DATE": _date,
    "YEAR": lambda a: float(to_moment(a).year),
    "MONTH": lambda a: float(to_moment(a).month),
    "DAY": lambda a: float(to_moment(a).day),
    "DAYS": lambda end, start: float((to_moment(end).date() - to_moment(start).date()).days),
}
