"""A manager that delegates sub-tasks to a worker with a clean context, and reads its reports
only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.messages import Content
from agentgym.multi.team import Team, TeamProtocol, default_roles, list_agents, read_roles
from agentgym.tools import ToolError, Toolset, tool
from agentgym.world import World

MANAGER = "manager_0"


class Management(TeamProtocol):
    """Protocol of the sub-agent design.

    The first agent delegates; any other begins a new chat with each sub-task and ends it by a
    report.

    By default the manager has the tools that end the task, and one worker has the others.
    """

    kind = "manager"

    def assign_tools(
        self,
        world: type[World[Any]],
        tools: Mapping[str, bool],
        roles: Mapping[str, Sequence[str]] | None,
    ) -> dict[str, tuple[str, ...]]:
        """Return the manager and its workers."""
        if roles is None:
            final = [name for name, ends in tools.items() if ends]
            own = final or list(default_roles(world, tools).values())[-1]
            roles = {"manager": list(own), "worker": [name for name in tools if name not in own]}
        agents = read_roles(roles, tools)
        if next(iter(agents)) != MANAGER:
            raise ValueError(
                f"the first role of this team is the manager, got {next(iter(agents))}"
            )
        return agents

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        """Return the tool for delegating, or for reporting."""
        return (
            Delegation(team, self.max_message)
            if agent == MANAGER
            else Reporting(agent, team, self.max_message)
        )

    def notes(self, agent: str) -> str:
        """Say what is delegated to whom."""
        if agent == MANAGER:
            return (
                f"# Team\nYou are {MANAGER}. You lead the work on this task, and have some of its "
                "tools. These are the agents with "
                f"theirs:\n{list_agents(self.agents)}\nWith delegate you give a sub-task to a "
                "worker. It begins with nothing but "
                f"the rules and what you write, at most {self.max_message} characters, so say all "
                "that it needs to know. You are "
                "asked for no reply until the workers have reported, and see of their work only "
                "what they report. delegate takes "
                "no turn of the budget; any other reply of anybody takes one."
            )
        return (
            f"# Team\nYou are {agent}. The sub-task that you are given is a part of a task that "
            f"{MANAGER} leads. Do it with your "
            f"tools, then call report with at most {self.max_message} characters: only what you "
            f"report is known to {MANAGER}. "
            "report takes no turn of the budget that is shared by all."
        )

    def begin(self, team: Team) -> None:
        """Let the manager act first."""
        team.idle = set(team.agents) - {MANAGER}

    def opening(self, agent: str, team: Team) -> tuple[str, str | Content]:
        """Return the rules, and the task or the sub-task."""
        if agent == MANAGER:
            return super().opening(agent, team)
        return team.worlds[agent].rules(), team.tasks.get(
            agent, "There is no sub-task for you yet."
        )

    def restated_task(self, agent: str, team: Team) -> str | None:
        """Return the task of the manager; a sub-task stays as it is."""
        return super().restated_task(agent, team) if agent == MANAGER else None

    def rouse(self, team: Team) -> None:
        """Wake the manager, who always can go on."""
        team.mail[MANAGER].append("Nobody has a sub-task. Go on.")


class Delegation(Toolset):
    """Toolset of the manager."""

    def __init__(self, team: Team, limit: int) -> None:
        self._team, self._limit = team, limit

    @tool
    def delegate(self, task: str) -> str:
        """Give a sub-task to a free worker, who begins with a clean context. It takes no turn of the budget.

        Args:
            task: All that the worker needs to know.
        """
        team = self._team
        if not task.strip():
            raise ToolError("the sub-task is empty; say what is to be done")
        if len(task) > self._limit:
            raise ToolError(
                f"a sub-task may have {self._limit} characters, got {len(task)}; say it shorter"
            )
        free = [
            agent
            for agent in team.agents
            if agent != MANAGER and agent in team.idle and agent not in team.restarting
        ]
        if not free:
            raise ToolError("no worker is free; wait for a report")
        team.tasks[free[0]] = task
        team.restarting.add(free[0])
        team.messages += 1
        team.idle.add(MANAGER)
        return f"{free[0]} works on it."


class Reporting(Toolset):
    """Toolset of a worker."""

    def __init__(self, agent: str, team: Team, limit: int) -> None:
        self._agent, self._team, self._limit = agent, team, limit

    @tool
    def report(self, text: str) -> str:
        """End your sub-task with a report to the manager. It takes no turn of the budget.

        Args:
            text: What you have found out and done.
        """
        self._team.post(MANAGER, f"{self._agent} reports", text, self._limit)
        self._team.idle.add(self._agent)
        return "You are done."
