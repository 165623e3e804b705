"""Train a model from scratch for one step."""

from pathlib import Path
from typing import Any

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rl import Cloning, CloningConfig
from agentgym.training.rollout import make_model, make_tokenizer


def make() -> tuple[Any, Any]:
    tokenizer = make_tokenizer(["Lists of numbers: [1, 2, 3]", "pop done index"], 300)
    return make_model(tokenizer, width=16, layers=1, heads=2, context=4_096), tokenizer


def clone(tensorboard: bool = False) -> None:
    config = CloningConfig(
        steps=1, warmup=0, episodes=2, num_envs=2, tensorboard=tensorboard, save_every=1
    )
    spec = agentgym.spec("ListWorld", items=2, removals=0)
    Cloning(OraclePolicy("ListWorld"), *make(), spec, config, Path("run")).train()
