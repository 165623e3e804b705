"""GridWorld against a simulation of every position and number of remaining moves."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pytest

from agentgym import ToolCall, render
from agentgym.envs.lumina.grid_world import GridWorld
from tests.helpers import play, play_optimally, say, start

Cell = tuple[int, int]

STEPS: Mapping[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
UP, DOWN, LEFT, RIGHT, DONE = (ToolCall(name, {}) for name in (*STEPS, "done"))


@dataclass(frozen=True)
class Board:
    """An independent implementation of the rules."""

    size: int
    goal: Cell
    holes: Collection[Cell] = ()
    penalty: int = 3

    @property
    def cells(self) -> list[Cell]:
        return list(itertools.product(range(self.size), repeat=2))

    def step(self, cell: Cell, direction: str) -> tuple[Cell, int]:
        """Return a step's destination and cost."""
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
    """Return the cells from which the goal is reachable for 0, 1, 2, … moves, until no cell is
    left.
    """
    moves = {cell: [board.step(cell, direction) for direction in STEPS] for cell in board.cells}
    winning: list[set[Cell]] = []
    while not winning or len(winning[-1]) < len(moves):
        left = len(winning)
        # A step that costs all remaining moves still allows done, so `winning[0]` counts.
        reached = (
            cell
            for cell in moves
            if any(cost <= left and there in winning[left - cost] for there, cost in moves[cell])
        )
        winning.append({board.goal, *reached})
    return winning


def best_calls(board: Board, winning: list[set[Cell]], cell: Cell) -> list[ToolCall]:
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


def boards_of_three() -> list[Board]:
    cells = list(itertools.product(range(3), repeat=2))
    hole_sets = [[cell for k, cell in enumerate(cells) if mask >> k & 1] for mask in range(2**9)]
    return [Board(3, goal, holes) for holes in hole_sets for goal in cells]


def random_board(rng: random.Random) -> Board:
    size = rng.randint(1, 6)
    cells = list(itertools.product(range(size), repeat=2))
    return Board(
        size, rng.choice(cells), rng.sample(cells, rng.randint(0, len(cells))), rng.randint(0, 7)
    )


def test_every_position_of_sampled_boards_of_three_has_the_cost_and_optimal_set_of_a_simulation() -> (
    None
):
    for board in random.Random(0).sample(boards_of_three(), 300):
        check_every_position(board)


@pytest.mark.exhaustive
def test_every_position_of_every_board_of_three_has_the_cost_and_optimal_set_of_a_simulation() -> (
    None
):
    for board in boards_of_three():
        check_every_position(board)


@pytest.mark.parametrize("count", [60, pytest.param(2_000, marks=pytest.mark.exhaustive)])
def test_random_boards_with_random_penalties_have_the_cost_and_optimal_set_of_a_simulation(
    count: int,
) -> None:
    rng = random.Random(count)
    for _ in range(count):
        check_every_position(random_board(rng))


def test_every_reply_moves_and_costs_what_the_rules_say() -> None:
    # Random replies include steps off the board and unreadable ones.
    rng = random.Random(1)
    for _ in range(150):
        board = random_board(rng)
        cell, left = rng.choice(board.cells), rng.randint(0, 25)
        env = start("GridWorld", task=board.task(cell, left))
        going_on = True
        while going_on:
            direction = rng.choice([*STEPS, ""])
            outcome = say(env, render(ToolCall(direction, {})) if direction else "I am lost.")
            cell, cost = board.step(cell, direction) if direction else (cell, 1)
            left -= cost
            assert (env.world.position, env.world.moves_left) == (cell, left)
            assert outcome.text.endswith(f"Remaining moves: {left}") == bool(direction)
            assert (outcome.truncated, outcome.terminated, outcome.reward) == (left < 0, False, 0.0)
            going_on = left >= 0


# Wrong ways to compute the cost; a missing cell is one that they consider unreachable.


def manhattan(board: Board) -> dict[Cell, int]:
    return {
        cell: abs(cell[0] - board.goal[0]) + abs(cell[1] - board.goal[1]) for cell in board.cells
    }


def charging_the_cell_that_is_left(board: Board) -> dict[Cell, int]:
    costs = {board.goal: 0}
    for _ in board.cells:
        for cell in board.cells:
            ways = [costs[there] for d in STEPS if (there := board.step(cell, d)[0]) in costs]
            if ways and cell != board.goal:
                costs[cell] = min(ways) + 1 + board.penalty * (cell in board.holes)
    return costs


def holes_as_walls(board: Board) -> dict[Cell, int]:
    winning = [{board.goal}]
    for _ in board.cells:
        near = {
            c
            for c in board.cells
            for d in STEPS
            if board.step(c, d)[0] in winning[-1] - set(board.holes)
        }
        winning.append(winning[-1] | near)
    return {cell: cheapest(winning, cell) for cell in winning[-1]}


