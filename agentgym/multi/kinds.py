"""Teams without a referee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentgym.multi.channel import Channel
from agentgym.multi.team import (
    AgentTools,
    Roles,
    Team,
    TeamProtocol,
    default_roles,
    list_agents,
    read_roles,
)
from agentgym.text.messages import Content
from agentgym.text.tools import ToolError, Toolset, echo, tool
from agentgym.world.world import World

MANAGER = "manager_0"


class Split(TeamProtocol):
    """Protocol of agents that each have some of the world's tools, plus `tell` and `wait`."""

    kind = "split"
    talks = True

    def assign_tools(
        self, world: type[World[Any]], tools: Mapping[str, bool], roles: Roles | None
    ) -> AgentTools:
        return read_roles(roles or default_roles(world, tools), tools)

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        return Talk(agent, team, self.channel)

    def notes(self, agent: str) -> str:
        return (
            f"# Team\nYou are {agent}, one of a team that shares this task. These are the agents "
            "with their tools:\n"
            f"{list_agents(self.agents)}\nYou see your own calls only. What the others find out "
            "you learn when they tell you, and "
            "they learn from you in the same way. With tell you send another agent at most "
            f"{self.channel.max_message} characters, which "
            "it is shown before its next reply. Who waits is asked for no reply until it is told "
            "something. tell and wait take no "
            "turn of the budget; any other reply of anybody takes one. The episode ends for all at "
            "once, and success is shared."
        )


class _AgentTools(Toolset):
    def __init__(self, agent: str, team: Team, channel: Channel) -> None:
        self._agent, self._team, self._channel = agent, team, channel


class Talk(_AgentTools):
    """Toolset for talking and waiting."""

    @tool
    def tell(self, agent: str, text: str, wait: bool = False) -> str:
        """Tell another agent something. It takes no turn of the budget.

        Args:
            agent: The name of the agent.
            text: What to tell it.
            wait: Whether to wait then until you are told something.
        """
        team = self._team
        others = [name for name in team.agents if name != self._agent]
        if agent not in others:
            raise ToolError(
                f"there is no agent {echo(agent)} to send this to; agents: {', '.join(others)}"
            )
        team.post(self._agent, agent, "tells you", text, self._channel)
        if wait:
            team.idle.add(self._agent)
        return f"{agent} will be shown it."

    @tool
    def wait(self) -> str:
        """Wait until another agent tells you something. It takes no turn of the budget."""
        self._team.idle.add(self._agent)
        return "You wait."


class Management(TeamProtocol):
    """Protocol of a manager who delegates to workers.

    A worker starts a new chat for each sub-task and ends the sub-task with a report. By default the
    manager has the tools that end the task, and one worker has the others.
    """

    kind = "manager"
    talks = True

    def assign_tools(
        self, world: type[World[Any]], tools: Mapping[str, bool], roles: Roles | None
    ) -> AgentTools:
        if roles is None:
            final = [name for name, ends in tools.items() if ends]
            own = final or list(default_roles(world, tools).values())[-1]
            roles = {"manager": own, "worker": [name for name in tools if name not in own]}
        agents = read_roles(roles, tools)
        if next(iter(agents)) != MANAGER:
            raise ValueError(
                f"the first role of this team must be the manager, got {next(iter(agents))}"
            )
        return agents

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        kind = Delegation if agent == MANAGER else Reporting
        return kind(agent, team, self.channel)

    def notes(self, agent: str) -> str:
        if agent == MANAGER:
            return (
                f"# Team\nYou are {MANAGER}. You lead the work on this task, and have some of its "
                "tools. These are the agents with "
                f"theirs:\n{list_agents(self.agents)}\nWith delegate you give a sub-task to a "
                "worker. It begins with nothing but "
                f"the rules and what you write, at most {self.channel.max_message} characters, so say all "
                "that it needs to know. You are "
                "asked for no reply until the workers have reported, and see of their work only "
                "what they report. delegate takes "
                "no turn of the budget; any other reply of anybody takes one."
            )
        return (
            f"# Team\nYou are {agent}. The sub-task that you are given is a part of a task that "
            f"{MANAGER} leads. Do it with your "
            f"tools, then call report with at most {self.channel.max_message} characters: only what you "
            f"report is known to {MANAGER}. "
            "report takes no turn of the budget that is shared by all."
        )

    def begin(self, team: Team) -> None:
        team.idle = set(team.agents) - {MANAGER}

    def opening(self, agent: str, team: Team) -> tuple[str, str | Content]:
        if agent == MANAGER:
            return super().opening(agent, team)
        return team.worlds[agent].rules(), team.tasks.get(
            agent, "There is no sub-task for you yet."
        )

    def restated_task(self, agent: str, team: Team) -> str | None:
        return super().restated_task(agent, team) if agent == MANAGER else None

    def rouse(self, team: Team) -> None:
        team.mail[MANAGER].append("Nobody has a sub-task. Go on.")


class Delegation(_AgentTools):
    """Toolset of the manager."""

    @tool
    def delegate(self, task: str) -> str:
        """Give a sub-task to a free worker, who begins with a clean context. It takes no turn of the budget.

        Args:
            task: All that the worker needs to know.
        """
        team = self._team
        if not task.strip():
            raise ToolError("the sub-task is empty; describe what to do")
        limit = self._channel.max_message
        if len(task) > limit:
            raise ToolError(
                f"a sub-task may have at most {limit} characters, got {len(task)}; shorten the text"
            )
        free = team.idle - team.restarting - {MANAGER}
        if not free:
            raise ToolError("no worker is free; wait for a report")
        worker = min(free, key=team.agents.index)
        team.tasks[worker] = team.transmit(self._agent, task, self._channel)
        team.restarting.add(worker)
        team.idle.add(MANAGER)
        return f"{worker} works on it."


class Reporting(_AgentTools):
    """Toolset of a worker."""

    @tool
    def report(self, text: str) -> str:
        """End your sub-task with a report to the manager. It takes no turn of the budget.

        Args:
            text: What you have found out and done.
        """
        self._team.post(self._agent, MANAGER, "reports", text, self._channel)
        self._team.idle.add(self._agent)
        return "You are done."


class Duel(TeamProtocol):
    """Protocol of rivals, each in a separate world of the same configuration and seed.

    The agents that solve the task in the earliest cycle end the episode and share a reward of 1.
    """

    kind = "duel"
    one_world = False

    def assign_tools(
        self, world: type[World[Any]], tools: Mapping[str, bool], roles: Roles | None
    ) -> AgentTools:
        return read_roles(roles or {f"player_{k}": list(tools) for k in range(2)}, tools)

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        return Toolset()

    def notes(self, agent: str) -> str:
        rivals = ", ".join(name for name in self.agents if name != agent)
        return (
            f"# Duel\nYou are {agent}. {rivals} has the same task and plays at the same time; "
            "neither sees what the other does. "
            "Who solves it in fewer turns wins."
        )

    def finished(self, agent: str, team: Team, reason: str) -> None:
        team.idle.add(agent)
        team.pending_end = reason
        if team.worlds[agent].score() >= 1.0:
            team.winners.add(agent)

    def settle(self, team: Team) -> None:
        if team.winners or len(team.idle) == len(team.agents):
            team.end("world" if team.winners else team.pending_end)

    def has_succeeded(self, agent: str, team: Team, score: float) -> bool:
        return agent in team.winners

    def shares(self, team: Team, score: float) -> dict[str, float]:
        return {agent: (agent in team.winners) / max(1, len(team.winners)) for agent in team.agents}
