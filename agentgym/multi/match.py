"""Matches: each agent plays a seat of one shared game (`agentgym.world.seated`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agentgym.multi.team import AgentTools, Roles, Team, TeamProtocol
from agentgym.play.guard import carry_out
from agentgym.text.messages import Content, ToolCall
from agentgym.text.tools import Toolset, tool, tools_of
from agentgym.world.seated import Move, SeatedWorld
from agentgym.world.world import World

# Heading of the message that replaces the provisional result of an agent's move.
PLAYED = "The moves since your last turn:"


class Match(TeamProtocol):
    """Protocol of a match. Every agent has a copy of the world, seen from the agent's seat.

    Moves take effect at the end of the cycle in which the last mover moves, so nobody sees another
    player's simultaneous move in advance. A match ends early when a seat has no turns left or fails too
    many rounds. Each agent earns its world's `SeatedWorld.payoff`.
    """

    kind = "match"
    one_world = False

    def assign_tools(
        self, world: type[World[Any]], tools: Mapping[str, bool], roles: Roles | None
    ) -> AgentTools:
        if not issubclass(world, SeatedWorld):
            raise ValueError(f"{world.__name__} has one seat; a match requires a SeatedWorld")
        if roles is not None:
            raise ValueError(
                f"the seats of a match are fixed: {', '.join(world.players)}; omit roles"
            )
        return {player: tuple(tools) for player in world.players}

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        return Toolset()

    def toolsets(self, agent: str, world: World[Any]) -> Sequence[object]:
        """Return the world's tools and the tool that only the referee uses."""
        return (*world.toolsets(), _Referee(_seated(world)))

    def notes(self, agent: str) -> str:
        others = ", ".join(name for name in self.agents if name != agent)
        return (
            f"# Match\nYou are {agent}. You play against {others}. A move is played once every "
            "player whose turn it is has moved; before that, nobody sees it. You are asked again "
            "when it is your turn, and are told all moves since your last one."
        )

    def prepare(self, agent: str, world: World[Any]) -> None:
        _seated(world).join(agent)

    def begin(self, team: Team) -> None:
        for agent, world in team.worlds.items():
            self.prepare(agent, world)
        team.idle = set(team.agents) - set(_movers(team))
        team.unseated = set(team.idle)

    def run(
        self, agent: str, team: Team, call: ToolCall, go: Callable[[], str | Content]
    ) -> str | Content:
        result = go()
        if _seated(team.worlds[agent]).pending is not None:
            team.idle.add(agent)
        return result

    def finished(self, agent: str, team: Team, reason: str) -> None:
        if not team.pending_end:
            team.pending_end, team.stopped_by = reason, agent
        team.winners = (team.winners or set(team.agents)) - {agent}

    def settle(self, team: Team) -> None:
        seated = {agent: _seated(world) for agent, world in team.worlds.items()}
        moves = {
            agent: world.pending for agent, world in seated.items() if world.pending is not None
        }
        if moves.keys() == set(_movers(team)):
            for agent, world in seated.items():
                referee = tools_of(_Referee(world))["resolve"]
                # Log the moves, so that a world re-created after a fault repeats them.
                news = carry_out(world, referee, "resolve", {"moves": moves})
                if agent in team.unseated and agent in world.movers():
                    team.unseated.discard(agent)
                    team.restarting.add(agent)
                elif news:
                    team.mail[agent].append(f"{PLAYED}\n{news}")
            if next(iter(seated.values())).done:
                best = max(world.payoff() for world in seated.values())
                team.winners = {agent for agent in seated if seated[agent].payoff() == best}
                team.end("world")
        if team.pending_end:
            for world in seated.values():
                world.stopped_by = team.stopped_by
            team.end(team.pending_end)

    def has_succeeded(self, agent: str, team: Team, score: float) -> bool:
        """Return whether an agent has reached its equilibrium value."""
        return bool(score) and _seated(team.worlds[agent]).payoff() >= 1.0

    def shares(self, team: Team, score: float) -> dict[str, float]:
        if not score:
            return dict.fromkeys(team.worlds, 0.0)
        return {agent: _seated(world).payoff() for agent, world in team.worlds.items()}


class _Referee(Toolset):
    def __init__(self, world: SeatedWorld[Any]) -> None:
        self._world = world

    @tool
    def resolve(self, moves: dict[str, Move]) -> str:
        """Play the simultaneous moves of the players whose turn it is."""
        return self._world.resolve(moves)


def _seated(world: World[Any]) -> SeatedWorld[Any]:
    return cast(SeatedWorld[Any], world)


def _movers(team: Team) -> Sequence[str]:
    return _seated(next(iter(team.worlds.values()))).movers()
