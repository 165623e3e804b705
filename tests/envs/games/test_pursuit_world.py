"""PursuitWorld against a recursion over all moves that shares no code with it."""

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
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.world.splits import draw

Cell = tuple[int, int]
ORTHOGONAL = {(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)}
ALL = set(itertools.product((-1, 0, 1), repeat=2))
NAMES = {
    (0, 0): "stay", (-1, 0): "n", (-1, 1): "ne", (0, 1): "e", (1, 1): "se",
    (1, 0): "s", (1, -1): "sw", (0, -1): "w", (-1, -1): "nw",
}  # fmt: skip
PLENTY = 14  # moves, more than a catch on these boards takes


class Recursion:
    """Whether the pursuer can force the catches from one on within some moves."""

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
        """Return whether the pursuer still forces the catches once it has moved."""
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
        expected = search.value(pursuer, evader, catches)
        assert (value if value < 1_000 else None) == expected


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


def test_the_evader_chooses_the_moves_that_delay_most() -> None:
    env = make("PursuitWorld-match", size=4, catches=2)
    env.reset(seed=1)
    game, policy = env.unwrapped.game, TeamPolicy("PursuitWorld-match")
    compared = 0
    while not game.over:
        (agent,) = game.due
        world = game.team.worlds[agent]
        if agent == EVADER:
            search = recursion_of(world)
            pursuer, evader = (divmod(world.places[name], 4) for name in (PURSUER, EVADER))
            lasts = {
                name: next(k for k in range(40) if search.replies(pursuer, new, world.catches, k))
                for step, name in NAMES.items()
                if step in ORTHOGONAL
                for new in search.after(evader, [step])
            }
            best = {name for name, last in lasts.items() if last == max(lasts.values())}
            assert {call.arguments["direction"] for call in world.optimal_calls()} == best
            compared += 1
        game.play(agent, policy([game.chats[agent]])[0].text)
        game.end_cycle()
    assert compared >= 3
    assert game.rewards == {PURSUER: 1.0, EVADER: 1.0}


def test_an_evader_that_stands_still_is_caught_sooner() -> None:
    env = make("PursuitWorld-match")
    env.reset(seed=2)
    game, policy = env.unwrapped.game, TeamPolicy("PursuitWorld-match")
    while not game.over:
        (agent,) = game.due
        still = '<tool_call>{"name": "move", "arguments": {"direction": "stay"}}</tool_call>'
        reply = still if agent == EVADER else policy([game.chats[agent]])[0].text
        game.play(agent, reply)
        game.end_cycle()
    assert game.rewards[PURSUER] > 1.0 > game.rewards[EVADER] > 0.0
    assert game.rewards[PURSUER] * game.rewards[EVADER] == pytest.approx(1.0)
    assert [game.infos[agent]["success"] for agent in game.agents] == [True, False]


@pytest.mark.parametrize("quitter", [PURSUER, EVADER])
def test_a_seat_that_stops_playing_costs_the_other_nothing(quitter: str) -> None:
    env = make("PursuitWorld-match", budget_factor=1.0, budget_slack=0)
    env.reset(seed=2)
    game, policy = env.unwrapped.game, TeamPolicy("PursuitWorld-match")
    while not game.over:
        (agent,) = game.due
        quits = agent == quitter and game.cycle >= 2
        game.play(agent, "I quit." if quits else policy([game.chats[agent]])[0].text)
        game.end_cycle()
    other = PURSUER if quitter == EVADER else EVADER
    assert not game.terminated
    assert game.rewards[other] == 1.0 > game.rewards[quitter]


def test_the_evader_is_first_asked_with_the_pursuers_move_in_its_task() -> None:
    env = make("PursuitWorld-match")
    env.reset(seed=2)
    game = env.unwrapped.game
    assert game.due == [PURSUER]
    world = game.team.worlds[EVADER]
    before = game.chats[EVADER].messages[-1].text
    game.play(PURSUER, TeamPolicy("PursuitWorld-match")([game.chats[PURSUER]])[0].text)
    assert game.chats[EVADER].messages[-1].text == before
    game.end_cycle()
    assert game.due == [EVADER]
    assert "Moves of the pursuer so far: 1\n" in game.chats[EVADER].messages[-1].text
    assert f"{PURSUER}: {divmod(world.places[PURSUER], 5)}" in game.chats[EVADER].messages[-1].text


def test_every_default_board_lets_the_pursuer_win() -> None:
    for seed in range(30):
        world = draw(PursuitWorld, PursuitConfig(wall_density=0.25), seed)
        assert 3 <= world.value < 60
