"""Env of one agent in a team."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import gymnasium

from agentgym.multi.team import Team, TeamAction, TeamProtocol
from agentgym.play.env import ToolEnv
from agentgym.play.guard import rebuild
from agentgym.text.messages import Chat, Content, Message, ToolCall
from agentgym.text.tools import BoundTool, ToolError, tools_of
from agentgym.world.splits import draw
from agentgym.world.step_info import StepInfo
from agentgym.world.world import World


class AgentEnv(ToolEnv):
    """Env of one agent, with its own chat, some of the world's tools and the team's tools.

    `took_turn` states whether the last reply used a turn of the world's budget. `game_arguments`
    are the arguments of the agent's `Game`.
    """

    sees_all: ClassVar[bool] = False
    game_arguments: Mapping[str, Any]

    def __init__(
        self,
        world: type[World[Any]] | str,
        agent: str,
        team: Team,
        protocol: TeamProtocol,
        **options: Any,
    ) -> None:
        self.agent, self.team, self.protocol = agent, team, protocol
        self.took_turn = False
        self._team_toolset = protocol.toolset_for(agent, team)
        self._team_tools = frozenset(tools_of(self._team_toolset))
        super().__init__(world, **options)

    @property
    def shares_world(self) -> bool:
        return self.protocol.one_world

    def _world_tools(self, world: World[Any]) -> dict[str, BoundTool]:
        tools = tools_of(*self.protocol.toolsets(self.agent, world))
        if twice := tools.keys() & self._team_tools:
            raise ValueError(
                f"the world and the team both have a tool {sorted(twice)[0]}; rename the tool of "
                "the world"
            )
        allowed = self.protocol.agents[self.agent]
        own = {name: tools[name] for name in tools if name in allowed}
        return {**own, **tools_of(self._team_toolset)}

    def _begin(self) -> World[Any]:
        self._replies = self._deliveries = 0
        return self.team.worlds[self.agent]

    def _opening(self, world: World[Any]) -> tuple[str, str | Content]:
        rules, task = self.protocol.opening(self.agent, self.team)
        notes = self.protocol.notes(self.agent) + self.protocol.channel.note
        return f"{rules}\n\n{notes}", task

    def restated_task(self) -> str | None:
        return self.protocol.restated_task(self.agent, self.team)

    def _moment(self, world: World[Any]) -> str:
        # Rivals with the same random seed would make the same choices.
        rival = "" if self.protocol.one_world else f"-{self.agent}"
        return f"{world.instance}{rival}:{world.turn}"

    def _read(self, world: World[Any], action: str) -> tuple[Message, int]:
        self._replies += 1
        reply = self._parse(world, action, self._replies)
        used = {call.name for call in reply.calls}
        self.took_turn = not used or not used.issubset(self._team_tools)
        world.turn += self.took_turn
        return reply, self._replies

    def _run(self, world: World[Any], tools: Any, name: str, arguments: Any) -> str | Content:
        if self.team.ended:
            raise ToolError("the episode has ended; this call was not run")
        with self.team.transaction():
            if name in self._team_tools and name in tools:
                # A host may still answer after the world has ended.
                result: str = tools[name](arguments)
                return result
            go = partial(super()._run, world, tools, name, arguments)
            answer = self.protocol.run(self.agent, self.team, ToolCall(name, arguments), go)
        text, _ = self._limited(answer)
        self.team.actions.append(TeamAction(self.agent, ToolCall(name, dict(arguments)), text))
        return answer

    def _bind(self, world: World[Any]) -> None:
        super()._bind(world)
        self._own -= self._team_tools

    def _rebuilt(self, world: World[Any], calls: int) -> World[Any]:
        # The calls of all agents share one log.
        new = draw(self.world_class, self.config, world.instance_seed)
        self.protocol.prepare(self.agent, new)
        owners: list[object] = []
        for agent in self.protocol.agents:
            owners += self.protocol.toolsets(agent, new)
        return rebuild(world, new, tools_of(*owners), calls)

    def _replace_world(self, world: World[Any]) -> None:
        self.team.replace_world(self.world, world)
        super()._replace_world(world)

    def _running_world(self, remedy: str) -> World[Any]:
        # Another agent's call may have replaced the world.
        world = self.team.worlds.get(self.agent)
        if self._world is not None and world is not None and world is not self._world:
            super()._replace_world(world)
        return super()._running_world(remedy)

    def _ended(self, world: World[Any]) -> str:
        # Only the team's game may end this agent's episode.
        if self.guard.broken:
            self.team.end("fault")
        elif reason := super()._ended(world):
            with self.guard.watch("score", "the scorer broke"):  # a duel needs the score
                self.protocol.finished(self.agent, self.team, reason)
        return ""

    def truncate(self, reason: str) -> tuple[Chat, float, bool, bool, dict[str, Any]]:
        """End the team's episode after this cycle."""
        self.team.end(reason)
        detail = StepInfo(failed_rounds=self._failed_rounds, ended=reason)
        return self.chat, 0.0, False, False, {**self._info(self.world, 0, 0), "detail": detail}

    def receive(self, text: str) -> None:
        """Append a message to the chat."""
        self._deliveries += 1
        self.chat = self.chat.add(
            Message("user", text, id=f"mail:{self._deliveries}", moment=self._moment(self.world))
        )

    def finish(self) -> None:
        """End the episode for this agent."""
        self._over = True


def refresh(env: gymnasium.Env[Any, Any], info: dict[str, Any]) -> tuple[Chat, dict[str, Any]]:
    """Return the observation and info of a wrapped env that another agent has changed."""
    if isinstance(env, ToolEnv):
        return env.chat, info
    if not isinstance(env, gymnasium.Wrapper):
        raise TypeError(f"a seat must be a ToolEnv or its wrapper, got {type(env).__name__}")
    chat, info = refresh(env.env, info)
    if isinstance(env, gymnasium.ObservationWrapper):
        return env.observation(chat), info
    hook = getattr(env, "refresh", None)
    return hook(chat, info) if hook is not None else (chat, info)
