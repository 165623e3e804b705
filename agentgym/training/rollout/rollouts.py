"""Play one episode, or many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.play.policy import Reply
from agentgym.training.rollout.collector import Collector
from agentgym.training.rollout.engines.base import EnvLike
from agentgym.training.rollout.episode import Episode
from agentgym.training.rollout.trajectory import Step, Trajectory, TrajectoryLog
from agentgym.training.rollout.user_policy import PolicyLike, adapt


def rollout(
    env: gymnasium.Env[Any, Any],
    policy: PolicyLike,
    seed: int,
    labels: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Play one episode.

    Args:
        env: An env made by `gymnasium.make` or `agentgym.make`.
        policy: Replies to the chats, as in `UserPolicy`.
        seed: The seed of the reset.
        labels: The labels of the trajectory.

    Raises:
        PolicyError: The policy raised an exception (its cause), or returned no reply.
        ValueError: The env has no spec, so its trajectory could not be replayed.
    """
    player = adapt(policy)
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
    """Play many episodes at once; start another when one finishes.

    Args:
        policy: A policy in any form of `UserPolicy`.
        env: An id, a spec or a function that makes an env.
        seeds: As in `Collector.collect`, like `log`, `labels` and `ordered`.
        num_envs: The maximum number of simultaneous episodes.
        log: A file for the trajectories, from which an interrupted run resumes.
        labels: The labels of the trajectories.
        ordered: Yield in seed order.
        **options: `engine`, `replicate`, `timeout`, `retries` and `in_flight`, as in `Collector`.

    Yields:
        Trajectories as they end, including failures.

    Example:
        >>> for trajectory in collect(policy, "ListWorld", range(100), engine="threads", timeout=60, log=Path("runs/list.jsonl")):
        ...     print(trajectory.seed, trajectory.reward, trajectory.failure)
    """
    with Collector(env, num_envs, **options) as collector:
        yield from collector.collect(policy, seeds, log, labels, ordered=ordered)


def replay(trajectory: Trajectory) -> Trajectory:
    """Replay a trajectory's replies in a new env of its spec, recomputing chats, rewards and
    labels.

    Raises:
        ValueError: The episode ends before or continues after the last reply, so the trajectory
            does not belong to this spec.
    """
    env = gymnasium.make(EnvSpec.from_json(trajectory.spec))
    episode = Episode(env, trajectory.seed, trajectory.labels)
    other = "it was recorded with another spec or version"
    for step in trajectory.steps:
        if episode.over:
            raise ValueError(f"the episode ends before its trajectory does: {other}")
        episode.play(_reply_of(step))
    if not episode.over:
        raise ValueError(f"the trajectory ends before its episode does: {other}")
    return episode.trajectory()


def _reply_of(step: Step) -> Reply:
    """Return a step's reply; the one that ended its episode is recognised by the outcome."""
    ended = step.info.get("detail", {}).get("ended", "")
    return replace(step.reply, ended=ended if ended in ("left", "over_window") else "")
