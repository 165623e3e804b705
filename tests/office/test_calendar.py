"""The calendar server's tools, time zones and iCalendar files."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from agentgym.office.calendar import Calendar, Event
from agentgym.text.tools import ToolError
from tests.office.test_laws import call, digest, refused, run

NINE = {"dateTime": "2025-03-01T09:00:00Z"}
TEN = {"dateTime": "2025-03-01T10:00:00Z"}
ALL = {"timeMin": "1900-01-02T00:00:00Z", "timeMax": "9998-01-01T00:00:00Z"}


def titles(server: Calendar, **arguments: Any) -> list[str]:
    return [item["summary"] for item in call(server, "list_events", **arguments)["items"]]


def test_an_event_is_made_changed_and_removed() -> None:
    server = Calendar()
    server.set_owner("ada@x.org", "Ada L")
    made = call(server, "create_event", summary="Talk", start=NINE, end=TEN, location="Hall")
    ada = {"email": "ada@x.org", "displayName": "Ada L"}
    assert made == {
        "id": "event_001", "summary": "Talk", "location": "Hall", "start": NINE, "end": TEN, "status": "confirmed",
        "creator": ada, "organizer": ada, "attendees": [], "created": "2025-01-15T09:00:01Z",
        "updated": "2025-01-15T09:00:01Z"}  # fmt: skip
    assert call(server, "get_event", eventId=made["id"]) == made
    changed = call(
        server,
        "update_event",
        eventId=made["id"],
        end={"dateTime": "2025-03-01T12:30:00+01:00"},
        description="x",
    )
    assert changed == {
        **made, "description": "x", "end": {"dateTime": "2025-03-01T12:30:00+01:00"},
        "updated": "2025-01-15T09:00:02Z"}  # fmt: skip
    refused(
        server,
        "update_event",
        "^invalid argument: the event must end after it starts",
        eventId=made["id"],
        start={"dateTime": "2025-03-02T00:00:00Z"},
    )
    assert "location" not in call(server, "update_event", eventId=made["id"], location="")
    assert call(server, "delete_event", eventId="event_001") == "Event event_001 deleted"
    assert call(server, "create_event", summary="x", start=NINE, end=TEN)["id"] == "event_002"
    for tool in ("get_event", "update_event", "delete_event"):
        for event in ("event_001", "event_2", "event_0002", "2", "", "x" * 50, "event_" + "9" * 30):
            refused(server, tool, "^not found: there is no event with id", eventId=event)


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (NINE, {"dateTime": "2025-03-01T08:59:59Z"}, "must end after it starts"),
        ({"date": "2025-03-01"}, {"date": "2025-03-01"}, "an end date is the day after"),
        ({"date": "2025-03-01"}, TEN, "both have a date or both a dateTime"),
        ({}, TEN, "start must be"),
        ({"date": "2025-03-01", **NINE}, TEN, "start must be"), (NINE, {"timeZone": "UTC"}, "end must be"),
        ({"dateTime": "2025-03-01T09:00:00"}, TEN, "start.dateTime needs an offset or start a timeZone"),
        ({"dateTime": "2025-03-01"}, TEN, "start must be a time such as"),
        ({"dateTime": "2025-02-29T09:00:00Z"}, TEN, "start must be a time"),
        ({"dateTime": "20250301T090000Z"}, TEN, "start must be a time"),
        ({"dateTime": "0001-01-01T00:00:00+14:00"}, TEN, "start must be a time"),
        ({"dateTime": "2025-03-01T09:00:60Z"}, TEN, "start must be a time"),
        ({"dateTime": "2025-03-01T24:00:01Z"}, TEN, "start must be a time"),
        ({"date": "2025-13-01"}, {"date": "2025-13-02"}, "start.date must be a day"),
        *(({"dateTime": "2025-03-01T09:00:00", "timeZone": zone}, TEN, "there is no time zone")
          for zone in ("AoE", "", "../UTC", "America", "localtime", "/etc/passwd", "x" * 5_000, "é")),
    ],
)  # fmt: skip
def test_times_that_are_none(start: dict[str, Any], end: dict[str, Any], text: str) -> None:
    refused(
        Calendar(),
        "create_event",
        f"^invalid argument: .*{text}",
        summary="x",
        start=start,
        end=end,
    )


@pytest.mark.parametrize(
    ("given", "kept", "utc"),
    [
        (
            {"dateTime": "2025-09-30T20:59:00", "timeZone": "Etc/GMT+12"},
            "2025-09-30T20:59:00-12:00",
            "2025-10-01T08:59:00",
        ),
        (
            {"dateTime": "2025-09-30 20:59:00.5-12:00"},
            "2025-09-30T20:59:00-12:00",
            "2025-10-01T08:59:00",
        ),
        (
            {"dateTime": "2025-07-01T12:00:00z", "timeZone": "America/New_York"},
            "2025-07-01T12:00:00Z",
            "2025-07-01T12:00:00",
        ),
        (
            {"dateTime": "2025-03-09T02:30:00", "timeZone": "America/New_York"},
            "2025-03-09T03:30:00-04:00",
            "2025-03-09T07:30:00",
        ),
        (
            {"dateTime": "2025-11-02T01:30:00", "timeZone": "America/New_York"},
            "2025-11-02T01:30:00-04:00",
            "2025-11-02T05:30:00",
        ),
        (
            {"dateTime": "2025-01-01T00:00:00", "timeZone": "UTC"},
            "2025-01-01T00:00:00Z",
            "2025-01-01T00:00:00",
        ),
    ],
)
def test_time_zones(given: dict[str, Any], kept: str, utc: str) -> None:
    server = Calendar()
    made = call(
        server, "create_event", summary="x", start=given, end=given
    )  # an event may have no duration
    assert made["start"] == {"dateTime": kept} | (
        {"timeZone": given["timeZone"]} if "timeZone" in given else {}
    )
    (event,) = server.events()
    assert isinstance(event.start, datetime)
    assert event.start == event.end
    assert event.start.astimezone(UTC) == datetime.fromisoformat(f"{utc}+00:00")
    if "timeZone" in given:
        assert event.start.tzinfo == ZoneInfo(given["timeZone"])


def test_times_of_another_shape_are_refused_before_the_call() -> None:
    for start, text in (
        ({"dateTime": 5}, "argument 'start.dateTime': input should be a valid string"),
        ({"day": "x"}, "no argument is called 'start.day'"),
        ("2025-03-01T09:00:00Z", "argument 'start': input should be"),
        (None, "argument 'start': input should be"),
    ):
        refused(Calendar(), "create_event", text, summary="x", start=start, end=TEN)


def test_listing_takes_what_overlaps() -> None:
    server = Calendar()
    hour = timedelta(hours=1)
    nine = datetime(2025, 3, 1, 9, tzinfo=UTC)
    server.add(
        [
            Event("c", nine + hour, nine + 2 * hour),
            Event("a", nine, nine + hour),
            Event("day", date(2025, 3, 1), date(2025, 3, 2)),
        ]
    )
    assert titles(server, **ALL) == ["day", "a", "c"]
    assert titles(server, timeMin="2025-03-01T10:00:00Z", timeMax="2025-03-01T11:00:00+00:00") == [
        "day",
        "c",
    ]  # a ends at the bound
    assert titles(server, timeMin="2025-03-01T08:00:00Z", timeMax="2025-03-01T08:59:59Z") == ["day"]
    assert titles(server, timeMin="2025-03-01T04:59:59-05:00", timeMax="2025-03-01T10:00:00Z") == [
        "day",
        "a",
        "c",
    ]  # c starts at the bound
    assert titles(server, timeMin="2025-03-02T00:00:00Z", timeMax="2025-03-03T00:00:00Z") == []
    assert titles(server, timeMin="2025-03-01T23:59:59Z", timeMax="2025-03-03T00:00:00Z") == ["day"]
    call(server, "update_event", eventId=server.events()[1].id, summary="b")
    assert titles(server, **ALL, orderBy="updated") == ["c", "day", "b"]
    page = call(server, "list_events", **ALL, maxResults=2)
    assert (len(page["items"]), page["count"]) == (2, 2)
    assert call(server, "list_events", **ALL)["count"] == 3
    for text, more in (
        ("maxResults must be 1 to 2500", {"maxResults": 0}), ("maxResults", {"maxResults": 2**70}),
        ("timeMin needs an offset", {"timeMin": "2025-03-01T00:00:00"}), ("timeMax must be a time", {"timeMax": "tomorrow"}),
        ("timeMax must be later than timeMin", {"timeMin": ALL["timeMax"]}),
    ):  # fmt: skip
        refused(server, "list_events", f"^invalid argument: {text}", **{**ALL, **more})


def test_a_calendar_holds_no_more_than_a_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym.office.calendar.MAX_EVENTS", 2)
    server = Calendar()
    for _ in range(2):
        call(server, "create_event", summary="x", start=NINE, end=TEN)
    text = "^limit exceeded: a calendar has at most 2 events"
    refused(server, "create_event", text, summary="x", start=NINE, end=TEN)
    call(server, "delete_event", eventId="event_001")
    assert call(server, "create_event", summary="x", start=NINE, end=TEN)["id"] == "event_003"
    assert call(server, "list_events", **ALL)["count"] == 2


def test_texts_have_limits() -> None:
    server = Calendar()
    for name, length in (("summary", 1_024), ("description", 8_192), ("location", 1_024)):
        texts = {"summary": "s", name: "x" * length}
        call(server, "create_event", start=NINE, end=TEN, **texts)
        for wrong in ("x" * (length + 1), "a\0", "a\x1b"):
            refused(
                server,
                "create_event",
                f"^invalid argument: {name} has at most",
                start=NINE,
                end=TEN,
                **{**texts, name: wrong},
            )
    with pytest.raises(ToolError, match="needs an offset"):
        server.add([Event("x", datetime(2025, 1, 1), datetime(2025, 1, 2))])


@pytest.mark.parametrize("seed", range(4))
def test_a_calendar_is_that_of_a_small_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    server, other = Calendar(), Calendar()
    model: dict[str, tuple[str, datetime, datetime]] = {}
    base = datetime(2025, 6, 1, tzinfo=UTC)
    for step in range(120):
        start = base + timedelta(minutes=int(rng.integers(2_000)))
        end = start + timedelta(minutes=int(rng.integers(90)))
        times = {
            "start": {"dateTime": start.isoformat()},
            "end": {"dateTime": end.astimezone(ZoneInfo("Asia/Tokyo")).isoformat()},
        }
        key = list(model)[rng.integers(len(model))] if model else ""
        action = int(rng.integers(4)) if model else 0
        calls = {0: ("create_event", {"summary": f"e{step}", **times}), 1: ("update_event", {"eventId": key, **times}),
                 2: ("delete_event", {"eventId": key}), 3: ("update_event", {"eventId": key, "summary": f"u{step}"})}  # fmt: skip
        shown = call(server, calls[action][0], **calls[action][1])
        assert run(other, *calls[action])
        if action == 2:
            del model[key]
        else:
            old = model.get(shown["id"], ("", start, end))
            model[shown["id"]] = (shown["summary"], *((start, end) if action < 2 else old[1:]))
        low, high = sorted(
            base + timedelta(minutes=int(k)) for k in rng.choice(2_100, 2, replace=False)
        )
        found = call(server, "list_events", timeMin=low.isoformat(), timeMax=high.isoformat())[
            "items"
        ]
        wanted = {
            made
            for made, (_, first, last) in model.items()
            if (last > low or first >= low) and first <= high
        }
        assert {item["id"] for item in found} == wanted
        assert [model[item["id"]][1] for item in found] == sorted(model[made][1] for made in wanted)
    assert {event.id: (event.summary, event.start, event.end) for event in server.events()} == model
    assert digest(server) == digest(other) == digest(pickle.loads(pickle.dumps(other)))
