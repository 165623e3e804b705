"""Shared state of a team, and the base class of all kinds of teams."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from agentgym.multi.channel import Channel, count_words
from agentgym.text.messages import Content, ToolCall
from agentgym.text.tools import ToolError, Toolset, tools_of
from agentgym.text.validation import list_names
from agentgym.world.world import World

# By role or agent.
Roles = Mapping[str, Sequence[str]]

# The names of each agent's world tools, in turn order.
AgentTools = dict[str, tuple[str, ...]]

_ROLE = re.compile(r"[a-z]+(_[0-9]+)?")
# The line above each message between agents states its sender and length.
HEADING = re.compile(r"([a-z]+_[0-9]+) (?:tells you|reports) \(([0-9]+) characters\):\n")


@dataclass(frozen=True, slots=True)
class TeamAction:
    """A call in the world, with the calling agent and the result that the agent saw."""

    agent: str
    call: ToolCall
    result: str


class Team:
    """State of a team's episode, except for the world's state.

    Attributes:
        worlds: Each agent's world; all agents may share one world.
        mail: The texts that each agent receives at the end of the cycle.
        idle: The agents that do not reply until they receive mail.
        restarting: The agents that start a new chat at the end of the cycle.
        unseated: The agents of a match that have not had their first turn.
        winners: In a competition, the agents that solved the task or earned the most.
        faults: The number of rejected answers, by agent.
        question: The host's open question, or an empty string.
        pending_end: Why the episode will end after the host's answer; in a duel, why the last world
            ended.
        stopped_by: The agent that could not continue and so ended a match early.
    """

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents = tuple(agents)
        self.begin({})

    def begin(self, worlds: Mapping[str, World[Any]]) -> None:
        """Start a new episode."""
        self.worlds = dict(worlds)
        self.mail: dict[str, list[str]] = {agent: [] for agent in self.agents}
        self._posted: dict[str, int] = dict.fromkeys(self.agents, 0)
        self.idle: set[str] = set()
        self.messages = 0
        self.words: dict[str, int] = dict.fromkeys(self.agents, 0)
        self.actions: list[TeamAction] = []
        self.tasks: dict[str, str] = {}
        self.restarting: set[str] = set()
        self.unseated: set[str] = set()
        self.ended = ""
        self.winners: set[str] = set()
        self.faults: dict[str, int] = dict.fromkeys(self.agents, 0)
        self.question = self.answer = self.pending_end = self.stopped_by = ""

    def end(self, reason: str) -> None:
        """End the episode after this cycle; only the first reason is kept."""
        self.ended = self.ended or reason

    def transmit(self, sender: str, text: str, channel: Channel) -> str:
        """Count a message and its words; return the text with noise, or raise `ToolError`."""
        count, budget = count_words(text), channel.message_words
        if budget is not None and self.words[sender] + count > budget:
            left = budget - self.words[sender]
            raise ToolError(
                f"you can send {left} more words in this episode, got {count}; shorten the text"
            )
        self.messages += 1
        self.words[sender] += count
        moment = f"{self.worlds[sender].instance}:{self.messages}"
        return channel.garble(text, moment)

    def post(self, sender: str, receiver: str, verb: str, text: str, channel: Channel) -> None:
        """Add a text with its length to an agent's mail, to make forged messages detectable."""
        if not text.strip():
            raise ToolError("the text is empty; write a message")
        room = channel.max_message - self._posted[receiver]
        if len(text) > room:
            raise ToolError(
                f"{receiver} can receive {room} more characters in this cycle, got {len(text)}; "
                "shorten the text"
            )
        arrived = self.transmit(sender, text, channel)
        self._posted[receiver] += len(text)
        self.mail[receiver].append(f"{sender} {verb} ({len(arrived)} characters):\n{arrived}")

    def collect(self, agent: str) -> str:
        """Return an agent's mail and empty the mailbox."""
        mail, self.mail[agent] = self.mail[agent], []
        self._posted[agent] = 0
        return "\n\n".join(mail)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Restore the team's state after an exception."""
        # The long list `actions` changes only after a transaction, so it is not copied.
        before = {name: copy.copy(v) for name, v in vars(self).items() if name != "actions"}
        before["mail"] = {agent: list(texts) for agent, texts in self.mail.items()}
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def replace_world(self, old: World[Any], new: World[Any]) -> None:
        """Move all agents of one world to another world."""
        for agent, world in self.worlds.items():
            if world is old:
                self.worlds[agent] = new


