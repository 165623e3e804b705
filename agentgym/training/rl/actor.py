"""Actor that plays a training run's episodes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentgym.play.policy import Policy
from agentgym.training.rl.batches import autocast
from agentgym.training.rl.episodes import Branches, EpisodeBatch, EpisodeSource
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
        # Copy the weights, because training changes them during sampling.
        self._copy = copy.deepcopy(model) if config.ahead and sampler is None else model
        if config.branch:
            source.branches = Branches()

    def take_weights(self) -> None:
        """Use the current weights for sampling until the next call."""
        self._sampler().update(self.model, self.tokenizer)

    def policy(self, seed: int) -> Policy:
        """Return a policy."""
        return TokenPolicy(
            self._sampler(),
            self.renderer,
            self.config.temperature,
            self.config.max_new_tokens,
            seed,
            vocabulary=count_ids(self.model),
        )

    def _sampler(self) -> Sampler:
        # The model keeps no cache between batches, because training needs the memory.
        return self.sampler or TransformersSampler(
            self._copy, self.renderer.pad, batch_size=self.config.batch_size
        )

    def play(self, policy: Policy, seeds: Sequence[int], size: int, step: int) -> EpisodeBatch:
        """Play `size` episodes for each seed, as part of a training step."""
        with autocast(self.model.device, self.config.precision):
            branches = self.source.branches
            if branches is None:
                return self.source.play(policy, [s for s in seeds for _ in range(size)], step)
            branches.points, branches.open = {}, False
            first = self.source.play(policy, seeds, step)
            branches.open = True
            others = [t.seed for t in first.episodes for _ in range(size - 1)]
            played = self.source.play(policy, others, step)
            first.episodes = [branches.cut(trajectory) for trajectory in first.episodes]
            branches.points = {}
            first.add(played, played.episodes)
            return first


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
