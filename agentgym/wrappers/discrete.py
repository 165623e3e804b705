"""Worlds for classical agents: actions are numbers from a catalog of calls, observations are
vectors of features.

Both wrappers stand outermost: what is inside them speaks text.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agentgym.assemble.wrapper_order import StagedWrapper
from agentgym.play.env import ToolEnv
from agentgym.text.messages import Chat, ToolCall
from agentgym.text.parsing import render
from agentgym.world.world import World


class DiscreteActions(
    StagedWrapper[Any, np.int64, Any, str], gymnasium.ActionWrapper[Any, np.int64, str]
):
    """Wrapper that plays the calls of the world's action catalog by their number.

    A choice is written out in the dialect of the env and played like any other reply; one that
    cannot be carried out now is answered with an error and costs its turn.

    Attributes:
        action_space: `Discrete(count)`.
        count: The number of calls in the catalog.

    Raises:
        NotImplementedError: The world has no action catalog.

    Example:
        >>> env = DiscreteActions(gymnasium.make("agentgym/GridWorld-v0"))
    """

    def __init__(self, env: gymnasium.Env[Any, str]) -> None:
        super().__init__(env)
        self.count = len(_example(self.world_env).action_catalog())
        self.action_space = gymnasium.spaces.Discrete(self.count)

    def action(self, action: np.int64) -> str:
        """Return the reply that a choice stands for.

        Raises:
            ValueError: The catalog has no such choice.
        """
        if not self.action_space.contains(action):
            raise ValueError(
                f"an action is a place in the menu, an integer in [0, {self.count}), got {action!r}"
            )
        return render(self.world_env.world.action_catalog()[int(action)], self.world_env.dialect)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which choices would be carried out now: bool, shape `(count,)`.

        sb3_contrib looks for a method of this name.
        """
        world = self.world_env.world
        legal = set(map(_key, world.legal_calls()))
        return np.array([_key(call) in legal for call in world.action_catalog()])


class FeatureObservations(
    StagedWrapper[NDArray[np.float32], Any, Chat, Any],
    gymnasium.ObservationWrapper[NDArray[np.float32], Any, Chat],
):
    """Wrapper that shows the world's features in place of the chat; each world documents its own.

    The features hold the turns left, so the budget is a part of the state: where it is used up the
    episode is terminated, not truncated. A learner that took it for a time limit would bootstrap
    there, and value states in which all is lost.

    Attributes:
        observation_space: `Box(-1, 1)` of float32.

    Raises:
        NotImplementedError: The world has no features.

    Example:
        >>> env = FeatureObservations(DiscreteActions(gymnasium.make("agentgym/GridWorld-v0")))
    """

    def __init__(self, env: gymnasium.Env[Chat, Any]) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(
            -1.0, 1.0, _example(self.world_env).features().shape, np.float32
        )

    def observation(self, observation: Chat) -> NDArray[np.float32]:
        """Return the features of the moment."""
        return self.world_env.world.features()

    def step(
        self, action: Any
    ) -> tuple[NDArray[np.float32], SupportsFloat, bool, bool, dict[str, Any]]:
        """Play an action; the end of the budget is an end of the task."""
        features, reward, terminated, truncated, info = super().step(action)
        spent = truncated and info["detail"].ended == "max_turns"
        return features, reward, terminated or spent, truncated and not spent, info


def _key(call: ToolCall) -> str:
    """Return a key that only equal calls share; cheaper than to write them out as text."""
    return f"{call.name}{sorted(call.arguments.items())}"


def _example(env: ToolEnv) -> World[Any]:
    """Return an instance to read shapes from, which are the same for all."""
    world = env.world_class(env.config, 0)
    world.generate()
    return world
