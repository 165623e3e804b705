"""GRPO: episodes of one instance are compared with each other; with its relatives REINFORCE and
RLOO as options.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Literal

import torch
from pydantic import Field

from agentgym.config import Share
from agentgym.training.rl.policy_gradient import (
    Experience,
    PolicyGradient,
    PolicyGradientConfig,
    experience,
    reply_lengths,
    spread,
)
from agentgym.training.rl.trainer import EpisodeCount
from agentgym.training.rollout import Trajectory

_TINY = 1e-6
"""A deviation below this is rounding: the rewards are equal, and nothing is to be learnt from them.
"""


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(PolicyGradientConfig):
    """Options of `GRPO`.

    Attributes:
        groups: Instances in each step.
        group_size: Episodes of each instance.
        baseline: The value that a reward is compared with: `grpo`, the mean of its group, over its
            standard deviation; `mean`, without the deviation (Dr. GRPO); `rloo`, the mean of the
            others in its group; `reinforce`, the mean of all.
        level: The unit that has an advantage: an `episode`, or each `turn`, as `advantages` says.
        label_reward: The reward of each step that an oracle calls optimal, beside those of the
            env, which has to be made with `labels=True`. At the level of the turn with `gamma` 0 it
            is a process reward: each turn is compared by its own label.
        gamma: The discount of rewards, for each turn that they are away; for `turn` only.
        resample: Rounds in which more instances are played in place of those whose episodes all
            had the same reward, which teach nothing (dynamic sampling: DAPO, section 3.2).
    """

    groups: EpisodeCount = 8
    group_size: Annotated[int, Field(ge=2, le=1_000_000)] = 8  # one alone has no baseline
    baseline: Literal["grpo", "mean", "rloo", "reinforce"] = "grpo"
    level: Literal["episode", "turn"] = "episode"
    label_reward: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    gamma: Share = 1.0
    resample: Annotated[int, Field(ge=0, le=1_000)] = 0


class GRPO(PolicyGradient[GRPOConfig, Experience]):
    """Group-relative policy optimisation (Shao et al. 2024, DeepSeekMath, section 4.1). All tokens
    of a reply have its advantage.

    Takes what `Trainer` takes.
    """

    def updates(self) -> Iterator[Iterable[torch.Tensor]]:
        """Play groups of episodes, compare them, learn; where all episodes are equal, there is no
        update.
        """
        config = self.config
        trajectories = self._play_groups()
        by_step = advantages(trajectories, config.baseline, config.level, config.gamma)
        lengths = [length for trajectory in trajectories for length in reply_lengths(trajectory)]
        tokens = spread([advantage for steps in by_step for advantage in steps], lengths)
        data = experience(trajectories, tokens, config.weight, self.pad, config.max_new_tokens)
        self.records.mean(informative=fmean(any(steps) for steps in by_step))
        informative = data.advantages.any(1).nonzero()[:, 0]
        if config.kl or config.entropy:
            yield from self.optimise(data)
        elif len(informative):  # the other rows have no gradient, and cost no pass
            yield from self.optimise(data.take(informative))

    def _play_groups(self) -> list[Trajectory]:
        """Play groups, and others in place of those without a difference, if `resample` says so."""
        config = self.config
        kept: list[Trajectory] = []
        for attempt in range(1 + config.resample):
            missing = config.groups - len({t.seed for t in kept})
            if not missing:
                break
            _, played = self.sample(
                seed for seed in self.seeds(missing) for _ in range(config.group_size)
            )
            played = [with_label_rewards(t, config.label_reward) for t in played]
            last = attempt == config.resample
            kept += played if last and not kept else self._differing(played)
        return kept

    def _differing(self, played: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the episodes of the instances that teach something; all, if none is replaced."""
        config = self.config
        if not config.resample:
            return list(played)
        by_step = advantages(played, config.baseline, config.level, config.gamma)
        seeds = {t.seed for t, steps in zip(played, by_step, strict=True) if any(steps)}
        return [trajectory for trajectory in played if trajectory.seed in seeds]


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


def advantages(
    trajectories: Sequence[Trajectory],
    baseline: str = "grpo",
    level: str = "episode",
    gamma: float = 1.0,
) -> list[tuple[float, ...]]:
    """Return the advantage of each step of each episode.

    At the level of the episode, what is compared is its reward, and its group are the episodes of
    its seed. At the level of the turn, what is compared is the return from step k on, `sum(gamma **
    (j - k) * reward[j] for j >= k)`, and its group are the returns from step k on of those episodes
    of its seed that have a step k: one that was over by then had no choice to make there and is not
    compared. So the first turns are compared among all, and a turn that only one episode has
    reached gets 0. Steps are counted from the first reply; a summary that an env asked for is a
    step as any other.

    `reinforce` compares with all seeds instead of one. Each agent of a team has its own rewards
    (`Trajectory.own_rewards`) and is compared with itself.

    Args:
        trajectories: The episodes, in any order.
        baseline: As in `GRPOConfig`.
        level: As in `GRPOConfig`.
        gamma: As in `GRPOConfig`.
    """
    units = [_compared(t, level, gamma) for t in trajectories]
    groups: defaultdict[Hashable, list[float]] = defaultdict(list)
    for trajectory, (_, values) in zip(trajectories, units, strict=True):
        for unit, value in values.items():
            groups[_group(trajectory, unit, baseline)].append(value)
    return [
        tuple(
            _advantage(values[unit], groups[_group(trajectory, unit, baseline)], baseline)
            for unit in by_step
        )
        for trajectory, (by_step, values) in zip(trajectories, units, strict=True)
    ]


_Unit = tuple[str, int]
"""What has an advantage: an agent, and the number of its turn, or 0 for its whole episode."""


def _compared(
    trajectory: Trajectory, level: str, gamma: float
) -> tuple[list[_Unit], dict[_Unit, float]]:
    """Return the unit that each step belongs to, and the value of each unit."""
    rewards, values = trajectory.own_rewards(), dict[_Unit, float]()
    units: dict[int, _Unit] = {}
    for agent, numbers in trajectory.by_agent().items():
        own = [rewards[k] for k in numbers]
        if level == "episode":
            values[agent, 0] = sum(own)
            units |= dict.fromkeys(numbers, (agent, 0))
            continue
        for turn, (k, value) in enumerate(zip(numbers, returns(own, gamma), strict=True)):
            values[agent, turn] = value
            units[k] = agent, turn
    return [units[k] for k in range(len(trajectory.steps))], values


def _group(trajectory: Trajectory, unit: _Unit, baseline: str) -> Hashable:
    return unit if baseline == "reinforce" else (trajectory.seed, unit)


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return the discounted sum of the rewards from each on."""
    sums: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        sums.append(total)
    return sums[::-1]


def _advantage(value: float, group: Sequence[float], baseline: str) -> float:
    """Return how far a value is above those of its group, of which it is one itself."""
    centre = fmean(group)
    if baseline in ("mean", "reinforce") or len(group) == 1:
        return value - centre
    if baseline == "rloo":
        return value - (sum(group) - value) / (len(group) - 1)
    deviation = (sum((other - centre) ** 2 for other in group) / len(group)) ** 0.5
    return (value - centre) / (deviation + _TINY) if deviation > _TINY else 0.0
