"""The game loop of a team."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.error import ResetNeeded

from agentgym.multi.agent_env import AgentEnv, refresh
from agentgym.multi.host import Hosting
from agentgym.multi.kinds import Duel, Management, Split
from agentgym.multi.match import Match
from agentgym.multi.team import Team, TeamProtocol
from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.text.validation import check_choice, check_int, list_names
from agentgym.world.config import make_config
from agentgym.world.splits import config_for_split, draw, draw_instance
from agentgym.world.step_info import StepInfo
from agentgym.world.world import SplitName, World, load_world

PROTOCOLS: Mapping[str, type[TeamProtocol]] = {
    kind.kind: kind for kind in (Split, Management, Hosting, Duel, Match)
}
_ENV_OPTIONS = ("dialect", "parallel_calls", "max_failed_rounds", "max_result_chars", "on_fault")
_PROTOCOL_OPTIONS = ("roles", "reward", "max_message", "message_words", "message_noise")
_TERMINAL = ("world", "failed_rounds", "referee")  # all other reasons mean a truncation


class Game:
    """Loop that plays a team's episodes.

    In each cycle, every agent that is awake at the start gives one reply, which takes effect
    immediately. Messages and the end of the episode reach all agents at the end of the cycle.

    Args:
        world: The world's class or path.
        team: The kind of team: `split`, `manager`, `host`, `duel` or `match`.
        stacks: Wrapper specs by agent, inner to outer; `""` applies to agents that are not listed.
        max_cycles: The maximum number of cycles; None for four times the world's turn budget plus
            16.
        split: `train`, `test`, or None for all instances.
        **options: The team's `roles` and `reward`, arguments of `agentgym.multi.channel.Channel`,
            keyword arguments of `ToolEnv`, and options of the world.

    Attributes:
        agents: The agents' names, in turn order.
        rewards: The reward of each agent, after the end of the episode.
        score: The team's score, after the end of the episode.
    """

    def __init__(
        self,
        world: type[World[Any]] | str,
        team: str = "split",
        stacks: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        max_cycles: int | None = None,
        split: SplitName | None = None,
        **options: Any,
    ) -> None:
        check_choice("team", team, tuple(PROTOCOLS))
        arguments: dict[str, Any] = {"world": world, "team": team, "split": split}
        arguments |= {"stacks": stacks or {}, "max_cycles": max_cycles, **options}
        if max_cycles is not None:
            check_int("max_cycles", max_cycles, 1, 10**9)
        self.world_class, self.max_cycles = load_world(world), max_cycles
        given = {name: options.pop(name) for name in _PROTOCOL_OPTIONS if name in options}
        config = {name: value for name, value in options.items() if name not in _ENV_OPTIONS}
        plain = make_config(self.world_class, config)
        self.config = config_for_split(self.world_class, plain, split)
        self.split, self.instance_key = split, ""
        self.protocol = PROTOCOLS[team](self.world_class, self.config, **given)
        self.agents = tuple(self.protocol.agents)
        self.team = Team(self.agents)
        wrappers = stacks or {}
        for name in wrappers:
            if name and name not in self.agents:
                raise ValueError(
                    f"there is no agent {name!r} in this team; "
                    f"{list_names(name, self.agents, 'agents')}"
                )
        self.agent_envs: dict[str, AgentEnv] = {}
        self.stacks: dict[str, gymnasium.Env[Any, Any]] = {}
        for name in self.agents:
            env = AgentEnv(self.world_class, name, self.team, self.protocol, split=split, **options)
            env.game_arguments = arguments
            self.agent_envs[name] = env
            self.stacks[name] = _stack(env, wrappers.get(name, wrappers.get("", ())))
        self.dialect: Dialect = self.agent_envs[self.agents[0]].dialect
        self._asked: list[str] = []
        self.over = self.terminated = self._running = False
        self.score = 0.0
        self.chats: dict[str, Chat] = {}
        self.infos: dict[str, dict[str, Any]] = {}

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode on a new instance."""
        drawn = draw_instance(self.world_class, self.config, rng, self.split)
        first, self.instance_key = drawn.world, drawn.key
        worlds = dict.fromkeys(self.agents, first)
        if not self.protocol.one_world:
            for agent in self.agents[1:]:
                worlds[agent] = draw(self.world_class, self.config, drawn.seed)
        self.team.begin(worlds)
        self.over = self.terminated = False
        self._running, self.score, self.cycle, self._moves = True, 0.0, 0, 0
        # Talking and waiting do not use a turn, so a turn may take several cycles.
        self._last = self.max_cycles or 4 * (first.max_turns or 2_500) + 16
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._seen = dict.fromkeys(self.agents, 0)
        self._begun = dict.fromkeys(self.agents, 0)
        self.protocol.begin(self.team)
        for agent in self.agents:
            self._begin_chat(agent)
        self._asked = self._awake()

    def _begin_chat(self, agent: str) -> None:
        chat, info = self.stacks[agent].reset()
        self.chats[agent] = _addressed(chat, agent)
        self._begun[agent] += 1
        self.infos[agent] = self._with_agent(agent, info)
        self._seen[agent] = self._moves

    def _awake(self) -> list[str]:
        return [agent for agent in self.agents if agent not in self.team.idle]

    @property
    def due(self) -> list[str]:
        """Return the agents that have yet to reply in this cycle."""
        return [] if self.over or self.team.ended else self._asked

    def play(self, agent: str, action: str) -> None:
        """Run an agent's reply; raise ValueError if it is not the agent's turn."""
        if not self._running or self.over:
            raise ResetNeeded("there is no running episode: call reset() before the next step()")
        if not isinstance(action, str):
            raise TypeError(
                f"an action must be the agent's reply (str), got {type(action).__name__}"
            )
        if agent not in self.due:
            raise ValueError(
                f"{agent!r} must not act now; agents to act: {', '.join(self.due) or 'none'}"
            )
        self._asked = [name for name in self._asked if name != agent]
        agent_env = self.agent_envs[agent]
        agent_env.took_turn = False
        chat, _, _, _, info = self.stacks[agent].step(action)
        self.chats[agent] = _addressed(chat, agent)
        if not agent_env.took_turn and "optimal" in info:
            info = {**info, "optimal": None, "alive": None}
        self._moves += 1
        self._seen[agent] = self._moves
        self.infos[agent] = self._with_agent(agent, info)

    def _with_agent(self, agent: str, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "agent": agent, "task": self._begun[agent]}

    def end_cycle(self) -> None:
        """Deliver the messages, then start the next cycle or end the episode."""
        team = self.team
        self.cycle += 1
        self._settle()
        if self.cycle >= self._last:
            team.end("max_cycles")
        if team.ended:
            self._finish()
            return
        all_idle = len(team.idle - team.restarting) == len(self.agents)
        if all_idle and not any(team.mail.values()):
            self.protocol.rouse(team)
        for agent in self.agents:
            self._deliver(agent)
        self._asked = self._awake()

    def _settle(self) -> None:
        guard = self.agent_envs[self.agents[0]].guard
        settled = False
        with guard.watch("settle", "the outcome of a cycle could not be decided"):
            self.protocol.settle(self.team)
            settled = True
        if not settled:
            guard.broken = True
            self.team.end("fault")

    def advance(self) -> None:
        """End cycles until an agent must act or the episode is over."""
        while not self.over and not self.due:
            self.end_cycle()

    def _deliver(self, agent: str) -> None:
        team = self.team
        mail = team.collect(agent)
        if agent in team.restarting:
            team.restarting.discard(agent)
            team.idle.discard(agent)
            self._begin_chat(agent)
        if mail:
            team.idle.discard(agent)
            self.agent_envs[agent].receive(mail)
        if mail or (agent not in team.idle and self._seen[agent] != self._moves):
            self._refresh(agent)

    def _refresh(self, agent: str) -> None:
        chat, self.infos[agent] = refresh(self.stacks[agent], self.infos[agent])
        self.chats[agent] = _addressed(chat, agent)
        self._seen[agent] = self._moves

    def to_text(self) -> str:
        """Return the chats of all agents."""
        texts = [f"=== {agent} ===\n{chat.to_text()}" for agent, chat in self.chats.items()]
        return "\n\n".join(texts)

    def _finish(self) -> None:
        self.over = True
        team, ended, scores = self.team, self.team.ended, self._scores()
        self.score = score = max(scores, default=0.0)
        self.terminated = ended in _TERMINAL
        successes = dict.fromkeys(self.agents, False)
        with self.agent_envs[self.agents[0]].guard.watch("payoff", "the scorer broke"):
            self.rewards = self.protocol.shares(team, score)
            for agent in self.agents:
                successes[agent] = self.protocol.has_succeeded(agent, team, score)
        reasons = [agent_env.guard.invalid for agent_env in self.agent_envs.values()]
        for agent, agent_env in self.agent_envs.items():
            if mail := team.collect(agent):
                agent_env.receive(mail)
            agent_env.finish()
            self._refresh(agent)
            report = {
                "cycles": self.cycle,
                "messages": team.messages,
                "words": dict(team.words),
                "faults": sum(team.faults.values()),
                "rewards": dict(self.rewards),
            }
            if not self.protocol.one_world:
                report["winners"] = sorted(team.winners)
            detail: StepInfo = self.infos[agent]["detail"]
            detail = replace(
                detail,
                ended=ended,
                score=score if scores else None,
                report={**self._reports[agent], "team": report},
                faults=(*detail.faults, *agent_env.guard.take_faults()),
                invalid=next(filter(None, reasons), ""),
                split=self.split or "",
                instance=self.instance_key,
            )
            self.infos[agent] = {
                **self.infos[agent],
                "success": successes[agent],
                "detail": detail,
            }

    def _scores(self) -> list[float]:
        scored: dict[int, tuple[float | None, Mapping[str, Any] | None]] = {}
        self._reports: dict[str, Mapping[str, Any]] = {}
        for agent, world in self.team.worlds.items():
            if id(world) not in scored:
                scored[id(world)] = self.agent_envs[agent].guard.score(world)
            self._reports[agent] = scored[id(world)][1] or {}
        if any(agent_env.guard.broken for agent_env in self.agent_envs.values()):
            return []
        scores = [score for score, _ in scored.values() if score is not None]
        return scores if len(scores) == len(scored) else []


def _addressed(chat: Chat, agent: str) -> Chat:
    # Restore the agent's name, which wrappers drop from chats.
    return Chat(chat.messages, chat.tools, agent)


def _stack(agent_env: AgentEnv, wrappers: Sequence[Mapping[str, Any]]) -> gymnasium.Env[Any, Any]:
    env: gymnasium.Env[Any, Any] = agent_env
    for wrapper in wrappers:
        make: Any = load_env_creator(wrapper["entry_point"])
        env = make(env=env, **wrapper["kwargs"])
    return env
