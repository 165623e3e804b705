"""The calendar server: events as Google Calendar gives them, kept so that each is an event of RFC
5545 too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from importlib import import_module
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from agentgym.envs.loca.servers.context import iso
from agentgym.envs.loca.servers.libraries import install_hint
from agentgym.envs.loca.servers.server import Server
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

MAX_LISTED = 2_500
"""Events of one listing, as in Google Calendar."""
MAX_EVENTS = 20_000
"""Events of a calendar: a year of fifty a day; it bounds what a policy can make."""
_LISTED = 250
"""Events of a listing by default, as in Google Calendar."""
_LIMITS = {"summary": 1_024, "description": 8_192, "location": 1_024}
"""Characters of each text; those of summary and description are Google Calendar's."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Signs that iCalendar cannot hold; tab and line feed are allowed."""
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.\d+)?(?:([Zz])|([+-]\d\d:\d\d))?", re.ASCII
)
"""A date-time of RFC 3339, its offset left out where a time zone is given beside it."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
"""A full-date of RFC 3339."""
_OF_THE_MACHINE = ("localtime", "posixrules", "Factory")
"""Names of zoneinfo that stand for what the machine is set to."""
_YEARS = range(1900, 9999)
"""Years that a moment in any time zone can be converted from and to."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event.

    Attributes:
        summary: Its title.
        start: When it begins: a moment with a time zone, or a day.
        end: When it ends: a moment, or the day after its last one.
        description: What it is about.
        location: Where it is.
        id: Its id.
    """

    summary: str
    start: datetime | date
    end: datetime | date
    description: str = ""
    location: str = ""
    id: str = ""


class Calendar(Server):
    """One calendar in UTC."""

    name: ClassVar[str] = "calendar"
    schema: ClassVar[str] = """
        CREATE TABLE events (
            id TEXT PRIMARY KEY, created TEXT NOT NULL, updated TEXT NOT NULL, summary TEXT NOT NULL, description TEXT NOT NULL,
            location TEXT NOT NULL, start JSON NOT NULL, "end" JSON NOT NULL, starts INTEGER NOT NULL, ends INTEGER NOT NULL,
            sequence INTEGER NOT NULL
        );
        CREATE INDEX events_by_start ON events (starts);
    """

    @tool
    def create_event(
        self,
        summary: str,
        start: dict[str, Any],
        end: dict[str, Any],
        description: str | None = None,
        location: str | None = None,
    ) -> Row:
        """Make an event.

        Times are objects: {"dateTime": "2025-01-15T09:00:00-05:00"}, or {"dateTime": "2025-01-15T09:00:00", "timeZone":
        "America/New_York"}, or {"date": "2025-01-15"} for whole days, of which the end is the day after the last.
        """
        record = _record(
            {"summary": summary, "description": description or "", "location": location or ""},
            start,
            end,
        )
        return self._get(self._put(record, iso(self.context.clock.tick())))

    @tool
    def get_event(self, eventId: str) -> Row:
        """Give an event."""
        return self._get(eventId)

    @tool
    def update_event(
        self,
        eventId: str,
        summary: str | None = None,
        start: dict[str, Any] | None = None,
        end: dict[str, Any] | None = None,
        description: str | None = None,
        location: str | None = None,
    ) -> Row:
        """Change what is given of an event; the rest stays."""
        event = self.store.get("events", eventId)
        changes = {"summary": summary, "description": description, "location": location}
        texts = {name: event[name] if text is None else text for name, text in changes.items()}
        record = _record(
            texts, event["start"] if start is None else start, event["end"] if end is None else end
        )
        self.store.update(
            "events",
            eventId,
            **record,
            sequence=event["sequence"] + 1,
            updated=iso(self.context.clock.tick()),
        )
        return self._get(eventId)

    @tool
    def delete_event(self, eventId: str) -> Row:
        """Remove an event."""
        self.store.get("events", eventId)
        self.store.delete("events", id=eventId)
        return {"id": eventId, "status": "cancelled"}

    @tool
    def list_events(
        self,
        timeMin: str,
        timeMax: str,
        maxResults: int | None = None,
        orderBy: Literal["startTime", "updated"] | None = None,
    ) -> Row:
        """List the events that end after timeMin and start before timeMax.

        Args:
            timeMin: A time with its offset, such as 2025-01-15T09:00:00Z.
            timeMax: Such a time, later.
            maxResults: At most 2500; 250 by default.
            orderBy: startTime by default.
        """
        low, high = _bound("timeMin", timeMin), _bound("timeMax", timeMax)
        most = _LISTED if maxResults is None else maxResults
        if low >= high:
            raise ToolError(
                f"invalid argument: timeMax must be later than timeMin, got {echo(timeMin)} to "
                f"{echo(timeMax)}"
            )
        if not 1 <= most <= MAX_LISTED:
            raise ToolError(f"invalid argument: maxResults must be 1 to {MAX_LISTED}, got {most}")
        order = "updated, rowid" if orderBy == "updated" else "starts, rowid"
        rows = self.store.rows(
            f"SELECT * FROM events WHERE ends > ? AND starts < ? ORDER BY {order} LIMIT ?",
            low,
            high,
            most + 1,
        )
        items = [_resource(row) for row in rows[:most]]
        return {
            "kind": "calendar#events",
            "timeZone": "UTC",
            "items": items,
            "truncated": len(rows) > most,
        }

    def add(self, events: Event | Iterable[Event]) -> list[str]:
        """Put events into the calendar; their ids.

        Raises:
            ToolError: One cannot be kept.
        """
        now, ids = iso(self.context.clock.now()), []
        with self.store.change():
            for event in [events] if isinstance(events, Event) else events:
                texts = {name: getattr(event, name) for name in _LIMITS}
                ids.append(
                    self._put(_record(texts, _time_of(event.start), _time_of(event.end)), now)
                )
        return ids

    def events(self) -> list[Event]:
        """Return all events, in order of their starts."""
        rows = self.store.rows("SELECT * FROM events ORDER BY starts, rowid")
        same = ("summary", "description", "location", "id")
        return [
            Event(
                **{name: row[name] for name in same},
                start=_parse_stored(row["start"]),
                end=_parse_stored(row["end"]),
            )
            for row in rows
        ]

    def ics(self) -> str:
        """Return the calendar as an iCalendar file (RFC 5545).

        Raises:
            ImportError: The library for it is not installed.
        """
        with install_hint("iCalendar files need icalendar", "icalendar"):
            icalendar = import_module("icalendar")
        file = icalendar.Calendar()
        file.add("prodid", "-//agentgym//office//EN")
        file.add("version", "2.0")
        for row in self.store.rows("SELECT * FROM events ORDER BY starts, rowid"):
            file.add_component(_component(icalendar.Event(), row))
        file.add_missing_timezones()
        return str(file.to_ical(), "utf-8")

    def _put(self, record: Row, now: str) -> str:
        if self.store.value("SELECT count(*) FROM events") >= MAX_EVENTS:
            raise ToolError(f"limit exceeded: a calendar has at most {MAX_EVENTS} events")
        new_id = self.context.new_id("event", 26)
        self.store.insert("events", id=new_id, created=now, updated=now, sequence=0, **record)
        return new_id

    def _get(self, event: str) -> Row:
        return _resource(self.store.get("events", event))


def _resource(row: Row) -> Row:
    """Return an event as the API gives it; texts that are empty are left out."""
    texts = {name: row[name] for name in _LIMITS if row[name]}
    head = {
        "kind": "calendar#event",
        "id": row["id"],
        "status": "confirmed",
        "created": row["created"],
        "updated": row["updated"],
    }
    tail = {
        "start": row["start"],
        "end": row["end"],
        "iCalUID": f"{row['id']}@calendar",
        "sequence": row["sequence"],
    }
    return {**head, **texts, **tail}


def _record(fields: Mapping[str, str], start: Mapping[str, Any], end: Mapping[str, Any]) -> Row:
    """Return the columns of an event.

    Raises:
        ToolError: A text is too long, a time is none, or the event ends before it begins.
    """
    texts = {name: text.replace("\r\n", "\n").replace("\r", "\n") for name, text in fields.items()}
    for name, text in texts.items():
        if _CONTROL.search(text) or len(text) > _LIMITS[name]:
            raise ToolError(
                f"invalid argument: {name} has at most {_LIMITS[name]} characters and no control "
                "characters"
            )
    first, last = _parse_time("start", start), _parse_time("end", end)
    if ("date" in first) != ("date" in last):
        raise ToolError("invalid argument: start and end must both have a date or both a dateTime")
    starts, ends = _seconds(first), _seconds(last)
    if ends < starts or (ends == starts and "date" in first):
        raise ToolError(
            f"invalid argument: the event must end after it starts, got {echo(first)} to "
            f"{echo(last)}; an end date is the day after"
        )
    return {**texts, "start": first, "end": last, "starts": starts, "ends": ends}


def _parse_time(name: str, spec: Mapping[str, Any]) -> dict[str, str]:
    """Return a time as it is kept: a date, or a dateTime with its offset."""
    fields = {key: value for key, value in spec.items() if value is not None}
    unknown = [
        key
        for key, value in fields.items()
        if key not in ("date", "dateTime", "timeZone") or not isinstance(value, str)
    ]
    if unknown or ("date" in fields) == ("dateTime" in fields):
        raise ToolError(
            f'invalid argument: {name} must be {{"dateTime": "…", "timeZone": "…"}} or {{"date": '
            f'"…"}}, got {echo(spec)}'
        )
    zone = None if "timeZone" not in fields else _zone(fields["timeZone"])
    if "date" in fields:
        return {"date": _day(name, fields["date"]).isoformat()}
    moment = _moment(name, fields["dateTime"])
    if moment.tzinfo is None:
        if zone is None:
            raise ToolError(
                f"invalid argument: {name}.dateTime needs an offset or {name} a timeZone, got "
                f"{echo(fields['dateTime'])}"
            )
        # By way of UTC, so that an hour which the zone skips becomes one that it has.
        moment = moment.replace(tzinfo=zone).astimezone(UTC).astimezone(zone)
    return {"dateTime": moment.isoformat().replace("+00:00", "Z")} | (
        {} if zone is None else {"timeZone": zone.key}
    )


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
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None or day.year not in _YEARS:
        raise ToolError(
            f"invalid argument: {name}.date must be a day such as 2025-01-15, got {echo(text)}"
        )
    return day


def _moment(name: str, text: str) -> datetime:
    parts = _MOMENT.fullmatch(text)
    try:
        moment = (
            datetime.fromisoformat(f"{parts[1]}T{parts[2]}{'Z' if parts[3] else parts[4] or ''}")
            if parts
            else None
        )
    except ValueError:
        moment = None
    if moment is None or moment.year not in _YEARS:
        raise ToolError(
            f"invalid argument: {name} must be a time such as 2025-01-15T09:00:00Z, got "
            f"{echo(text)}"
        )
    return moment


def _bound(name: str, text: str) -> int:
    moment = _moment(name, text)
    if moment.tzinfo is None:
        raise ToolError(
            f"invalid argument: {name} needs an offset, as in 2025-01-15T09:00:00Z, got "
            f"{echo(text)}"
        )
    return int(moment.timestamp())


def _parse_stored(value: Mapping[str, str]) -> datetime | date:
    """Return a time that is kept, in its time zone if it names one."""
    if "date" in value:
        return date.fromisoformat(value["date"])
    moment = datetime.fromisoformat(value["dateTime"])
    return moment.astimezone(ZoneInfo(value["timeZone"])) if "timeZone" in value else moment


def _seconds(value: Mapping[str, str]) -> int:
    """Return the seconds since 1970 at a time; a day begins in UTC."""
    when = _parse_stored(value)
    moment = when if isinstance(when, datetime) else datetime.combine(when, time(), UTC)
    return int(moment.timestamp())


def _time_of(when: datetime | date) -> dict[str, str]:
    """Return a time as the API takes it."""
    if not isinstance(when, datetime):
        return {"date": when.isoformat()}
    if isinstance(when.tzinfo, ZoneInfo):
        return {"dateTime": when.replace(microsecond=0).isoformat(), "timeZone": when.tzinfo.key}
    return {"dateTime": when.replace(microsecond=0).isoformat()}


def _component(component: Any, row: Row) -> Any:
    """Return a row as a VEVENT; what lasts no time has no DTEND (RFC 5545, section 3.6.1)."""
    component.add("uid", f"{row['id']}@calendar")
    component.add("dtstamp", datetime.fromisoformat(row["updated"]))
    component.add("created", datetime.fromisoformat(row["created"]))
    for name in _LIMITS:
        if row[name]:
            component.add(name, row[name])
    for name, value in (("dtstart", row["start"]), ("dtend", row["end"]))[
        : 1 + (row["ends"] > row["starts"])
    ]:
        when = _parse_stored(value)
        component.add(
            name,
            when.astimezone(UTC)
            if isinstance(when, datetime) and "timeZone" not in value
            else when,
        )
    component.add("sequence", row["sequence"])
    return component
