"""Options common to all trainers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from agentgym.config import Choice, Config, Seed
from agentgym.training.rollout import ENGINES

MOST = 10**9
"""Steps, rows and the like beyond this are slips of the pen."""
EpisodeCount = Annotated[int, Field(ge=1, le=1_000_000)]
"""The episodes, or groups of them, of one step; all are in memory at once."""
LossWeight = Annotated[float, Field(ge=0.0, le=1e6)]
"""The weight of a term of the loss."""


@dataclass(frozen=True, kw_only=True)
class TrainerConfig(Config):
    """Options common to all trainers.

    Attributes:
        steps: Rounds of collect and update.
        learning_rate: Of AdamW, after `warmup` steps; it falls linearly to a tenth at the end.
        warmup: Steps over which the learning rate rises.
        weight_decay: Of AdamW.
        max_grad_norm: Gradients are clipped to this norm.
        num_envs: Episodes played at once.
        engine: The engine that plays them; see `agentgym.training.rollout.Collector`. With
            `lockstep` a run that was stopped goes on as it would have; with the others, episodes
            end in an order of their own.
        timeout: Seconds until an episode whose env hangs is given up, if the engine can do that.
        micro_batch: Rows that go through the model at a time; their gradients are added up, so this
            bounds the memory and changes no update. 0 for all rows at once.
        precision: `fp32`, or `bf16` for autocast: the model computes in bfloat16, from weights that
            stay as they are.
        seed: Seeds all draws.
        save_every: Steps between checkpoints.
        tensorboard: Log for TensorBoard too, which is the extra `tensorboard`.
        batch_size: The most prompts that go through the model together when it samples.
        template: Variables of the chat template, such as `enable_thinking`.
    """

    steps: Annotated[int, Field(ge=1, le=MOST)] = 500
    learning_rate: Annotated[float, Field(ge=0.0, le=10.0)] = 1e-3
    warmup: Annotated[int, Field(ge=0, le=MOST)] = 20
    weight_decay: LossWeight = 0.01
    max_grad_norm: Annotated[float, Field(ge=0.0, le=1e9)] = 1.0
    num_envs: Annotated[int, Field(ge=1, le=100_000)] = 64
    engine: Annotated[str, Choice(ENGINES)] = "lockstep"
    timeout: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    micro_batch: Annotated[int, Field(ge=0, le=MOST)] = 0
    precision: Literal["fp32", "bf16"] = "fp32"
    seed: Seed = 0
    save_every: Annotated[int, Field(ge=1, le=MOST)] = 50
    tensorboard: bool = False
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 64
    template: Mapping[str, Any] = field(default_factory=dict)
