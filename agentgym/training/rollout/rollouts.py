"""Functions that play one episode, or many episodes concurrently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.play.policy import Reply
from agentgym.training.rollout.collector import Collector
from agentgym.training.rollout.engines.base import EnvLike, factory_of
from agentgym.training.rollout.episode import Episode
from agentgym.training.rollout.seat_policies import adapt, agents_of
from agentgym.training.rollout.trajectory import Step, Trajectory, TrajectoryLog
from agentgym.training.rollout.user_policy import PolicyLike


def rollout(
    policy: PolicyLike,
    env: gymnasium.Env[Any, Any] | str | EnvSpec,
    seed: int,
    labels: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Play one episode of an env, given as an object, an id or a spec.

    For a team, pass one policy for all agents, or a mapping from agents to policies.

    Raises:
        PolicyError: The policy raised an exception (see `__cause__`) or returned no reply.
        ValueError: The env has no spec, or a seat of the team has no policy.
    """
    player = adapt(policy)
    if isinstance(env, (str, EnvSpec)):
        with closing(factory_of(env)()) as made:
            return rollout(player, made, seed, labels)
    if not isinstance(env, gymnasium.Env):
        raise ValueError(
            f"env must be an env, an id or a spec, got {env!r}; call rollout(policy, env, seed)"
        )
    player.check(agents_of(env))
    episode = Episode(env, seed, labels, f"{seed}")
    episode.play_with(player)
    return episode.trajectory()


def collect(
    policy: PolicyLike,
    env: EnvLike,
    seeds: Iterable[int],
    num_envs: int = 32,
    *,
    log: TrajectoryLog | Path | str | None = None,
    labels: Mapping[str, Any] | None = None,
    ordered: bool = False,
    **options: Any,
) -> Iterator[Trajectory]:
    """Play many episodes concurrently and yield trajectories as they end, including failures.

    For the arguments, see `Collector`; `options` are `engine`, `timeout`, `retries` and
    `in_flight`. An interrupted run resumes from its `log`.

    Example:
        >>> for trajectory in collect(policy, "ListWorld", range(100), engine="threads", timeout=60, log=Path("runs/list.jsonl")):
        ...     print(trajectory.seed, trajectory.reward, trajectory.failure)
    """
    with Collector(env, num_envs, **options) as collector:
        yield from collector.collect(policy, seeds, log, labels, ordered=ordered)


def replay(trajectory: Trajectory) -> Trajectory:
    """Replay a trajectory in a new env, recomputing chats, rewards and labels.

    Raises:
        ValueError: The episode does not end at the last reply.
    """
    other = "the trajectory was recorded with another spec or version"
    if trajectory.failure:
        other = f"the recorded episode failed: {trajectory.failure}"
    with closing(gymnasium.make(EnvSpec.from_json(trajectory.spec))) as env:
        episode = Episode(env, trajectory.seed, trajectory.labels)
        for step in trajectory.steps:
            if episode.over:
                raise ValueError(f"the episode ended before the last recorded reply; {other}")
            episode.play(reply_of(step))
    if not episode.over:
        raise ValueError(f"the episode did not end at the last recorded reply; {other}")
    return episode.trajectory()


def reply_of(step: Step) -> Reply:
    """Return a recorded reply, with `ended` and `usage` from the step's info, as logs lack both."""
    return replace(step.reply, ended=step.ended, usage=step.info.get("usage"))