def two_ended_queue(board: Board) -> dict[Cell, int]:
    """0-1 breadth-first search, right only for weights 0 and w: holes go to the back."""
    costs: dict[Cell, int] = {}
    waiting = deque([(board.goal, 0)])
    while waiting:
        cell, cost = waiting.popleft()
        if cell in costs:
            continue
        costs[cell] = cost
        hole = cell in board.holes
        for near in (board.step(cell, d)[0] for d in STEPS):
            (waiting.append if hole else waiting.appendleft)(
                (near, cost + 1 + board.penalty * hole)
            )
    return costs


def calls_from(board: Board, costs: Mapping[Cell, int], cell: Cell) -> list[ToolCall]:
    outcomes = {direction: board.step(cell, direction) for direction in STEPS}
    return [
        ToolCall(direction, {})
        for direction, (there, cost) in outcomes.items()
        if cell in costs and there in costs and there != cell and costs[cell] == cost + costs[there]
    ]


HOLE_BETWEEN = Board(3, goal=(0, 2), holes=[(0, 1)])


@pytest.mark.parametrize(
    ("variant", "board", "cell", "wrong", "right"),
    [
        (manhattan, HOLE_BETWEEN, (0, 0), (2, []), (4, [DOWN])),
        (manhattan, Board(3, (0, 0), [(0, 1)]), (1, 2), (3, [UP, LEFT]), (3, [LEFT])),
        (charging_the_cell_that_is_left, HOLE_BETWEEN, (0, 1), (4, []), (1, [RIGHT])),
        (
            charging_the_cell_that_is_left,
            Board(3, (0, 2), [(0, 1), (1, 0)]),
            (1, 0),
            (6, [UP]),
            (3, [RIGHT]),
        ),
        (charging_the_cell_that_is_left, Board(3, (0, 2), [(0, 2)]), (0, 1), (1, []), (4, [RIGHT])),
        (
            holes_as_walls,
            Board(2, (1, 1), [(0, 1), (1, 0)]),
            (0, 0),
            (None, []),
            (5, [DOWN, RIGHT]),
        ),
        (holes_as_walls, Board(3, (0, 0), [(0, 1), (1, 1)]), (0, 2), (6, [DOWN]), (5, [LEFT])),
        (two_ended_queue, Board(3, (0, 0)), (1, 0), (5, [RIGHT]), (1, [UP])),
        (two_ended_queue, Board(3, (0, 0)), (1, 2), (3, [UP]), (3, [UP, LEFT])),
    ],
)
def test_a_wrong_cost_fails_where_the_world_agrees_with_the_simulation(
    variant: Callable[[Board], dict[Cell, int]],
    board: Board,
    cell: Cell,
    wrong: tuple[int | None, list[ToolCall]],
    right: tuple[int, list[ToolCall]],
) -> None:
    costs, winning = variant(board), simulate(board)
    assert (costs.get(cell), calls_from(board, costs, cell)) == wrong
    assert (cheapest(winning, cell), best_calls(board, winning, cell)) == right
    world = start("GridWorld", task=board.task(cell, right[0])).world
    assert list(world.optimal_calls()) == right[1]


# Budget traps, through the text interface.


def test_with_no_move_left_at_the_goal_done_is_still_allowed_and_succeeds() -> None:
    env = start("GridWorld", task=HOLE_BETWEEN.task((1, 2), budget=1))
    outcome = play(env, UP)
    assert outcome.text == "You are at (0, 2). Remaining moves: 0"
    assert outcome.going_on
    assert env.world.optimal_calls() == (DONE,)
    outcome = play(env, DONE)
    assert (outcome.reward, outcome.terminated, outcome.truncated) == (1.0, True, False)


def test_an_optimal_path_in_an_exact_budget_succeeds() -> None:
    for seed in range(30):
        env = start("GridWorld", seed=seed, budget_factor=1.0, budget_slack=0, hole_density=0.5)
        outcome = play_optimally(env)
        assert (outcome.reward, outcome.terminated, env.world.turns_left) == (1.0, True, 0)


@pytest.mark.parametrize(("budget", "left"), [(0, -4), (1, -3), (3, -1)])
def test_a_hole_entered_with_too_few_moves_ends_the_episode_at_once(budget: int, left: int) -> None:
    env = start("GridWorld", task=HOLE_BETWEEN.task((0, 0), budget))
    outcome = play(env, RIGHT)
    assert outcome.text == f"You stepped into a hole. You are at (0, 1). Remaining moves: {left}"
    assert (outcome.reward, outcome.terminated, outcome.truncated) == (0.0, False, True)


def test_a_hole_entered_with_just_enough_moves_does_not_end_the_episode() -> None:
    env = start("GridWorld", task=HOLE_BETWEEN.task((0, 0), budget=4))
    assert play(env, RIGHT).going_on
    assert env.world.moves_left == 0


def test_the_goal_does_not_count_if_the_hole_on_it_overdraws_the_moves() -> None:
    env = start("GridWorld", task=Board(2, (0, 1), [(0, 1)]).task((0, 0), budget=3))
    assert not env.world.optimal_calls()
    outcome = play(env, RIGHT)
    assert env.world.position == env.world.goal
    assert (outcome.reward, outcome.truncated) == (0.0, True)


