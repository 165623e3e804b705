"""Cells of a spreadsheet: parsed from what is typed in, and displayed.

A cell is a JSON value: a text, a number, a truth value, `{"f": formula}`, or `{"v": value, "s":
text as typed}` with `"k": "date"` where the value counts days.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta
from typing import Any

from agentgym.envs.loca.servers.spreadsheet.cell_values import MAX_TEXT, serial, text_of
from agentgym.tools import ToolError, echo

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_DRESSED = re.compile(r"([-+]?)(\$?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(\.[0-9]+)?(%?)")
"""A number as people write it: with a currency, groups of thousands or a percent sign."""
_TIME = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?:\s*([AaPp][Mm]))?"
_ISO = re.compile(rf"([0-9]{{4}})-([0-9]{{1,2}})-([0-9]{{1,2}})(?:[ T]{_TIME})?")
_AMERICAN = re.compile(rf"([0-9]{{1,2}})/([0-9]{{1,2}})/([0-9]{{4}})(?:\s+{_TIME})?")
"""Dates are read as in the locale of the United States, which a new spreadsheet has."""
_CLOCK = re.compile(_TIME)


def parse(value: Any) -> Any:
    """Return the cell that a value of a call makes, as if it was typed in; `None` for an empty one.

    Raises:
        ToolError: No cell can hold it.
    """
    if isinstance(value, (dict, list)):
        raise ToolError(
            "invalid argument: a cell holds a text, a number, true, false or null, got "
            f"{echo(value)}"
        )
    if not isinstance(value, str):
        return validate(value)
    if len(value) > MAX_TEXT:
        raise ToolError(
            f"limit exceeded: a cell holds at most {MAX_TEXT} characters, got {len(value)}"
        )
    if value.startswith("'"):
        return value[1:]
    if value.startswith("=") and len(value) > 1:
        return {"f": value}
    text = value.strip()
    if text.upper() in ("TRUE", "FALSE"):
        return {"v": text.upper() == "TRUE", "s": value}
    if _NUMBER.fullmatch(text):
        number = float(text)
        return value if math.isinf(number) else {"v": validate(number), "s": value}
    return _parse_dressed(text) or _parse_date(text) or value or None


_SHOWN_WHOLE = 10**15
"""Numbers from here on are shown with an exponent, as `text_of` does."""


def from_python(value: Any) -> Any:
    """Return the cell that a Python value makes, shown as text: texts stay texts, numbers, dates and
    times count as such in formulas.
    """
    if isinstance(value, str):
        return value
    if type(value) is int and abs(value) < _SHOWN_WHOLE:
        return {"v": value, "s": str(value)}
    if isinstance(value, datetime):
        return {"v": serial(value), "s": f"{value:%Y-%m-%d %H:%M:%S}", "k": "date"}
    if isinstance(value, date):
        return {
            "v": serial(datetime(value.year, value.month, value.day)),
            "s": value.isoformat(),
            "k": "date",
        }
    if isinstance(value, time):
        return {
            "v": (value.hour * 60 + value.minute) / 1440 + value.second / 86400,
            "s": value.isoformat(),
        }
    exact = validate(value)
    return {"v": exact, "s": text_of(exact)}


def raw(cell: Any) -> Any:
    """Return a cell without a formula as a bare value; a date is the number of its day."""
    return cell["v"] if isinstance(cell, dict) else cell


def validate(value: Any) -> Any:
    """Return a value as the service keeps it: numbers with the precision of a double, whole ones
    without a point.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    try:
        number = float(value)
    except OverflowError:
        raise ToolError("invalid argument: a number is too large for a cell") from None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _parse_dressed(text: str) -> Any:
    """Return a number with a currency, groups of thousands or a percent sign."""
    match = _DRESSED.fullmatch(text)
    if not match or len(text) > 40:
        return None
    sign, _, whole, part, percent = match.groups()
    number = float(sign + whole.replace(",", "") + (part or ""))
    return {"v": validate(number / 100 if percent else number), "s": text}


def _parse_date(text: str) -> Any:
    iso, american, clock = _ISO.fullmatch(text), _AMERICAN.fullmatch(text), _CLOCK.fullmatch(text)
    try:
        if iso:
            day = datetime(int(iso[1]), int(iso[2]), int(iso[3])) + _since_midnight(
                iso.groups()[3:]
            )
        elif american:
            day = datetime(int(american[3]), int(american[1]), int(american[2])) + _since_midnight(
                american.groups()[3:]
            )
        elif clock:
            return {"v": _since_midnight(clock.groups()) / timedelta(days=1), "s": text}
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return {"v": serial(day), "s": text, "k": "date"}


def _since_midnight(parts: tuple[str | None, ...]) -> timedelta:
    hours, minutes, seconds, half = parts
    if hours is None:
        return timedelta()
    hour = int(hours)
    if half:
        if not 1 <= hour <= 12:
            raise ValueError("no such hour")
        hour = hour % 12 + 12 * (half.lower() == "pm")
    moment = time(hour, int(minutes or 0), int(seconds or 0))
    return timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second)
