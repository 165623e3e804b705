"""PursuitWorld: a pursuer catches an evader on a board with walls.

The game is "cops and robbers" (Nowakowski and Winkler, "Vertex-to-vertex pursuit in a graph",
Discrete Mathematics 43, 1983) with one cop, who is faster than the robber.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.games.game import TEXTS, GameWorld, as_row, share
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, tool
from agentgym.text.validation import check_int
from agentgym.world.config import Share
from agentgym.world.digests import digest
from agentgym.world.seated import Move
from agentgym.world.turn_budget import TurnBudget

PURSUER, EVADER = "pursuer_0", "evader_0"
Direction = Literal["stay", "n", "ne", "e", "se", "s", "sw", "w", "nw"]

_STEPS: Mapping[str, tuple[int, int]] = {
    "stay": (0, 0),
    "n": (-1, 0),
    "ne": (-1, 1),
    "e": (0, 1),
    "se": (1, 1),
    "s": (1, 0),
    "sw": (1, -1),
    "w": (0, -1),
    "nw": (-1, -1),
}
_DIRECTIONS = {PURSUER: tuple(_STEPS), EVADER: ("stay", "n", "e", "s", "w")}
_NEVER = 1_000_000  # more moves than any game has
_DRAWS = 100  # with at most 25 % walls, most drawn boards are accepted
_MAX_CATCHES = 200  # on the largest board, the values for each catch take 80 kB
_CELL = r"\(([0-9]+), ([0-9]+)\)"
_CELLS = re.compile(_CELL)
_TASK = re.compile(
    r"You are (?P<seat>\w+)\.\nBoard size: (?P<size>[0-9]+) x [0-9]+\nWalls: (?P<walls>.*)\n"
    r"The evader appears in turn in: (?P<cells>.*)\n"
)
_LINE = re.compile(
    rf"(?P<player>{PURSUER}|{EVADER}) moves \w+ to (?P<cell>{_CELL})\."
    rf"(?: Catch (?P<catches>[0-9]+) of [0-9]+\.)?(?: {EVADER} reappears in (?P<evader>{_CELL})\.)?"
)
_SITUATION = re.compile(
    rf"{PURSUER}: (?P<pursuer>{_CELL})\n{EVADER}: (?P<evader>{_CELL})\n"
    r"Catches so far: (?P<catches>[0-9]+)\nMoves of the pursuer so far: (?P<moves>[0-9]+)"
)


@dataclass(frozen=True, kw_only=True)
class PursuitConfig(TurnBudget):
    """Options of PursuitWorld.

    Attributes:
        size: The side length of the board in cells.
        catches: The number of catches that the pursuer must make.
        wall_density: The share of cells that are walls. The board has no walls if the evader could
            hide forever on every board drawn.
    """

    size: Annotated[int, Field(ge=3, le=10)] = 5
    catches: Annotated[int, Field(ge=1, le=_MAX_CATCHES)] = 3
    wall_density: Share = 0.15


class Board(NamedTuple):
    """A board with cells numbered row by row; the evader appears in each of `cells` in turn."""

    size: int
    walls: tuple[int, ...]
    cells: tuple[int, ...]

    def target(self, cell: int, direction: str) -> int | None:
        """Return the neighbouring cell in a direction, or None if it is a wall or off the board."""
        row, column = divmod(cell, self.size)
        down, right = _STEPS[direction]
        row, column = row + down, column + right
        inside = 0 <= row < self.size and 0 <= column < self.size
        after = row * self.size + column
        if inside and after not in self.walls:
            return after
        return None

    def targets(self, player: str) -> NDArray[np.int32]:
        """Return the cell that each move leads to, as an array of shape (cells, directions)."""
        rows = []
        for cell in range(self.size**2):
            after = [self.target(cell, direction) for direction in _DIRECTIONS[player]]
            rows.append([cell if each is None else each for each in after])
        return np.array(rows, np.int32)

    def name(self, cell: int) -> str:
        """Format a cell as `(row, column)`."""
        return str(divmod(cell, self.size))

    def names(self, cells: Sequence[int]) -> str:
        """Format a list of cells."""
        return ", ".join(map(self.name, cells)) or "none"

    def read(self, text: str) -> tuple[int, ...]:
        """Parse all cells in a text."""
        return tuple(int(row) * self.size + int(column) for row, column in _CELLS.findall(text))


class CatchValues(NamedTuple):
    """The minimax number of the pursuer's moves until the last catch.

    With the pursuer in cell p and the evader in cell e, the number is `pursuer[p, e]` if the
    pursuer moves next, and `evader[p, e]` otherwise; after a catch in cell p, it is `caught[p]`.
    """

    pursuer: NDArray[np.int32]
    evader: NDArray[np.int32]
    caught: NDArray[np.int32]


@lru_cache(maxsize=16)
def solve(board: Board) -> list[CatchValues]:
    """Return the minimax values, indexed by the number of catches so far.

    Iteration k allows at most k moves until the next catch, so the values decrease to the minimax
    values.
    """
    fast, slow = board.targets(PURSUER), board.targets(EVADER)
    count = len(fast)
    same = np.arange(count)
    caught, stages = np.zeros(count, np.int32), []
    for cell in reversed(board.cells):
        values = np.full((count, count), _NEVER, np.int32)
        while True:
            ahead = values.copy()
            ahead[same, same] = caught
            waiting = ahead[:, slow].max(axis=2)
            met = waiting.copy()
            met[same, same] = caught
            new = np.minimum(1 + met[fast].min(axis=1), _NEVER)
            if np.array_equal(new, values):
                break
            values = new
        stages.append(CatchValues(values, waiting, caught))
        caught = values[:, cell]
    return stages[::-1]


class PursuitWorld(GameWorld[PursuitConfig]):
    """Catch an evader several times on a board with walls, in as few moves as possible.

    A single agent is the pursuer, and the scripted evader plays perfectly. In a match, the pursuer
    earns V / N and the evader N / V, where V is the minimax number of moves and N the actual
    number.
    """

    Config = PursuitConfig
    texts = TEXTS["pursuit"]
    move_call = ("move", "direction")
    task_format, situation_format, line_format = _TASK, _SITUATION, _LINE
    players: ClassVar[tuple[str, ...]] = (PURSUER, EVADER)
    seat = PURSUER

    def generate(self) -> None:
        """Draw a board on which the evader cannot hide forever."""
        config, rng = self.config, self.rng
        area = config.size**2
        count = min(round(config.wall_density * area), area - 2)
        for draw in range(_DRAWS):
            order = rng.permutation(area).tolist()
            free = order[count:] if draw < _DRAWS - 1 else order
            walls = tuple(sorted(set(order) - set(free)))
            cells = [free[1], *rng.choice(free, size=config.catches - 1).tolist()]
            board = Board(config.size, walls, tuple(cells))
            self._start(board, free[0])
            if self.value < _NEVER:
                break
        self.max_turns = config.budget(self.value)

    def _start(self, board: Board, pursuer: int) -> None:
        self.grid = board
        self.places = {PURSUER: pursuer, EVADER: board.cells[0]}
        self.turn_of, self.catches, self.moves = self.seat, 0, 0
        values = solve(board)[0].pursuer
        self.value = int(values[pursuer, board.cells[0]])

    def join(self, seat: str) -> None:
        super().join(seat)
        self.turn_of = PURSUER

    def instance_key(self) -> str:
        return digest([*self.grid, self.places])

    def restate(self) -> str:
        board = self.grid
        goal = self.texts["alone"].format(catches=len(board.cells))
        if self.in_match:
            goal = self.texts["match"].format(other=self.other, value=self.value)
        return (
            f"You are {self.seat}.\nBoard size: {board.size} x {board.size}\n"
            f"Walls: {board.names(board.walls)}\n"
            f"The evader appears in turn in: {board.names(board.cells)}\n{goal}"
        )

    def situation(self) -> str:
        pursuer = self.grid.name(self.places[PURSUER])
        evader = self.grid.name(self.places[EVADER])
        return (
            f"{PURSUER}: {pursuer}\n{EVADER}: {evader}\n"
            f"Catches so far: {self.catches}\nMoves of the pursuer so far: {self.moves}"
        )

    def board(self) -> str:
        size = self.grid.size
        marks = ["."] * size**2
        for wall in self.grid.walls:
            marks[wall] = "#"
        marks[self.places[EVADER]] = "E"
        marks[self.places[PURSUER]] = "P"
        rows = [marks[start : start + size] for start in range(0, size**2, size)]
        return "\n".join(map(" ".join, rows))

    @tool
    def move(self, direction: Direction) -> str:
        """Move to a neighbouring cell, or stay.

        Args:
            direction: The direction; the evader has no diagonal ones.
        """
        if direction not in _DIRECTIONS[self.seat]:
            raise ToolError(f"the evader cannot move {direction}; use n, e, s, w or stay")
        if self.grid.target(self.places[self.seat], direction) is None:
            raise ToolError(
                f"cannot move {direction}, because a wall or the edge of the board is in the way"
            )
        return self.make_move(direction)

    def play(self, moves: Mapping[str, Move]) -> str:
        ((player, move),) = moves.items()
        cell = self.grid.target(self.places[player], str(move))
        if cell is None:
            raise ValueError(f"{player} cannot move {move}")
        self.places[player] = cell
        self.moves += player == PURSUER
        line = f"{player} moves {move} to {self.grid.name(cell)}."
        self.turn_of = EVADER if player == PURSUER else PURSUER
        if self.places[PURSUER] != self.places[EVADER]:
            return line
        self.catches += 1
        line += f" Catch {self.catches} of {len(self.grid.cells)}."
        self.done = self.catches == len(self.grid.cells)
        if self.done:
            return line
        self.places[EVADER] = self.grid.cells[self.catches]
        self.turn_of = PURSUER
        return f"{line} {EVADER} reappears in {self.grid.name(self.places[EVADER])}."

    def read_move(self, found: re.Match[str]) -> None:
        player = found["player"]
        places = dict(self.places)
        (places[player],) = self.grid.read(found["cell"])
        if found["evader"]:
            (places[EVADER],) = self.grid.read(found["evader"])
        self._set(places, int(found["catches"] or self.catches))
        self.moves += player == PURSUER
        self.turn_of = EVADER if player == PURSUER and not found["catches"] else PURSUER

    def _set(self, places: Mapping[str, int], catches: int) -> None:
        free = set(range(self.grid.size**2)) - set(self.grid.walls)
        if not free.issuperset(places.values()) or catches > len(self.grid.cells):
            raise ValueError(f"the board does not allow positions {places} after {catches} catches")
        self.places, self.catches = dict(places), catches
        self.done = catches == len(self.grid.cells)

    def scripted_move(self, player: str) -> Move:
        return self._best(player)[0]

    def _best(self, player: str) -> list[str]:
        values = {}
        for direction in self._legal(player):
            values[direction] = self._value_after(player, direction)
        best = min(values.values())
        if player == EVADER:
            best = max(values.values())
        return [direction for direction, value in values.items() if value == best]

    def _legal(self, player: str) -> list[str]:
        cell = self.places[player]
        return [each for each in _DIRECTIONS[player] if self.grid.target(cell, each) is not None]

    def _value_after(self, player: str, direction: str) -> int:
        stage = solve(self.grid)[self.catches]
        places = {**self.places, player: self.grid.target(self.places[player], direction)}
        pursuer, evader = places[PURSUER], places[EVADER]
        if pursuer == evader:
            return int(stage.caught[pursuer])
        table = stage.evader if player == PURSUER else stage.pursuer
        return int(table[pursuer, evader])

    def payoff(self) -> float:
        """Return V / N for the pursuer, and N / V for the evader.

        V is the minimax number and N the actual number of the pursuer's moves. If the opponent
        stopped, N includes the moves that perfect play would still take. Unless the evader
        stopped, a pursuer who has not made all catches earns 0.
        """
        moves = self.moves
        # If the game stops before the first move, both players score 0.
        stopped = moves > 0 and self.stopped_by == self.other
        if stopped and not self.done:
            stage, places = solve(self.grid)[self.catches], self.places
            table = stage.pursuer if self.turn_of == PURSUER else stage.evader
            moves += int(table[places[PURSUER], places[EVADER]])
        if self.seat == EVADER:
            return moves / self.value
        return self.value / moves if self.done or stopped else 0.0

    def has_won(self) -> bool:
        return self.done

    def report(self) -> Mapping[str, Any]:
        """Return the catches, the pursuer's moves, and the number of moves under perfect play."""
        return {"catches": self.catches, "moves": self.moves, "minimax": self.value}

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 3, 3 * _MAX_CATCHES)
        return {"catches": max(1, round(steps / 3.5))}

    def best_moves(self) -> Collection[Move]:
        best = self._best(self.seat)
        left = 1 + self._value_after(self.seat, best[0])
        return best if self.in_match or left <= self.known_turns else ()

    def legal_moves(self) -> Collection[Move]:
        return self._legal(self.seat)

    def action_catalog(self) -> Sequence[ToolCall]:
        return self.calls(_DIRECTIONS[PURSUER])

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [-1, 1], shape `(3 * size**2 + catches + 2,)`.

        The features are: one plane each for the walls, the pursuer and the evader; the next cells
        where the evader appears, as shares of the board (padded with -1); and the shares of
        catches made and turns left.
        """
        area = self.grid.size**2
        cells = self.grid.cells[self.catches + 1 :]
        planes = np.zeros((3, area))
        planes[0, list(self.grid.walls)] = 1
        planes[1, self.places[PURSUER]] = 1
        planes[2, self.places[EVADER]] = 1
        coming = np.full(self.config.catches, -1.0)
        coming[: len(cells)] = np.divide(cells, area)
        caught = self.catches / self.config.catches
        return as_row(planes, coming, caught, share(self.turns_left, self.max_turns or 1))

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        cell = self.grid.target(self.places[self.seat], call.arguments["direction"])
        where = "" if cell is None else f", to {self.grid.name(cell)}"
        return f"{super().subtask_for(call, with_state)}{where}."

    def read_instance(self, found: re.Match[str]) -> None:
        empty = Board(int(found["size"]), (), ())
        walls, cells = empty.read(found["walls"]), empty.read(found["cells"])
        self._start(empty._replace(walls=walls, cells=cells), cells[0])

    def read_situation(self, found: re.Match[str]) -> None:
        pursuer, evader = self.grid.read(found[0])
        self._set({PURSUER: pursuer, EVADER: evader}, int(found["catches"]))
        self.moves, self.turn_of = int(found["moves"]), self.seat
