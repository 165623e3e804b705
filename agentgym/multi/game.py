"""The loop that a team plays in: who is asked when, what each is shown, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.error import ResetNeeded

from agentgym.arguments import check_choice, check_int
from agentgym.config import make_config
from agentgym.messages import Chat
from agentgym.multi.agent_env import AgentEnv, look
from agentgym.multi.duel import Duel
from agentgym.multi.host import Hosting
from agentgym.multi.manager import Management
from agentgym.multi.split import Split
from agentgym.multi.team import Team, TeamProtocol
from agentgym.parsing import Dialect
from agentgym.step_info import StepInfo
from agentgym.world import World, load_world

FORMATIONS: Mapping[str, type[TeamProtocol]] = {kind.kind: kind for kind in (Split, Management, Hosting, Duel)}
_SEAT_OPTIONS = ("dialect", "parallel_calls", "max_failed_rounds")
_FORMATION_OPTIONS = ("roles", "reward", "max_message")
_SEED = 2**63
_TERMINAL = ("world", "failed_rounds", "referee")


class Game:
    """An episode of a team after another.

    A cycle goes through the agents in order. Who is awake when it begins is asked for a reply, which is played at once. What was
    told in a cycle, and the end of the episode, reaches all at the end of the cycle.

    Args:
        world: The world's class, or where to import it from.
        team: The kind of team: `split`, `manager`, `host` or `duel`.
        stacks: The wrappers of each agent's seat, inner to outer, by agent; `""` for those that are not named. Each is a mapping
            with `entry_point` and `kwargs`.
        max_cycles: The most cycles; None for four times the world's turn budget and 16 more.
        **options: `roles`, `reward` and `max_message` of the team, keyword arguments of `ToolEnv`, and options of the world.

    Attributes:
        agents: The names, in the order of their turns.
        chats: What each agent is shown.
        infos: What each agent is told of its last reply.
        rewards: What each agent has earned, once the episode has ended.
        over: Whether the episode has ended.
        terminated: Whether it has ended by itself.
        score: The score of the team, once the episode has ended.
        cycle: How many cycles have ended.

    Raises:
        ValueError: An option is unknown or not right.
    """

    def __init__(
        self,
        world: type[World[Any]] | str,
        team: str = "split",
        stacks: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        max_cycles: int | None = None,
        **options: Any,
    ) -> None:
        check_choice("team", team, tuple(FORMATIONS))
        if max_cycles is not None:
            check_int("max_cycles", max_cycles, 1, 10**9)
        self.world_class, self.max_cycles = load_world(world), max_cycles
        asked = {name: options.pop(name) for name in _FORMATION_OPTIONS if name in options}
        config = {name: value for name, value in options.items() if name not in _SEAT_OPTIONS}
        self.config = make_config(self.world_class, config)
        self.protocol = FORMATIONS[team](self.world_class, self.config, **asked)
        self.agents = tuple(self.protocol.agents)
        self.team = Team(self.agents)
        if unknown := [name for name in stacks or {} if name and name not in self.agents]:
            raise ValueError(f"there is no agent {unknown[0]!r} in this team; agents: {', '.join(self.agents)}")
        self.seats = {a: AgentEnv(self.world_class, a, self.team, self.protocol, **options) for a in self.agents}
        self.dialect: Dialect = self.seats[self.agents[0]].dialect
        self._asked: list[str] = []
        given = stacks or {}
        self.stacks = {a: _stack(self.seats[a], given.get(a, given.get("", ()))) for a in self.agents}
        self.over = self.terminated = self._running = False
        self.score = 0.0
        self.chats: dict[str, Chat] = {}
        self.infos: dict[str, dict[str, Any]] = {}

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode on a new instance."""
        seed = int(rng.integers(_SEED))
        first = self._generate(seed)
        worlds = {a: first if self.protocol.one_world or a == self.agents[0] else self._generate(seed) for a in self.agents}
        self.team.begin(worlds)
        self.over = self.terminated = False
        self._running, self.score, self.cycle, self._moves = True, 0.0, 0, 0
        self._last = 4 * (first.max_turns or 2_500) + 16 if self.max_cycles is None else self.max_cycles
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._seen, self._begun = dict.fromkeys(self.agents, 0), dict.fromkeys(self.agents, 0)
        self.protocol.begin(self.team)
        for agent in self.agents:
            self._open(agent)
        self._asked = self._awake()

    def _generate(self, seed: int) -> World[Any]:
        world = self.world_class(self.config, seed)
        world.generate()
        return world

    def _open(self, agent: str) -> None:
        """Begin a chat."""
        self.chats[agent], info = self.stacks[agent].reset()
        self._begun[agent] += 1
        self.infos[agent] = self._marked(agent, info)
        self._seen[agent] = self._moves

    def _awake(self) -> list[str]:
        return [agent for agent in self.agents if agent not in self.team.idle]

    @property
    def due(self) -> list[str]:
        """Who is still to be asked in this cycle."""
        return [] if self.over or self.team.ended else self._asked

    def play(self, agent: str, action: str) -> None:
        """Play the reply of an agent that is to be asked.

        Raises:
            ResetNeeded: There is no running episode.
            TypeError: The action is not a `str`.
            ValueError: The agent is not to be asked now.
        """
        if not self._running or self.over:
            raise ResetNeeded("there is no running episode: call reset() before the next step()")
        if not isinstance(action, str):
            raise TypeError(f"an action is the text that the agent wrote (str), got {type(action).__name__}")
        if agent not in self.due:
            raise ValueError(f"it is not the turn of {agent!r}; to be asked in this cycle: {', '.join(self.due) or 'nobody'}")
        self._asked = [name for name in self._asked if name != agent]
        agent_env = self.seats[agent]
        agent_env.took_turn = False
        self.chats[agent], _, _, _, info = self.stacks[agent].step(action)
        if not agent_env.took_turn and "optimal" in info:
            info = {**info, "optimal": None, "alive": None}
        self._moves += 1
        self._seen[agent] = self._moves
        self.infos[agent] = self._marked(agent, info)

    def _marked(self, agent: str, info: dict[str, Any]) -> dict[str, Any]:
        """The info, with the agent and the number of its chats in this episode."""
        return {**info, "agent": agent, "task": self._begun[agent]}

    def end_cycle(self) -> None:
        """Deliver what was told, and begin the next cycle or end the episode."""
        team = self.team
        self.cycle += 1
        self.protocol.settle(team)
        if self.cycle >= self._last:
            team.end("max_cycles")
        if team.ended:
            self._finish()
            return
        if len(team.idle - team.fresh) == len(self.agents) and not any(team.mail.values()):
            self.protocol.rouse(team)
        for agent in self.agents:
            self._deliver(agent)
        self._asked = self._awake()

    def advance(self) -> None:
        """End cycles until there is somebody to ask, or the episode is over."""
        while not self.over and not self.due:
            self.end_cycle()

    def _deliver(self, agent: str) -> None:
        team = self.team
        mail = team.collect(agent)
        if agent in team.fresh:
            team.fresh.discard(agent)
            team.idle.discard(agent)
            self._open(agent)
        if mail:
            team.idle.discard(agent)
            self.seats[agent].receive(mail)
        if mail or (agent not in team.idle and self._seen[agent] != self._moves):
            self._look(agent)

    def _look(self, agent: str) -> None:
        self.chats[agent], self.infos[agent] = look(self.stacks[agent], self.infos[agent])
        self._seen[agent] = self._moves

    def to_text(self) -> str:
        """The chats of all agents, for people to read."""
        return "\n\n".join(f"=== {agent} ===\n{chat.to_text()}" for agent, chat in self.chats.items())

    def _report(self) -> dict[str, Any]:
        team = self.team
        return {"cycles": self.cycle, "messages": team.messages, "faults": sum(team.faults.values()), "rewards": dict(self.rewards)}

    def _finish(self) -> None:
        self.over = True
        played = list({id(world): world for world in self.team.worlds.values()}.values())
        self.score = score = max(float(world.score()) for world in played)
        ended = self.team.ended
        self.terminated = ended in _TERMINAL
        self.rewards = self.protocol.shares(self.team, score)
        for agent in self.agents:
            agent_env = self.seats[agent]
            if mail := self.team.collect(agent):
                agent_env.receive(mail)
            agent_env.finish()
            self._look(agent)
            detail: StepInfo = self.infos[agent]["detail"]
            detail = replace(detail, ended=ended, score=score, report={**agent_env.world.report(), "team": self._report()})
            self.infos[agent] = {**self.infos[agent], "success": score >= 1.0, "detail": detail}


def _stack(agent_env: AgentEnv, wrappers: Sequence[Mapping[str, Any]]) -> gymnasium.Env[Any, Any]:
    env: gymnasium.Env[Any, Any] = agent_env
    for wrapper in wrappers:
        make: Any = load_env_creator(wrapper["entry_point"])
        env = make(env=env, **wrapper["kwargs"])
    return env
