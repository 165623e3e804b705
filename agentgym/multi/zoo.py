"""A team as a PettingZoo env (extra `multi`)."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from pettingzoo import AECEnv  # type: ignore[import-untyped]
from typing_extensions import override

from agentgym.multi.game import Game
from agentgym.play.spaces import ActionSpace, ChatSpace
from agentgym.text.messages import Chat, Message
from agentgym.text.validation import check_choice, check_reset, list_names
from agentgym.world.digests import plain_attributes


class TeamAEC(AECEnv):  # type: ignore[misc]  # it has no types
    """PettingZoo env of a team whose agents step in the order of `possible_agents`, once per cycle.

    If `infos[agent]["waiting"]` is set, the agent's action is ignored and may be None.

    Args:
        name: The value of `metadata["name"]`.
        render_mode: `ansi` renders the chats of all agents as text.
        **options: Arguments of `agentgym.multi.game.Game`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "is_parallelizable": True}  # noqa: RUF012 - as PettingZoo declares it

    def __init__(
        self, name: str = "team_v0", render_mode: str | None = None, **options: Any
    ) -> None:
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.metadata = {**type(self).metadata, "name": name}
        self.render_mode = render_mode
        self.game = Game(**options)
        self.possible_agents = list(self.game.agents)
        self.agents: list[str] = []
        self._chats = {agent: ChatSpace() for agent in self.possible_agents}
        self._actions = {
            agent: ActionSpace(agent_env.tools, self.game.dialect)
            for agent, agent_env in self.game.agent_envs.items()
        }
        self.state_space = ChatSpace()
        self._generator, _ = gymnasium.utils.seeding.np_random()

    @override
    def observation_space(self, agent: str) -> ChatSpace:
        return self._chats[agent]

    @override
    def action_space(self, agent: str) -> ActionSpace:
        return self._actions[agent]

    @override
    def observe(self, agent: str) -> Chat:
        """Return an agent's chat, which stays available after the end of the episode."""
        if agent not in self.possible_agents:
            raise ValueError(
                f"there is no agent {agent!r} in this team; "
                f"{list_names(agent, self.possible_agents, 'agents')}"
            )
        if not self.game.chats:
            raise ResetNeeded("this env has no episode yet: call reset() first")
        return self.game.chats[agent]

    @override
    def state(self) -> Chat:
        """Return the hidden state for a central critic, as a chat with one JSON message.

        The message contains the cycle number, the agents that must still act in this cycle,
        undelivered messages, and each distinct world.
        """
        game = self.game
        if not game.chats:
            raise ResetNeeded("this env has no episode yet: call reset() first")
        names: dict[int, list[str]] = {}
        for agent, world in game.team.worlds.items():
            names.setdefault(id(world), []).append(agent)
        worlds = {}
        for agents in names.values():
            worlds[", ".join(agents)] = plain_attributes(game.team.worlds[agents[0]])
        hidden = {"cycle": game.cycle, "due": game.due, "mail": game.team.mail, "worlds": worlds}
        return Chat((Message("user", json.dumps(hidden, ensure_ascii=False)),))

    @override
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        known = vars(self.game.config)
        # PettingZoo's tests pass options that no env accepts.
        given = {key: value for key, value in (options or {}).items() if key in known}
        check_reset(given, known)
        if seed is not None:
            self._generator, _ = gymnasium.utils.seeding.np_random(seed)
        self.game.reset(self._generator)
        self.agents = list(self.possible_agents)
        self.rewards: dict[str, float] = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.agent_selection = self.agents[0]
        self._skip_agent_selection = None
        self._update_infos()

    @override
    def step(self, action: str | None) -> None:
        if not self.agents:
            raise ResetNeeded("all agents are done: call reset() before the next step()")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if agent in self.game.due:
            self.game.play(agent, action)  # type: ignore[arg-type]  # it raises for other types
        elif action is not None and not isinstance(action, str):
            raise TypeError(
                f"an action must be the agent's reply (str) or None, got {type(action).__name__}"
            )
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        place = self.agents.index(agent) + 1
        if place == len(self.agents):
            self.game.end_cycle()
        if self.game.over:
            self.rewards = dict(self.game.rewards)
            self.terminations = dict.fromkeys(self.agents, self.game.terminated)
            self.truncations = dict.fromkeys(self.agents, not self.game.terminated)
        self.agent_selection = self.agents[place % len(self.agents)]
        self._update_infos()
        self._accumulate_rewards()
        self._deads_step_first()

    def _update_infos(self) -> None:
        due = self.game.due
        self.infos = {
            agent: {**self.game.infos[agent], "waiting": agent not in due} for agent in self.agents
        }

    @override
    def render(self) -> str | None:
        return self.game.to_text() if self.render_mode == "ansi" else None

    @override
    def close(self) -> None:
        for stack in self.game.stacks.values():
            stack.close()
