"""GridWorld: walk to a goal on a board with holes (LUMINA, section 4.1 and appendix A.3)."""

from __future__ import annotations

import functools
import re
from array import array
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.lumina.prompts import TEXTS, LuminaConfig, without_frame
from agentgym.envs.reading import expect
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, tool
from agentgym.text.validation import check_int
from agentgym.world.config import Share
from agentgym.world.digests import digest
from agentgym.world.splits import MIN_INSTANCES
from agentgym.world.world import World

Cell = tuple[int, int]

_DONE = ToolCall("done", {})
_MAX_SIZE = 2_000  # with four million cells, finding a cheapest path takes seconds
# Cells to draw on each side of the agent, so that 31 columns fit into an 80-column terminal.
_SIGHT = 15
_MOVES: Mapping[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_CATALOG = (*(ToolCall(direction, {}) for direction in _MOVES), _DONE)
_LOST = "The goal can no longer be reached within the budget."
_CELL = re.compile(r"\(([0-9]+), ([0-9]+)\)")
_NUMBER = re.compile(r"[0-9]+")
_TASK = re.compile(
    r"Board size: ([0-9]+) x [0-9]+\n(?:Start: ([^\n]*)\n)?Goal: ([^\n]*)\nHoles: ([^\n]*)\n"
    r"A step into a hole costs ([0-9]+) more moves\.(?:\nMove budget: (-?[0-9]+))?.*",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class GridConfig(LuminaConfig):
    """Options of GridWorld. The budget counts moves; T* (the optimum) is the cost of a cheapest path.

    Attributes:
        size: The number of rows and columns.
        hole_density: The share of cells that are holes. The start is never a hole.
        hole_penalty: The number of additional moves that entering a hole costs.
        distance: The distance between start and goal in steps, ignoring holes, at most
            `2 * (size - 1)`. If None, start and goal are drawn independently.
    """

    texts: ClassVar[Mapping[str, str]] = TEXTS["grid"]

    size: Annotated[int, Field(ge=1, le=_MAX_SIZE)] = 6
    hole_density: Share = 0.2
    hole_penalty: Annotated[int, Field(ge=0, le=1_000)] = 3
    distance: Annotated[int, Field(ge=0, le=2 * (_MAX_SIZE - 1))] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance is not None:
            check_int("distance", self.distance, 0, 2 * (self.size - 1))

    @property
    def holes(self) -> int:
        """The number of holes; the start is never a hole."""
        cells = self.size**2
        return min(round(self.hole_density * cells), cells - 1)


class GridWorld(World[GridConfig]):
    """Walk from a start to a goal on a board with holes.

    Every turn except `done` uses one move, even if the call fails. Entering a hole also costs the
    penalty. The turn budget is one more than the number of remaining moves.
    """

    Config = GridConfig
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "vertical": ("up", "down"),
        "horizontal": ("left", "right", "done"),
    }
    parallel_calls = False
    horizon_unit = "turns of the shortest way, were there no holes"

    def generate(self) -> None:
        config, rng = self.config, self.rng
        start, goal = _draw_ends(config.size, config.distance, rng)
        cells = config.size**2
        # Draw from one cell fewer, and skip the start by increasing later indices by one.
        sample = rng.choice(cells - 1, size=config.holes, replace=False)
        free = start[0] * config.size + start[1]
        numbers = sample + (sample >= free)
        holes = [divmod(number, config.size) for number in sorted(numbers.tolist())]
        self._start(config.size, start, goal, holes, config.hole_penalty)
        # one more turn for `done`
        self.max_turns = config.budget(self._cost(start)) + 1

    def instance_key(self) -> str:
        return digest([self.size, self.position, self.goal, set(self.holes)])

    @classmethod
    def instance_count(cls, config: GridConfig) -> int | None:
        # The holes have at least `places` possible arrangements, unless no cell or every cell is a
        # hole. If None is returned, the caller counts samples, which is slow on large boards.
        places = config.size**2 - 1
        return places if 0 < config.holes < places and places > MIN_INSTANCES else None

    def _start(
        self, size: int, start: Cell, goal: Cell, holes: Collection[Cell], penalty: int
    ) -> None:
        self.size, self.position, self.goal = size, start, goal
        self.holes = dict.fromkeys(holes)
        self.penalty = penalty
        self._costs = costs_to(goal, size, tuple(self.holes), penalty)

    def _cost(self, cell: Cell) -> int:
        return self._costs[cell[0] * self.size + cell[1]]

    @property
    def moves_left(self) -> int:
        """The number of remaining moves; `done` does not use a move."""
        return self.turns_left - 1

    def rules(self) -> str:
        return self.config.rules()

    def task(self) -> str:
        board = self._board(f"Start: {self.position}\n")
        return self.config.frame(f"{board}\nMove budget: {self.moves_left}")

    def restate(self) -> str:
        return self.config.frame(self._board())

    def _board(self, start: str = "") -> str:
        holes = ", ".join(map(str, self.holes)) or "none"
        return (
            f"Board size: {self.size} x {self.size}\n{start}Goal: {self.goal}\nHoles: {holes}\n"
            f"A step into a hole costs {self.penalty} more moves."
        )

    def board(self) -> str:
        """Draw the cells around the agent `A`, with the goal `G` and holes `O`."""
        rows, columns = map(self._window, self.position)
        marks = {**dict.fromkeys(self.holes, "O"), self.goal: "G", self.position: "A"}
        # Show only the last digit of each index to keep the columns narrow.
        lines = ["     " + " ".join(str(column % 10) for column in columns)]
        for row in rows:
            cells = [marks.get((row, column), ".") for column in columns]
            lines.append(f"{row:4} {' '.join(cells)}")
        return "\n".join(lines)

    def _window(self, centre: int) -> range:
        first = max(0, min(centre - _SIGHT, self.size - 2 * _SIGHT - 1))
        return range(first, min(self.size, first + 2 * _SIGHT + 1))

    @tool
    def up(self) -> str:
        """Step to the cell above (row - 1)."""
        return self._move("up")

    @tool
    def down(self) -> str:
        """Step to the cell below (row + 1)."""
        return self._move("down")

    @tool
    def left(self) -> str:
        """Step to the cell on the left (column - 1)."""
        return self._move("left")

    @tool
    def right(self) -> str:
        """Step to the cell on the right (column + 1)."""
        return self._move("right")

    @tool(final=True, name="done")
    def finish(self) -> str:
        """Finish the task, once you are at the goal."""
        return "The task is finished."

    def _move(self, direction: str) -> str:
        cell = self._next(direction)
        if cell is None:
            raise ToolError(
                f"the board ends there; you stay at {self.position}. Remaining moves: "
                f"{self.moves_left}"
            )
        self.position = cell
        notice = ""
        if cell in self.holes:
            self.max_turns = (self.max_turns or 0) - self.penalty
            notice = "You stepped into a hole. "
        return f"{notice}You are at {self.position}. Remaining moves: {self.moves_left}"

    def _next(self, direction: str) -> Cell | None:
        down, right = _MOVES[direction]
        row = self.position[0] + down
        column = self.position[1] + right
        if 0 <= row < self.size and 0 <= column < self.size:
            return row, column
        return None

    def score(self) -> float:
        """Return 1 if `done` was called at the goal within the budget, else 0."""
        return float(self.done and self.position == self.goal)

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 1, 3_999)
        return {"size": min(2_000, max(4, steps)), "distance": steps - 1}

    def optimal_calls(self) -> Sequence[ToolCall]:
        """Return each cheapest path's first step, `done` at the goal, or () with too few moves."""
        cost = self._cost(self.position)
        if self.done or self.moves_left < cost:
            return ()
        if self.position == self.goal:
            return (_DONE,)
        calls = []
        for direction in _MOVES:
            cell = self._next(direction)
            if cell and cost == 1 + self.penalty * (cell in self.holes) + self._cost(cell):
                calls.append(ToolCall(direction, {}))
        return tuple(calls)

    def legal_calls(self) -> Sequence[ToolCall]:
        return (*(ToolCall(direction, {}) for direction in _MOVES if self._next(direction)), _DONE)

    def action_catalog(self) -> Sequence[ToolCall]:
        return _CATALOG

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [-1, 1], shape `(2 * (2 * size - 1)**2 + 3,)`.

        The first two blocks are row-major maps centred on the agent. The first map is 1 at holes
        and -1 off the board; the second is 1 at the goal. The last features are the distances to
        the goal in rows and columns divided by `size`, and the turns left divided by the number of
        turns on the most expensive path.
        """
        size, (row, column), (goal_row, goal_column) = self.size, self.position, self.goal
        view = np.zeros((2, 2 * size - 1, 2 * size - 1), np.float32)
        view[0] = -1
        top, left = size - 1 - row, size - 1 - column
        board = view[:, top : top + size, left : left + size]
        board[0] = 0
        for hole in self.holes:
            board[0][hole] = 1
        board[1][self.goal] = 1
        # on the most expensive path, every step enters a hole
        max_turns = 2 * (size - 1) * (1 + self.penalty) + 1
        turns = min(max(self.turns_left / max_turns, 0), 1)
        ends = (goal_row - row) / size, (goal_column - column) / size, turns
        return np.concatenate((view.ravel(), ends), dtype=np.float32)

    def state(self) -> str:
        return (
            f"You are at {self.position}. The goal is {self.goal}. Remaining moves: "
            f"{self.moves_left}"
        )

    def subtask(self, with_state: bool) -> str:
        """Return the next cell of a cheapest path, but not the direction."""
        calls = self.optimal_calls()
        return self.subtask_for(calls[0], with_state) if calls else _LOST

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        if call == _DONE:
            return "You are at the goal: finish."
        return f"Enter cell {self._next(call.name)} next."

    @classmethod
    def read_task(cls, task: str) -> Self:
        match = expect(_TASK.fullmatch(without_frame(task)), "a task of GridWorld", task)
        board, start, goal, holes, cost, budget = match.groups()
        world = cls(GridConfig(), 0)
        # If the task does not contain the start, use the goal until a state is read.
        first, last = _read_cells(f"{start or goal} {goal}")
        world._start(int(board), first, last, _read_cells(holes), int(cost))
        world.max_turns = int(budget) + 1 if budget else None
        return world

    def read_result(self, call: ToolCall, result: str) -> None:
        if call.name in _MOVES and self._next(call.name):
            self._move(call.name)

    def read_state(self, state: str) -> None:
        self.position = _read_cells(state)[0]
        self.set_turns_left(int(_NUMBER.findall(state)[-1]) + 1)

    def read_subtask(self, subtask: str) -> ToolCall | None:
        if "finish" in subtask:
            return _DONE
        cells = _read_cells(subtask)[:1]
        for direction in _MOVES:
            if [self._next(direction)] == cells:
                return ToolCall(direction, {})
        return None


# Cached, because several episodes and policies may need the costs for the same board.
@functools.lru_cache(maxsize=4)
def costs_to(goal: Cell, size: int, holes: tuple[Cell, ...], penalty: int) -> array[int]:
    """Return the cost of a cheapest path from each cell to the goal, in row-major order.

    Run Dijkstra's algorithm backwards from the goal in O(size**2), with one bucket per cost.
    """
    costs = [-1] * size**2
    hole_indices = {row * size + column for row, column in holes}
    buckets = defaultdict[int, list[int]](list)
    buckets[0].append(goal[0] * size + goal[1])
    cost = 0
    while buckets:
        for cell in buckets.pop(cost, ()):
            # Buckets are processed in order of cost, so the first visit has the lowest cost.
            if costs[cell] < 0:
                costs[cell] = cost
                price = 1 + penalty * (cell in hole_indices)
                buckets[cost + price] += _neighbours(cell, size)
        cost += 1
    # An array uses an eighth of the memory of a list.
    return array("i", costs)


def _neighbours(cell: int, size: int) -> list[int]:
    column = cell % size
    neighbours = [other for other in (cell - size, cell + size) if 0 <= other < size**2]
    if column > 0:
        neighbours.append(cell - 1)
    if column < size - 1:
        neighbours.append(cell + 1)
    return neighbours


def _draw_ends(size: int, distance: int | None, rng: np.random.Generator) -> tuple[Cell, Cell]:
    if distance is None:
        start, goal = rng.integers(size**2, size=2).tolist()
        return divmod(start, size), divmod(goal, size)
    # With these bounds, both ends of the path are on the board.
    least, most = max(0, distance - size + 1), min(distance, size - 1)
    down = int(rng.integers(least, most + 1))
    right = distance - down
    top = int(rng.integers(size - down))
    left = int(rng.integers(size - right))
    start, goal = (top, left), (top + down, left + right)
    if rng.random() < 0.5:  # mirror the path
        start, goal = (start[0], goal[1]), (goal[0], start[1])
    return (start, goal) if rng.random() < 0.5 else (goal, start)


def _read_cells(text: str) -> list[Cell]:
    return [(int(row), int(column)) for row, column in _CELL.findall(text)]
