"""Cell values: as entered, as used in formulas, and as displayed.

A stored cell is a string, a number, a boolean, `{"f": formula}`, or `{"v": value, "s": string as
typed}`, with `"k": "date"` for dates. A formula's value is a string, a number, a boolean, a
`CellError` or a `SerialDate`.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta
from typing import Any

from agentgym.text.tools import ToolError, echo

DAY_ZERO = datetime(1899, 12, 30)  # spreadsheets count days from this date
MAX_TEXT = 50_000  # maximum characters per cell, as in Google Sheets
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")


class CellError(str):
    """A cell value that represents an error, such as `#DIV/0!`."""

    __slots__ = ()


class SerialDate(float):
    """A date and time, as days since 30 December 1899."""

    __slots__ = ()


DIVISION, VALUE, NAME, NUMBER = (
    CellError("#DIV/0!"),
    CellError("#VALUE!"),
    CellError("#NAME?"),
    CellError("#NUM!"),
)
NOT_AVAILABLE, NO_REFERENCE, SYNTAX = CellError("#N/A"), CellError("#REF!"), CellError("#ERROR!")
CYCLE = NO_REFERENCE  # the error for circular references, as in Google Sheets


def is_formula(cell: Any) -> bool:
    """Return whether a stored cell is a formula."""
    return isinstance(cell, dict) and "f" in cell


def serial(moment: datetime) -> float:
    """Convert a datetime to a number of days, ignoring the time zone."""
    return (moment.replace(tzinfo=None) - DAY_ZERO) / timedelta(days=1)


def text_of(value: Any) -> str:
    """Return the displayed string of a cell value."""
    if isinstance(value, SerialDate):
        return _date_text(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool):
        return {None: "", True: "TRUE", False: "FALSE"}[value]
    whole = float(value)
    if whole.is_integer() and abs(whole) < 1e15:
        return str(int(whole))
    text = f"{whole:.10g}"
    if "e" in text:
        text = re.sub(r"e([+-])0*", r"E\1", text)
    return text


def _date_text(value: float) -> str:
    try:
        moment = DAY_ZERO + timedelta(days=float(value))
    except OverflowError:
        return str(float(value))
    day = f"{moment.month}/{moment.day}/{moment.year}"
    if float(value).is_integer():
        return day
    return f"{day} {moment.hour}:{moment:%M:%S}"


def trim(items: list[Any], empty: Any) -> list[Any]:
    """Remove items equal to `empty` from the end of a list."""
    while items and items[-1] == empty:
        items.pop()
    return items


# Parsing of typed values.

# A number with a dollar sign, thousands separators or a percent sign.
_DRESSED = re.compile(r"([-+]?)(\$?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(\.[0-9]+)?(%?)")
_TIME = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?:\s*([AaPp][Mm]))?"
_YEAR, _MONTH, _DAY = "(?P<year>[0-9]{4})", "(?P<month>[0-9]{1,2})", "(?P<day>[0-9]{1,2})"
_ISO = re.compile(rf"{_YEAR}-{_MONTH}-{_DAY}(?:[ T]{_TIME})?")
# US dates, because new spreadsheets have the US locale.
_AMERICAN = re.compile(rf"{_MONTH}/{_DAY}/{_YEAR}(?:\s+{_TIME})?")
_CLOCK = re.compile(_TIME)


def parse_input(value: Any) -> Any:
    """Return the stored cell for a typed value, or `None` for an empty value."""
    check_content(value, MAX_TEXT)
    if not isinstance(value, str):
        return validate(value)
    if value.startswith("'"):
        return value[1:]
    if value.startswith("=") and len(value) > 1:
        return {"f": value}
    text = value.strip()
    if text.upper() in ("TRUE", "FALSE"):
        return {"v": text.upper() == "TRUE", "s": value}
    if _NUMBER.fullmatch(text):
        amount = float(text)
        return value if math.isinf(amount) else {"v": validate(amount), "s": value}
    return _parse_dressed(text) or _parse_date(text) or value or None


def check_content(value: Any, most: int) -> None:
    """Raise `ToolError` for content that no cell can contain."""
    if isinstance(value, (dict, list)):
        raise ToolError(
            "invalid argument: a cell must be a string, a number, true, false or null, got "
            f"{echo(value)}"
        )
    if isinstance(value, str) and len(value) > most:
        raise ToolError(
            f"limit exceeded: a cell may have at most {most} characters, got {len(value)}"
        )


# `text_of` displays numbers of at least this size with an exponent.
_SHOWN_WHOLE = 10**15


def from_python(value: Any) -> Any:
    """Return the stored cell for a Python value; strings are not parsed."""
    if isinstance(value, str):
        return value
    if type(value) is int and abs(value) < _SHOWN_WHOLE:
        return {"v": value, "s": str(value)}
    if isinstance(value, datetime):
        return {"v": serial(value), "s": f"{value:%Y-%m-%d %H:%M:%S}", "k": "date"}
    if isinstance(value, date):
        midnight = datetime.combine(value, time())
        return {"v": serial(midnight), "s": value.isoformat(), "k": "date"}
    if isinstance(value, time):
        return {"v": serial(datetime.combine(DAY_ZERO, value)), "s": value.isoformat()}
    exact = validate(value)
    return {"v": exact, "s": text_of(exact)}


def validate(value: Any) -> Any:
    """Round numbers to double precision."""
    if value is None or isinstance(value, (bool, str)):
        return value
    try:
        amount = float(value)
    except OverflowError:
        raise ToolError("invalid argument: a number is too large for a cell") from None
    if amount.is_integer() and abs(amount) < 2**53:
        return int(amount)
    return amount


def _parse_dressed(text: str) -> Any:
    match = _DRESSED.fullmatch(text)
    if not match or len(text) > 40:
        return None
    sign, _, whole, part, percent = match.groups()
    amount = float(sign + whole.replace(",", "") + (part or ""))
    if percent:
        amount /= 100
    return {"v": validate(amount), "s": text}


def _parse_date(text: str) -> Any:
    try:
        if match := _ISO.fullmatch(text) or _AMERICAN.fullmatch(text):
            day = date(*map(int, match.group("year", "month", "day")))
            return {"v": serial(datetime.combine(day, _clock(match))), "s": text, "k": "date"}
        if match := _CLOCK.fullmatch(text):
            return {"v": serial(datetime.combine(DAY_ZERO, _clock(match))), "s": text}
    except (ValueError, OverflowError):
        pass
    return None


def _clock(match: re.Match[str]) -> time:
    hours, minutes, seconds, half = match.groups()[-4:]
    hour = int(hours or 0)
    if half:
        if not 1 <= hour <= 12:
            raise ValueError("no such hour")
        hour = hour % 12 + 12 * (half.lower() == "pm")
    return time(hour, int(minutes or 0), int(seconds or 0))
