from __future__ import annotations

import itertools
import json
from dataclasses import fields
from typing import Any

import pytest

from agentgym import Message, make
from agentgym.oracles import NoisyPolicy, OraclePolicy, TeamPolicy
from agentgym.text.tokens import counter
from agentgym.training.rollout import Trajectory, rollout
from agentgym.training.viewer import build_view
from agentgym.training.viewer.episode_view import MessagePool, Timeline, mark_of, split_notes
from agentgym.training.viewer.optimal import build_view_with_optimal_calls, optimal_calls
from agentgym.world.step_info import StepInfo
from tests.helpers import calls_of
from tests.training.viewer.episodes import HOSTILE, hostile_policy, played

STACKS: dict[str, dict[str, Any]] = {
    "bare": {},
    "persistent hints": {"oracles": "SP"},
    "ephemeral hints": {"oracles": "SP", "hint_scope": "ephemeral"},
    "no history": {"oracles": "SPH"},
    "clearing": {"context": "clear_results+clear_thinking", "window": 900},
    "compaction": {"oracles": "SP", "context": "clear_results+compaction", "window": 1_500},
    "awareness": {"context": "awareness", "context_options": {"awareness": {"latest_only": True}}},
    "trimmed": {"context": "memory", "window": 1_000},
}


def line_of(trajectory: Trajectory) -> bytes:
    return trajectory.to_json().encode()


def whole_text(view: dict[str, Any], number: int) -> str:
    (_, text), *notes = view["messages"][number]["parts"]
    return text + "".join(f"<{tag}>{note}</{tag}>" for tag, note in notes)


def squeeze(text: str) -> str:
    return "".join(text.split())


def chats(view: dict[str, Any], agent: str) -> list[list[tuple[int, str]]]:
    entries: list[tuple[int, str]] = []
    every = []
    for step in (*view["turns"], view["end"]):
        if step["agent"] != agent:
            continue
        changes = step["changes"]
        entries = [] if changes.get("clear") else list(entries)
        for place, number, mark in changes.get("set", ()):
            entries[place] = (number, mark)
        entries += [tuple(entry) for entry in changes["add"]]
        every.append(entries)
    return every


def assert_exact(trajectory: Trajectory) -> dict[str, Any]:
    view = build_view(line_of(trajectory))
    for agent, numbers in trajectory.by_agent().items():
        shown = chats(view, agent)
        real = [trajectory.steps[k].chat for k in numbers]
        for entries, chat in zip(shown, real, strict=False):
            kept = [number for number, mark in entries if mark != "dropped"]
            assert [view["messages"][k]["id"] for k in kept] == [m.id for m in chat.messages]
            assert [squeeze(whole_text(view, k)) for k in kept] == [
                squeeze(m.text) for m in chat.messages
            ]
    for turn, step in zip(view["turns"], trajectory.steps, strict=True):
        assert turn["reply"]["raw"] == step.reply.text
        assert turn["shown"] == len(step.chat.messages)
    return view


@pytest.mark.parametrize("stack", STACKS)
def test_the_chat_of_each_turn_is_what_the_policy_saw(stack: str) -> None:
    options = STACKS[stack]
    for policy in (OraclePolicy("ListWorld"), NoisyPolicy("ListWorld", p=0.4)):
        assert_exact(played(policy, items=14, removals=11, **options))


@pytest.mark.parametrize(
    ("env_id", "options"), [("ListWorld-team", {}), ("DocumentWorld-manager", {"operations": 12})]
)
def test_each_agent_of_a_team_has_its_own_chats(env_id: str, options: dict[str, Any]) -> None:
    view = assert_exact(rollout(TeamPolicy(env_id), make(env_id, **options), 2))
    assert len({turn["agent"] for turn in view["turns"]}) == 2
    assert {mark for entries in chats(view, "worker_0") for _, mark in entries} <= {""}
    # A worker's second chat reuses the ids of the first chat.
    for turn, later in itertools.pairwise(view["turns"]):
        if later["agent"] == turn["agent"]:
            assert turn["results"]


def test_edits_of_the_context_are_marked() -> None:
    view = assert_exact(played(items=14, removals=11, **STACKS["compaction"]))
    marks = {mark for entries in chats(view, "") for _, mark in entries}
    assert {"dropped", "summary", "request"} <= marks
    assert any(turn["reply"]["summary"] for turn in view["turns"])
    assert any(edit["strategy"] == "Compaction" for turn in view["turns"] for edit in turn["edits"])
    assert view["window"] == 1_500
    assert all(turn["counter"] == "cl100k_base" for turn in view["turns"])


def test_the_page_receives_every_field_of_step_info() -> None:
    data = json.loads(played().to_json())
    detail = {field.name: f"value of {field.name}" for field in fields(StepInfo)}
    data["steps"][0]["info"]["detail"] = detail
    assert build_view(json.dumps(data).encode())["turns"][0]["info"]["detail"] == detail


