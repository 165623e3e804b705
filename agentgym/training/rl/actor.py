"""Actor that plays a training run's episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentgym.play.policy import Policy
from agentgym.training.rl.batches import autocast
from agentgym.training.rl.episodes import EpisodeBatch, EpisodeSource
from agentgym.training.rl.trainer_config import GRPOConfig
from agentgym.training.rollout import (
    Renderer,
    Sampler,
    TokenPolicy,
    Trajectory,
    TransformersSampler,
)
from agentgym.training.rollout.models.local_policy import count_ids


class Actor:
    """Plays groups of episodes with the weights of the model in training."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        renderer: Renderer,
        source: EpisodeSource,
        config: GRPOConfig,
        sampler: Sampler | None = None,
    ) -> None:
        self.model, self.tokenizer, self.renderer = model, tokenizer, renderer
        self.source, self.config, self.sampler = source, config, sampler

    def policy(self, seed: int) -> Policy:
        """Return a policy with the current weights."""
        # The model keeps no cache between batches, because training needs the memory.
        sampler = self.sampler or TransformersSampler(
            self.model, self.renderer.pad, batch_size=self.config.batch_size
        )
        sampler.update(self.model, self.tokenizer)
        return TokenPolicy(
            sampler,
            self.renderer,
            self.config.temperature,
            self.config.max_new_tokens,
            seed,
            vocabulary=count_ids(self.model),
        )

    def play(self, policy: Policy, seeds: Sequence[int], size: int, step: int) -> EpisodeBatch:
        """Play `size` episodes for each seed, as part of a training step."""
        with autocast(self.model.device, self.config.precision):
            return self.source.play(policy, [s for s in seeds for _ in range(size)], step)


def with_label_rewards(trajectory: Trajectory, reward: float) -> Trajectory:
    """Return an episode with an extra reward for each step labelled optimal."""
    if not reward:
        return trajectory
    if not any("optimal" in step.info for step in trajectory.steps):
        raise ValueError(
            f"label_reward is {reward}, but the steps of seed {trajectory.seed} have no labels; make "
            "the env with labels=True"
        )
    return replace(
        trajectory,
        steps=tuple(
            replace(step, reward=step.reward + reward * bool(step.info.get("optimal")))
            for step in trajectory.steps
        ),
    )