def test_a_goal_that_is_a_hole_costs_the_penalty() -> None:
    env = start("GridWorld", task=Board(2, (0, 1), [(0, 1)]).task((0, 0), budget=4))
    assert env.world.optimal_calls() == (RIGHT,)
    assert play(env, RIGHT).text == "You stepped into a hole. You are at (0, 1). Remaining moves: 0"
    assert play(env, DONE).reward == 1.0


def test_a_hole_costs_the_penalty_each_time_it_is_entered_and_nothing_to_leave() -> None:
    env = start("GridWorld", task=HOLE_BETWEEN.task((0, 0), budget=20))
    told = [play(env, call).text.rpartition(": ")[2] for call in (RIGHT, LEFT, RIGHT, RIGHT)]
    assert told == ["16", "15", "11", "10"]


def test_after_the_last_move_away_from_the_goal_only_done_is_left_and_it_fails() -> None:
    env = start("GridWorld", task=HOLE_BETWEEN.task((0, 0), budget=1))
    assert play(env, DOWN).going_on
    assert not env.world.optimal_calls()
    outcome = play(env, DONE)
    assert (outcome.reward, outcome.terminated, outcome.truncated) == (0.0, True, False)


@pytest.mark.parametrize(
    ("call", "corner"), [(UP, (0, 0)), (LEFT, (0, 0)), (DOWN, (2, 2)), (RIGHT, (2, 2))]
)
def test_a_step_off_the_board_costs_one_move_and_is_neither_legal_nor_optimal(
    call: ToolCall, corner: Cell
) -> None:
    env = start("GridWorld", task=Board(3, (1, 1), [(0, 0), (2, 2)]).task(corner, budget=5))
    assert call not in env.world.optimal_calls()
    assert call not in env.world.legal_calls()
    outcome = play(env, call)
    assert outcome.text == f"error: the board ends there; you stay at {corner}. Remaining moves: 4"
    assert (env.world.position, env.world.moves_left) == (corner, 4)
    assert outcome.going_on


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "up",
        "up()",
        render(ToolCall("jump", {})),
        render(ToolCall("up", {"cells": 2})),
        render(UP) * 2,
    ],
)
def test_a_reply_that_makes_no_legal_call_costs_a_move(reply: str) -> None:
    env = start("GridWorld", task=Board(3, (0, 0)).task((1, 0), budget=1))
    assert say(env, reply).going_on
    assert (env.world.position, env.world.moves_left) == ((1, 0), 0)
    assert not env.world.optimal_calls()
    assert say(env, reply).truncated


def test_at_the_goal_from_the_start_only_done_is_optimal_and_it_needs_no_move() -> None:
    env = start("GridWorld", distance=0, budget_factor=1.0, budget_slack=0)
    assert env.world.moves_left == 0
    assert env.world.optimal_calls() == (DONE,)
    assert play(env, DONE).reward == 1.0


def test_a_step_away_from_the_goal_can_be_walked_back() -> None:
    env = start("GridWorld", task=Board(3, (1, 1)).task((1, 1), budget=2))
    play(env, UP)
    assert env.world.optimal_calls() == (DOWN,)
    assert play(env, DOWN, DONE).reward == 1.0


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
    seen: set[Cell] = set()
    for seed in range(60):
        world = start("GridWorld", seed=seed, size=4, hole_density=density).world
        assert len(world.holes) == holes
        assert world.position not in world.holes
        seen |= world.holes.keys()
    assert len(seen) == (16 if holes else 0)


def test_the_goal_is_a_hole_in_some_instances() -> None:
    worlds = [start("GridWorld", seed=seed, hole_density=0.5).world for seed in range(20)]
    assert {world.goal in world.holes for world in worlds} == {True, False}


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


@pytest.mark.parametrize("steps", [1, 2, 9, 60])
def test_at_horizon_gives_instances_that_take_that_many_turns_where_no_hole_is_in_the_way(
    steps: int,
) -> None:
    env = start("GridWorld", hole_density=0.0, **GridWorld.config_for_horizon(steps))
    outcome = play_optimally(env)
    assert (outcome.reward, outcome.turn) == (1.0, steps)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"size": 0}, "size must be an integer in [1, 2000], got 0"),
        ({"size": 4, "distance": 7}, "distance must be an integer in [0, 6], got 7"),
        ({"hole_density": 1.5}, "hole_density must be a number in [0.0, 1.0], got 1.5"),
        ({"hole_penalty": -1}, "hole_penalty must be an integer in [0, 1000], got -1"),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_value_and_its_range(
    options: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared whole
        start("GridWorld", **options)
    assert str(refused.value) == why


@pytest.mark.parametrize("steps", [0, 4_000])
def test_at_horizon_refuses_what_no_configuration_takes(steps: int) -> None:
    with pytest.raises(
        ValueError, match=rf"horizon must be an integer in \[1, 3999\], got {steps}"
    ):
        GridWorld.config_for_horizon(steps)