class TeamProtocol:
    """Base class of all kinds of teams: the agents' tools, knowledge, turns and rewards.

    Args:
        roles: The world tools of each role or agent; by default, the protocol assigns the tools.
        reward: `shared`, or a factor per role or agent, by which the score is multiplied; unlisted
            agents earn nothing.
        **limits: Arguments of `Channel`.

    Attributes:
        talks: Whether the agents write messages to each other.
    """

    kind: ClassVar[str]
    one_world: ClassVar[bool] = True
    talks: ClassVar[bool] = False

    def __init__(
        self,
        world: type[World[Any]],
        config: Any,
        roles: Roles | None = None,
        reward: str | Mapping[str, float] = "shared",
        **limits: Any,
    ) -> None:
        self.channel = Channel(**limits)
        if self.channel.note and not self.talks:
            raise ValueError(
                f"the agents of a {self.kind} cannot send messages; omit message_words and "
                "message_noise"
            )
        bound = tools_of(*world(config, 0).toolsets())
        tools = {name: each.schema.final for name, each in bound.items()}
        self.agents: AgentTools = self.assign_tools(world, tools, roles)
        self._factors = self._read_reward(reward)

    def assign_tools(
        self, world: type[World[Any]], tools: Mapping[str, bool], roles: Roles | None
    ) -> AgentTools:
        """Return the names of each agent's world tools."""
        raise NotImplementedError

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        """Return an agent's tools that the world does not provide."""
        raise NotImplementedError

    def notes(self, agent: str) -> str:
        """Return the description of the team for a system message."""
        raise NotImplementedError

    def prepare(self, agent: str, world: World[Any]) -> None:
        """Prepare an agent's world, before its first call."""

    def begin(self, team: Team) -> None:
        """Mark the agents that do not act first as idle."""

    def toolsets(self, agent: str, world: World[Any]) -> Sequence[object]:
        """Return the objects that provide an agent's world tools."""
        return world.toolsets()

    def opening(self, agent: str, team: Team) -> tuple[str, str | Content]:
        """Return an agent's rules and task."""
        return team.worlds[agent].rules(), team.worlds[agent].task()

    def restated_task(self, agent: str, team: Team) -> str | None:
        """Return an agent's restated task, if it has changed."""
        return team.worlds[agent].restate()

    def run(
        self, agent: str, team: Team, call: ToolCall, go: Callable[[], str | Content]
    ) -> str | Content:
        """Run an agent's call; `go()` runs the call in the world."""
        return go()

    def rouse(self, team: Team) -> None:
        """Wake agents if all agents are idle without mail."""
        for agent in team.agents:
            team.mail[agent].append(
                "Everyone was waiting, so nobody would have acted again. Go on."
            )

    def finished(self, agent: str, team: Team, reason: str) -> None:
        """Record that an agent's reply ended the agent's world."""
        team.end(reason)

    def settle(self, team: Team) -> None:
        """Decide the outcome of a cycle, before its mail is delivered."""

    def has_succeeded(self, agent: str, team: Team, score: float) -> bool:
        """Return whether an agent has succeeded, given the team's score."""
        return score >= 1.0

    def shares(self, team: Team, score: float) -> dict[str, float]:
        """Return each agent's reward for the team's score."""
        return {agent: score * factor for agent, factor in self._factors.items()}

    def _read_reward(self, reward: str | Mapping[str, float]) -> dict[str, float]:
        if reward == "shared":
            return dict.fromkeys(self.agents, 1.0)
        if isinstance(reward, str):
            raise ValueError(f"reward must be 'shared' or a factor per role, got {reward!r}")
        factors = {_named(role): factor for role, factor in reward.items()}
        if unknown := [name for name in factors if name not in self.agents]:
            raise ValueError(
                f"reward contains {unknown[0]!r}, which is not in the team; "
                f"{list_names(unknown[0], tuple(self.agents), 'agents')}"
            )
        for name, factor in factors.items():
            is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
            if not is_number or not -1.0 <= factor <= 1.0:
                raise ValueError(
                    f"the reward of {name} must be a factor in [-1.0, 1.0], got {factor!r}"
                )
        return {agent: float(factors.get(agent, 0.0)) for agent in self.agents}


def read_roles(roles: Roles, tools: Collection[str]) -> AgentTools:
    """Read the user's roles: a role `reader` becomes the agent `reader_0`."""
    agents: AgentTools = {}
    for role, names in roles.items():
        agent = _named(role)
        if agent in agents:
            raise ValueError(f"roles must not name {agent} twice")
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"the tools of {agent} must be a list of names, got {names!r}")
        if unknown := [name for name in names if name not in tools]:
            raise ValueError(
                f"roles gives {agent} the tool {unknown[0]!r}, which the world lacks; "
                f"{list_names(unknown[0], tuple(tools), 'tools')}"
            )
        agents[agent] = tuple(names)
    if not 2 <= len(agents) <= 64:  # each agent's chat takes memory and time
        raise ValueError(f"roles must name 2 to 64 agents, got {len(agents)}")
    return agents


def default_roles(world: type[World[Any]], tools: Mapping[str, bool]) -> AgentTools:
    """Return the tools by role; by default, a `closer` has the tools that end the task."""
    declared = world.roles
    if not declared:
        closing = [name for name, final in tools.items() if final]
        if not 0 < len(closing) < len(tools):
            closing = list(tools)[1::2]
        declared = {"actor": (), "closer": tuple(closing)}
    named = set(chain.from_iterable(declared.values()))
    rest = [name for name in tools if name not in named]
    roles = {}
    for role, names in declared.items():
        roles[role] = tuple(name for name in (*names, *rest) if name in tools)
        rest = []  # the first role gets the tools that no role claims
    return roles


def list_agents(agents: Mapping[str, Iterable[str]]) -> str:
    """List the agents with their world tools, one per line."""
    return "\n".join(f"- {agent}: {', '.join(tools) or 'none'}" for agent, tools in agents.items())


def _named(role: str) -> str:
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise ValueError(f"role names must be lower-case, such as reader or reader_0, got {role!r}")
    return role if "_" in role else f"{role}_0"
