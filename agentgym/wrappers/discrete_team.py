"""Teams for classical multi-agent learners: catalog indices as actions, features as observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from pettingzoo.utils import BaseParallelWrapper  # type: ignore[import-untyped]
from typing_extensions import override

from agentgym.multi.game import Game
from agentgym.text.messages import ToolCall
from agentgym.text.parsing import render
from agentgym.wrappers.discrete import example_world, mask_of

# In other kinds of teams, agents must write text, such as sub-tasks.
_KINDS = ("split", "duel", "match")


class DiscreteTeam(BaseParallelWrapper):  # type: ignore[misc]  # it has no types
    """PettingZoo wrapper that plays calls of the world's action catalog by index.

    All agents have the same spaces. Action `k` is call `k` of the catalog; the last action
    waits. `info["action_mask"]` marks the calls that an agent can make now. While the agent's
    actions are ignored, only the last action is marked.

    An observation consists of the features of the agent's world, which a split team shares,
    followed by the action mask. `state` concatenates all agents' observations. An exhausted budget
    terminates the episode, as in `FeatureObservations`.

    Args:
        env: A `parallel_env` of a split team, a duel or a match.

    Example:
        >>> env = DiscreteTeam(parallel_env("ListWorld-team"))
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._game: Game = env.unwrapped.game
        protocol, (first, *_) = self._game.protocol, self._game.agents
        if protocol.kind not in _KINDS:
            raise ValueError(
                f"agents of a {protocol.kind} team must write text; use one of the kinds "
                f"{', '.join(_KINDS)}"
            )
        world = example_world(self._game.agent_envs[first])
        self.count = len(world.action_catalog()) + 1
        size = len(world.features()) + self.count
        self._box, self._discrete = Box(-1.0, 1.0, (size,), np.float32), {}
        self.state_space = Box(-1.0, 1.0, (size * len(self._game.agents),), np.float32)
        for agent in self._game.agents:
            self._discrete[agent] = Discrete(self.count)

    @override
    def observation_space(self, agent: str) -> Box:
        return self._box

    @override
    def action_space(self, agent: str) -> Discrete:
        return self._discrete[agent]

    @override
    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, dict[str, Any]]]:
        _, infos = super().reset(seed, options)
        return self._observe(infos)

    @override
    def step(self, actions: Mapping[str, int]) -> tuple[Any, ...]:
        replies = {agent: self._reply(agent, action) for agent, action in actions.items()}
        _, rewards, terminations, truncations, infos = super().step(replies)
        for agent, info in infos.items():
            if truncations[agent] and info["detail"].ended == "max_turns":
                terminations[agent], truncations[agent] = True, False
        observations, infos = self._observe(infos)
        return observations, rewards, terminations, truncations, infos

    @override
    def state(self) -> NDArray[np.float32]:
        observations = [self._observation(agent) for agent in self._game.agents]
        return np.concatenate(observations)

    def action_mask(self, agent: str) -> NDArray[np.int8]:
        """Return the mask of an agent's possible actions: 1 or 0, shape `(count,)`."""
        mask = np.zeros(self.count, np.int8)
        if agent in self._game.due:
            world, own = self._game.team.worlds[agent], self._game.protocol.agents[agent]
            owned = [call.name in own for call in world.action_catalog()]
            mask[:-1] = mask_of(world) & np.array(owned)
        mask[-1] = self._can_wait(agent) or not mask.any()
        return mask

    def _can_wait(self, agent: str) -> bool:
        return any(tool.name == "wait" for tool in self._game.chats[agent].tools)

    def _reply(self, agent: str, action: int) -> str:
        if not self._discrete[agent].contains(action):
            raise ValueError(
                f"an action must be an integer in [0, {self.count}), got {action!r} of {agent}"
            )
        if agent not in self._game.due:
            return ""
        if action < self.count - 1:
            call = self._game.team.worlds[agent].action_catalog()[int(action)]
        elif self._can_wait(agent):
            call = ToolCall("wait", {})
        else:
            return ""
        return render(call, self._game.dialect)

    def _observation(self, agent: str) -> NDArray[np.float32]:
        features = self._game.team.worlds[agent].features()
        return np.concatenate([features, self.action_mask(agent)], dtype=np.float32)

    def _observe(
        self, infos: Mapping[str, dict[str, Any]]
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, dict[str, Any]]]:
        observations, masked = {}, {}
        for agent, info in infos.items():
            observations[agent] = self._observation(agent)
            masked[agent] = {**info, "action_mask": self.action_mask(agent)}
        return observations, masked
