"""Playing episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.messages import Chat
from agentgym.policy import Policy, Reply
from agentgym.training.trajectories import Step, Trajectory


class Episode:
    """One episode under way.

    Args:
        env: An env made by `gymnasium.make` or `agentgym.make`; it is reset.
        seed: The seed of the reset.
        labels: What the trajectory is to say about itself.

    Attributes:
        chat: What the policy is to be shown next.
        over: Whether the episode has ended.

    Raises:
        ValueError: The env has no spec, so its trajectory could not be replayed.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int, labels: Mapping[str, Any] | None = None) -> None:
        if env.spec is None:
            raise ValueError("an episode needs an env with a spec: make it with gymnasium.make or agentgym.make")
        self.env, self.seed, self.labels = env, seed, dict(labels or {})
        self.chat: Chat = env.reset(seed=seed)[0]
        self._spec = env.spec.to_json()
        self._steps: list[Step] = []
        self._terminated = self._truncated = False

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._terminated or self._truncated

    def play(self, reply: Reply) -> None:
        """Play a reply."""
        chat, reward, self._terminated, self._truncated, info = self.env.step(reply.text)
        self._steps.append(Step(self.chat, reply, float(reward), _plain(info)))
        self.chat = chat

    def trajectory(self) -> Trajectory:
        """What has been played."""
        ends = self._terminated, self._truncated, self.labels
        return Trajectory(self._spec, self.seed, tuple(self._steps), self.chat, *ends)


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
    episode = Episode(env, seed, labels)
    while not episode.over:
        (reply,) = policy([episode.chat])
        episode.play(reply)
    return episode.trajectory()


def collect(
    policy: Policy, make_env: Callable[[], gymnasium.Env[Any, Any]], seeds: Iterable[int], num_envs: int = 32
) -> Iterator[Trajectory]:
    """Play episodes in lock-step batches; a finished one makes room for the next at once.

    Args:
        policy: Replies to all chats of a batch together.
        make_env: Makes an env with a spec; called once for each place in the batch.
        seeds: The seeds of the episodes, each played once.
        num_envs: The size of the batch.

    Yields:
        Trajectories, as they end.
    """
    waiting = iter(seeds)
    batch = [Episode(make_env(), seed) for seed in islice(waiting, num_envs)]
    while batch:
        for episode, reply in zip(batch, policy([episode.chat for episode in batch]), strict=True):
            episode.play(reply)
        yield from (episode.trajectory() for episode in batch if episode.over)
        freed = [episode.env for episode in batch if episode.over]
        batch = [episode for episode in batch if not episode.over]
        batch += [Episode(env, seed) for env, seed in zip(freed, islice(waiting, len(freed)), strict=False)]


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
