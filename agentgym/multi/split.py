"""A team that shares one world, each agent with some of its tools, and tells each other what it
finds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.multi.team import Team, TeamProtocol, default_roles, list_agents, read_roles
from agentgym.tools import Toolset, tool
from agentgym.world import World


class Split(TeamProtocol):
    """Protocol of a team whose agents each have a subset of the world's tools, and `tell` and
    `wait`.
    """

    kind = "split"

    def assign_tools(
        self,
        world: type[World[Any]],
        tools: Mapping[str, bool],
        roles: Mapping[str, Sequence[str]] | None,
    ) -> dict[str, tuple[str, ...]]:
        """Return one agent for each role."""
        return read_roles(roles or default_roles(world, tools), tools)

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        """Return the tools for talking."""
        return Talk(agent, team, self.max_message)

    def notes(self, agent: str) -> str:
        """Say who is who, and what talking costs."""
        return (
            f"# Team\nYou are {agent}, one of a team that shares this task. These are the agents "
            "with their tools:\n"
            f"{list_agents(self.agents)}\nYou see your own calls only. What the others find out "
            "you learn when they tell you, and "
            "they learn from you in the same way. With tell you send another agent at most "
            f"{self.max_message} characters, which "
            "it is shown before its next reply. Who waits is asked for no reply until it is told "
            "something. tell and wait take no "
            "turn of the budget; any other reply of anybody takes one. The episode ends for all at "
            "once, and success is shared."
        )


class Talk(Toolset):
    """Toolset of an agent: telling and waiting."""

    def __init__(self, agent: str, team: Team, limit: int) -> None:
        self._agent, self._team, self._limit = agent, team, limit

    @tool
    def tell(self, agent: str, text: str, wait: bool = False) -> str:
        """Tell another agent something. It takes no turn of the budget.

        Args:
            agent: The name of the agent.
            text: What to tell it.
            wait: Whether to wait then until you are told something.
        """
        team = self._team
        receiver = team.check_receiver(agent, [name for name in team.agents if name != self._agent])
        team.post(receiver, f"{self._agent} tells you", text, self._limit)
        if wait:
            team.idle.add(self._agent)
        return f"{receiver} will be shown it."

    @tool
    def wait(self) -> str:
        """Wait until another agent tells you something. It takes no turn of the budget."""
        self._team.idle.add(self._agent)
        return "You wait."
