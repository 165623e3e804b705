from __future__ import annotations

from typing import Any

import pytest

from agentgym import make, tool_env, worlds
from agentgym.oracles import OraclePolicy
from agentgym.training.evaluation import instance_key
from agentgym.training.rollout import rollout
from agentgym.world.splits import split_of
from tests.sampling import few

IDS = [entry.id for entry in worlds()]
# Enough seeds to find shared instances in a world with few tasks. Each test instance takes five
# draws on average.
SEEDS = 6


@pytest.mark.rotation(env_id=IDS)
def test_train_and_test_share_no_instance(env_id: str) -> None:
    drawn: dict[str, set[Any]] = {}
    prompts: dict[str, set[str]] = {}
    for split in ("train", "test"):
        env = make(env_id, split=split)
        keys = drawn[split] = set()
        texts = prompts[split] = set()
        for seed in few(env_id, SEEDS):
            chat, _ = env.reset(seed=seed)
            key = tool_env(env).instance_key
            assert key == tool_env(env).world.instance_key()
            assert {split_of(each) for each in tool_env(env).world.split_keys()} == {split}
            keys.add(key)
            texts.add(chat.messages[1].text)
        assert len(keys) > len(few(env_id, SEEDS)) / 2
    assert not drawn["train"] & drawn["test"]
    if len(prompts["train"]) > 1:  # an office task has the same prompt for all seeds
        assert not prompts["train"] & prompts["test"]


@pytest.mark.family(env_id=IDS, split=["train", "test"])
def test_the_oracle_solves_both_splits(env_id: str, split: str) -> None:
    env = make(env_id, split=split)
    for seed in few(env_id, 2):
        trajectory = rollout(OraclePolicy(env_id), env, seed)
        assert trajectory.reward == 1.0
        assert instance_key(trajectory) == trajectory.steps[-1].info["detail"]["instance"]


@pytest.mark.family(env_id=IDS)
def test_the_key_of_an_instance_follows_from_its_spec_and_seed(env_id: str) -> None:
    env = make(env_id, oracles="S")
    chosen = rollout(OraclePolicy(env_id), env, 3)
    env.reset(seed=3)
    assert instance_key(chosen) == tool_env(env).world.instance_key()
    assert chosen.steps[-1].info["detail"]["instance"] == ""
