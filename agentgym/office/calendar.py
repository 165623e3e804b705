"""Calendar server with Google Calendar's event format; events are also valid in iCalendar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from agentgym.office.context import iso
from agentgym.office.event_times import (
    EventTime,
    parse_bound,
    parse_time,
    seconds_of,
    to_python,
)
from agentgym.office.server import Server
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

MAX_EVENTS = 2_500  # Google Calendar's maximum page size, so a listing needs only one page
# Maximum lengths in characters.
_LIMITS = {"summary": 1_024, "description": 8_192, "location": 1_024}
# Characters that iCalendar cannot contain.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
# Default calendar owner.
_OWNER = {"email": "user@example.com", "displayName": "Calendar owner"}
_EVENT_ID = re.compile(r"event_([0-9]{3,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `end` is exclusive: an all-day event on 5 March ends on 6 March."""

    summary: str
    start: datetime | date
    end: datetime | date
    description: str = ""
    location: str = ""
    id: str = ""


class Calendar(Server):
    """One calendar in UTC."""

    name = "calendar"
    schema = """
        CREATE TABLE events (
            id INTEGER PRIMARY KEY AUTOINCREMENT, created TEXT NOT NULL, updated TEXT NOT NULL,
            summary TEXT NOT NULL, description TEXT NOT NULL, location TEXT NOT NULL,
            start JSON NOT NULL, "end" JSON NOT NULL, starts INTEGER NOT NULL,
            ends INTEGER NOT NULL, sequence INTEGER NOT NULL
        );
        CREATE INDEX events_by_start ON events (starts);
    """

    def set_owner(self, email: str, name: str) -> None:
        """Set the creator and organizer of events."""
        self.session["owner"] = {"email": email, "displayName": name}

    @tool
    def create_event(
        self,
        summary: str,
        start: EventTime,
        end: EventTime,
        description: str | None = None,
        location: str | None = None,
    ) -> Row:
        """Create an event.

        Args:
            summary: Title.
            start: Start.
            end: End.
            description: Details.
            location: Place.
        """
        fields = {"summary": summary, "description": description or "", "location": location or ""}
        record = _record(fields, start, end)
        if self.store.value("SELECT count(*) FROM events") >= MAX_EVENTS:
            raise ToolError(f"limit exceeded: a calendar may have at most {MAX_EVENTS} events")
        now = iso(self.context.clock.tick())
        number = self.store.insert("events", created=now, updated=now, sequence=0, **record)
        return self._show(self.store.get("events", number))

    @tool
    def get_event(self, eventId: str) -> Row:
        """Get an event.

        Args:
            eventId: Event ID.
        """
        return self._show(self._find(eventId))

    @tool
    def update_event(
        self,
        eventId: str,
        summary: str | None = None,
        start: EventTime | None = None,
        end: EventTime | None = None,
        description: str | None = None,
        location: str | None = None,
    ) -> Row:
        """Change the given fields of an event.

        Args:
            eventId: Event ID.
            summary: Title.
            start: Start.
            end: End.
            description: Details.
            location: Place.
        """
        event = self._find(eventId)
        changes = {
            "summary": summary,
            "description": description,
            "location": location,
            "start": start,
            "end": end,
        }
        fields = event | {name: new for name, new in changes.items() if new is not None}
        record = _record(fields, fields["start"], fields["end"])
        record["sequence"] = event["sequence"] + 1
        record["updated"] = iso(self.context.clock.tick())
        self.store.update("events", event["id"], **record)
        return self._show(self._find(eventId))

    @tool
    def delete_event(self, eventId: str) -> str:
        """Permanently delete an event.

        Args:
            eventId: Event ID.
        """
        self.store.delete("events", id=self._find(eventId)["id"])
        return f"Event {eventId} deleted"

    @tool
    def list_events(
        self,
        timeMin: str,
        timeMax: str,
        maxResults: int | None = None,
        orderBy: Literal["startTime", "updated"] | None = None,
    ) -> Row:
        """List the events between two times, including those that overlap a bound.

        Args:
            timeMin: Start of the range, with offset, e.g. 2025-01-15T09:00:00Z.
            timeMax: End of the range, with offset.
            maxResults: Maximum number of events; all if omitted.
            orderBy: Order; startTime if omitted.
        """
        low, high = parse_bound("timeMin", timeMin), parse_bound("timeMax", timeMax)
        most = MAX_EVENTS if maxResults is None else maxResults
        if low >= high:
            raise ToolError(
                f"invalid argument: timeMax must be later than timeMin, got {echo(timeMin)} to "
                f"{echo(timeMax)}"
            )
        if not 1 <= most <= MAX_EVENTS:
            raise ToolError(
                f"invalid argument: maxResults must be between 1 and {MAX_EVENTS}, got {echo(most)}"
            )
        order = "updated, id" if orderBy == "updated" else "starts, id"
        rows = self.store.rows(
            "SELECT * FROM events WHERE (ends > ? OR starts >= ?) AND starts <= ? "
            f"ORDER BY {order} LIMIT ?",
            low,
            low,
            high,
            most,
        )
        return {"items": list(map(self._show, rows)), "count": len(rows)}

    def events(self) -> list[Event]:
        """Return all events, ordered by start."""
        events = []
        for row in self.store.rows("SELECT * FROM events ORDER BY starts, id"):
            texts = {name: row[name] for name in _LIMITS}
            start, end = to_python(row["start"]), to_python(row["end"])
            events.append(Event(**texts, id=_event_id(row), start=start, end=end))
        return events

    def _find(self, event: str) -> Row:
        number = _EVENT_ID.fullmatch(event)
        rows = self.store.find("events", id=int(number[1])) if number else []
        if not rows or _event_id(rows[0]) != event:
            raise ToolError(f"not found: there is no event with id {echo(event)}")
        return rows[0]

    def _show(self, row: Row) -> Row:
        owner = self.session.get("owner", _OWNER)
        return {
            "id": _event_id(row),
            **{name: row[name] for name in _LIMITS if row[name]},
            "start": row["start"],
            "end": row["end"],
            "status": "confirmed",
            "creator": owner,
            "organizer": owner,
            "attendees": [],
            "created": row["created"],
            "updated": row["updated"],
        }


def _event_id(row: Row) -> str:
    return f"event_{row['id']:03}"


def _record(fields: Mapping[str, Any], start: Mapping[str, Any], end: Mapping[str, Any]) -> Row:
    texts = {}
    for name, limit in _LIMITS.items():
        text = texts[name] = fields[name].replace("\r\n", "\n").replace("\r", "\n")
        if _CONTROL.search(text) or len(text) > limit:
            raise ToolError(
                f"invalid argument: {name} must have at most {limit} characters and "
                "no control characters"
            )
    first, last = parse_time("start", start), parse_time("end", end)
    if ("date" in first) != ("date" in last):
        raise ToolError(
            "invalid argument: start and end must both have a date, or both have a dateTime"
        )
    starts, ends = seconds_of(first), seconds_of(last)
    if ends < starts or (ends == starts and "date" in first):
        raise ToolError(
            f"invalid argument: the event must end after it starts, got {echo(first)} to "
            f"{echo(last)}; an all-day event ends on the day after its last day"
        )
    return {**texts, "start": first, "end": last, "starts": starts, "ends": ends}
