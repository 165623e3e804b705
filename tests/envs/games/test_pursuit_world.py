"""Compare PursuitWorld with an independent recursion over all moves."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Sequence

import pytest

from agentgym import ToolCall, make
from agentgym.envs.games.pursuit_world import (
    EVADER,
    PURSUER,
    Board,
    PursuitConfig,
    PursuitWorld,
    solve,
)
from agentgym.multi.game import Game
from agentgym.oracles import NoisyPolicy
from agentgym.world.splits import draw
from tests.multi.team_checks import call, play_match

Cell = tuple[int, int]
ORTHOGONAL = {(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)}
ALL = set(itertools.product((-1, 0, 1), repeat=2))
NAMES = {
    (0, 0): "stay", (-1, 0): "n", (-1, 1): "ne", (0, 1): "e", (1, 1): "se",
    (1, 0): "s", (1, -1): "sw", (0, -1): "w", (-1, -1): "nw",
}  # fmt: skip
PLENTY = 14  # more moves than any catch on these boards requires


class Recursion:
    """Recursion that decides whether the pursuer can force the remaining catches in time."""

    def __init__(self, size: int, walls: Collection[Cell], cells: Sequence[Cell]) -> None:
        self.size, self.walls, self.cells = size, set(walls), cells
        self.forces = functools.cache(self._forces)

    def after(self, cell: Cell, steps: Collection[Cell]) -> Iterator[Cell]:
        for step in steps:
            new = (cell[0] + step[0], cell[1] + step[1])
            if min(new) >= 0 and max(new) < self.size and new not in self.walls:
                yield new

    def _forces(self, pursuer: Cell, evader: Cell, catches: int, moves: int) -> bool:
        if catches == len(self.cells):
            return True
        return moves > 0 and any(
            self.holds(new, evader, catches, moves - 1) for new in self.after(pursuer, ALL)
        )

    def holds(self, pursuer: Cell, evader: Cell, catches: int, moves: int) -> bool:
        """Return whether the pursuer can force the catches if the evader moves next."""
        if pursuer == evader:
            return self._caught(pursuer, catches, moves)
        return all(
            self.replies(pursuer, new, catches, moves) for new in self.after(evader, ORTHOGONAL)
        )

    def replies(self, pursuer: Cell, evader: Cell, catches: int, moves: int) -> bool:
        if pursuer == evader:
            return self._caught(pursuer, catches, moves)
        return self.forces(pursuer, evader, catches, moves)

    def _caught(self, pursuer: Cell, catches: int, moves: int) -> bool:
        last = catches + 1 == len(self.cells)
        return last or self.forces(pursuer, self.cells[catches + 1], catches + 1, moves)

    def value(self, pursuer: Cell, evader: Cell, catches: int = 0) -> int | None:
        most = PLENTY * (len(self.cells) - catches)
        forced = (k for k in range(most) if self.forces(pursuer, evader, catches, k))
        return next(forced, None)


def recursion_of(world: PursuitWorld) -> Recursion:
    size = world.grid.size
    walls, cells = ([divmod(cell, size) for cell in each] for each in world.grid[1:])
    return Recursion(size, walls, cells)


BOARDS = [
    (3, [], [(0, 0)]),
    (3, [(1, 1)], [(2, 2)]),
    (4, [(1, 1), (1, 2), (2, 1), (2, 2)], [(3, 3)]),
    (4, [(0, 1), (2, 2)], [(3, 3), (0, 0)]),
]


@pytest.mark.parametrize(("size", "walls", "cells"), BOARDS)
def test_values_equal_those_of_a_recursion(size: int, walls: list[Cell], cells: list[Cell]) -> None:
    def number(cell: Cell) -> int:
        return cell[0] * size + cell[1]

    board = Board(size, tuple(map(number, walls)), tuple(map(number, cells)))
    search, stages = Recursion(size, walls, cells), solve(board)
    free = [cell for cell in itertools.product(range(size), repeat=2) if cell not in walls]
    for catches, (pursuer, evader) in itertools.product(
        range(len(cells)), itertools.product(free, repeat=2)
    ):
        value = int(stages[catches].pursuer[number(pursuer), number(evader)])
        assert (value if value < 1_000 else None) == search.value(pursuer, evader, catches)


@pytest.mark.parametrize("seed", range(6))
def test_optimal_moves_are_those_after_which_the_value_is_still_reached(seed: int) -> None:
    config = PursuitConfig(size=4, catches=2, wall_density=0.2)
    policy = NoisyPolicy("PursuitWorld", 0.4, seed)
    env = make("PursuitWorld", size=4, catches=2, wall_density=0.2)
    chat, _ = env.reset(seed=seed)
    world = env.unwrapped.world
    search, size = recursion_of(world), config.size
    over = False
    while not over:
        places = [divmod(world.places[name], size) for name in (PURSUER, EVADER)]
        value = search.value(*places, world.catches)
        assert value is not None
        best = [
            ToolCall("move", {"direction": name})
            for step, name in NAMES.items()
            for new in search.after(places[0], [step])
            if search.holds(new, places[1], world.catches, value - 1)
        ]
        assert set(map(str, world.optimal_calls())) == set(
            map(str, best if value <= world.turns_left else [])
        )
        chat, _, terminated, truncated, _ = env.step(policy([chat])[0].text)
        over = terminated or truncated


def test_perfect_play_of_both_takes_the_minimax_number_of_moves() -> None:
    for seed in range(3):
        game = play_match("PursuitWorld-match", seed, size=4, catches=2)
        assert game.rewards == {PURSUER: 1.0, EVADER: 1.0}


def test_an_evader_that_stands_still_is_caught_sooner() -> None:
    still = {PURSUER: "", EVADER: call("move", direction="stay")}
    game = play_match("PursuitWorld-match", 2, lambda _, agent: still[agent])
    assert game.rewards[PURSUER] > 1.0 > game.rewards[EVADER] > 0.0
    assert game.rewards[PURSUER] * game.rewards[EVADER] == pytest.approx(1.0)
    assert [game.infos[agent]["success"] for agent in game.agents] == [True, False]


@pytest.mark.parametrize("quitter", [PURSUER, EVADER])
def test_a_seat_that_stops_playing_costs_the_other_nothing(quitter: str) -> None:
    def reply_of(game: Game, agent: str) -> str:
        return "I quit." if agent == quitter and game.cycle >= 2 else ""

    options = {"budget_factor": 1.0, "budget_slack": 0}
    game = play_match("PursuitWorld-match", 2, reply_of, **options)
    other = PURSUER if quitter == EVADER else EVADER
    assert not game.terminated
    assert game.rewards[other] == 1.0 > game.rewards[quitter]


def test_every_default_board_lets_the_pursuer_win() -> None:
    for seed in range(30):
        assert 3 <= draw(PursuitWorld, PursuitConfig(wall_density=0.25), seed).value < 60
