"""Compare GridWorld with a simulation of all positions, remaining moves and replies."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pytest

from agentgym import ToolCall, render
from agentgym.envs.lumina.grid_world import GridConfig, GridWorld
from agentgym.world.splits import draw
from tests.helpers import play, say, start

Cell = tuple[int, int]

STEPS: Mapping[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
UP, DOWN, LEFT, RIGHT, DONE = (ToolCall(name, {}) for name in (*STEPS, "done"))


@dataclass(frozen=True)
class Board:
    size: int
    goal: Cell
    holes: Collection[Cell] = ()
    penalty: int = 3

    @property
    def cells(self) -> list[Cell]:
        return list(itertools.product(range(self.size), repeat=2))

    def step(self, cell: Cell, direction: str) -> tuple[Cell, int]:
        there = (cell[0] + STEPS[direction][0], cell[1] + STEPS[direction][1])
        if there not in self.cells:
            return cell, 1
        return there, 1 + self.penalty * (there in self.holes)

    def task(self, position: Cell, budget: int = 1_000) -> str:
        holes = ", ".join(map(str, self.holes)) or "none"
        return (
            f"Board size: {self.size} x {self.size}\nStart: {position}\nGoal: {self.goal}\nHoles: {holes}\n"
            f"A step into a hole costs {self.penalty} more moves.\nMove budget: {budget}"
        )


def simulate(board: Board) -> list[set[Cell]]:
    """Return the sets of cells from which the goal is reachable in 0, 1, 2, … moves."""
    moves = {cell: [board.step(cell, direction) for direction in STEPS] for cell in board.cells}
    winning: list[set[Cell]] = []
    while not winning or len(winning[-1]) < len(moves):
        left = len(winning)
        # After a step that costs all remaining moves, `done` is still possible.
        reached = (
            cell
            for cell in moves
            if any(cost <= left and there in winning[left - cost] for there, cost in moves[cell])
        )
        winning.append({board.goal, *reached})
    return winning


def best_calls(board: Board, winning: list[set[Cell]], cell: Cell) -> list[ToolCall]:
    """Return the optimal calls if the remaining moves are just enough to reach the goal."""
    if cell == board.goal:
        return [DONE]
    left = cheapest(winning, cell)
    outcomes = {direction: board.step(cell, direction) for direction in STEPS}
    return [
        ToolCall(name, {})
        for name, (there, cost) in outcomes.items()
        if cost <= left and there in winning[left - cost]
    ]


def cheapest(winning: list[set[Cell]], cell: Cell) -> int:
    return next(left for left, cells in enumerate(winning) if cell in cells)


def check_every_position(board: Board) -> None:
    winning = simulate(board)
    world = GridWorld.read_task(board.task(board.goal))
    for cell in board.cells:
        world.position = cell
        best, cost = best_calls(board, winning, cell), cheapest(winning, cell)
        for moves in (cost, cost + 1, cost + 50):
            world.max_turns = moves + 1
            assert list(world.optimal_calls()) == best, (board, cell)
        world.max_turns = cost
        assert not world.optimal_calls(), (board, cell)


def random_board(rng: random.Random) -> Board:
    size = rng.randint(1, 6)
    cells = list(itertools.product(range(size), repeat=2))
    return Board(
        size, rng.choice(cells), rng.sample(cells, rng.randint(0, len(cells))), rng.randint(0, 7)
    )


@pytest.mark.parametrize("count", [300, pytest.param(2**9 * 9, marks=pytest.mark.exhaustive)])
def test_every_position_of_boards_of_three_has_the_cost_and_optimal_set_of_a_simulation(
    count: int,
) -> None:
    cells = Board(3, (0, 0)).cells
    for number in random.Random(0).sample(range(2**9 * 9), count):
        mask, goal = divmod(number, 9)
        holes = [cell for k, cell in enumerate(cells) if mask >> k & 1]
        check_every_position(Board(3, cells[goal], holes))


@pytest.mark.parametrize("count", [60, pytest.param(2_000, marks=pytest.mark.exhaustive)])
def test_random_boards_with_random_penalties_have_the_cost_and_optimal_set_of_a_simulation(
    count: int,
) -> None:
    rng = random.Random(count)
    for _ in range(count):
        check_every_position(random_board(rng))


ILLEGAL = [
    *("I am lost.", "", "up", "up()"),
    render(ToolCall("jump", {})),
    render(ToolCall("up", {"cells": 2})),
    render(UP) * 2,
]


def test_every_reply_moves_and_costs_what_the_rules_say() -> None:
    rng = random.Random(1)
    for _ in range(300):
        board = random_board(rng)
        cell, left = rng.choice(board.cells), rng.randint(0, 25)
        env = start("GridWorld", task=board.task(cell, left))
        outcome = None
        while outcome is None or outcome.going_on:
            name = rng.choice([*STEPS, *STEPS, "", "done"])
            outcome = say(env, render(ToolCall(name, {})) if name else rng.choice(ILLEGAL))
            if name == "done":
                assert (outcome.reward, outcome.terminated) == (float(cell == board.goal), True)
                break
            there, cost = board.step(cell, name) if name else (cell, 1)
            left -= cost
            if name:
                assert outcome.text == told(board, cell, there, left)
            cell = there
            assert (env.world.position, env.world.moves_left) == (cell, left)
            assert (outcome.truncated, outcome.terminated, outcome.reward) == (left < 0, False, 0.0)


def told(board: Board, cell: Cell, there: Cell, left: int) -> str:
    if there == cell:
        return f"error: the board ends there; you stay at {cell}. Remaining moves: {left}"
    hole = "You stepped into a hole. " if there in board.holes else ""
    return f"{hole}You are at {there}. Remaining moves: {left}"


def test_steps_off_the_board_are_not_legal() -> None:
    for cell, legal in {(0, 0): [DOWN, RIGHT, DONE], (2, 2): [UP, LEFT, DONE]}.items():
        world = GridWorld.read_task(Board(3, (1, 1)).task(cell))
        assert list(world.legal_calls()) == legal


# The drawn instances.


def test_the_budget_is_in_moves_and_follows_from_the_cost_of_a_cheapest_path() -> None:
    for seed in range(40):
        world = start(
            "GridWorld", seed=seed, size=4, hole_density=0.5, budget_factor=1.5, budget_slack=2
        ).world
        board = Board(4, world.goal, list(world.holes), world.penalty)
        cost = cheapest(simulate(board), world.position)
        assert world.moves_left == -(-3 * cost // 2) + 2
        assert world.task() == board.task(world.position, world.moves_left)


@pytest.mark.parametrize(("density", "holes"), [(0.0, 0), (0.2, 3), (0.5, 8), (1.0, 15)])
def test_holes_are_as_many_as_asked_for_distinct_and_never_on_the_start(
    density: float, holes: int
) -> None:
    seen, on_goal = set[Cell](), False
    for seed in range(60):
        world = start("GridWorld", seed=seed, size=4, hole_density=density).world
        assert len(world.holes) == holes
        assert world.position not in world.holes
        on_goal |= world.goal in world.holes
        seen |= world.holes.keys()
    assert len(seen) == (16 if holes else 0)
    assert on_goal is bool(holes)


@pytest.mark.parametrize("distance", [*range(5), None])
def test_start_and_goal_are_exactly_that_far_apart_and_can_be_any_such_pair(
    distance: int | None,
) -> None:
    cells = Board(3, (0, 0)).cells
    pairs = {
        (a, b)
        for a in cells
        for b in cells
        if distance in (None, abs(a[0] - b[0]) + abs(a[1] - b[1]))
    }
    env = start("GridWorld", size=3, distance=distance)
    drawn = set()
    for seed in range(800):
        env.reset(seed=seed)
        drawn.add((env.world.position, env.world.goal))
    assert drawn == pairs


def test_a_board_of_one_cell_is_solved_by_done() -> None:
    env = start("GridWorld", size=1, hole_density=1.0)
    assert not env.world.holes
    assert play(env, DONE).reward == 1.0


@pytest.mark.parametrize("holes", [0, 1, 119, 120])
def test_the_number_of_instances_is_a_lower_bound(holes: int) -> None:
    config = GridConfig(size=11, hole_density=holes / 121)
    assert config.holes == holes
    keys = {draw(GridWorld, config, seed).instance_key() for seed in range(400)}
    assert len(keys) > 300
    # A single hole, or a single free cell besides the start, can be at any of 120 positions.
    assert GridWorld.instance_count(config) == (120 if holes in (1, 119) else None)
    assert GridWorld.instance_count(GridConfig(size=10, hole_density=0.1)) is None
