"""GRPO, written to be read from top to bottom: the loop, the loss, the advantages.

Group-relative policy optimisation (Shao et al. 2024, DeepSeekMath, section 4.1); `GRPOConfig` lists
its variants.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from statistics import fmean
from typing import Any, cast

import torch

from agentgym.play.policy import Policy
from agentgym.training.rl.batches import (
    Batch,
    Experience,
    Prediction,
    autocast,
    corrected,
    experience,
    logprobs_of,
    mean_over_replies,
    predict,
    reply_lengths,
    spread,
)
from agentgym.training.rl.episodes import EpisodeBatch
from agentgym.training.rl.trainer import Trainer
from agentgym.training.rl.trainer_config import GRPOConfig
from agentgym.training.rollout import Sampler, TokenPolicy, Trajectory, TransformersSampler
from agentgym.training.rollout.models.local_policy import count_ids
from agentgym.training.rollout.models.pretrained import has_adapter

# Rewards that differ less count as equal, because of rounding errors.
_TINY = 1e-6


class GRPO(Trainer[GRPOConfig]):
    """Trainer that learns from the model's own samples. All tokens of a reply have the same
    advantage.

    An external sampler (vLLM or a server) receives the weights before each batch of episodes.
    """

    def __init__(self, *args: Any, sampler: Sampler | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sampler = sampler

    def extras(self) -> dict[str, torch.nn.Module]:
        # With adapters, the reference is the model without adapters, so no copy is needed.
        if not self.config.kl or has_adapter(self.model):
            return {}
        return {"reference": copy.deepcopy(self.model).requires_grad_(requires_grad=False)}

    # The loop.

    def updates(self) -> Iterator[Iterable[torch.Tensor]]:
        played = self.play_groups(self.step)
        self.record(played)
        yield from self.learn(played.episodes)

    def play_groups(self, step: int) -> EpisodeBatch:
        """Play groups; `resample` replaces groups whose rewards are all equal."""
        config = self.config
        policy, kept = self.policy(self.draw_seed(step)), EpisodeBatch()
        for attempt in range(1 + config.resample):
            missing = config.groups - len({t.seed for t in kept.episodes})
            if not missing:
                break
            played = self.play(policy, self.source.seeds(missing), config.group_size, step)
            last = attempt == config.resample and not kept.episodes
            kept.add(played, played.episodes if last else self._differing(played.episodes))
        return kept

    def policy(self, seed: int) -> Policy:
        """Return a policy with the current weights."""
        # Keep no key-value cache between batches, because training needs the memory.
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
        """Play `size` episodes for each seed."""
        with autocast(self.model.device, self.config.precision):
            return self.source.play(policy, [s for s in seeds for _ in range(size)], step)

    def _differing(self, played: Sequence[Trajectory]) -> list[Trajectory]:
        if not self.config.resample:
            return list(played)
        pairs = zip(played, self.advantages(played), strict=True)
        seeds = {trajectory.seed for trajectory, steps in pairs if any(steps)}
        return [trajectory for trajectory in played if trajectory.seed in seeds]

    def learn(self, played: Sequence[Trajectory]) -> Iterator[Iterable[torch.Tensor]]:
        """Yield the losses of each update."""
        if not played:  # opponents may forfeit all episodes
            return
        config = self.config
        by_step = self.advantages(played)
        self.records.mean(informative=fmean(map(any, by_step)))
        lengths = [length for trajectory in played for length in reply_lengths(trajectory)]
        tokens = spread(list(chain.from_iterable(by_step)), lengths)
        data = experience(played, tokens, config.weight, self.renderer.pad, config.max_new_tokens)
        if not (config.kl or config.entropy):  # rows without advantages have no gradient
            informative = data.advantages.any(1).nonzero()[:, 0]
            if not len(informative):
                return
            data = data.take(informative)
        if config.importance_cap is not None:
            data = self._corrected(data, config.importance_cap)
        yield from self.optimise(data)

    def advantages(self, played: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        """Return each step's advantage, including label rewards."""
        config = self.config
        rewarded = [with_label_rewards(trajectory, config.label_reward) for trajectory in played]
        compared = advantages(rewarded, config.baseline, config.level, config.gamma)
        return list(map(_of_trained, played, compared))

    def optimise(self, data: Experience) -> Iterator[Iterable[torch.Tensor]]:
        """Yield the losses of each update, with the rows in random order."""
        generator = torch.Generator().manual_seed(self.draw_seed(self.step))
        total, fresh = len(data.ids), True
        for _ in range(self.config.epochs):
            order = torch.randperm(total, generator=generator)
            for minibatch in order.chunk(self.config.minibatches):
                yield self._losses(data.take(minibatch), total / len(minibatch), fresh=fresh)
                fresh = False

    def _losses(self, data: Experience, scale: float, *, fresh: bool) -> Iterator[torch.Tensor]:
        # Token shares refer to all rows; `scale` adapts them to a minibatch. Before the first
        # update (`fresh`), the model's log-probabilities should match the sampler's.
        for _, part in self.passes(data):
            prediction = self.predict(part)
            if fresh:
                self.records.track_max(sampler_drift=(prediction.logprobs - part.logprobs).abs())
            yield scale * self.loss(part, prediction)

    def predict(self, data: Batch) -> Prediction:
        """Run the model on a batch."""
        config = self.config
        return predict(
            self.model,
            data,
            config.temperature,
            config.precision,
            entropy_gradient=config.entropy > 0,
        )

    # The loss.

    def loss(self, data: Experience, prediction: Prediction) -> torch.Tensor:
        """Return the loss of some rows: the sum of all token terms, weighted by the tokens'
        shares.
        """
        # The clipped objective is eq. 7 of Schulman et al. 2017.
        config = self.config
        log_ratio = prediction.logprobs - data.logprobs
        if config.ratio == "reply":
            log_ratio = mean_over_replies(log_ratio, data)
        ratio = log_ratio.exp()
        high = config.clip if config.clip_high is None else config.clip_high
        clipped = ratio.clamp(1 - config.clip, 1 + high)
        gain = torch.minimum(ratio * data.advantages, clipped * data.advantages)
        loss = -(data.shares * (gain + config.entropy * prediction.entropies)).sum()
        moved = ratio.detach()[data.sampled]
        log_moved = log_ratio.detach()[data.sampled]
        self.records.mean(
            ratio=moved,
            clipped=((moved < 1 - config.clip) | (moved > 1 + high)).float(),
            approx_kl=moved - 1 - log_moved,
            entropy=prediction.entropies[data.sampled],
        )
        self.records.track_max(ratio_max=moved)
        if config.kl:
            apart = self._reference_logprobs(data) - prediction.logprobs
            # The estimator k3 of joschu.net/blog/kl-approx.html has low variance and is never
            # negative.
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

    @torch.no_grad()
    def _corrected(self, data: Experience, cap: float) -> Experience:
        logprobs = torch.zeros_like(data.logprobs)
        for chosen, part in self.passes(data):
            current = self.predict(part).logprobs.cpu()
            logprobs[chosen, : current.shape[1]] = current
        log_ratio = (logprobs - data.logprobs)[data.sampled]
        # Measure the drift before the sampler's log-probabilities are replaced.
        self.records.track_max(sampler_drift=log_ratio.abs())
        ratio = log_ratio.exp()
        self.records.mean(importance=ratio, importance_capped=(ratio > cap).float())
        return corrected(data, logprobs, cap)


