"""Calls in another form than the plan's are recognised; other calls are recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentgym.envs.loca.calls import canonical_call
from agentgym.envs.loca.plan import CLAIM
from agentgym.text.messages import ToolCall
from tests.envs.loca.office import carry_out, fresh

SERVERS = ("filesystem", "email", "calendar")
PAIRS = {
    "the workspace before a path": (
        ("read_text_file", {"path": "/workspace/a.txt"}),
        ("read_text_file", {"path": "a.txt"}),
        True,
    ),
    "a path from here": (
        ("read_text_file", {"path": "./a.txt"}),
        ("read_text_file", {"path": "a.txt"}),
        True,
    ),
    "another file": (
        ("read_text_file", {"path": "b/a.txt"}),
        ("read_text_file", {"path": "a.txt"}),
        False,
    ),
    "an older name of a tool": (
        ("read_file", {"path": "a.txt"}),
        ("read_text_file", {"path": "a.txt"}),
        True,
    ),
    "another tool": (
        ("list_directory", {"path": "a.txt"}),
        ("read_text_file", {"path": "a.txt"}),
        False,
    ),
    "defaults": (("get_emails", {"folder": "INBOX", "page": 1}), ("get_emails", {}), True),
    "no default": (("get_emails", {"page": 2}), ("get_emails", {}), False),
    "a part that is left out": (("get_emails", {"page": None}), ("get_emails", {}), True),
    "a time zone": (
        ("create_event", {"start": {"dateTime": "2025-11-11T20:59:00", "timeZone": "Etc/GMT+12"}}),
        ("create_event", {"start": {"dateTime": "2025-11-12T08:59:00Z"}}),
        True,
    ),
    "another hour": (
        ("create_event", {"start": {"dateTime": "2025-11-11T20:59:00Z"}}),
        ("create_event", {"start": {"dateTime": "2025-11-12T08:59:00Z"}}),
        False,
    ),
    "a name before an address": (
        ("send_email", {"to": '"Doe, Jane" <A@b.org>', "cc": "c@d.org"}),
        ("send_email", {"to": "a@b.org, C@d.org"}),
        True,
    ),
    "another address": (
        ("send_email", {"to": "a@b.org"}),
        ("send_email", {"to": "c@d.org"}),
        False,
    ),
    "no address": (("send_email", {"to": "<<"}), ("send_email", {"to": "<< "}), False),
    "the case of a statement": (
        ("write_query", {"query": "comment on\ncolumn a.b.c is 'X';"}),
        ("write_query", {"query": "COMMENT ON COLUMN A.B.c IS 'X'"}),
        True,
    ),
    "the case of a text in it": (
        ("write_query", {"query": "COMMENT ON COLUMN a.b.c IS 'x'"}),
        ("write_query", {"query": "COMMENT ON COLUMN a.b.c IS 'X'"}),
        False,
    ),
    "a word that may be left out": (
        ("bigquery_run_query", {"query": "INSERT d.t (a) VALUES (1)"}),
        ("bigquery_run_query", {"query": "insert into d.t(a) values(1)"}),
        True,
    ),
    "no statement": (
        ("bigquery_run_query", {"query": "INSERT ((("}),
        ("bigquery_run_query", {"query": "INSERT  ((("}),
        False,
    ),
    "no tool at all": (("fly", {"to": "Mars"}), ("fly", {"to": "Mars"}), True),
}


@pytest.mark.parametrize("name", PAIRS)
def test_calls_that_do_the_same(name: str) -> None:
    one, other, same = PAIRS[name]
    forms = [canonical_call(SERVERS, ToolCall(*call)) for call in (one, other)]
    assert ((forms[0].name, forms[0].arguments) == (forms[1].name, forms[1].arguments)) is same


@pytest.mark.parametrize(
    "value",
    [{"dateTime": "no"}, {"dateTime": "2025-01-01T00:00:00", "timeZone": "../x"}, {"dateTime": "0001-01-01T00:00:00+14:00"},
     {"dateTime": 3}, {"dateTime": "2025-01-01T00:00:00", "timeZone": [1]}, ["/workspace/x"], 1.5],
)  # fmt: skip
def test_hostile_values_stay_as_they_are(value: Any) -> None:
    assert canonical_call(SERVERS, ToolCall("create_event", {"start": value})).arguments == {
        "start": value
    }


def take(world: Any, name: str, **arguments: Any) -> str:
    label_calls = world.label_calls()
    result = world.office.call(name, arguments)
    world.read_result(ToolCall(name, arguments), result)
    [label] = label_calls([ToolCall(name, arguments)])
    return str(label)


def to_the_step(task: str, beginning: str) -> Any:
    world = fresh(task)
    while not (
        found := [step for step in world.progress.pending() if step.label.startswith(beginning)]
    ):
        step = world.progress.pending()[0]
        world.read_result(step.call, world.office.call(step.call.name, step.call.arguments))
    return world, found[0]


def test_a_hint_to_read_can_be_followed_and_goes_on_when_it_was() -> None:
    world = fresh("CourseAssistant")
    assert (
        world.subtask(False)
        == 'Read the account. Call read_text_file with {"path": "email_account.txt"}.'
    )
    assert take(world, "read_text_file", path="/workspace/email_account.txt") == "productive"
    assert world.subtask(False).startswith("Read the roster. Call read_data_from_excel with ")
    assert take(world, "read_file", path="email_account.txt") == "redundant"


def test_an_entry_in_other_words_counts_and_one_about_two_students_is_harmful() -> None:
    world, step = to_the_step("AcademicWarning", "Log ")
    name, student = step.label.removeprefix("Log ").removesuffix(").").split(" (")
    entry = {"log_name": "exam_log", "severity": "CRITICAL"}
    assert (
        take(world, "logging_write_log", **entry, message=f"Warn the parents of {name}, {student}!")
        == "productive"
    )
    assert step.label not in [step.label for step in world.progress.pending()]
    left = [
        step.call.arguments["message"]
        for step in world.progress.pending()
        if step.label.startswith("Log ")
    ]
    assert take(world, "logging_write_log", **entry, message=f"{left[0]} {left[1]}") == "harmful"


@pytest.mark.parametrize("size", [5, 20, 21, 100])
def test_mails_are_read_in_pages_of_the_size_that_the_agent_takes(size: int) -> None:
    world, _ = to_the_step("SetConfCrDdl", "Read the mails")
    total = json.loads(world.office.call("get_emails", {}))["total"]
    assert take(world, "get_emails", page_size=size) == "productive"
    steps = [step for step in world.progress.pending() if step.call.name == "get_emails"]
    if size < 20:
        assert [step.call.arguments["page"] for step in steps] == [1]
    else:
        assert [step.call.arguments["page"] for step in steps] == list(
            range(2, -(-total // size) + 1)
        )
        assert all(step.call.arguments.get("page_size", 20) == size for step in steps)
    if len(steps) > 1:  # pages of another size contain other mails
        assert take(world, "get_emails", page=2, page_size=size + 1) == "redundant"
    assert carry_out(world).score() == 1.0


def test_a_reminder_in_another_time_zone_counts() -> None:
    world, step = to_the_step("SetConfCrDdl", "Set the reminder")
    written = step.call.arguments["start"]["dateTime"]
    times = {
        name: {"dateTime": written.removesuffix("-12:00"), "timeZone": "Etc/GMT+12"}
        for name in ("start",)
    }
    times["end"] = step.call.arguments["end"]
    before = len(world.progress.pending())
    assert (
        take(world, "create_event", summary=step.call.arguments["summary"], **times) == "productive"
    )
    assert len(world.progress.pending()) == before - 1
    while (steps := world.progress.pending()) != [CLAIM]:
        take(world, steps[0].call.name, **json.loads(json.dumps(steps[0].call.arguments)))
    assert list(world.all_failures()) == []
