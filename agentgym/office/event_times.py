"""Conversions between the calendar tools' times and Python objects."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field
from typing_extensions import TypedDict

from agentgym.text.tools import ToolError, echo

# RFC 3339 date-time; the offset is optional, because the event may have a time zone.
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII
)
# RFC 3339 full-date.
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Time zone names whose meaning depends on the machine's settings.
_OF_THE_MACHINE = ("localtime", "posixrules", "Factory")
# Outside these years, conversion between time zones can overflow.
_YEARS = range(1900, 9999)


class EventTime(TypedDict, total=False):
    """A time or, for all-day events, a date."""

    dateTime: Annotated[str, Field(description="RFC 3339, e.g. 2025-01-15T09:00:00-05:00")]
    timeZone: Annotated[str, Field(description="IANA zone, for a dateTime without offset")]
    date: Annotated[str, Field(description="YYYY-MM-DD; an end date is the day after the last")]


def parse_time(name: str, fields: Mapping[str, Any]) -> dict[str, str]:
    """Convert an event's time for storage, using `name` in error messages."""
    if ("date" in fields) == ("dateTime" in fields):
        raise ToolError(
            f'invalid argument: {name} must be {{"dateTime": "…", "timeZone": "…"}} or {{"date": '
            f'"…"}}, got {echo(fields)}'
        )
    zone = _zone(fields["timeZone"]) if "timeZone" in fields else None
    if "date" in fields:
        return {"date": _day(name, fields["date"]).isoformat()}
    moment = _moment(name, fields["dateTime"])
    if moment.tzinfo is None:
        if zone is None:
            raise ToolError(
                f"invalid argument: {name} must have a timeZone, or a dateTime with offset, got "
                f"{echo(fields['dateTime'])}"
            )
        # Conversion through UTC corrects times that a daylight saving change skips.
        moment = moment.replace(tzinfo=zone).astimezone(UTC).astimezone(zone)
    stored = {"dateTime": moment.isoformat().replace("+00:00", "Z")}
    if zone is not None:
        stored["timeZone"] = zone.key
    return stored


def _zone(key: str) -> ZoneInfo:
    try:
        if key in _OF_THE_MACHINE or key.startswith(("posix/", "right/")):
            raise ValueError(key)
        return ZoneInfo(key)
    except (ValueError, KeyError, OSError):
        raise ToolError(
            f"invalid argument: there is no time zone {echo(key)}; use an IANA name such as "
            "Europe/Berlin"
        ) from None


def _day(name: str, text: str) -> date:
    day = None
    if _DAY.fullmatch(text):
        with contextlib.suppress(ValueError):
            day = date.fromisoformat(text)
    if day is None or day.year not in _YEARS:
        raise ToolError(
            f"invalid argument: {name}.date must be a day such as 2025-01-15, got {echo(text)}"
        )
    return day


def _moment(name: str, text: str) -> datetime:
    moment = None
    if match := _MOMENT.fullmatch(text):
        day, clock, offset = match.groups(default="")
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(f"{day}T{clock}{offset.upper()}")
    if moment is None or moment.year not in _YEARS:
        raise ToolError(
            f"invalid argument: {name} must be a time such as 2025-01-15T09:00:00Z, got "
            f"{echo(text)}"
        )
    return moment


def parse_bound(name: str, text: str) -> int:
    """Convert a time to seconds since 1970, using `name` in error messages."""
    moment = _moment(name, text)
    if moment.tzinfo is None:
        raise ToolError(
            f"invalid argument: {name} must have an offset, as in 2025-01-15T09:00:00Z, got "
            f"{echo(text)}"
        )
    return int(moment.timestamp())


def to_python(value: Mapping[str, str]) -> datetime | date:
    """Convert a stored time to a Python object, in the event's time zone if any."""
    if "date" in value:
        return date.fromisoformat(value["date"])
    moment = datetime.fromisoformat(value["dateTime"])
    if "timeZone" in value:
        return moment.astimezone(ZoneInfo(value["timeZone"]))
    return moment


def seconds_of(value: Mapping[str, str]) -> int:
    """Return seconds since 1970; dates start at midnight UTC."""
    when = to_python(value)
    moment = when if isinstance(when, datetime) else datetime.combine(when, time(), UTC)
    return int(moment.timestamp())
