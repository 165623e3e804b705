from __future__ import annotations

import itertools
import re
from typing import Any

import gymnasium
import pytest

from agentgym import ARMS, CallSet, Chat, ToolCall, ToolEnv, make, render, tool_env, worlds
from agentgym.envs.lumina.list_world import ListWorld
from agentgym.oracles import (
    HistoryOracle,
    NoisyPolicy,
    OraclePolicy,
    StateOracle,
    StepOptimality,
    TeamPolicy,
)
from agentgym.oracles.choices import best_call
from agentgym.oracles.hints import split_hints
from agentgym.oracles.optimality import TASK_FOLLOWS
from agentgym.oracles.recall import TOOL
from agentgym.training.rollout import rollout
from agentgym.world.world import has_hook
from tests.sampling import OFFICE

IDS = [entry.id for entry in worlds()]
SCOPES = ["persistent", "ephemeral"]
TAGS = {arm: ["plan"] * ("P" in arm) + ["state"] * ("S" in arm) for arm in ARMS}


def tags(text: str) -> list[str]:
    return re.findall(r"<(plan|state)>\n", text)


def views(env_id: str, arm: str, scope: str = "persistent", **options: Any) -> list[Chat]:
    env = make(env_id, oracles=arm, hint_scope=scope, **options)
    trajectory = rollout(OraclePolicy(env_id), env, 3)
    return [*(step.chat for step in trajectory.steps), trajectory.last]


def test_letters_may_come_in_any_order() -> None:
    one, other = make("ListWorld", oracles="HPS"), make("ListWorld", oracles="SPH")
    assert one.reset(seed=1) == other.reset(seed=1)


@pytest.mark.family(arm=ARMS, env_id=IDS)
def test_hints_stand_at_the_end_of_the_newest_message(env_id: str, arm: str) -> None:
    for scope in SCOPES:
        *shown, last = views(env_id, arm, scope)
        for chat in shown:
            assert tags(chat.messages[-1].text) == TAGS[arm]
            assert chat.messages[-1].role == ("user" if len(chat.messages) == 2 else "tool")
        assert tags(last.messages[-1].text) == [], "nothing is told after the end"


@pytest.mark.family(env_id=IDS)
def test_persistent_hints_only_add_to_the_chat(env_id: str) -> None:
    for before, after in zip(chats := views(env_id, "SP"), chats[1:], strict=False):
        assert after.shared_prefix(before) == len(before.messages)


@pytest.mark.family(arm=["S", "P", "SP"], env_id=IDS)
def test_ephemeral_hints_leave_no_trace(env_id: str, arm: str) -> None:
    hinted = views(env_id, arm, "ephemeral")
    for chat in hinted:
        assert all(tags(message.text) == [] for message in chat.messages[:-1])
        unhinted = hinted[-1].messages[len(chat.messages) - 1].text
        assert split_hints(chat.messages[-1].text)[0] == unhinted


@pytest.mark.family(scope=SCOPES, arm=["SH", "SPH"], env_id=IDS)
def test_pruning_leaves_the_system_message_the_task_as_it_stands_and_the_hints(
    env_id: str, arm: str, scope: str
) -> None:
    first = views(env_id, "")[0]
    *shown, last = views(env_id, arm, scope)
    # If a state may be too long for a hint, a tool returns the rest.
    pages = has_hook(tool_env(make(env_id)).world_class, "brief_state")
    for chat in shown:
        assert [message.id for message in chat.messages] == ["0:0", "0:1"]
        assert [tool.name for tool in chat.tools] == [
            *(tool.name for tool in first.tools),
            *[TOOL] * pages,
        ]
        assert pages or chat.messages[0].text.startswith(first.messages[0].text)
        task, hints = split_hints(chat.messages[1].text)
        assert set(hints) == {*TAGS[arm]}
        # The state hint contains everything that can change, so the task omits these parts.
        assert not re.search(r"(Turn|Move) budget: |-> |Start: |Initial list: |^Round ", task, re.M)
        assert len(task) <= len(first.messages[1].text)
        world = tool_env(make(env_id)).world_class.read_task(task)
        world.read_state(hints["state"])
        assert world.state() == hints["state"], "task and state suffice, without the history"
    assert len(last.messages) == 2 + 2 * len(shown), "after the end the whole chat is shown"