# The advantages.


def advantages(
    trajectories: Sequence[Trajectory],
    baseline: str = "grpo",
    level: str = "episode",
    gamma: float = 1.0,
) -> list[tuple[float, ...]]:
    """Return the advantage of each step of each episode.

    At the episode level, rewards are compared among the episodes of a seed. At the turn level, the
    returns from step k on, `sum(gamma ** (j - k) * reward[j] for j >= k)`, are compared among the
    seed's episodes that have a step k. If only one episode has a step k, the advantage is 0. A
    summary requested by an env counts as a step.

    With `reinforce`, rewards are compared among the episodes of all seeds. Each agent of a team has
    its own rewards (`Trajectory.own_rewards`) and is compared only with itself.
    """
    compared = [_compared(t, baseline, level, gamma) for t in trajectories]
    groups: defaultdict[_Unit, list[float]] = defaultdict(list)
    for _, values in compared:
        for unit, value in values.items():
            groups[unit].append(value)
    relative = []
    for by_step, values in compared:
        own = (_advantage(values[unit], groups[unit], baseline) for unit in by_step)
        relative.append(tuple(own))
    return relative


def with_label_rewards(trajectory: Trajectory, reward: float) -> Trajectory:
    """Return an episode with an extra reward for each step labelled optimal."""
    if not reward:
        return trajectory
    if not any("optimal" in step.info for step in trajectory.steps):
        raise ValueError(
            f"label_reward is {reward}, but the steps of seed {trajectory.seed} have no labels; make "
            "the env with labels=True"
        )
    steps = []
    for step in trajectory.steps:
        extra = reward * bool(step.info.get("optimal"))
        steps.append(replace(step, reward=step.reward + extra))
    return replace(trajectory, steps=tuple(steps))


def _of_trained(trajectory: Trajectory, values: Sequence[float]) -> tuple[float, ...]:
    """Return the advantages, with 0 for frozen seats' steps."""
    pairs = zip(trajectory.steps, values, strict=True)
    return tuple(value if step.reply.ids else 0.0 for step, value in pairs)


# A comparison group: seed (0 if irrelevant), agent, and turn (0 for the whole episode).
_Unit = tuple[int, str, int]


def _compared(
    trajectory: Trajectory, baseline: str, level: str, gamma: float
) -> tuple[list[_Unit], dict[_Unit, float]]:
    seed = 0 if baseline == "reinforce" else trajectory.seed
    rewards, values = trajectory.own_rewards(), dict[_Unit, float]()
    units: dict[int, _Unit] = {}
    for agent, numbers in trajectory.by_agent().items():
        own = [rewards[k] for k in numbers]
        if level == "episode":
            values[seed, agent, 0] = sum(own)
            units |= dict.fromkeys(numbers, (seed, agent, 0))
            continue
        for turn, (k, value) in enumerate(zip(numbers, returns(own, gamma), strict=True)):
            units[k] = seed, agent, turn
            values[units[k]] = value
    return [units[k] for k in range(len(trajectory.steps))], values


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return, for each step, the discounted sum of the rewards from that step on."""
    backwards = accumulate(reversed(rewards), lambda after, own: own + gamma * after, initial=0.0)
    return list(backwards)[:0:-1]


def _advantage(value: float, group: Sequence[float], baseline: str) -> float:
    if max(group) - min(group) <= _TINY:
        return 0.0
    centre = fmean(group)
    if baseline in ("mean", "reinforce"):
        return value - centre
    if baseline == "rloo":
        return value - (sum(group) - value) / (len(group) - 1)
    variance = sum((other - centre) ** 2 for other in group) / len(group)
    deviation: float = variance**0.5
    return (value - centre) / (deviation + _TINY)
