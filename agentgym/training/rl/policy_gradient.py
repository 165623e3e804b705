"""The part common to GRPO and PPO: sampling, epochs over minibatches, and the clipped objective
(Schulman et al. 2017, eq. 7).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

import torch
from pydantic import Field

from agentgym.config import TokenCount
from agentgym.training.rl.batches import Batch, Prediction, autocast, batch, logprobs_of, predict
from agentgym.training.rl.token_rows import rows
from agentgym.training.rl.trainer import LossWeight, Trainer, TrainerConfig
from agentgym.training.rollout import LocalPolicy, Trajectory
from agentgym.training.rollout.pretrained import has_adapter

Epochs = Annotated[int, Field(ge=1, le=1_000)]
"""Passes over the same episodes; after a thousand they say nothing new."""
Minibatches = Annotated[int, Field(ge=1, le=1_000_000)]
"""Updates in a pass; there are never more than rows."""


@dataclass(frozen=True, kw_only=True)
class PolicyGradientConfig(TrainerConfig):
    """Options common to GRPO and PPO.

    Attributes:
        clip: The distance that the ratio of probabilities may move from 1 before its gradient is
            cut off.
        clip_high: The distance upwards, if it is another one: more of it lets improbable tokens
            rise (DAPO, Yu et al. 2025, section 3.1).
        ratio: The unit whose ratio is clipped: each `token`, or each `reply`, by the geometric mean
            over its tokens (GSPO, Zheng et al. 2025).
        epochs: Passes over the same episodes.
        minibatches: Updates in a pass, at most; each is on as many rows, which are drawn again in
            each pass.
        kl: The weight of the divergence from the model as it was at the start.
        entropy: The weight of the entropy bonus.
        weight: The unit that weighs the same as any other: `episode`, however many tokens it has;
            `token`, of whichever episode (DAPO, section 3.3); or `constant`, a token too, with a
            weight that does not depend on what was sampled (Dr. GRPO, Liu et al. 2025).
        temperature: Of the sampling.
        max_new_tokens: The most tokens of a reply.
    """

    clip: Annotated[float, Field(ge=0.0, le=100.0)] = 0.2
    clip_high: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    ratio: Literal["token", "reply"] = "token"
    epochs: Epochs = 1
    minibatches: Minibatches = 1
    kl: LossWeight = 0.0
    entropy: LossWeight = 0.0
    weight: Literal["episode", "token", "constant"] = "episode"
    temperature: Annotated[float, Field(ge=1e-3, le=100.0)] = 1.0  # 0 explores nothing
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000), TokenCount()] = 32


@dataclass(frozen=True)
class Experience(Batch):
    """Rows to learn from.

    Attributes:
        shares: The share of each sampled token in the objective; they sum to 1.
        advantages: The advantage of each sampled token.
        replies: The number of the reply that each sampled token belongs to.
    """

    shares: torch.Tensor
    advantages: torch.Tensor
    replies: torch.Tensor


ConfigT = TypeVar("ConfigT", bound=PolicyGradientConfig)
ExperienceT = TypeVar("ExperienceT", bound=Experience)


class PolicyGradient(Trainer[ConfigT], Generic[ConfigT, ExperienceT]):
    """Trains on what the model itself has sampled. A subclass fills `updates`: `sample`, give
    advantages, `optimise`.

    Takes what `Trainer` takes.
    """

    def extras(self) -> dict[str, torch.nn.Module]:
        """Return a copy of the model as it is at the start, if the divergence from it has a
        weight.
        """
        if not self.config.kl or has_adapter(
            self.model
        ):  # without its adapters it is the reference
            return {}
        return {"reference": copy.deepcopy(self.model).requires_grad_(requires_grad=False)}

    def sample(self, seeds: Iterable[int]) -> tuple[LocalPolicy, list[Trajectory]]:
        """Play episodes with the model as it is now, in the precision in which it is trained, so
        that the two agree.
        """
        config = self.config
        policy = LocalPolicy(
            self.model,
            self.tokenizer,
            config.temperature,
            config.max_new_tokens,
            seed=self.draw_seed(),
            batch_size=config.batch_size,
            template=config.template,
        )
        with autocast(self.model.device, config.precision):
            return policy, self.play(policy, seeds)

    def optimise(self, data: ExperienceT) -> Iterator[Iterable[torch.Tensor]]:
        """Yield the updates of all epochs, each on a minibatch of random rows."""
        generator = torch.Generator().manual_seed(self.draw_seed())
        total, fresh = len(data.ids), True
        for _ in range(self.config.epochs):
            for minibatch in torch.randperm(total, generator=generator).chunk(
                self.config.minibatches
            ):
                yield self._losses(data.take(minibatch), total / len(minibatch), fresh=fresh)
                fresh = False

    def _losses(self, data: ExperienceT, scale: float, *, fresh: bool) -> Iterator[torch.Tensor]:
        """Yield the losses of micro-batches.

        Args:
            data: A minibatch.
            scale: Makes its loss that of all rows, on average: shares are those of all.
            fresh: True while the model is still the one that sampled, and should give the same
                log-probabilities.
        """
        for chunk in data.chunks(self.config.micro_batch):
            part = data.take(chunk, self.model.device)
            prediction = self.predict(part)
            if fresh:
                self.records.track_max(sampler_drift=(prediction.logprobs - part.logprobs).abs())
            yield scale * self.loss(part, prediction)

    def predict(self, data: Batch, *, states: bool = False) -> Prediction:
        """Run the model on a batch."""
        config = self.config
        gradient = config.entropy > 0
        return predict(
            self.model,
            data,
            config.temperature,
            config.precision,
            states=states,
            entropy_gradient=gradient,
        )

    def loss(self, data: ExperienceT, prediction: Prediction) -> torch.Tensor:
        """Return the clipped objective with its entropy bonus and the divergence from the
        reference, each a sum over shares.

        Args:
            data: Some rows.
            prediction: The output of the model for them.
        """
        config = self.config
        log_ratio = prediction.logprobs - data.logprobs
        if config.ratio == "reply":
            log_ratio = mean_over_replies(log_ratio, data)
        ratio = log_ratio.exp()
        high = config.clip if config.clip_high is None else config.clip_high
        clipped = ratio.clamp(1 - config.clip, 1 + high)
        gain = torch.minimum(ratio * data.advantages, clipped * data.advantages)
        loss = -(data.shares * (gain + config.entropy * prediction.entropies)).sum()
        moved, log_moved = ratio.detach()[data.sampled], log_ratio.detach()[data.sampled]
        self.records.mean(
            ratio=moved,
            clipped=((moved < 1 - config.clip) | (moved > 1 + high)).float(),
            approx_kl=moved - 1 - log_moved,
            entropy=prediction.entropies[data.sampled],
        )
        self.records.track_max(ratio_max=moved)
        if config.kl:
            apart = self._reference_logprobs(data) - prediction.logprobs
            # Never negative, little variance: k3 of joschu.net/blog/kl-approx.html.
            divergence = apart.exp() - 1 - apart
            loss = loss + config.kl * (data.shares * divergence).sum()
            self.records.mean(kl=divergence[data.sampled])
        return loss

    @torch.no_grad()
    def _reference_logprobs(self, data: Batch) -> torch.Tensor:
        config = self.config
        reference, model = self.modules.get("reference"), cast("Any", self.model)
        if reference is not None:
            return logprobs_of(reference, data, config.temperature, config.precision)
        with model.disable_adapter():
            return logprobs_of(model, data, config.temperature, config.precision)


def mean_over_replies(values: torch.Tensor, data: Experience) -> torch.Tensor:
    """Return the mean over its reply in place of the value of each sampled token."""
    flat = values[data.sampled]
    numbers: Any = data.replies[data.sampled]
    reply = numbers.unique(return_inverse=True)[1]
    count = int(reply.max()) + 1 if len(reply) else 0
    sums = flat.new_zeros(count).index_add(0, reply, flat)
    means = sums / torch.bincount(reply, minlength=count)
    return torch.zeros_like(values).masked_scatter(data.sampled, means[reply])


def experience(
    trajectories: Sequence[Trajectory],
    advantages: torch.Tensor,
    weight: str,
    pad: int,
    max_new_tokens: int = 1,
) -> Experience:
    """Return episodes as rows to learn from.

    Args:
        trajectories: The episodes.
        advantages: Those of all sampled tokens, in order.
        weight: As in `PolicyGradientConfig`.
        pad: The id to pad with.
        max_new_tokens: The most tokens of a reply, for the weight `constant`.
    """
    data = batch([row for trajectory in trajectories for row in rows(trajectory)], pad)
    by_step = [length for trajectory in trajectories for length in reply_lengths(trajectory)]
    lengths = [sum(reply_lengths(trajectory)) for trajectory in trajectories]
    parts: dict[str, Any] = vars(data)
    return Experience(
        **parts,
        shares=data.place(spread(shares(lengths, weight, max_new_tokens), lengths)),
        advantages=data.place(advantages),
        replies=data.place(spread(torch.arange(len(by_step)), by_step)),
    )


def reply_lengths(trajectory: Trajectory) -> list[int]:
    """Return the number of sampled tokens of each step.

    Raises:
        ValueError: A step has none.
    """
    lengths = [len(step.reply.ids) for step in trajectory.steps]
    if 0 in lengths:
        where = f"step {lengths.index(0)} of seed {trajectory.seed}"
        raise ValueError(f"{where} has no token ids: play it with a policy that records them")
    return lengths


def shares(lengths: Sequence[int], weight: str, most: int = 1) -> list[float]:
    """Return the share of one of the equal parts of each episode, so that all parts of all episodes
    sum to 1; with `constant`, to the mean length of an episode over `most`.

    Args:
        lengths: The number of parts (tokens, say) of each episode.
        weight: `episode`, if each episode counts the same; else each part does.
        most: The constant that lengths are divided by, for `constant`.
    """
    total = sum(lengths)
    if weight == "constant":
        return [1 / most / len(lengths)] * len(lengths)
    return [1 / length / len(lengths) if weight == "episode" else 1 / total for length in lengths]


def spread(values: Sequence[float] | torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Repeat each value as often as its length says: from steps to tokens, say."""
    return torch.as_tensor(values, dtype=torch.float32).repeat_interleave(torch.tensor(lengths))
