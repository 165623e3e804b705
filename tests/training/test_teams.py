from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
import torch

from agentgym import make, teams
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.training.evaluation import Ablation, ablation_tables, run_ablation
from agentgym.training.evaluation.statistics import wilson
from agentgym.training.evaluation.tables import percent
from agentgym.training.integrations import to_chat_rows, to_training_dict
from agentgym.training.rl import Cloning, CloningConfig
from agentgym.training.rl import rows as token_rows
from agentgym.training.rl.cloning import Tokenized
from agentgym.training.rl.grpo import advantages
from agentgym.training.rollout import (
    PolicyConfig,
    Renderer,
    Trajectory,
    make_model,
    make_tokenizer,
    replay,
    rollout,
    usage,
)

IDS = [entry.id for entry in teams()]


def recorded(env_id: str, seed: int = 2, **options: Any) -> Trajectory:
    return rollout(TeamPolicy(env_id), make(env_id, **options), seed)


@pytest.mark.family(env_id=IDS)
def test_a_trajectory_has_the_view_of_every_agent_and_is_kept(env_id: str) -> None:
    env = make(env_id, oracles="SP", labels=True)
    trajectory = rollout(TeamPolicy(env_id), env, 2)
    game = env.unwrapped.game
    assert trajectory.reward == 1.0
    assert set(trajectory.by_agent()) == set(game.agents)
    for agent, numbers in trajectory.by_agent().items():
        views = [trajectory.steps[k].chat for k in numbers]
        assert all(f"You are {agent}" in view.messages[0].text for view in views)
        assert game.chats[agent].messages[0] == views[-1].messages[0]
    assert trajectory.last == game.chats[trajectory.steps[-1].info["agent"]]
    marked = [step.info["optimal"] for step in trajectory.steps]
    assert True in marked
    assert False not in marked
    assert (None in marked) is not ("-duel-" in env_id or "-match-" in env_id), (
        "a reply to the team alone is no step of the world"
    )

    line = trajectory.to_json()
    again = Trajectory.from_json(line)
    assert again.to_json() == line
    assert [step.chat for step in again.steps] == [step.chat for step in trajectory.steps]
    assert replay(trajectory) == replay(again) == trajectory
    texts = [
        sum(len(m.text) for m in trajectory.steps[numbers[-1]].chat.messages)
        for numbers in trajectory.by_agent().values()
    ]
    tools = len(json.dumps([step.chat.tools for step in trajectory.steps[:1]], default=str))
    assert len(line) < 8 * sum(texts) + 20 * tools + 2_000 * len(trajectory.steps), (
        "chats are written once for each agent"
    )
    segments = trajectory.segments()
    numbers = sorted(number for segment in segments for number in segment)
    assert numbers == list(range(len(trajectory.steps)))
    begun = {(step.info["agent"], step.info["task"]) for step in trajectory.steps}
    assert len(segments) == len(begun), "without edits, there is one for each chat that was begun"
    for segment in segments:
        assert len({trajectory.steps[k].info["agent"] for k in segment}) == 1
    rows = to_chat_rows(trajectory)
    assert sum(len(row["replies"]) for row in rows) == len(trajectory.steps)
    for row in rows:
        ids = [call["id"] for message in row["messages"] for call in message.get("tool_calls", [])]
        assert len(set(ids)) == len(ids)
        assert len(row["trainable"]) == len(row["replies"])


def test_a_duel_is_reported_by_seat(tmp_path: Path) -> None:
    ablation = Ablation(("PuzzleWorld-duel",), ("",), (4,), 12, PolicyConfig("noisy:p=0.5"))
    results = run_ablation(ablation, tmp_path, 1)
    winners = [row.report["team"]["winners"] for row in results if row.report]
    assert [row.success for row in results] == [float("player_0" in each) for each in winners]
    (table,) = (each for each in ablation_tables(results) if "outcomes by seat" in each[0])
    _, header, lines = table
    assert header == ["arm", "seat", "mean reward", "won", "drew", "lost", "unsolved", "games"]
    won = sum(each == ["player_0"] for each in winners)
    lost = sum(each == ["player_1"] for each in winners)
    assert [line[1] for line in lines] == ["player_0", "player_1"]
    assert lines[0][3] == percent(wilson(won, 12))
    assert lines[0][5] == lines[1][3] == percent(wilson(lost, 12))
    for _, seat, shown, *_ in lines:
        rewards = [row.report["team"]["rewards"][seat] for row in results if row.report]
        mean, low, high = map(float, re.findall(r"-?[0-9.]+", shown))
        assert mean == pytest.approx(100 * sum(rewards) / 12, abs=0.05)
        # The interval is at least as wide as Student's interval over the twelve games.
        assert high - low >= 200 * 2.2 * stdev(rewards) / 12**0.5 - 0.1


@pytest.mark.parametrize("name", ["control", "noisy:p=0.5", "random"])
def test_any_scripted_policy_plays_all_agents(name: str) -> None:
    for env_id in ("TreeWorld-team", "PuzzleWorld-manager"):
        policy = PolicyConfig(name).make(env_id)
        scores = [rollout(policy, make(env_id), seed).reward for seed in range(6)]
        assert all(0.0 <= score <= 1.0 for score in scores)
        assert [rollout(policy, make(env_id), seed).reward for seed in range(6)] == scores


