from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

from agentgym.envs.loca.tasks.set_conf_cr_ddl import ME, NOTE, TRACKS, SetConfCrDdl
from agentgym.office.email.server import Email
from tests.envs.loca.exam_reader import after, days_in, spell_in
from tests.envs.loca.office import Change, final_state_tests, fresh

TASK = "SetConfCrDdl"


def events(world: SetConfCrDdl) -> list[dict[str, Any]]:
    shown = world.office.call(
        "list_events",
        {"timeMin": "2025-01-01T00:00:00Z", "timeMax": "2026-12-31T00:00:00Z", "maxResults": 2000},
    )
    listed: list[dict[str, Any]] = json.loads(shown)["items"]
    return listed


def change(world: SetConfCrDdl, **arguments: Any) -> None:
    world.office.call("update_event", {"eventId": events(world)[0]["id"], **arguments})


def later(world: SetConfCrDdl, by: timedelta) -> None:
    begin = datetime.fromisoformat(events(world)[0]["start"]["dateTime"]) + by
    change(world, start={"dateTime": begin.isoformat()})


def again(world: SetConfCrDdl) -> None:
    first = events(world)[0]
    world.office.call("create_event", {name: first[name] for name in ("summary", "start", "end")})


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "a reminder twice": (again, "a duplicate"),
    "the old deadline": (
        lambda world: later(world, -timedelta(days=3)),
        "not a requested reminder",
    ),
    "at the deadline": (
        lambda world: later(world, timedelta(hours=3)),
        "not a requested reminder",
    ),
    "the deadline in UTC": (
        lambda world: later(world, -timedelta(hours=12)),
        "there is no right reminder",
    ),
    "a minute late": (
        lambda world: later(world, timedelta(minutes=1)),
        "there is no right reminder",
    ),
    "a title that says no": (
        lambda world: change(world, summary=f"NOT {events(world)[0]['summary']}"),
        "not a requested reminder",
    ),
    "notes that say the opposite": (
        lambda world: change(world, description="Ignore this: the deadline was cancelled."),
        "not a requested reminder",
    ),
    "a place that says the opposite": (
        lambda world: change(world, location="nowhere, this is not the deadline"),
        "not a requested reminder",
    ),
    "no word of the camera": (
        lambda world: change(world, summary=events(world)[0]["summary"].split()[0]),
        "not a requested reminder",
    ),
    "the name is only a part of a word": (
        lambda world: change(world, summary=f"X{events(world)[0]['summary']}"),
        "not a requested reminder",
    ),
    "a number behind the name": (
        lambda world: change(
            world, summary=f"{events(world)[0]['summary'].split()[0]}77 camera-ready"
        ),
        "not a requested reminder",
    ),
    "two conferences in one title": (
        lambda world: change(world, summary=f"{' '.join(world.truth['reminders'])} camera-ready"),
        "not a requested reminder",
    ),
}

EQUIVALENTS: dict[str, Change] = {
    "another wording": (
        lambda world: change(
            world,
            summary=f"Reminder: Camera Ready of {events(world)[0]['summary'].split()[0].lower()} (main)",
        )
    ),
    "the year behind the name": lambda world: change(
        world, summary=f"{events(world)[0]['summary'].split()[0]}2025 camera-ready"
    ),
    "another time zone": lambda world: later(world, timedelta()),
    "another length": (
        lambda world: change(
            world,
            end={"dateTime": (events(world)[0]["start"]["dateTime"])},
            description="with a description",
        )
    ),
    "notes of its own": lambda world: change(
        world, description="Do not forget the sources; no extension is possible."
    ),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(TASK, NEAR_MISSES, EQUIVALENTS)


def deadlines(bodies: list[str], key: str, track: str) -> list[str]:
    days: list[str] = []
    for sentence in (each for body in bodies for each in re.split(r"(?<=[.!?])\s+", body)):
        if "camera-ready" not in sentence.lower() or not re.search(rf"\b{key}\b", sentence):
            continue
        found, spell = days_in(sentence), spell_in(sentence.lower())
        if re.search("ll (other )?tracks|Unless|except those", sentence):
            [named] = [each for each in TRACKS if each in sentence]
            own = days_in(sentence[sentence.index(named) :])[0]
            days.append(own if named == track else next(day for day in found if day != own))
        elif track not in sentence:
            continue
        elif len(found) == 2:
            days.append(
                found[
                    0
                    if re.search("and not on|only the former|still shows|instead of", sentence)
                    else 1
                ]
            )
        elif found and spell:
            days.append(after(found[0], -spell))
        elif found:
            days.append(found[0])
        elif spell:
            back = re.search("earlier", sentence)
            days.append(after(days[-1], -spell if back else spell))
        elif re.search("withdrawn|by mistake|Forget", sentence):
            days.append(days[-2])
    return days


def test_the_mails_about_a_track_give_the_deadline() -> None:
    changed = 0
    for seed in range(4):
        world = fresh(TASK, 16_000, seed)
        bodies = [mail.body for mail in world.office.get(Email).messages(ME)]
        targets = dict(
            line.split(": ") for line in world.office.context.files.read_text(NOTE).splitlines()[1:]
        )
        assert set(targets) == set(world.truth["reminders"])
        for key, track in targets.items():
            days = deadlines(bodies, key, track)
            changed += len(days) > 1
            reminder = world.truth["reminders"][key] + timedelta(hours=3)
            assert days[-1] == f"{reminder:%Y-%m-%d}", (key, track)
    assert changed > 3
