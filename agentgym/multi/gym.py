"""Gymnasium env in which one policy plays all agents of a team."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
from gymnasium.error import ResetNeeded

from agentgym.multi.game import Game
from agentgym.play.kept_spec import KeepsSpec
from agentgym.play.spaces import ActionSpace, ChatSpace
from agentgym.text.messages import Chat
from agentgym.text.tools import Tool
from agentgym.text.validation import check_choice, check_reset


class TeamEnv(KeepsSpec, gymnasium.Env[Chat, str]):
    """Env that plays a team, one reply per step. The observation is the chat of the next agent.

    `info["agent"]` names the agent that replied, and `info["task"]` counts this agent's chats in
    the episode. At the end, the reward is the team's score, and `info["detail"].report["team"]`
    contains each agent's reward.

    Args:
        render_mode: `ansi` renders the chats of all agents as text.
        **options: Arguments of `agentgym.multi.game.Game`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.game = Game(**options)
        self.possible_agents = self.game.agents
        self.agent = self.possible_agents[0]
        self.observation_space = ChatSpace()
        tools: dict[str, Tool] = {}
        for agent_env in self.game.agent_envs.values():
            tools.update((tool.name, tool) for tool in agent_env.tools)
        self.action_space = ActionSpace(tuple(tools.values()), self.game.dialect)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Chat, dict[str, Any]]:
        check_reset(options, vars(self.game.config))
        super().reset(seed=seed)
        self.game.reset(self.np_random)
        self.game.advance()
        self.agent = self.game.due[0]
        return self.game.chats[self.agent], dict(self.game.infos[self.agent])

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        game, played = self.game, self.agent
        game.play(played, action)
        game.advance()
        info = dict(game.infos[played])
        if game.over:
            return game.chats[played], game.score, game.terminated, not game.terminated, info
        self.agent = game.due[0]
        return game.chats[self.agent], 0.0, False, False, info

    def truncate(self, reason: str) -> tuple[Chat, float, bool, bool, dict[str, Any]]:
        """End the episode for all agents with the current score."""
        game = self.game
        if not game.due:
            raise ResetNeeded("there is no running episode: call reset() before truncate()")
        game.team.end(reason)
        game.advance()
        info = dict(game.infos[self.agent])
        return game.chats[self.agent], game.score, game.terminated, not game.terminated, info

    def render(self) -> str | None:
        return self.game.to_text() if self.render_mode == "ansi" else None

    def close(self) -> None:
        for stack in self.game.stacks.values():
            stack.close()
