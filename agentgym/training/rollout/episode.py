"""A running episode: its env and its recorded steps."""

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
        info = with_detail(outcome.info)
        if reply.usage is not None:
            info = {**info, "usage": dict(reply.usage)}
        self.steps.append(Step(self.chat, reply, outcome.reward, info))
        self.chat, self._terminated, self._truncated = (
            outcome.chat,
            outcome.terminated,
            outcome.truncated,
        )
        self._invalid = self._invalid or outcome.info.get("detail", {}).get("invalid", "")

    def trajectory(self, failure: str = "") -> Trajectory:
        """Return the trajectory so far; after a failure, it is marked as truncated."""
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


def play_reply(env: gymnasium.Env[Any, Any], reply: Reply) -> StepOutcome:
    """Play a reply in an env."""
    inner: Any = env.unwrapped
    outcome = inner.truncate(reply.ended) if reply.ended else env.step(reply.text)
    chat, reward, terminated, truncated, info = outcome
    return StepOutcome(chat, float(reward), terminated, truncated, to_jsonable(info))


class Episode(Recording):
    """Running episode of an env with a spec. Creating an episode resets the env."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        seed: int,
        labels: Mapping[str, Any] | None = None,
        episode_id: str = "",
    ) -> None:
        self.env, self._id = env, episode_id
        super().__init__(spec_of(env), seed, env.reset(seed=seed)[0], labels)

    def play_with(self, policy: UserPolicy) -> None:
        """Play the episode to its end; may raise `PolicyError`."""
        while not self.over:
            request = PolicyRequest(self.chat, self.seed, self._id, not self.steps)
            (answer,) = policy.ask([request])
            if isinstance(answer, PolicyError):
                raise answer
            self.play(answer)

    def play(self, reply: Reply) -> StepOutcome:
        """Play a reply and return the outcome."""
        outcome = play_reply(self.env, reply)
        self.add(reply, outcome)
        return outcome

    def leave(self) -> None:
        """End the episode early with the world's current score."""
        self.play(Reply("", ended="left"))


def spec_of(env: gymnasium.Env[Any, Any]) -> str:
    """Return an env's spec with its wrappers as JSON text, or raise `ValueError`."""
    if env.spec is None:
        raise ValueError("env must have a spec; make it with gymnasium.make or agentgym.make")
    try:
        return str(env.spec.to_json())
    except TypeError as error:
        raise ValueError(
            f"the env's spec must be JSON-serialisable ({error}); "
            "pass functions as 'package.module:function'"
        ) from error
