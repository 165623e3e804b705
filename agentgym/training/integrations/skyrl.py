"""The worlds in SkyRL: as text environments of SkyRL-Gym, which its generator plays.

SkyRL keeps the history, as text: the model sees the chat of the env with results as user messages,
and the rules say how to call tools. Strategies that edit the context cannot be played so; for them
a generator of one's own gives the rows of
`agentgym.training.integrations.datasets.to_training_dict`, with `step_wise_trajectories`.

Example:
    >>> register("my_lists", "ListWorld", items=6, removals=2)  # in the process of the generator, too
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
from agentgym.play.env import tool_env
from agentgym.text.messages import Chat
from agentgym.text.validation import check_int
from agentgym.training.integrations.common import added, growing_spec, seed_of
from agentgym.training.rollout.models.plain_chat import plain_messages

_OTHERWISE = "train on the rows of training.export with a generator of your own"


class SkyRLEnv(BaseTextEnv):  # type: ignore[misc]
    """An episode of a world.

    The reward is that of the world, given with the last step. SkyRL knows no truncation: `metadata`
    and the metrics tell it apart. Pictures are left out; MultimodalWorld can describe them in words
    with `render="scene"`.

    Args:
        env_config: Not used: the options of the env are given to `register`.
        extras: The other columns of the row. `seed` says which instance is played. `max_turns`,
            which SkyRL sets to that of its generator (1 unless it is configured), truncates the
            episode after so many replies, with the score as it is.
        env_id: The id of a world.
        options: Keyword arguments of `agentgym.make`.

    Raises:
        ValueError: The row has no seed, or an option is not right.
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
        """Start the episode; what is shown first takes the place of the row's prompt, which is the
        same.
        """
        self._chat, _ = self._env.reset(seed=self._seed)
        self.turns, self._outcome = 0, {}
        return plain_messages(self._chat.messages), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play a reply."""
        self.turns += 1
        before = self._chat
        self._chat, reward, terminated, truncated, info = self._env.step(action)
        if self.turns == self.max_turns and not (terminated or truncated):
            _, reward, terminated, truncated, info = tool_env(self._env).truncate("max_turns")
        self._outcome = {
            "terminated": terminated,
            "truncated": truncated,
            "success": info["success"],
        }
        return BaseTextEnvStepOutput(
            observations=plain_messages(added(before, self._chat)),
            reward=float(reward),
            done=terminated or truncated,
            metadata={
                **self._outcome,
                "ended": info["detail"].ended,
                "invalid": info["detail"].invalid,
            },
        )

    def get_metrics(self) -> dict[str, float]:
        """Return whether the task was solved and how the episode ended, as 0 or 1, and the replies
        it took.
        """
        return {
            "turns": float(self.turns),
            **{name: float(value) for name, value in self._outcome.items()},
        }

    def close(self) -> None:
        """Close the env."""
        self._env.close()


def register(name: str, env_id: str, **options: Any) -> None:
    """Make a world known to `skyrl_gym.make`. Each process that makes envs has to call this.

    Args:
        name: The `env_class` of the rows.
        env_id: The id of a world.
        **options: Keyword arguments of `agentgym.make`, without strategies that edit the context.

    Raises:
        ValueError: The id or an option is not right, or an option edits the context.
        skyrl_gym.error.RegistrationError: The name is taken.
    """
    growing_spec("SkyRL", _OTHERWISE, env_id, options)
    skyrl_gym.register(
        name, f"{__name__}:{SkyRLEnv.__name__}", {"env_id": env_id, "options": options}
    )


def prompts(name: str, seeds: Iterable[int]) -> datasets.Dataset:
    """Return the data set for a registered world: prompt, `env_class` and seed of each instance.
    Rows of one prompt are a group.

    Args:
        name: The name under which the world was registered.
        seeds: The seeds.

    Raises:
        skyrl_gym.error.Error: The name is not registered.
    """
    kwargs = skyrl_gym.spec(name).kwargs
    env = make(kwargs["env_id"], **kwargs["options"])
    return datasets.Dataset.from_list(
        [
            {
                "prompt": plain_messages(env.reset(seed=seed)[0].messages),
                "env_class": name,
                "seed": seed,
            }
            for seed in seeds
        ]
    )
