"""Episodes of a training run, played on reserved seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from agentgym.play.policy import Policy
from agentgym.training.evaluation.scoring import success_rate, without_failures
from agentgym.training.rl.curriculum import Curriculum
from agentgym.training.rl.trainer_config import TrainerConfig
from agentgym.training.rollout import Collector, EnvLike, PolicyLike, Trajectory
from agentgym.training.rollout.seat_policies import against

# First training seed; evaluation uses seeds from 0 upwards.
TRAIN_SEED = 10_000_000


@dataclass
class EpisodeBatch:
    """Completed episodes, the metrics of each round, and the seeds and causes of failures."""

    episodes: list[Trajectory] = field(default_factory=list)
    figures: list[dict[str, float]] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: EpisodeBatch, episodes: Iterable[Trajectory]) -> None:
        """Add the given episodes, and the metrics and failures of `other`."""
        self.episodes += episodes
        self.figures += other.figures
        self.lost += other.lost


def _reward(trajectory: Trajectory, agents: Sequence[str]) -> float:
    if not agents:
        return trajectory.reward
    rewards = trajectory.seat_rewards()
    return fmean(rewards.get(agent, 0.0) for agent in agents)


def reseed(policy: PolicyLike, number: int) -> None:
    """Reseed a policy's random choices, which must not depend on earlier steps."""
    if hasattr(policy, "reseed"):
        policy.reseed(number)


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
        self._collector: Collector | None = None

    def seeds(self, count: int) -> range:
        """Return seeds that no earlier step has used."""
        start = self.next_seed
        self.next_seed += count
        return range(start, start + count)

    def play(self, policy: Policy, seeds: Iterable[int], step: int) -> EpisodeBatch:
        """Play one episode per seed; raise `RuntimeError` if all fail.

        The policy plays the seats that have no opponent.
        """
        collector = self._open(step)
        policy = against(policy, self.opponents, collector.agents)
        trained: list[str] = []
        if self.opponents:
            trained = [agent for agent in collector.agents if agent not in self.opponents]
        begun_again = collector.retried
        episodes = list(collector.collect(policy, seeds))
        complete = without_failures(episodes)
        if self.curriculum is not None:
            self.curriculum.record(success_rate(complete, self.opponents))
        tokens, kept = 0, []
        for trajectory in complete:
            written = sum(len(step.reply.ids) for step in trajectory.steps)
            tokens += written
            # An opponent may end an episode before the policy's first turn.
            if written or not self.opponents:
                kept.append(trajectory)
        figures = {
            "reward": fmean(_reward(t, trained) for t in complete),
            "success": success_rate(complete, self.opponents),
            "turns": fmean(len(t.steps) for t in complete),
            "truncated": fmean(t.truncated for t in complete),
            "tokens": float(tokens),
            "failures": float(len(episodes) - len(complete)),
            "retried": float(collector.retried - begun_again),
        }
        lost = [(t.seed, t.failure) for t in episodes if t.failure]
        return EpisodeBatch(kept, [figures], lost)

    def _open(self, step: int) -> Collector:
        config = self.config
        if self.curriculum is not None:
            env = self.curriculum.env(step / config.steps)
            if env != self.env:
                self.env = env
                self.close()
        if self._collector is None:
            self._collector = Collector(
                self.env, config.num_envs, engine=config.engine, timeout=config.timeout
            )
        return self._collector

    def close(self) -> None:
        """Close the collector, which reopens on demand."""
        if self._collector is not None:
            self._collector.close()
            self._collector = None
