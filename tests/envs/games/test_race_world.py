"""Compare RaceWorld with searches that know only the rules in the prompt."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from agentgym.envs.games.race_world import Opponent, Race, RaceConfig, RaceWorld, best_sums, minimax
from agentgym.world.splits import draw

CONFIG = RaceConfig(moves=3)


def move(numbers: Sequence[int], left: int, per_move: int) -> tuple[int, Sequence[int]]:
    rest = list(numbers)
    got = [rest.pop(0) for _ in range(left)] + [rest.pop() for _ in range(per_move - left)]
    return sum(got), rest


def perfect(numbers: Sequence[int], per_move: int) -> tuple[int, int]:
    """Return the sums of the player to move and the other player if both play optimally."""
    if not numbers:
        return 0, 0
    ends = []
    for left in range(per_move + 1):
        got, rest = move(numbers, left, per_move)
        theirs, mine = perfect(rest, per_move)
        ends.append((got + mine, theirs))
    return max(ends, key=lambda sums: sums[0])


def reply(numbers: Sequence[int], per_move: int, rule: Opponent) -> Sequence[int]:
    moves = [move(numbers, left, per_move) for left in range(per_move + 1)]
    worth = [
        got + (perfect(rest, per_move)[1] if rule == "farsighted" else 0) for got, rest in moves
    ]
    return moves[worth.index(max(worth))][1]


def most(numbers: Sequence[int], per_move: int, rule: Opponent, turns: int) -> int:
    """Return the maximum sum over all sequences of moves within `turns` turns."""
    if not numbers or not turns:
        return 0
    sums = []
    for left in range(per_move + 1):
        got, rest = move(numbers, left, per_move)
        sums.append(got + most(reply(rest, per_move, rule), per_move, rule, turns - 1))
    return max(sums)


@pytest.mark.parametrize("per_move", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_minimax_sums_equal_those_of_a_recursion(per_move: int, seed: int) -> None:
    world = draw(RaceWorld, RaceConfig(moves=2, per_move=per_move), seed)
    numbers = world.game.numbers
    values = minimax(world.game)
    for moves in range(5):
        for start in range(len(numbers) - moves * per_move + 1):
            part = numbers[start : start + moves * per_move]
            assert values[moves][start] == perfect(part, per_move)[0]


@pytest.mark.parametrize("rule", ["greedy", "farsighted"])
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_reply_is_the_most_of_all_sequences_of_moves(
    rule: Opponent, turns: int, seed: int
) -> None:
    game = draw(RaceWorld, CONFIG, seed).game._replace(rule=rule)
    assert max(best_sums(game, turns), default=0) == most(game.numbers, 2, rule, turns)


@pytest.mark.parametrize("rule", ["greedy", "farsighted"])
def test_the_best_moves_are_the_starts_of_the_sequences_that_reach_the_target(
    rule: Opponent,
) -> None:
    config = RaceConfig(moves=3, opponent=rule)
    for seed in range(4):
        good = set()
        for lefts in itertools.product(range(3), repeat=3):
            world = draw(RaceWorld, config, seed)
            for left in lefts:
                world.take(left)
            assert world.done
            assert world.sums["player_0"] <= world.target
            if world.score():
                good.add(lefts[0])
        world = draw(RaceWorld, config, seed)
        assert {call.arguments["from_left"] for call in world.optimal_calls()} == good


def test_perfect_play_of_both_reaches_the_minimax_sums() -> None:
    # A farsighted opponent concedes exactly the minimax sum.
    for seed in range(5):
        world = draw(RaceWorld, RaceConfig(moves=4, opponent="farsighted"), seed)
        assert world.target == world.perfect["player_0"]


def test_the_rules_by_hand() -> None:
    world = RaceWorld(RaceConfig(), 0)
    world._start(Race((1, 2, 9, 3, 4, 5), 1, "greedy"))
    assert world.take(0) == (
        "player_0 takes 5. Taken so far: 0 from the left, 1 from the right. "
        "Sums: player_0 5, player_1 0\n"
        "player_1 takes 4. Taken so far: 0 from the left, 2 from the right. "
        "Sums: player_0 5, player_1 4"
    )
    assert world.game.numbers == (1, 2, 9, 3)
    world.take(1)
    assert world.sums == {"player_0": 6, "player_1": 7}
    assert [call.arguments["from_left"] for call in world.legal_calls()] == [0, 1]
    world.take(1)
    assert (world.done, world.sums) == (True, {"player_0": 8, "player_1": 16})