def test_hints_are_parts_of_their_own_only_where_an_oracle_wrote_them() -> None:
    text = "The list.\n\n<plan>\ndo\n</plan>\n\n<state>\nis\n</state>"
    both = frozenset({"plan", "state"})
    assert split_notes(text, both) == [("", "The list."), ("plan", "do"), ("state", "is")]
    assert split_notes(text, frozenset({"state"}))[0][1].endswith("</plan>")
    assert split_notes(text, frozenset()) == [("", text)]
    assert split_notes("a </plan>", both) == [("", "a </plan>")]
    assert split_notes("", both) == [("", "")]
    assert split_notes("\n\n<plan>\n</plan>", both) == [("", ""), ("plan", "")]


@pytest.mark.parametrize(
    ("now", "mark"),
    [
        ({}, ""),
        ({"text": "[gone]"}, "cleared"),
        ({"text": ""}, "cleared"),
        ({"text": "A long result of … its end"}, "cut"),
        ({"text": "A long result of a tool to its end\n\n<plan>\nx\n</plan>"}, ""),
    ],
)
def test_marks_of_a_result(now: dict[str, str], mark: str) -> None:
    first = Message("tool", "A long result of a tool to its end", id="3:1")
    later = Message("tool", now.get("text", first.text), id="3:1")
    assert mark_of(first, later, frozenset({"plan"})) == mark


def test_a_note_that_is_gone_is_marked() -> None:
    first = Message("user", "Task\n\n<plan>\nlong words\n</plan>", id="0:1")
    shorter = Message("user", "Task\n\n<plan>\nx\n</plan>", id="0:1")
    tags = frozenset({"plan"})
    assert mark_of(first, shorter, tags) == ""
    assert mark_of(first, Message("user", "Task", id="0:1"), tags) == "note removed"


@pytest.mark.parametrize(
    "orders",
    [
        ["ab", "ba", "ab"],
        ["abc", "cab"],
        ["ab", "aab"],
        ["abc", "axc"],
        ["", "a", ""],
        ["abcd", "d", "abcd"],
    ],
)
def test_any_order_of_messages_is_shown_as_it_was(orders: list[str]) -> None:
    pool = MessagePool(frozenset())
    timeline = Timeline(pool, counter("heuristic"))
    entries: list[tuple[int, str]] = []
    for order in orders:
        changes = timeline.update(0, [Message("user", name, id=name) for name in order])
        entries = [] if changes.get("clear") else entries
        for place, number, mark in changes.get("set", ()):
            entries[place] = (number, mark)
        entries += changes["add"]
        shown = [pool.messages[k].text for k, mark in entries if mark != "dropped"]
        assert "".join(shown) == order
        assert timeline.tokens == sum(
            counter("heuristic").count(pool.messages[k]) for k, mark in entries if mark != "dropped"
        )


def test_work_grows_with_new_text_and_not_with_the_history() -> None:
    options = {"oracles": "SP", "hint_scope": "ephemeral"}
    lines = [line_of(played(items=n + 4, removals=n, **options)) for n in (40, 160)]
    short, long = (calls_of(build_view, line) / len(line) for line in lines)
    assert long < 1.5 * short


def test_results_that_are_never_shown_go_to_their_turn() -> None:
    view = build_view(line_of(played(oracles="SPH")))
    late = [turn for turn in view["turns"] if turn.get("hidden")]
    assert len(late) >= len(view["turns"]) - 2
    for turn in late:
        assert all(
            view["messages"][k]["id"].startswith(f"{turn['info']['turn']}:") for k in turn["hidden"]
        )
    assert [view["messages"][k]["role"] for k in view["turns"][-1]["results"]] == ["tool"]


def test_hostile_texts_are_kept_letter_for_letter() -> None:
    view = build_view(line_of(played(hostile_policy, max_failed_rounds=2)))
    assert all(HOSTILE in turn["reply"]["raw"] for turn in view["turns"])


def test_optimal_calls_are_found_by_playing_again() -> None:
    trajectory = played(NoisyPolicy("ListWorld", p=0.4), seed=5)
    best = optimal_calls(line_of(trajectory))
    view = build_view_with_optimal_calls(line_of(trajectory))
    assert [turn["best"] for turn in view["turns"]] == best
    for turn, step in zip(view["turns"], trajectory.steps, strict=True):
        assert step.info["optimal"] is (turn["reply"]["calls"][0] in turn["best"]["calls"])


def test_an_episode_of_another_version_is_shown_without_optimal_calls() -> None:
    data = json.loads(played().to_json())
    data["steps"][0]["messages"][1]["text"] = "Another task."
    view = build_view_with_optimal_calls(json.dumps(data).encode())
    assert "differs from the record at turn 1" in view["note"]
    assert all("best" not in turn for turn in view["turns"])


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[", b"null", b'{"spec": 1, "seed": 1, "steps": []}', b"\xff", b"[" * 100_000],
)
def test_what_is_no_episode_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="must be a trajectory"):
        build_view(line)


def test_a_chat_that_keeps_more_than_there_was_is_refused() -> None:
    data = json.loads(played().to_json())
    data["steps"][1]["kept"] = 99
    with pytest.raises(ValueError, match=r"kept must be in \[0, 2\], got 99"):
        build_view(json.dumps(data).encode())
