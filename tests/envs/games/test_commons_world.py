"""Compare CommonsWorld with searches that know only the rules in the prompt."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from agentgym import ToolCall
from agentgym.envs.games.commons_world import (
    Commons,
    CommonsConfig,
    CommonsWorld,
    Opponent,
    equilibrium,
)
from agentgym.world.splits import draw

RULES: Sequence[Opponent] = ("imitator", "grudger", "greedy")
Choose = Callable[[int, int], int]  # maps the round and the stock to the amount to take


def regrow(game: Commons, number: int, stock: int, first: int, second: int) -> int:
    left = stock - first - second
    if (first + second) % 2 == 1:
        left -= 1
    return min(game.capacity, left + int(left * game.growth[number] / 100))


def most_against(game: Commons, stock: int, choose: Choose, number: int = 0) -> int:
    """Return the maximum total against a player that does not react to the agent."""
    if number == len(game.growth):
        return 0
    other = choose(number, stock)
    return max(
        take + most_against(game, regrow(game, number, stock, take, other), choose, number + 1)
        for take in range(min(game.limit, stock // 2) + 1)
    )


def total_of(world: CommonsWorld, takes: Sequence[int]) -> int:
    """Take these amounts, each reduced to the legal maximum, and return the total."""
    for take in takes:
        if world.done:
            break
        world.take(min(take, world.legal_calls()[-1].arguments["units"]))
    return world.totals["player_0"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_the_target_is_the_most_of_all_sequences_of_takes(rule: Opponent, seed: int) -> None:
    config = CommonsConfig(rounds=4, limit=3, capacity=14, opponent=rule)
    takes = list(itertools.product(range(4), repeat=4))
    totals = [total_of(draw(CommonsWorld, config, seed), each) for each in takes]
    world = draw(CommonsWorld, config, seed)
    assert world.target == max(totals)
    starts = {each[0] for each, total in zip(takes, totals, strict=True) if total == world.target}
    best = {call.arguments["units"] for call in world.optimal_calls()}
    assert best == {
        take for take in starts if ToolCall("take", {"units": take}) in world.legal_calls()
    }


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_with_few_turns_left_only_the_next_rounds_count(turns: int) -> None:
    config = CommonsConfig(rounds=5, limit=3, capacity=14)
    for seed in range(6):
        world = draw(CommonsWorld, config, seed)
        world.max_turns = turns
        reachable = max(
            total_of(draw(CommonsWorld, config, seed), takes)
            for takes in itertools.product(range(4), repeat=turns)
        )
        for target in (reachable, reachable + 1):
            world.target = target
            assert bool(world.optimal_calls()) is (target == reachable)


@pytest.mark.parametrize(
    "growth", [(0, 25, 50, 100), (100, 100, 0, 25), (50, 50, 50, 50), (25, 0, 0, 100)]
)
@pytest.mark.parametrize("limit", [2, 5])
def test_no_player_gains_by_leaving_the_equilibrium_from_any_state(
    growth: tuple[int, ...], limit: int
) -> None:
    game = Commons(growth, 13, limit, "greedy")
    takes, values = equilibrium(game)
    for number, stock in itertools.product(range(len(growth)), range(game.capacity + 1)):
        best = most_against(game, stock, lambda at, left: takes[at][left], number)
        assert best == values[number][stock]
        played, left = 0, stock
        for at in range(number, len(growth)):
            played += takes[at][left]
            left = regrow(game, at, left, takes[at][left], takes[at][left])
        assert played == best


def test_the_rules_by_hand() -> None:
    world = CommonsWorld(CommonsConfig(), 0)
    world._start(Commons((50, 0, 100), 20, 4, "grudger"), 15)
    assert (world.demand, world.legal_calls()[-1]) == (2, ToolCall("take", {"units": 4}))
    assert world.take(3) == "Round 1: player_0 took 3, player_1 took 2. Stock: 13"  # 9 left, +4
    assert world.demand == 4, "the grudger was provoked"
    assert world.take(0) == "Round 2: player_0 took 0, player_1 took 4. Stock: 9"
    assert world.take(4) == "Round 3: player_0 took 4, player_1 took 4. Stock: 2"
    assert world.done
    assert world.totals == {"player_0": 7, "player_1": 10}
