"""GRPO: episodes of one instance are compared with each other; with its relatives REINFORCE and RLOO as options."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agentgym.training.batches import Batch, batch, logprobs_of
from agentgym.training.models import LocalPolicy
from agentgym.training.rollouts import collect
from agentgym.training.rows import Row, rows
from agentgym.training.trainer import MakeEnv, Trainer, TrainerConfig
from agentgym.training.trajectories import Trajectory
from agentgym.world import check_choice, check_float, check_int

BASELINES = ("grpo", "rloo", "reinforce")
_TINY = 1e-6


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(TrainerConfig):
    """How to train.

    Attributes:
        groups: Instances in each step.
        group_size: Episodes of each instance.
        baseline: What a reward is compared with: `grpo`, the mean of its group, over its standard deviation; `rloo`, the mean of
            the others in its group; `reinforce`, the mean of all.
        clip: How far the ratio of probabilities may move from 1 before its gradient is cut off.
        epochs: Updates on the same episodes.
        kl: The weight of the divergence from the model as it was at the start.
        temperature: Of the sampling.
        max_new_tokens: The most tokens of a reply.
    """

    groups: int = 8
    group_size: int = 8
    baseline: str = "grpo"
    clip: float = 0.2
    epochs: int = 1
    kl: float = 0.0
    temperature: float = 1.0
    max_new_tokens: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("groups", self.groups, 1, 1_000_000)
        check_int("group_size", self.group_size, 2, 1_000_000)
        check_choice("baseline", self.baseline, BASELINES)
        check_float("clip", self.clip, 0.0, 100.0)
        check_int("epochs", self.epochs, 1, 1_000)
        check_float("kl", self.kl, 0.0, 1e6)


class GRPO(Trainer[GRPOConfig]):
    """Group-relative policy optimisation. The advantage belongs to the episode and is that of each of its sampled tokens.

    Takes what `Trainer` takes.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        make_env: MakeEnv,
        config: GRPOConfig,
        out: Path | None = None,
    ) -> None:
        self.reference = copy.deepcopy(model).requires_grad_(requires_grad=False) if config.kl else None
        super().__init__(model, tokenizer, make_env, config, out)

    def state(self) -> dict[str, Any]:
        """All that the rest of the training depends on."""
        reference = self.reference.state_dict() if self.reference is not None else None
        return {**super().state(), "reference": reference}

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a state."""
        super().load(state)
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])

    def updates(self) -> Iterator[tuple[torch.Tensor, Mapping[str, float]]]:
        """Play groups of episodes, then one loss for each epoch."""
        config = self.config
        policy = LocalPolicy(self.model, self.tokenizer, config.temperature, config.max_new_tokens, seed=self.step + config.seed)
        seeds = [seed for seed in self.seeds(config.groups) for _ in range(config.group_size)]
        played = list(collect(policy, self.make_env, seeds, config.num_envs))
        weighted = weigh(played, advantages(played, config.baseline))
        data = batch([row for row, _ in weighted], int(self.tokenizer.pad_token_id), self.model.device)
        weights = torch.tensor([weight for _, weight in weighted], device=self.model.device)[:, None] * data.sampled
        found = {"reward": fmean(t.reward for t in played), "tokens": data.sampled.sum().item()}
        for epoch in range(config.epochs):
            loss, metrics = self._loss(data, weights)
            if epoch == 0:  # before any update, sampler and trainer have the same model and should have the same numbers
                found["sampler_drift"] = metrics["drift"]
            yield loss, {**found, **metrics}

    def _loss(self, data: Batch, weights: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        config = self.config
        logprobs = logprobs_of(self.model, data, config.temperature)
        drift = (logprobs - data.logprobs) * data.sampled
        ratio = drift.exp()
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        loss = -torch.minimum(ratio * weights, clipped * weights).sum()
        metrics = {"ratio_max": ratio.max().item(), "drift": drift.abs().max().item()}
        if self.reference is not None:
            with torch.no_grad():
                reference = logprobs_of(self.reference, data, config.temperature)
            apart = (reference - logprobs) * data.sampled
            divergence = ((apart.exp() - 1 - apart) * data.sampled).sum() / data.sampled.sum()
            loss = loss + config.kl * divergence
            metrics["kl"] = divergence.item()
        return loss, metrics


def advantages(played: Sequence[Trajectory], baseline: str) -> list[float]:
    """The advantage of each episode; those of one seed are a group.

    Args:
        played: The episodes, in any order.
        baseline: As in `GRPOConfig`.
    """
    groups: dict[int, list[float]] = {}
    for trajectory in played:
        groups.setdefault(trajectory.seed, []).append(trajectory.reward)
    mean = fmean(trajectory.reward for trajectory in played)
    return [_advantage(t.reward, groups[t.seed], baseline, mean) for t in played]


def _advantage(reward: float, group: Sequence[float], baseline: str, mean: float) -> float:
    if baseline == "reinforce":
        return reward - mean
    if baseline == "rloo":
        return reward - (sum(group) - reward) / (len(group) - 1)
    centre = fmean(group)
    spread = (sum((other - centre) ** 2 for other in group) / len(group)) ** 0.5
    return (reward - centre) / (spread + _TINY) if spread > _TINY else 0.0


def weigh(played: Sequence[Trajectory], values: Sequence[float]) -> list[tuple[Row, float]]:
    """The rows of all episodes with the weight of each sampled token.

    An episode counts as much as any other, however long it is and into however many rows edits of its context have cut it.
    """
    weighted = []
    for trajectory, value in zip(played, values, strict=True):
        tokens = sum(len(step.reply.ids) for step in trajectory.steps)
        weighted += [(row, value / tokens / len(played)) for row in rows(trajectory)]
    return weighted
