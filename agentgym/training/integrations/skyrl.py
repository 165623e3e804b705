"""SkyRL adapter: worlds as SkyRL-Gym text environments.

SkyRL keeps the history as text. Strategies that edit the context need a custom generator with
`step_wise_trajectories` that returns the rows of
`agentgym.training.integrations.datasets.to_training_dict`.

Example:
    >>> register("my_lists", "ListWorld", items=6, removals=2)
    >>> prompts("my_lists", range(1_000)).to_parquet("train.parquet")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import datasets  # type: ignore[import-untyped]
import gymnasium
import skyrl_gym  # type: ignore[import-not-found,import-untyped,unused-ignore]
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType  # type: ignore[import-not-found,import-untyped,unused-ignore]

from agentgym.assemble.registry import make
from agentgym.text.messages import Chat
from agentgym.text.validation import check_int
from agentgym.training.integrations.common import (
    added,
    growing_spec,
    refuse_images,
    seed_of,
    text_messages,
    truncate,
)

_OTHERWISE = "train on the rows of training.export with a generator of your own"


class SkyRLEnv(BaseTextEnv):  # type: ignore[misc]
    """An episode of a world; the reward comes with the last step.

    SkyRL has no truncation signal, so `metadata` and the metrics report truncation. In `extras`,
    `seed` selects the instance. `max_turns`, which SkyRL takes from its generator's configuration
    (default 1), truncates the episode with its current score.
    """

    def __init__(
        self,
        env_config: object = None,
        extras: Mapping[str, Any] | None = None,
        *,
        env_id: str,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        row = extras or {}
        self._seed = seed_of(row)
        self.max_turns: int | None = row.get("max_turns")
        if self.max_turns is not None:
            check_int("max_turns", self.max_turns, 1, 1_000_000)
        self._env = gymnasium.make(growing_spec("SkyRL", _OTHERWISE, env_id, options))
        self._chat = Chat()
        self._outcome: dict[str, Any] = {}

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """Start the episode; return its first observation, which equals the row's prompt."""
        self._chat, _ = self._env.reset(seed=self._seed)
        self.turns, self._outcome = 0, {}
        return text_messages("SkyRL", self._env, self._chat.messages), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        before = self._chat
        self._chat, reward, terminated, truncated, info = self._env.step(action)
        if self.turns == self.max_turns and not (terminated or truncated):
            _, reward, terminated, truncated, info = truncate(self._env, "max_turns")
        self._outcome = {
            "terminated": terminated,
            "truncated": truncated,
            "success": info["success"],
        }
        return BaseTextEnvStepOutput(
            observations=text_messages("SkyRL", self._env, added(before, self._chat)),
            reward=float(reward),
            done=terminated or truncated,
            metadata={
                **self._outcome,
                "ended": info["detail"].ended,
                "invalid": info["detail"].invalid,
            },
        )

    def get_metrics(self) -> dict[str, float]:
        """Return success, termination and truncation as 0 or 1, and the number of replies."""
        facts = {"turns": self.turns, **self._outcome}
        return {name: float(value) for name, value in facts.items()}

    def close(self) -> None:
        self._env.close()


def register(name: str, env_id: str, **options: Any) -> None:
    """Register a world in `skyrl_gym` under the `env_class` `name`. Each process that makes
    envs, such as the generator's, must call this function.
    """
    refuse_images("SkyRL", gymnasium.make(growing_spec("SkyRL", _OTHERWISE, env_id, options)))
    skyrl_gym.register(
        name, f"{__name__}:{SkyRLEnv.__name__}", {"env_id": env_id, "options": options}
    )


def prompts(name: str, seeds: Iterable[int]) -> datasets.Dataset:
    """Return a registered world's dataset, with each instance's prompt, `env_class` and seed."""
    kwargs = skyrl_gym.spec(name).kwargs
    env = make(kwargs["env_id"], **kwargs["options"])
    rows = []
    for seed in seeds:
        chat, _ = env.reset(seed=seed)
        prompt = text_messages("SkyRL", env, chat.messages)
        rows.append({"prompt": prompt, "env_class": name, "seed": seed})
    return datasets.Dataset.from_list(rows)
