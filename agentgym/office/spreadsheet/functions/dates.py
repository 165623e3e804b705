"""Date and time functions."""

from __future__ import annotations

import calendar
import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    NUMBER,
    FormulaError,
    SerialDate,
    flat,
    serial,
    to_int,
    to_moment,
    to_number,
    to_text,
)

# Working days are counted one by one; this is over two centuries.
_MAX_DAYS = 100_000


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


def _week(day: Any, kind: Any = 1.0) -> float:
    """Return the week number; weeks start on Sunday, or on Monday for kind 2."""
    moment = to_moment(day)
    if to_int(kind) == 21:
        return float(moment.isocalendar().week)
    if to_int(kind) not in (1, 2):
        raise FormulaError(NUMBER)
    before = (datetime(moment.year, 1, 1).weekday() + 2 - to_int(kind)) % 7
    return float((moment.timetuple().tm_yday + before - 1) // 7 + 1)


def _difference(start: Any, end: Any, unit: Any) -> float:
    first, last = to_moment(start).date(), to_moment(end).date()
    if first > last:
        raise FormulaError(NUMBER)
    months = (last.year - first.year) * 12 + last.month - first.month - (last.day < first.day)
    units = {
        "D": (last - first).days,
        "M": months,
        "Y": months // 12,
        "YM": months % 12,
        "MD": (last - _shifted(first, months)).days,
        "YD": (last - _shifted(first, months // 12 * 12)).days,
    }
    if to_text(unit).upper() not in units:
        raise FormulaError(NUMBER)
    return float(units[to_text(unit).upper()])


def _shifted(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _holidays(holidays: Any) -> set[date]:
    return {to_moment(day).date() for day in flat([holidays]) if day is not None}


def _working_days(start: Any, end: Any, holidays: Any = None) -> float:
    first, last = to_moment(start).date(), to_moment(end).date()
    sign, (first, last) = (1, (first, last)) if first <= last else (-1, (last, first))
    weeks, rest = divmod((last - first).days + 1, 7)
    count = weeks * 5 + sum((first.weekday() + k) % 7 < 5 for k in range(rest))
    free = sum(first <= day <= last and day.weekday() < 5 for day in _holidays(holidays))
    return float(sign * (count - free))


def _working_day(start: Any, days: Any, holidays: Any = None) -> SerialDate:
    day, count, free = to_moment(start), to_int(days), _holidays(holidays)
    if abs(count) > _MAX_DAYS:
        raise FormulaError(NUMBER)
    step = timedelta(days=1 if count >= 0 else -1)
    while count:
        day += step
        if day.weekday() < 5 and day.date() not in free:
            count -= int(math.copysign(1, count))
    return SerialDate(math.floor(serial(day)))


def _date_value(text: Any) -> float:
    return float(math.floor(to_number(text)))


def _to_seconds(value: Any) -> int:
    return round(to_number(value) % 1 * 86400) % 86400


# Functions of single dates; a list of holidays is a range.
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
    "WEEKNUM": _week,
    "ISOWEEKNUM": lambda a: float(to_moment(a).isocalendar().week),
    "EDATE": lambda a, months: _month_later(a, months, end=False),
    "EOMONTH": lambda a, months: _month_later(a, months, end=True),
    "DATEDIF": _difference,
    "DAYS": lambda end, start: float((to_moment(end).date() - to_moment(start).date()).days),
    "DATEVALUE": _date_value,
    "TIMEVALUE": lambda a: to_number(a) % 1,
    "NETWORKDAYS": _working_days,
    "WORKDAY": _working_day,
}
