"""Duel of rivals on equal instances of one world: the first to solve it wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.multi.team import Team, TeamProtocol, read_roles
from agentgym.tools import Toolset
from agentgym.world import World


class Duel(TeamProtocol):
    """Protocol of rivals.

    Each agent plays a world of its own, of the same configuration and seed, with all tools, and
    sees nothing of the others.

    The first to solve it ends the episode and earns 1; those that do so in the same cycle share it.
    Whose world has ended without success is asked no more.
    """

    kind = "duel"
    one_world = False

    def assign_tools(
        self,
        world: type[World[Any]],
        tools: Mapping[str, bool],
        roles: Mapping[str, Sequence[str]] | None,
    ) -> dict[str, tuple[str, ...]]:
        """Return two players, unless others are named."""
        return read_roles(roles or {f"player_{k}": list(tools) for k in range(2)}, tools)

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        """Return no tools: there is nothing besides the world."""
        return Toolset()

    def notes(self, agent: str) -> str:
        """Name the rivals."""
        rivals = ", ".join(name for name in self.agents if name != agent)
        return (
            f"# Duel\nYou are {agent}. {rivals} has the same task and plays at the same time; "
            "neither sees what the other does. "
            "Who solves it in fewer turns wins."
        )

    def finished(self, agent: str, team: Team, reason: str) -> None:
        """Record that the agent has won, or is out."""
        team.idle.add(agent)
        team.pending_end = reason
        if team.worlds[agent].score() >= 1.0:
            team.winners.add(agent)

    def settle(self, team: Team) -> None:
        """End the episode when somebody has won, or nobody can any more."""
        if team.winners or len(team.idle) == len(team.agents):
            team.end("world" if team.winners else team.pending_end)

    def shares(self, team: Team, score: float) -> dict[str, float]:
        """Divide the reward among the winners."""
        return {agent: (agent in team.winners) / max(1, len(team.winners)) for agent in team.agents}
