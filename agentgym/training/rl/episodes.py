"""Episodes of a training run, played on reserved seeds, from the start or from a branch point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from agentgym.play.env import clone
from agentgym.play.policy import Policy
from agentgym.text.messages import Chat
from agentgym.training.evaluation.scoring import success_rate, without_failures
from agentgym.training.rl.curriculum import Curriculum
from agentgym.training.rl.trainer_config import TrainerConfig
from agentgym.training.rollout import Collector, EnvLike, PolicyLike, Trajectory
from agentgym.training.rollout.engines.base import MakeEnv, factory_of
from agentgym.training.rollout.seat_policies import against

# First training seed; evaluation uses the seeds from 0.
TRAIN_SEED = 10_000_000


_Env = gymnasium.Env[Any, Any]


@dataclass
class EpisodeBatch:
    """Completed episodes, the figures of each round, and the seeds and causes of failures."""

    episodes: list[Trajectory] = field(default_factory=list)
    figures: list[dict[str, float]] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: EpisodeBatch, episodes: Iterable[Trajectory]) -> None:
        """Add a round; some of its episodes may be omitted or cut."""
        self.episodes += episodes
        self.figures += other.figures
        self.lost += other.lost

    def to_state(self) -> dict[str, Any]:
        """Return the batch as plain data for a checkpoint."""
        return {
            "episodes": [trajectory.to_json() for trajectory in self.episodes],
            "figures": self.figures,
            "lost": self.lost,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> EpisodeBatch:
        """Parse the output of `to_state`."""
        return cls(
            [Trajectory.from_json(line) for line in state["episodes"]],
            state["figures"],
            state["lost"],
        )


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """An episode before one of its steps; no env before the first step, which a reset reaches."""

    step: int
    chat: Chat
    env: _Env | None


@dataclass
class Branches:
    """Points in past episodes, one per seed, and whether new episodes start from them (`open`)."""

    points: dict[int, BranchPoint] = field(default_factory=dict)
    open: bool = False

    def factory(self, env: EnvLike) -> MakeEnv:
        """Return a factory of envs that draw points and start from them."""
        make_env = factory_of(env)
        return lambda: _BranchingEnv(make_env(), self)

    def cut(self, trajectory: Trajectory) -> Trajectory:
        """Return an episode from its seed's point on."""
        # As in a branched episode, the first prompt contains everything before the point.
        return replace(trajectory, steps=trajectory.steps[self.points[trajectory.seed].step :])


class _BranchingEnv(gymnasium.Env[Any, Any]):
    def __init__(self, env: _Env, branches: Branches) -> None:
        self._begun, self._env, self._branches = env, env, branches
        self.spec = env.spec
        self.observation_space, self.action_space = env.observation_space, env.action_space

    @property
    def unwrapped(self) -> _Env:
        return self._env.unwrapped

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._env, self._step = self._begun, 0
        self._seed = 0 if seed is None else seed
        point = self._branches.points.get(self._seed) if self._branches.open else None
        if point is not None and point.env is not None:
            self._env = clone(point.env)
            return point.chat, {}
        chat, info = self._env.reset(seed=seed, options=options)
        if not self._branches.open:
            self._draw = np.random.default_rng(self._seed)
            self._branches.points[self._seed] = BranchPoint(0, chat, None)
        return chat, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        chat, reward, terminated, truncated, info = self._env.step(action)
        self._step += 1
        may_branch = not (self._branches.open or terminated or truncated)
        # The n-th point replaces the previous one with probability 1/n, so all are equally likely
        # to remain (reservoir sampling).
        if may_branch and self._draw.integers(self._step + 1) == 0:
            self._branches.points[self._seed] = BranchPoint(self._step, chat, clone(self._env))
        return chat, reward, terminated, truncated, info

    def close(self) -> None:
        self._env.close()
        self._begun.close()


def _reward(trajectory: Trajectory, agents: Sequence[str]) -> float:
    if not agents:
        return trajectory.reward
    rewards = trajectory.seat_rewards()
    return fmean(rewards.get(agent, 0.0) for agent in agents)


class EpisodeSource:
    """Plays the episodes of a run."""

    def __init__(
        self,
        env: EnvLike,
        config: TrainerConfig,
        curriculum: Curriculum | None = None,
        opponents: Mapping[str, PolicyLike] | None = None,
    ) -> None:
        self.env, self.config, self.curriculum = env, config, curriculum
        self.opponents = dict(opponents or {})
        self.next_seed = TRAIN_SEED + config.seed * 10**9
        self.branches: Branches | None = None
        self._collector: Collector | None = None

    def seeds(self, count: int) -> range:
        """Return seeds that no earlier step has used."""
        start = self.next_seed
        self.next_seed += count
        return range(start, start + count)

    def play(self, policy: Policy, seeds: Iterable[int], step: int) -> EpisodeBatch:
        """Play one episode per seed for a training step; raise `RuntimeError` if all fail.

        The policy plays the seats without an opponent.
        """
        collector = self._open(step)
        policy = against(policy, self.opponents, collector.agents)
        trained = [agent for agent in collector.agents if agent not in self.opponents]
        begun_again = collector.retried
        episodes = list(collector.collect(policy, seeds))
        complete = without_failures(episodes)
        if self.curriculum is not None and not self._goes_on:
            self.curriculum.record(success_rate(complete, self.opponents))
        figures = {
            "reward": fmean(_reward(t, trained if self.opponents else ()) for t in complete),
            "success": success_rate(complete, self.opponents),
            "turns": fmean(len(t.steps) for t in complete),
            "truncated": fmean(t.truncated for t in complete),
            "tokens": float(sum(len(step.reply.ids) for t in complete for step in t.steps)),
            "failures": float(len(episodes) - len(complete)),
            "retried": float(collector.retried - begun_again),
        }
        if self.opponents:  # an opponent may end an episode before the policy's first turn
            complete = [t for t in complete if any(step.reply.ids for step in t.steps)]
        return EpisodeBatch(
            complete, [figures], [(t.seed, t.failure) for t in episodes if t.failure]
        )

    @property
    def _goes_on(self) -> bool:
        return self.branches is not None and self.branches.open

    def _open(self, step: int) -> Collector:
        config = self.config
        if self.curriculum is not None and not self._goes_on:
            env = self.curriculum.env(step / config.steps)
            if env != self.env:
                self.env = env
                self.close()
        if self._collector is None:
            self._collector = Collector(
                self.env if self.branches is None else self.branches.factory(self.env),
                config.num_envs,
                engine=config.engine,
                replicate=False,
                timeout=config.timeout,
            )
        return self._collector

    def close(self) -> None:
        """Close the collector, which reopens on demand."""
        if self._collector is not None:
            self._collector.close()
            self._collector = None