def test_what_is_pruned_is_shown_once() -> None:
    *_, chat, _ = views("TreeWorld", "SH", nodes=12)
    nodes = re.findall(r"\(id=([a-z]+)", chat.messages[1].text)
    assert len(nodes) == len(set(nodes)) > 2, "no line of the tree as it was at first"
    *_, chat, _ = views("ListWorld", "SH", items=12, removals=6)
    assert chat.messages[1].text.count("[") == 1, "the target, and no list as it was"
    *_, chat, _ = views("PuzzleWorld", "SH", puzzles=2)
    assert chat.messages[1].text.startswith("Puzzle 2 of 2.")


@pytest.mark.family(arm=ARMS, env_id=IDS)
def test_hints_are_announced_in_the_system_message(env_id: str, arm: str) -> None:
    system = views(env_id, arm)[0].messages[0].text
    for letter, heading in (("P", "# Plan hints"), ("S", "# State hints"), ("H", "# History")):
        assert (f"\n\n{heading}\n" in system) == (letter in arm)
    assert system.count("is always right") == len(set(arm) & {"P", "S"})
    rules, _, rest = system.partition("# Tools")
    # a tool description may say that results are not repeated
    said = rules + rest.partition("# How to reply")[2]
    assert not re.search(r"not shown again|never shown|not be repeated", said)


def test_options_of_oracles_reach_them() -> None:
    options = {"H": {"keep_last_error": True}}
    env = make("ListWorld", oracles="SH", oracle_options=options)
    env.reset(seed=0)
    chat, *_ = env.step(render(ToolCall("pop", {"id": 99})))
    assert "error: the list has no index 99" in chat.messages[-1].text
    assert make("ListWorld", oracles="S", oracle_options=options).reset(seed=0)
    team = make("ListWorld-team", oracles="SH", oracle_options=options)
    assert rollout(TeamPolicy("ListWorld-team"), team, 0).reward == 1.0


@pytest.mark.parametrize("env_id", [env_id for env_id in IDS if env_id not in OFFICE])
@pytest.mark.parametrize("arm", ["", "SPH"])
def test_examples_reason_before_each_call(env_id: str, arm: str) -> None:
    messages = views(env_id, arm, shots=1)[0].messages
    replies = [message for message in messages if message.role == "assistant"]
    assert replies
    assert all(message.calls and message.text.strip() for message in replies)
    assert messages[-2].text.endswith(f"\n\n{TASK_FOLLOWS}")


@pytest.mark.parametrize("keep", [False, True])
def test_the_last_error_is_dropped_unless_it_is_asked_for(keep: bool) -> None:
    env = HistoryOracle(StateOracle(gymnasium.make("agentgym/ListWorld-v0")), keep_last_error=keep)
    env.reset(seed=0)
    chat, *_ = env.step(render(ToolCall("pop", {"id": 99})))
    assert ("error: the list has no index 99" in chat.messages[-1].text) is keep
    assert tags(chat.messages[-1].text) == ["state"]
    chat, *_ = env.step(render(best_call(tool_env(env).world)))
    assert "error:" not in chat.messages[-1].text


@pytest.mark.parametrize(
    "env_id", [env_id for env_id in IDS if env_id not in OFFICE]
)  # their states quote results
def test_the_state_names_no_action_and_tells_what_is_left(env_id: str) -> None:
    env = make(env_id)
    names = "|".join(tool.name for tool in tool_env(env).tools)
    chat, _ = env.reset(seed=1)
    left = []
    while not tool_env(env).over:
        state = tool_env(env).world.state()
        assert not re.search(rf"\b({names}|remove|report|enter|step|finish)\b", state)
        left.append(int(re.findall(r"(?:Turns left|moves): ([0-9]+)", state)[0]))
        chat, *_ = env.step(OraclePolicy(env_id)([chat])[0].text)
    assert all(after < before for before, after in itertools.pairwise(left))


def test_a_plan_refers_to_the_state_only_where_it_is_shown() -> None:
    def plans(arm: str) -> str:
        chats = views("ListWorld", arm)[:-1]
        return "\n".join(split_hints(chat.messages[-1].text)[1]["plan"] for chat in chats)

    assert "current list" in plans("SP")
    assert "current list" not in plans("P")
    assert "initial list (value" in plans("P")


def labels(actions: list[str], **options: Any) -> list[tuple[bool, bool]]:
    env = StepOptimality(gymnasium.make("agentgym/ListWorld-v0", **options))
    _, info = env.reset(seed=0)
    assert (info["optimal"], info["alive"]) == (None, None)
    world: Any = tool_env(env).world
    world._start([3, 3, 1], [3])
    world.max_turns = 5
    infos = [env.step(action)[4] for action in actions]
    return [(info["optimal"], info["alive"]) for info in infos]


