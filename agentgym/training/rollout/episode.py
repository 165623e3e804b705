"""One episode: the env that plays it and its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from agentgym.play.policy import PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.trajectory import Step, Trajectory, to_jsonable, with_detail
from agentgym.training.rollout.user_policy import PolicyRequest, UserPolicy


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """Result of `env.step`, with JSON-able info."""

    chat: Chat
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


def _with_usage(reply: Reply, info: Mapping[str, Any]) -> Mapping[str, Any]:
    # A worker's own policy reports with the outcome, because replies travel without their usage.
    return info if reply.usage is None else {**info, "usage": dict(reply.usage)}


class Recording:
    """Record of an episode so far; `chat` is the next observation."""

    def __init__(
        self, spec: str, seed: int, chat: Chat, labels: Mapping[str, Any] | None = None
    ) -> None:
        self.spec, self.seed, self.chat, self.labels = spec, seed, chat, dict(labels or {})
        self.steps: list[Step] = []
        self._terminated = self._truncated = False
        self._invalid = ""

    @property
    def over(self) -> bool:
        """Report whether the episode has ended."""
        return self._terminated or self._truncated

    def add(self, reply: Reply, outcome: StepOutcome) -> None:
        """Record a step."""
        info = with_detail(_with_usage(reply, outcome.info))
        self.steps.append(Step(self.chat, reply, outcome.reward, info))
        self.chat, self._terminated, self._truncated = (
            outcome.chat,
            outcome.terminated,
            outcome.truncated,
        )
        self._invalid = self._invalid or outcome.info.get("detail", {}).get("invalid", "")

    def trajectory(self, failure: str = "") -> Trajectory:
        """Return the trajectory so far, truncated if there is a failure or the env reports one."""
        return Trajectory(
            self.spec,
            self.seed,
            tuple(self.steps),
            self.chat,
            self._terminated,
            self._truncated or bool(failure),
            self.labels,
            failure or self._invalid,
        )


class Player:
    """Env with its policy; the policy is None if replies come from elsewhere."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.policy: UserPolicy | None = None
        self.chat = Chat()
        self._seed, self._episode_id, self._first = 0, "", True

    def reset(self, seed: int, episode_id: str = "") -> Chat:
        """Start an episode."""
        self._seed, self._episode_id, self._first = seed, episode_id, True
        self.chat = self.env.reset(seed=seed)[0]
        return self.chat

    @property
    def request(self) -> PolicyRequest:
        """Observation with its episode, for a policy."""
        return PolicyRequest(self.chat, self._seed, self._episode_id, self._first)

    def step(self, reply: Reply | None) -> tuple[Reply, StepOutcome]:
        """Play a reply; None asks the player's own policy."""
        if reply is None:
            if self.policy is None:
                raise RuntimeError("this player has no policy of its own: give it a reply")
            (answer,) = self.policy.ask([self.request])
            if isinstance(answer, PolicyError):
                raise answer
            reply = answer
        self._first = False
        inner: Any = self.env.unwrapped
        outcome = inner.truncate(reply.ended) if reply.ended else self.env.step(reply.text)
        self.chat, reward, terminated, truncated, info = outcome
        return reply, StepOutcome(
            self.chat, float(reward), terminated, truncated, _with_usage(reply, to_jsonable(info))
        )

    def close(self) -> None:
        """Close the env."""
        self.env.close()


class Episode(Recording):
    """Running episode of an env, which is reset; the env must have a spec."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        seed: int,
        labels: Mapping[str, Any] | None = None,
        episode_id: str = "",
    ) -> None:
        self.env, self._player = env, Player(env)
        super().__init__(spec_of(env), seed, self._player.reset(seed, episode_id), labels)

    def play_with(self, policy: UserPolicy) -> None:
        """Play the episode to its end; may raise `PolicyError`."""
        self._player.policy = policy
        while not self.over:
            self.add(*self._player.step(None))

    def play(self, reply: Reply) -> StepOutcome:
        """Play a reply and return the outcome."""
        reply, outcome = self._player.step(reply)
        self.add(reply, outcome)
        return outcome

    def leave(self) -> None:
        """Abandon the episode with the world's current score and an empty final reply."""
        self.play(Reply("", ended="left"))


def spec_of(env: gymnasium.Env[Any, Any]) -> str:
    """Return an env's spec with its wrappers as JSON text; raise `ValueError` if there is none."""
    if env.spec is None:
        raise ValueError(
            "an episode needs an env with a spec: make it with gymnasium.make or agentgym.make"
        )
    try:
        return str(env.spec.to_json())
    except TypeError as error:
        raise ValueError(
            "the spec of the env cannot be recorded with the episode: "
            f"{error}; give functions as 'package.module:function'"
        ) from error
