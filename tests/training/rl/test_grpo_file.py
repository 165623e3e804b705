"""The GRPO file is a reference: short, self-contained, and enough to train ListWorld."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import agentgym
from agentgym.oracles import OraclePolicy, RandomPolicy
from agentgym.training.rl import Cloning, CloningConfig, grpo
from agentgym.training.rl.grpo import GRPO
from agentgym.training.rl.trainer_config import GRPOConfig
from agentgym.training.rollout import collect, make_model, make_tokenizer

# Maximum number of lines that a reader takes in at once.
LINES = 350


def test_it_is_short() -> None:
    text = Path(grpo.__file__).read_text(encoding="utf-8")
    assert text.count("\n") <= LINES
    parts = ("# The loop.", "# The loss.", "# The advantages.")
    assert sorted(parts, key=text.index) == list(parts)


@pytest.mark.rotation
def test_it_trains_list_world() -> None:
    # The initial model knows the form of a call and plays at random.
    spec = agentgym.spec("ListWorld", items=2, removals=1, max_failed_rounds=1)
    shown = collect(OraclePolicy("ListWorld"), spec, range(100))
    texts = [m.raw or m.text for t in shown for m in t.last.messages if m.role != "system"]
    tokenizer = make_tokenizer(texts, 1_000)
    model = make_model(tokenizer, width=32, layers=2, heads=4, context=512)
    form = CloningConfig(steps=40, learning_rate=1e-2, warmup=5, episodes=16)
    Cloning(RandomPolicy("ListWorld"), model, tokenizer, spec, form).train()
    config = GRPOConfig(steps=40, learning_rate=1e-3, warmup=3, epochs=2)
    rewards: list[Any] = []
    trainer = GRPO(model, tokenizer, spec, config)
    trainer.train(lambda step, metrics: rewards.append(metrics["reward"]))
    assert fmean(rewards[-8:]) > fmean(rewards[:8]) + 0.1