def pop(index: Any) -> str:
    return render(ToolCall("pop", {"id": index}))


def test_steps_are_labelled() -> None:
    done = render(ToolCall("done", {}))
    assert labels([pop(0), pop(1), done]) == [(True, True)] * 3
    assert labels([pop(1), pop(1), done]) == [(True, True)] * 3
    wrong, lost = (False, True), (False, False)
    assert labels([pop(2), pop(0)]) == [wrong, lost], "popping the last locks the others"
    refused = labels(["hm", pop(True), pop(0)])
    assert refused == [wrong, wrong, (True, True)], "a refused call is never optimal"
    assert labels(["", "", "", pop(0)]) == [wrong, wrong, wrong, lost]


class PlainListWorld(ListWorld):
    # In a plain tuple of calls, the arguments True and 1 compare equal.
    def optimal_calls(self) -> tuple[ToolCall, ...]:
        return tuple(super().optimal_calls())


def test_a_refused_call_is_not_optimal_even_if_it_equals_one_that_is() -> None:
    env = StepOptimality(ToolEnv(PlainListWorld, items=3, removals=2))
    env.reset(seed=0)
    world: Any = tool_env(env).world
    world._start([1, 2, 3], [1, 3])
    assert ToolCall("pop", {"id": True}) in world.optimal_calls()
    assert env.step(pop(True))[4]["optimal"] is False
    assert env.step(pop(1))[4]["optimal"] is True


def test_sets_of_calls_are_as_strict_as_the_checks() -> None:
    calls = CallSet("pop", "id", range(3))
    assert ToolCall("pop", {"id": 1}, "any id") in calls
    for value in (True, 1.0, "1", [1], 3):
        assert ToolCall("pop", {"id": value}) not in calls
    for arguments in ({}, {"id": 1, "x": 1}, {"x": 1}):
        assert ToolCall("pop", arguments) not in calls
    assert ToolCall("push", {"id": 1}) not in calls
    assert len(calls) == 3
    assert (calls[-1], list(calls[1:])) == (ToolCall("pop", {"id": 2}), list(calls)[1:])
    assert not CallSet("pop", "id", ())


@pytest.mark.rotation(arm=ARMS, env_id=IDS)
def test_examples_look_like_the_live_turns(env_id: str, arm: str) -> None:
    for scope in SCOPES:
        none, one, two = (views(env_id, arm, scope, shots=shots)[0] for shots in (0, 1, 2))
        first = [message for message in one.messages if message.id.startswith("examples:0:")]
        assert [message.id for message in none.messages] == ["0:0", "0:1"]
        assert (one.messages[0], one.messages[-1]) == (none.messages[0], none.messages[-1])
        assert list(two.messages[1 : 1 + len(first)]) == first
        tasks = {
            m.text.split("\n\n<")[0]
            for m in two.messages
            if m.id in ("examples:0:0", "examples:1:0", "0:1")
        }
        # In the worlds below, pruned task texts are identical; only the state hint differs.
        pruned = "H" in arm and re.search("ListWorld|DocumentWorld|MultimodalWorld", env_id)
        alike = bool(pruned)
        assert len(tasks) == (1 if alike else 3), "each example is an instance of its own"
        example = [
            (m.role, tags(m.text))
            for m, after in itertools.pairwise(first)
            if after.role == "assistant"
        ]
        live = [
            (chat.messages[-1].role, tags(chat.messages[-1].text))
            for chat in views(env_id, arm, scope)[:-1]
        ]
        assert example[0] == live[0]
        assert example[1:] == [live[1]] * (len(example) - 1), (
            "every later prompt of the example looks like a later live one"
        )
        assert len(example) > 1
        task = none.messages[none.pinned() - 1]
        same = first[0].text.split("\n\n<")[0] == task.text.split("\n\n<")[0]
        assert same == alike, "another instance than the task"


def test_noise_errs_at_its_rate() -> None:
    steps = wrong = 0
    env = make("TreeWorld", nodes=40, labels=True, budget_slack=200)
    for seed in range(40):
        infos = [step.info for step in rollout(NoisyPolicy("TreeWorld", 0.25), env, seed).steps]
        steps += len(infos)
        wrong += sum(not info["optimal"] for info in infos)
    # Allow five standard deviations of the binomial distribution.
    assert abs(wrong - 0.25 * steps) < 5 * (0.25 * 0.75 * steps) ** 0.5
    with pytest.raises(ValueError, match=r"p must be a number in \[0.0, 1.0\], got 1.5"):
        NoisyPolicy("TreeWorld", 1.5)
