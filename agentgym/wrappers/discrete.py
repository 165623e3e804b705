"""Wrappers for classical agents: catalog indices as actions, feature vectors as observations.

These wrappers must be outermost, because other wrappers exchange text.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agentgym.assemble.wrapper_order import StagedWrapper
from agentgym.multi.agent_env import AgentEnv
from agentgym.play.env import ToolEnv
from agentgym.text.messages import Chat, ToolCall
from agentgym.text.parsing import render
from agentgym.world.world import World


class DiscreteActions(
    StagedWrapper[Any, np.int64, Any, str], gymnasium.ActionWrapper[Any, np.int64, str]
):
    """Wrapper that plays calls of the world's action catalog by index.

    A call that is currently impossible returns an error and uses a turn.

    Example:
        >>> env = DiscreteActions(gymnasium.make("agentgym/GridWorld-v0"))
    """

    def __init__(self, env: gymnasium.Env[Any, str]) -> None:
        super().__init__(env)
        self.count = len(example_world(self.world_env).action_catalog())
        self.action_space = gymnasium.spaces.Discrete(self.count)

    def action(self, action: np.int64) -> str:
        if not self.action_space.contains(action):
            raise ValueError(f"an action must be an integer in [0, {self.count}), got {action!r}")
        return render(self.world_env.world.action_catalog()[int(action)], self.world_env.dialect)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of actions that are possible now: bool, shape `(count,)`."""
        return mask_of(self.world_env.world)


class FeatureObservations(
    StagedWrapper[NDArray[np.float32], Any, Chat, Any],
    gymnasium.ObservationWrapper[NDArray[np.float32], Any, Chat],
):
    """Wrapper that shows the world's features, `Box(-1, 1)` of float32, instead of the chat.

    The features include the remaining turns, so an exhausted budget terminates the episode. After a
    truncation, a learner would wrongly bootstrap from the value of the last state.

    Example:
        >>> env = FeatureObservations(DiscreteActions(gymnasium.make("agentgym/GridWorld-v0")))
    """

    def __init__(self, env: gymnasium.Env[Chat, Any]) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(
            -1.0, 1.0, example_world(self.world_env).features().shape, np.float32
        )

    def observation(self, observation: Chat) -> NDArray[np.float32]:
        return self.world_env.world.features()

    def step(
        self, action: Any
    ) -> tuple[NDArray[np.float32], SupportsFloat, bool, bool, dict[str, Any]]:
        features, reward, terminated, truncated, info = super().step(action)
        spent = truncated and info["detail"].ended == "max_turns"
        return features, reward, terminated or spent, truncated and not spent, info


def _key(call: ToolCall) -> str:
    # faster than rendering the call
    return f"{call.name}{sorted(call.arguments.items())}"


def mask_of(world: World[Any]) -> NDArray[np.bool_]:
    """Return the mask of catalog calls that are possible now."""
    legal = set(map(_key, world.legal_calls()))
    return np.array([_key(call) in legal for call in world.action_catalog()])


def example_world(env: ToolEnv) -> World[Any]:
    """Return an arbitrary instance, because all instances have the same array shapes."""
    world = env.world_class(env.config, 0)
    world.generate()
    if isinstance(env, AgentEnv):
        env.protocol.prepare(env.agent, world)
    return world
