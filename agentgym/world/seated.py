"""Worlds whose state several players share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError
from agentgym.world.world import World

ConfigT = TypeVar("ConfigT")

# A move as JSON: a number of units, or a direction.
Move = int | str

# Provisional result of a move in a match, shown until all moves have been played.
COMMITTED = "Your move is made. It is played once every player whose turn it is has moved."

# The plan hint for a seat that has moved, or that must wait for its turn.
WAIT = "Wait for the other player's move."


class SeatedWorld(World[ConfigT]):
    """World in which each player's moves affect everyone's situation.

    A single agent plays one seat, and scripted players make the moves of the other seats.
    In a match (`agentgym.multi.match`), every seat has a copy of the world. Tools check a
    move and return `self.make_move(...)`.

    Attributes:
        players: The seats, in turn order.
        seat: The player whose view this world shows.
        in_match: Whether agents play all seats.
        pending: This seat's move that has not been played yet, or None.
        stopped_by: The player who could not continue and so ended a match early, if any.
    """

    players: ClassVar[tuple[str, ...]] = ("player_0", "player_1")
    parallel_calls = False

    seat = "player_0"
    in_match = False
    pending: Move | None = None
    stopped_by = ""
    _news: list[str]

    @abstractmethod
    def movers(self) -> Sequence[str]:
        """Return the players who move next; these players move simultaneously."""

    @abstractmethod
    def play(self, moves: Mapping[str, Move]) -> str:
        """Play the moves of all `movers`; return a line that reports these moves."""

    @abstractmethod
    def read_line(self, line: str) -> None:
        """Apply a line that `play` returned; earlier lines may be missing.

        Raises ValueError if the line is invalid.
        """

    @abstractmethod
    def scripted_move(self, player: str) -> Move:
        """Return the scripted move of a player that no agent plays."""

    @abstractmethod
    def payoff(self) -> float:
        """Return this seat's reward, relative to the seat's equilibrium value."""

    @property
    def is_due(self) -> bool:
        return self.pending is None and self.seat in self.movers()

    def join(self, seat: str) -> None:
        """Take a seat in a match, before the first move."""
        self.seat, self.in_match, self._news = seat, True, []

    def make_move(self, move: Move) -> str:
        """Make this seat's move; outside a match, play until its next turn and report all moves."""
        if self.pending is not None:
            raise ToolError("you have already moved; wait for the other players")
        if self.in_match:
            self.pending = move
            return COMMITTED
        lines, mine = [], {self.seat: move}
        while not self.done and (mine or self.seat not in self.movers()):
            others = [player for player in self.movers() if player not in mine]
            moves = {**mine, **{player: self.scripted_move(player) for player in others}}
            lines.append(self.play(moves))
            mine = {}
        return "\n".join(lines)

    def resolve(self, moves: Mapping[str, Move]) -> str:
        """Play a match's moves; at this seat's next turn or at the end, report all new moves."""
        self.pending = None
        self._news.append(self.play(moves))
        if not self.done and self.seat not in self.movers():
            return ""
        news, self._news = self._news, []
        return "\n".join(news)

    def read_result(self, call: ToolCall, result: str) -> None:
        for line in result.split("\n"):
            self.read_line(line)
