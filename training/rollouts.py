"""Playing episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.policy import Policy
from agentgym.training.trajectories import Step, Trajectory


def rollout(env: gymnasium.Env[Any, Any], policy: Policy, seed: int, labels: Mapping[str, Any] | None = None) -> Trajectory:
    """Play one episode to its end.

    Args:
        env: An env made by `gymnasium.make` or `agentgym.make`.
        policy: Replies to the chats.
        seed: The seed of the reset.
        labels: What the trajectory is to say about itself.

    Raises:
        ValueError: The env has no spec, so its trajectory could not be replayed.
    """
    if env.spec is None:
        raise ValueError("rollout needs an env with a spec: make it with gymnasium.make or agentgym.make")
    chat, _ = env.reset(seed=seed)
    steps: list[Step] = []
    terminated = truncated = False
    while not (terminated or truncated):
        (reply,) = policy([chat])
        after, reward, terminated, truncated, info = env.step(reply.text)
        steps.append(Step(chat, reply, float(reward), _plain(info)))
        chat = after
    return Trajectory(env.spec.to_json(), seed, tuple(steps), chat, terminated, truncated, dict(labels or {}))


def _plain(value: Any) -> Any:
    """A part of an info as JSON-able data."""
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def replay(trajectory: Trajectory) -> Trajectory:
    """Play the replies of a trajectory again, in a new env of its spec: chats, rewards and labels come out afresh.

    Raises:
        ValueError: The episode goes on after the last reply, or ends before it; then the trajectory is not of this spec.
    """
    replies = iter([step.reply for step in trajectory.steps])

    def again(chats: Any) -> list[Any]:
        reply = next(replies, None)
        if reply is None:
            raise ValueError("the trajectory ends before its episode does: it was recorded with another spec or version")
        return [reply for _ in chats]

    env = gymnasium.make(EnvSpec.from_json(trajectory.spec))
    played = rollout(env, again, trajectory.seed, trajectory.labels)
    if next(replies, None) is not None:
        raise ValueError("the episode ends before its trajectory does: it was recorded with another spec or version")
    return played
