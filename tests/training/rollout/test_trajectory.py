"""Trajectories survive a JSON round trip, and a killed run loses at most an incomplete line."""

from __future__ import annotations

from dataclasses import replace

import pytest

import agentgym
from agentgym import Chat, Image, Message, Reply, ToolCall
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.training.evaluation import score
from agentgym.training.rollout import Step, Trajectory, replay, rollout
from agentgym.wrappers import EditMessages

ARMS = [
    (arm, scope, shots)
    for arm in agentgym.ARMS
    for scope in ("persistent", "ephemeral")
    for shots in (0, 1)
]


def play(
    arm: str = "", scope: str = "persistent", shots: int = 0, world: str = "TreeWorld"
) -> Trajectory:
    env = agentgym.make(
        world, oracles=arm, hint_scope=scope, shots=shots, labels=True, budget_slack=6
    )
    labels = {"world": world, "arm": arm, "horizon": 12}
    return rollout(NoisyPolicy(world, 0.3), env, 5, labels)


@pytest.mark.parametrize(("arm", "scope", "shots"), ARMS)
def test_a_line_holds_all_and_can_be_replayed(arm: str, scope: str, shots: int) -> None:
    trajectory = play(arm, scope, shots)
    line = trajectory.to_json()
    again = Trajectory.from_json(line)
    assert "\n" not in line
    details = [step.info["detail"] for step in (*trajectory.steps, *again.steps)]
    assert {type(detail) for detail in details} == {agentgym.StepInfo}, "as in env.step"
    assert all(detail["ended"] == detail.ended for detail in details)
    assert again == trajectory
    assert again.to_json() == line
    assert replay(again) == trajectory
    assert score(again) == score(trajectory)


def test_tokens_images_and_thinking_survive() -> None:
    message = Message(
        "assistant",
        "x",
        "why",
        (ToolCall("f", {"a": [1, None]}, "c"),),
        id="1:0",
        raw="<think>why</think>x",
    )
    chat = Chat((Message("user", "look", images=(Image(b"\x89PNG", "a dot"),), id="0:1"), message))
    reply = Reply("x", (1, 2), (3,), (-0.5,))
    trajectory = Trajectory(
        '{"id": "x"}',
        3,
        (Step(chat, reply, 0.5, {}),),
        chat.add(Message("tool", "ok")),
        True,
        False,
    )
    assert Trajectory.from_json(trajectory.to_json()) == trajectory
    assert trajectory.reward == 0.5


def test_replay_notices_another_episode() -> None:
    trajectory = play()
    short = replace(trajectory, steps=trajectory.steps[:1])
    with pytest.raises(ValueError, match="ends before its episode"):
        replay(short)
    long = replace(trajectory, steps=(*trajectory.steps, trajectory.steps[-1]))
    with pytest.raises(ValueError, match="episode ends before its trajectory"):
        replay(long)


def test_a_spec_that_no_log_can_hold_is_refused_with_the_remedy() -> None:
    env = EditMessages(agentgym.make("ListWorld"), lambda messages: messages)
    with pytest.raises(ValueError, match=r"give functions as 'package\.module:function'"):
        rollout(OraclePolicy("ListWorld"), env, 0)


def test_score_counts_labels() -> None:
    trajectory = play()
    result, infos = score(trajectory), [step.info for step in trajectory.steps]
    assert (result.steps, result.optimal) == (len(infos), sum(info["optimal"] for info in infos))
    assert result.alive_optimal == sum(info["optimal"] and info["alive"] for info in infos)
    with pytest.raises(ValueError, match="no label 'world'"):
        score(replace(trajectory, labels={}))
