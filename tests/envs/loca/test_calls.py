from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.loca.calls import canonical_call
from agentgym.text.messages import ToolCall
from tests.envs.loca.office import carry_out, fresh

SERVERS = ("filesystem", "email", "calendar")
PAIRS = Path(__file__).with_name("equal_calls.tsv").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("line", PAIRS)
def test_calls_that_do_the_same(line: str) -> None:
    same, _, *calls = line.split("\t")
    forms = []
    for name, _, arguments in (call.partition(" ") for call in calls):
        form = canonical_call(SERVERS, ToolCall(name, json.loads(arguments)))
        forms.append((form.name, form.arguments))
    assert (forms[0] == forms[1]) is (same == "same")


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
    world.read_result(ToolCall(name, arguments), world.office.call(name, arguments))
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
    if len(steps) > 1:  # a different page size returns different emails
        assert take(world, "get_emails", page=2, page_size=size + 1) == "redundant"
    assert carry_out(world).score() == 1.0
