"""Env that mixes several envs, for example with and without hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.text.messages import Chat
from agentgym.training.rollout.seat_policies import agents_of


class Mixture(gymnasium.Env[Chat, str]):
    """Env that plays each episode with spec number `seed % len(specs)`; specs are JSON strings."""

    def __init__(self, specs: Sequence[str]) -> None:
        if not specs:
            raise ValueError("a mixture requires at least one spec, got none")
        self._specs = list(specs)
        self._envs: dict[str, gymnasium.Env[Chat, str]] = {}
        self._current = self._env(0)
        self.observation_space, self.action_space = (
            self._current.observation_space,
            self._current.action_space,
        )

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """The team's agents; empty for a single-agent env."""
        return agents_of(self._current)

    def _env(self, number: int) -> gymnasium.Env[Chat, str]:
        text = self._specs[number]
        if text not in self._envs:
            self._envs[text] = gymnasium.make(EnvSpec.from_json(text))
        return self._envs[text]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Chat, dict[str, Any]]:
        super().reset(seed=seed)
        number = int(self.np_random.integers(2**32)) if seed is None else seed
        self._current = self._env(number % len(self._specs))
        return self._current.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        return self._current.step(action)

    def truncate(self, reason: str) -> tuple[Chat, float, bool, bool, dict[str, Any]]:
        """End the episode with the current score; return the same values as `step`."""
        inner: Any = self._current.unwrapped
        outcome: tuple[Chat, float, bool, bool, dict[str, Any]] = inner.truncate(reason)
        return outcome

    def close(self) -> None:
        for env in self._envs.values():
            env.close()


def mixture(specs: Sequence[EnvSpec]) -> EnvSpec:
    """Return the spec of a `Mixture`.

    Example:
        >>> env = gymnasium.make(mixture([agentgym.spec("ListWorld"), agentgym.spec("ListWorld", oracles="SP")]))
    """
    return EnvSpec(
        "agentgym/Mixture-v0",
        f"{__name__}:Mixture",
        order_enforce=False,
        disable_env_checker=True,
        kwargs={"specs": [spec.to_json() for spec in specs]},
    )
