"""Date and time functions."""

from __future__ import annotations

import calendar
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    NUMBER,
    FormulaError,
    SerialDate,
    serial,
    to_int,
    to_moment,
    to_number,
)


def _date(year: Any, month: Any, day: Any) -> SerialDate:
    months = to_int(year) * 12 + to_int(month) - 1
    first = datetime(months // 12, months % 12 + 1, 1)
    return SerialDate(serial(first + timedelta(days=to_int(day) - 1)))


def _time(hours: Any, minutes: Any, seconds: Any) -> float:
    return (to_int(hours) * 3600 + to_int(minutes) * 60 + to_int(seconds)) / 86400 % 1


def _month_later(start: Any, months: Any, *, end: bool) -> SerialDate:
    """Keep the day in a later month, or take its last."""
    day = to_moment(start)
    year, month = divmod(day.year * 12 + day.month - 1 + to_int(months), 12)
    last = calendar.monthrange(year, month + 1)[1]
    return SerialDate(serial(datetime(year, month + 1, last if end else min(day.day, last))))


def _weekday(day: Any, kind: Any = 1.0) -> float:
    """Return the day of the week: 1 is Sunday, or Monday for kind 2; for kind 3, Monday is 0."""
    monday = to_moment(day).weekday()
    values = {1: (monday + 1) % 7 + 1, 2: monday + 1, 3: monday}
    if to_int(kind) not in values:
        raise FormulaError(NUMBER)
    return float(values[to_int(kind)])


def _date_value(text: Any) -> float:
    return float(math.floor(to_number(text)))


def _to_seconds(value: Any) -> int:
    return round(to_number(value) % 1 * 86400) % 86400


# Functions of single dates.
DATES: dict[str, Callable[..., Any]] = {
    "DATE": _date,
    "TIME": _time,
    "YEAR": lambda a: float(to_moment(a).year),
    "MONTH": lambda a: float(to_moment(a).month),
    "DAY": lambda a: float(to_moment(a).day),
    "HOUR": lambda a: float(_to_seconds(a) // 3600),
    "MINUTE": lambda a: float(_to_seconds(a) // 60 % 60),
    "SECOND": lambda a: float(_to_seconds(a) % 60),
    "WEEKDAY": _weekday,
    "EDATE": lambda a, months: _month_later(a, months, end=False),
    "EOMONTH": lambda a, months: _month_later(a, months, end=True),
    "DAYS": lambda end, start: float((to_moment(end).date() - to_moment(start).date()).days),
    "DATEVALUE": _date_value,
    "TIMEVALUE": lambda a: to_number(a) % 1,
}
