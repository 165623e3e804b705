from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentgym import make, tool_env
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout
from tests.helpers import start

BOARDS = ("GridWorld", "ListWorld", "TreeWorld")


@pytest.mark.parametrize("world", BOARDS)
def test_a_board_changes_with_the_world_and_nothing_else_does(world: str) -> None:
    env = make(world, render_mode="ansi")
    chat, _ = env.reset(seed=3)
    boards, policy = [], OraclePolicy(world)
    while not tool_env(env).over:
        inner = tool_env(env).world
        state = inner.state()
        boards.append(inner.board())
        assert env.render() == f"{tool_env(env).chat.to_text()}\n\n{boards[-1]}"
        assert inner.state() == state
        (reply,) = policy([chat])
        chat, *_ = env.step(reply.text)
    assert len(set(boards)) > 1
    assert rollout(OraclePolicy(world), make(world), 3).reward == 1.0


def test_the_board_of_a_grid_has_every_cell() -> None:
    world: Any = start("GridWorld", seed=1, size=7, hole_density=0.3).world
    header, *rows = world.board().splitlines()
    assert header.split() == list("0123456")
    for row, line in enumerate(rows):
        number, *cells = line.split()
        assert number == str(row)
        for column, sign in enumerate(cells):
            cell = (row, column)
            hole = "O" if cell in world.holes else "."
            other = "G" if cell == world.goal else hole
            assert sign == ("A" if cell == world.position else other)
    assert len(rows) == 7


@pytest.mark.parametrize("size", [1, 31, 32, 200])
def test_a_large_board_is_drawn_around_the_agent(size: int) -> None:
    board = start("GridWorld", seed=2, size=size).world.board()
    assert "A" in board
    assert len(board.splitlines()) == min(size, 31) + 1
    assert max(map(len, board.splitlines())) <= 80


def test_the_board_of_a_list_follows_the_lock() -> None:
    world: Any = start("ListWorld", items=40, removals=30).world
    assert world.board().splitlines()[0].startswith("index  | ")
    assert "and 25 more" in world.board()
    world.locked = len(world.items)
    assert world.board().splitlines()[0].endswith("|")
    world.items, world.target, world.locked = [], [], 0
    assert world.board().splitlines() == ["index  |", "list   |", "target"]


def test_the_board_of_a_tree_shows_no_node_before_it_was_shown() -> None:
    world: Any = start("TreeWorld", nodes=30).world
    lines = world.board().splitlines()[1:]
    assert [line.split()[0] for line in lines if line] != []
    assert {line.split()[0] for line in lines} == set(world.known)
    assert len(lines) == len(world.known) < 30
    for line in lines:
        assert line.endswith("?") is (line.split()[0] in world._frontier)


@pytest.mark.parametrize("world", [*BOARDS, "PuzzleWorld"])
def test_a_picture_of_every_world(world: str) -> None:
    pytest.importorskip("PIL")
    env = make(world, render_mode="rgb_array")
    env.reset(seed=0)
    picture: Any = env.render()
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert picture.min() == 0
    assert picture.max() == 255
