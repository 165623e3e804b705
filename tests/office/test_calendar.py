from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from agentgym.office.calendar import Calendar
from tests.office.test_laws import call, digest, refused, run

NINE = {"dateTime": "2025-03-01T09:00:00Z"}
TEN = {"dateTime": "2025-03-01T10:00:00Z"}
ALL = {"timeMin": "1900-01-02T00:00:00Z", "timeMax": "9998-01-01T00:00:00Z"}


def test_a_calendar_holds_no_more_than_a_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym.office.calendar.MAX_EVENTS", 2)
    server = Calendar()
    for _ in range(2):
        call(server, "create_event", summary="x", start=NINE, end=TEN)
    text = "^limit exceeded: a calendar may have at most 2 events"
    refused(server, "create_event", text, summary="x", start=NINE, end=TEN)
    call(server, "delete_event", eventId="event_001")
    assert call(server, "create_event", summary="x", start=NINE, end=TEN)["id"] == "event_003"
    assert call(server, "list_events", **ALL)["count"] == 2


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
