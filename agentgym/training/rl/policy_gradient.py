"""What GRPO and PPO share: sampling, epochs over minibatches, and the clipped objective (Schulman et al. 2017, eq. 7)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from agentgym.training.rl.batches import Batch, Prediction, autocast, batch, logprobs_of, predict
from agentgym.training.rl.token_rows import rows
from agentgym.training.rl.trainer import Trainer, TrainerConfig
from agentgym.training.rollout.models import LocalPolicy
from agentgym.training.rollout.trajectory import Trajectory
from agentgym.world import check_choice, check_float, check_int

WEIGHTS = ("episode", "token")


@dataclass(frozen=True, kw_only=True)
class PolicyGradientConfig(TrainerConfig):
    """What GRPO and PPO can both be told.

    Attributes:
        clip: How far the ratio of probabilities may move from 1 before its gradient is cut off.
        epochs: Passes over the same episodes.
        minibatches: Updates in a pass, at most; each is on as many rows, drawn anew.
        kl: The weight of the divergence from the model as it was at the start.
        entropy: The weight of the entropy bonus.
        weight: What counts as much as any other: `episode`, however many tokens it has; or `token`, of whichever episode.
        temperature: Of the sampling.
        max_new_tokens: The most tokens of a reply.
    """

    clip: float = 0.2
    epochs: int = 1
    minibatches: int = 1
    kl: float = 0.0
    entropy: float = 0.0
    weight: str = "episode"
    temperature: float = 1.0
    max_new_tokens: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_float("clip", self.clip, 0.0, 100.0)
        check_int("epochs", self.epochs, 1, 1_000)
        check_int("minibatches", self.minibatches, 1, 1_000_000)
        check_float("kl", self.kl, 0.0, 1e6)
        check_float("entropy", self.entropy, 0.0, 1e6)
        check_choice("weight", self.weight, WEIGHTS)
        check_float("temperature", self.temperature, 1e-3, 100.0)
        check_int("max_new_tokens", self.max_new_tokens, 1, 1_000_000)


@dataclass(frozen=True)
class Experience(Batch):
    """Rows to learn from.

    Attributes:
        shares: The share of each sampled token in the objective; they sum to 1.
        advantages: The advantage of each sampled token.
    """

    shares: torch.Tensor
    advantages: torch.Tensor


ConfigT = TypeVar("ConfigT", bound=PolicyGradientConfig)
ExperienceT = TypeVar("ExperienceT", bound=Experience)


class PolicyGradient(Trainer[ConfigT], Generic[ConfigT, ExperienceT]):
    """Trains on what the model itself has sampled. A subclass fills `updates`: `sample`, give advantages, `optimise`.

    Takes what `Trainer` takes.
    """

    def extras(self) -> dict[str, torch.nn.Module]:
        """The model as it was at the start, if there is to be no going far from it."""
        if not self.config.kl:
            return {}
        return {"reference": copy.deepcopy(self.model).requires_grad_(requires_grad=False)}

    def sample(self, seeds: Iterable[int]) -> tuple[LocalPolicy, list[Trajectory]]:
        """Play episodes with the model as it is now, in the precision in which it is trained, so that the two agree."""
        config = self.config
        policy = LocalPolicy(self.model, self.tokenizer, config.temperature, config.max_new_tokens, seed=self.draw_seed())
        with autocast(self.model.device, config.precision):
            return policy, self.play(policy, seeds)

    def optimise(self, data: ExperienceT) -> Iterator[Iterable[torch.Tensor]]:
        """The updates of all epochs, each on a minibatch of random rows."""
        generator = torch.Generator().manual_seed(self.draw_seed())
        total, fresh = len(data.ids), True
        for _ in range(self.config.epochs):
            for chosen in torch.randperm(total, generator=generator).chunk(self.config.minibatches):
                yield self._losses(data.take(chosen), total / len(chosen), fresh=fresh)
                fresh = False

    def _losses(self, data: ExperienceT, scale: float, *, fresh: bool) -> Iterator[torch.Tensor]:
        """The losses of micro-batches.

        Args:
            data: A minibatch.
            scale: What makes its loss that of all rows, on average: shares are those of all.
            fresh: Whether the model is still the one that sampled, and should give the same log-probabilities.
        """
        for chosen in data.chunks(self.config.micro_batch):
            part = data.take(chosen, self.model.device)
            prediction = self.predict(part)
            if fresh:
                self.records.largest(sampler_drift=(prediction.logprobs - part.logprobs).abs())
            yield scale * self.loss(part, prediction)

    def predict(self, data: Batch, *, states: bool = False) -> Prediction:
        """What the model says about a batch."""
        config = self.config
        gradient = config.entropy > 0
        return predict(self.model, data, config.temperature, config.precision, states=states, entropy_gradient=gradient)

    def loss(self, data: ExperienceT, prediction: Prediction) -> torch.Tensor:
        """The clipped objective with its entropy bonus and the divergence from the reference; each term is a sum over shares.

        Args:
            data: Some rows.
            prediction: What the model says about them.
        """
        config = self.config
        log_ratio = prediction.logprobs - data.logprobs
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        gain = torch.minimum(ratio * data.advantages, clipped * data.advantages)
        loss = -(data.shares * (gain + config.entropy * prediction.entropies)).sum()
        self._record(log_ratio[data.sampled], prediction.entropies[data.sampled])
        if "reference" in self.modules:
            divergence = self._divergence(data, prediction)
            self.records.mean(kl=divergence[data.sampled])
            loss = loss + config.kl * (data.shares * divergence).sum()
        return loss

    def _divergence(self, data: Batch, prediction: Prediction) -> torch.Tensor:
        """An estimate of the divergence from the reference at each sampled token: k3 of joschu.net/blog/kl-approx.html."""
        with torch.no_grad():
            reference = logprobs_of(self.modules["reference"], data, self.config.temperature, self.config.precision)
        apart = reference - prediction.logprobs
        return apart.exp() - 1 - apart

    @torch.no_grad()
    def _record(self, log_ratio: torch.Tensor, entropies: torch.Tensor) -> None:
        ratio = log_ratio.exp()
        self.records.mean(
            ratio=ratio,
            clipped=((ratio - 1).abs() > self.config.clip).float(),
            approx_kl=ratio - 1 - log_ratio,
            entropy=entropies,
        )
        self.records.largest(ratio_max=ratio)


def experience(played: Sequence[Trajectory], advantages: torch.Tensor, weight: str, pad: int) -> Experience:
    """Episodes as rows to learn from.

    Args:
        played: The episodes.
        advantages: Those of all sampled tokens, in order.
        weight: As in `PolicyGradientConfig`.
        pad: The id to pad with.
    """
    data = batch([row for trajectory in played for row in rows(trajectory)], pad)
    lengths = [sum(reply_lengths(trajectory)) for trajectory in played]
    parts: dict[str, Any] = vars(data)
    return Experience(**parts, shares=data.place(spread(shares(lengths, weight), lengths)), advantages=data.place(advantages))


def reply_lengths(trajectory: Trajectory) -> list[int]:
    """The number of sampled tokens of each step.

    Raises:
        ValueError: A step has none.
    """
    lengths = [len(step.reply.ids) for step in trajectory.steps]
    if 0 in lengths:
        where = f"step {lengths.index(0)} of seed {trajectory.seed}"
        raise ValueError(f"{where} has no token ids: play it with a policy that records them")
    return lengths


def shares(lengths: Sequence[int], weight: str) -> list[float]:
    """What one of the equal parts of an episode counts, so that all parts of all episodes count 1.

    Args:
        lengths: The number of parts (tokens, say) of each episode.
        weight: `episode`, if each episode counts the same; else each part does.
    """
    total = sum(lengths)
    return [1 / length / len(lengths) if weight == "episode" else 1 / total for length in lengths]


def spread(values: Sequence[float] | torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Each value as often as its length says: from steps to tokens, say."""
    return torch.as_tensor(values, dtype=torch.float32).repeat_interleave(torch.tensor(lengths))
