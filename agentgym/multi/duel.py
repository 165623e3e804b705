"""Two rivals on equal instances of one world: who solves it first, wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.multi.team import Team, TeamProtocol, read_roles
from agentgym.tools import Toolset
from agentgym.world import World


class Duel(TeamProtocol):
    """Each agent plays a world of its own, of the same configuration and seed, with all tools, and sees nothing of the others.

    The first to solve it ends the episode and earns 1; those that do so in the same cycle share it. Whose world has ended without
    success is asked no more.
    """

    kind = "duel"
    one_world = False

    def agent_env(
        self, world: type[World[Any]], tools: Mapping[str, bool], roles: Mapping[str, Sequence[str]] | None
    ) -> dict[str, tuple[str, ...]]:
        """Two players, unless others are named."""
        return read_roles(roles or {f"player_{k}": list(tools) for k in range(2)}, tools)

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        """Nothing besides the world."""
        return Toolset()

    def notes(self, agent: str) -> str:
        """Who the rivals are."""
        rivals = ", ".join(name for name in self.agents if name != agent)
        return (
            f"# Duel\nYou are {agent}. {rivals} has the same task and plays at the same time; neither sees what the other does. "
            "Who solves it in fewer turns wins."
        )

    def finished(self, agent: str, team: Team, reason: str) -> None:
        """The agent has won, or is out."""
        team.idle.add(agent)
        team.closing = reason
        if team.worlds[agent].score() >= 1.0:
            team.winners.add(agent)

    def settle(self, team: Team) -> None:
        """End it when somebody has won, or nobody can any more."""
        if team.winners or len(team.idle) == len(team.agents):
            team.end("world" if team.winners else team.closing)

    def shares(self, team: Team, score: float) -> dict[str, float]:
        """The winners' share."""
        return {agent: (agent in team.winners) / max(1, len(team.winners)) for agent in team.agents}
