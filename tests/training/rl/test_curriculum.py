"""Curricula of horizons and hints, and label rewards."""

from __future__ import annotations

import gymnasium
import pytest

import agentgym
from agentgym.oracles import NoisyPolicy
from agentgym.training.rl import HintCurriculum, HorizonCurriculum
from agentgym.training.rl.grpo import advantages, with_label_rewards
from agentgym.training.rollout import collect
from tests.training.rl.echo_trainers import episode


def test_the_next_horizon_comes_when_this_one_is_solved() -> None:
    stages = [[agentgym.spec("ListWorld", items=n, removals=1)] for n in (2, 4, 6)]
    curriculum = HorizonCurriculum(stages, threshold=0.75)
    seen = []
    for success in (0.5, 0.75, 0.7, 1.0, 1.0, 0.0):
        seen.append(curriculum.stage)
        curriculum.record(success)
    assert seen == [0, 0, 1, 1, 2, 2]
    saved = curriculum.state()
    other = HorizonCurriculum(stages)
    assert other.env(0.0) != curriculum.env(0.0)
    other.load(saved)
    assert other.env(0.0) == curriculum.env(0.0)
    with pytest.raises(ValueError, match="a curriculum needs at least one stage"):
        HorizonCurriculum([])
    with pytest.raises(ValueError, match="threshold"):
        HorizonCurriculum(stages, threshold=1.5)


def test_hints_go_by_and_by() -> None:
    hinted, bare = (agentgym.spec("ListWorld", oracles=arm) for arm in ("P", ""))
    curriculum = HintCurriculum([hinted], [bare], until=0.5)
    shares = []
    for progress in (0.0, 0.25, 0.375, 0.5, 0.9):
        env = gymnasium.make(curriculum.env(progress))
        with_hints = ["<plan>" in env.reset(seed=seed)[0].messages[-1].text for seed in range(100)]
        shares.append(sum(with_hints) / 100)
        if progress == 0.25:
            assert all(sum(with_hints[k : k + 10]) == 5 for k in range(0, 100, 10)), "evenly"
    assert shares == [1.0, 0.5, 0.25, 0.0, 0.0]


def test_labels_are_rewards_of_turns() -> None:
    env = agentgym.spec("ListWorld", items=4, removals=2, labels=True)
    played = list(collect(NoisyPolicy("ListWorld", 0.5, seed=1), env, [3] * 1)) + list(
        collect(NoisyPolicy("ListWorld", 0.0), env, [3])
    )
    labelled = [with_label_rewards(t, 0.25) for t in played]
    for before, after in zip(played, labelled, strict=True):
        assert [step.reward for step in after.steps] == [
            step.reward + 0.25 * bool(step.info["optimal"]) for step in before.steps
        ]
    by_turn = advantages(labelled, "mean", "turn", gamma=0.0)
    assert all(step.info["optimal"] for step in played[1].steps)
    assert with_label_rewards(played[0], 0.0) is played[0]
    first = played[0].steps[0].info["optimal"]
    assert by_turn[0][0] == pytest.approx(0.0 if first else -0.125)
    with pytest.raises(ValueError, match="seed 5 have no labels; make the env with labels=True"):
        with_label_rewards(episode(5, [0.0]), 0.5)
