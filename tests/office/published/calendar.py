"""The published calendar server's calls."""

from __future__ import annotations

from typing import Any

from agentgym.office.calendar import Calendar
from tests.office.published import Call, Difference

NINE = {"dateTime": "2025-09-11T09:00:00Z"}
TEN = {"dateTime": "2025-09-11T10:00:00Z"}
ZONED = {"dateTime": "2025-09-12T09:00:00", "timeZone": "Europe/Berlin"}
SPAN = {"timeMin": "2025-09-01T00:00:00Z", "timeMax": "2025-10-01T00:00:00Z"}


def prepared() -> Calendar:
    calendar = Calendar()
    calendar.set_owner("ada@x.org", "Ada L")
    return calendar


def first_id(answers: list[Any]) -> dict[str, Any]:
    return {"eventId": answers[0]["id"]}


CALLS = [
    Call("create_event", {"summary": "Talk", "start": NINE, "end": TEN}),
    Call(
        "create_event",
        {"summary": "Trip", "start": ZONED, "end": ZONED, "description": "d", "location": "l"},
    ),
    Call("get_event", first_id),
    Call("update_event", lambda answers: {**first_id(answers), "summary": "Long talk"}),
    Call("list_events", SPAN),
    Call("list_events", {**SPAN, "maxResults": 1, "orderBy": "updated"}),
    Call("delete_event", lambda answers: {"eventId": "event_002"}, r"Event event_002 \S[^\n]*"),
    Call("list_events", SPAN),
]

_DAYS = {"start.dateTime", "start.date", "end.dateTime", "end.date"}

DIFFERENCES = {
    "create_event": Difference(
        "An event may also last whole days, given by `date` in place of `dateTime`; times that cannot be read and an end before "
        "the start are refused, and `created` is the time of the task.",
        params=_DAYS,
    ),
    "update_event": Difference(
        "An event may also last whole days, given by `date` in place of `dateTime`; times that cannot be read and an end before "
        "the start are refused, and `updated` is the time of the task.",
        params=_DAYS,
    ),
    "list_events": Difference(
        "An event that has begun before `timeMin` and still lasts is listed, too, as in the real service, and times that cannot be "
        "read are an error rather than an empty list.",
    ),
    "delete_event": Difference(
        "The id of a deleted event is never given again, so that an old id cannot mean another event.",
    ),
}
