"""What plays in a training: the model itself, a copy of it, or a sampler elsewhere, in groups of
episodes of one instance.
"""

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
    """Plays with the weights of a model that is trained.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        renderer: Turns chats into its token ids.
        source: Plays the episodes.
        config: The options.
        sampler: Samples in place of the model.
    """

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
        # Weights that are trained meanwhile cannot sample.
        self._copy = copy.deepcopy(model) if config.ahead and sampler is None else model
        if config.branch:
            source.branches = Branches()

    def take_weights(self) -> None:
        """Sample with the weights as they are now, until this is called again."""
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
        """Return what samples; the model itself keeps no states from one batch to the next, for
        their memory is needed to train.
        """
        return self.sampler or TransformersSampler(
            self._copy, self.renderer.pad, batch_size=self.config.batch_size
        )

    def play(self, policy: Policy, seeds: Sequence[int], size: int, step: int) -> EpisodeBatch:
        """Play a group of episodes of each seed.

        Args:
            policy: Plays them.
            seeds: The instances.
            size: The episodes of each.
            step: The step of the run that they are for.
        """
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
    """Return an episode in which each step that is labelled optimal has this much more reward.

    Raises:
        ValueError: Its steps have no labels.
    """
    if not reward:
        return trajectory
    if not any("optimal" in step.info for step in trajectory.steps):
        raise ValueError(
            f"label_reward is {reward} and the steps of seed {trajectory.seed} have no labels; make "
            "the env with labels=True"
        )
    return replace(
        trajectory,
        steps=tuple(
            replace(step, reward=step.reward + reward * bool(step.info.get("optimal")))
            for step in trajectory.steps
        ),
    )