def test_a_noisy_team_errs_where_a_noisy_agent_does() -> None:
    for seed in range(12):
        alone = rollout(NoisyPolicy("ListWorld", 0.3), make("ListWorld", labels=True), seed)
        team = rollout(
            TeamPolicy("ListWorld-team", NoisyPolicy("ListWorld", 0.3)),
            make("ListWorld-team", labels=True),
            seed,
        )
        marks = [step.info["optimal"] for step in team.steps if step.info["optimal"] is not None]
        assert marks == [step.info["optimal"] for step in alone.steps]
        assert team.reward == alone.reward


CONTEXTS = "memory clear_results clear_thinking+awareness compaction awareness programmatic".split()


@pytest.mark.family(env_id=IDS, context=CONTEXTS)
def test_context_strategies_stand_around_each_seat(env_id: str, context: str) -> None:
    trajectory = recorded(env_id, context=context, oracles="S")
    assert trajectory.reward == 1.0
    if context not in ("memory", "programmatic"):
        assert {"context"} <= set(trajectory.steps[0].info)


def test_agents_may_have_different_arms_and_contexts() -> None:
    agents = {"closer_0": {"oracles": "SP", "context": "memory"}}
    trajectory = recorded("ListWorld-team", agents=agents)
    for agent, numbers in trajectory.by_agent().items():
        chat = trajectory.steps[numbers[-1]].chat
        helped = agent == "closer_0"
        assert ("<plan>" in chat.messages[1].text) is helped
        assert ("memory" in {tool.name for tool in chat.tools}) is helped
    for env_id, options, message in (
        (
            "ListWorld-team",
            {"agents": {"nobody_0": {}}},
            "is no agent 'nobody_0' in this team; age",
        ),
        (
            "ListWorld-team",
            {"agents": {"actor_0": {"items": 3}}},
            "actor_0 cannot have a separate option 'it",
        ),
        ("ListWorld", {"agents": {}}, "agents requires a team, and ListWorld has one agent"),
        ("ListWorld-team", {"shots": 101}, "shots must be an integer in"),
    ):
        with pytest.raises(ValueError, match=message):
            make(env_id, **options)


def test_a_compacted_team_goes_on_from_its_summaries() -> None:
    options = {"context": "compaction", "window": 4_000, "operations": 12}
    trajectory = recorded("DocumentWorld-team", **options)
    assert any(
        "compaction:" in message.id for step in trajectory.steps for message in step.chat.messages
    )
    assert trajectory.reward == 1.0
    counted = usage(trajectory)
    assert counted is not None
    assert counted.edits > 0
    assert counted.peak_tokens <= 4_000


def test_the_tokens_of_a_team_are_counted_exactly() -> None:
    for env_id in ("DocumentWorld-team", "TreeWorld-manager"):
        env = make(env_id, context="awareness", window=100_000)
        trajectory = rollout(TeamPolicy(env_id), env, 1)
        counter = next(iter(env.unwrapped.game.stacks.values())).view.counter
        prompts = sum(
            counter.count(message) for step in trajectory.steps for message in step.chat.messages
        )
        counted = usage(trajectory)
        assert counted is not None
        assert counted.prompt_tokens == prompts
        ends = {(s.info["agent"], s.info["task"]): k for k, s in enumerate(trajectory.steps)}
        finals = sum(trajectory.steps[k].info["context"]["tokens"] for k in ends.values())
        assert counted.trajectory_tokens == finals


def test_a_model_is_trained_on_all_agents_of_a_team() -> None:
    small = {"items": 4, "removals": 1}
    demonstration = recorded("ListWorld-team", 0, **small)
    tokenizer = make_tokenizer([m.raw or m.text for m in demonstration.last.messages], 400)
    policy = Tokenized(TeamPolicy("ListWorld-team"), Renderer(tokenizer))
    trajectory = rollout(policy, make("ListWorld-team", **small), 1)
    rows = to_training_dict(trajectory)["rows"]
    assert sorted(k for row in rows for k in row["steps"]) == list(range(len(trajectory.steps)))
    sampled = sum(len(step.reply.ids) for step in trajectory.steps)
    assert sum(sum(row["loss_mask"]) for row in rows) == sampled
    assert len(rows) == len(trajectory.segments()) == 2
    assert {row["agent"] for row in rows} == set(trajectory.by_agent())
    assert all(row["reward"] == trajectory.reward_of(row["agent"]) for row in rows)
    for own in token_rows(trajectory):
        assert {trajectory.agent_of(k) for k in own.steps} == {own.agent}
    trainer = Cloning(
        TeamPolicy("ListWorld-team"),
        make_model(tokenizer),
        tokenizer,
        lambda: make("ListWorld-team", items=4),
        CloningConfig(episodes=2, steps=2, num_envs=2),
    )
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    pairs = zip(before, trainer.model.parameters(), strict=True)
    assert not all(torch.equal(old, new) for old, new in pairs)


def test_rewards_by_role_reach_advantages_rows_and_exports() -> None:
    env_id = "ListWorld-team"
    agents = make(env_id).unwrapped.game.agents  # type: ignore[attr-defined]
    reward = {agents[0]: 1.0, agents[1]: 0.5}
    good = rollout(TeamPolicy(env_id), make(env_id, reward=reward), 3)
    assert good.reward == 1.0
    assert {agent: good.reward_of(agent) for agent in agents[:2]} == reward
    *earlier, last = good.steps
    info = {**last.info, "detail": {"score": 0.0, "report": {"team": {"rewards": {}}}}}
    bad = replace(good, steps=(*earlier, replace(last, reward=0.0, info=info)))
    for level in ("episode", "turn"):
        one, two = advantages([good, bad], "mean", level)
        for agent, numbers in good.by_agent().items():
            for k in numbers:
                assert one[k] == -two[k] == reward.get(agent, 0.0) / 2
