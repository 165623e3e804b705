"""Compare BargainWorld with searches through the tools, and the equilibrium with a recursion."""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from agentgym import ToolCall
from agentgym.envs.games.bargain_world import BargainConfig, BargainWorld
from agentgym.envs.games.bargaining import Bargain, Items, agreements, guarantee
from agentgym.world.splits import draw

CASES = [
    (((1, 2, 1), (2, 1, 1)), 2, (3, 5, 2), ((1, 6, 2), (7, 1, 3)), 40),
    (((2, 1, 1), (1, 1, 2)), 2, (4, 1, 6), ((5, 5, 1), (2, 1, 9)), 60),
    (((1, 1, 2), (1, 1, 1)), 3, (2, 7, 3), ((9, 1, 1), (1, 8, 2), (3, 3, 3)), 50),
]


def worlds_of(game: Bargain, turns: int = 99) -> list[BargainWorld]:
    worlds = []
    for values in game.types:
        world = BargainWorld(BargainConfig(), 0)
        world._start(game)
        world.values = {"player_0": game.mine, "player_1": values}
        world.max_turns = turns
        worlds.append(world)
    return worlds


def play(world: BargainWorld, call: ToolCall) -> tuple[str, BargainWorld]:
    after = copy.deepcopy(world)
    after.turn += 1
    return getattr(after, call.name)(**call.arguments), after


def least_after(worlds: Sequence[BargainWorld], call: ToolCall) -> int:
    """Return the payoff that a call can guarantee if the agent cannot tell the worlds apart."""
    looks: dict[str, list[BargainWorld]] = defaultdict(list)
    for world in worlds:
        shown, after = play(world, call)
        looks[shown].append(after)
    return min(map(most, looks.values()))


def most(worlds: Sequence[BargainWorld]) -> int:
    """Return the payoff that the agent can guarantee without telling the worlds apart."""
    world = worlds[0]
    if world.done or not world.turns_left:
        items = world.held["player_0"]
        return sum(count * value for count, value in zip(items, world.game.mine, strict=True))
    return max(least_after(worlds, call) for call in world.legal_calls())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("turns", [1, 2, 3, 99])
def test_the_guarantee_is_what_a_search_of_all_policies_finds(
    case: tuple[Any, ...], turns: int
) -> None:
    game = Bargain(*case)
    found = most(worlds_of(game, turns))
    assert guarantee(game).value(0, 0, frozenset(range(len(game.types))), turns) == found


@pytest.mark.parametrize("case", CASES)
def test_optimal_calls_are_those_that_keep_the_guarantee(case: tuple[Any, ...]) -> None:
    worlds = worlds_of(Bargain(*case))
    target = most(worlds)
    for call in worlds[0].legal_calls():
        worlds[0].target = target
        assert (call in worlds[0].optimal_calls()) == (least_after(worlds, call) >= target)
    # After the first answer, some types of opponents are excluded.
    call = worlds[0].legal_calls()[0]
    shown, after = play(worlds[0], call)
    alike = [each for text, each in (play(world, call) for world in worlds) if text == shown]
    assert after.possible == {k for k, each in enumerate(worlds) if play(each, call)[0] == shown}
    after.target = most(alike)
    for call in after.legal_calls():
        assert (call in after.optimal_calls()) == (least_after(alike, call) >= after.target)


def sums(values: Items, items: Sequence[int]) -> int:
    return sum(value * count for value, count in zip(values, items, strict=True))


def equilibrium(pool: list[int], offers: int, mine: Items, theirs: Items) -> tuple[int, int]:
    """Return the payoffs of the offering player and the other player under the prompt's rules."""
    if not offers:
        return 0, 0
    smaller = list(pool)
    smaller[smaller.index(max(smaller))] -= 1 if max(smaller) else 0
    other_gets, going_on = equilibrium(smaller, offers - 1, theirs, mine)[::-1]
    ends = [(other_gets, going_on)]  # the outcome of a rejected offer
    for kept in itertools.product(*(range(count + 1) for count in pool)):
        left = [count - less for count, less in zip(pool, kept, strict=True)]
        if sums(theirs, left) >= going_on:
            ends.append((sums(mine, kept), sums(theirs, left)))
    return max(ends)


@pytest.mark.parametrize("offers", [1, 2, 3, 4])
def test_an_agreement_equals_that_of_a_recursion(offers: int) -> None:
    for seed in range(6):
        world = draw(BargainWorld, BargainConfig(), seed)
        mine, theirs = world.values["player_0"], world.values["player_1"]
        for pool in world.game.pools:
            expected = equilibrium(list(pool), offers, mine, theirs)
            for kept in agreements(pool, offers, mine, theirs):
                left = [count - less for count, less in zip(pool, kept, strict=True)]
                assert (sums(mine, kept), sums(theirs, left)) == expected


def test_the_rules_by_hand() -> None:
    world = worlds_of(Bargain(((2, 3, 1), (1, 1, 1)), 2, (1, 1, 1), ((2, 1, 6),), 50))[0]
    # The pool is worth 13 to player_1, who rejects an offer worth 6.
    assert world.propose(0, 3, 1) == (
        "Deal 1, offer 1: player_0 keeps books 0, hats 3, balls 1.\n"
        "Deal 1, offer 1: player_0 keeps books 0, hats 3, balls 1. player_1 rejects. Held: "
        "player_0 books 0, hats 0, balls 0; player_1 books 0, hats 0, balls 0\n"
        "Deal 1, offer 2: player_1 keeps books 0, hats 0, balls 1."
    )
    assert world.pool == (2, 2, 1)
    assert world.accept().endswith("Deal 2, offer 1: player_1 keeps books 0, hats 0, balls 1.")
    assert world.held == {"player_0": (2, 2, 0), "player_1": (0, 0, 1)}
    world.reject()
    assert world.pool == (0, 1, 1), "of equally numerous kinds the first loses an item"
    world.propose(0, 1, 0)
    assert (world.done, world.held["player_0"]) == (True, (2, 3, 0))


def test_instances_are_worth_bargaining() -> None:
    for seed in range(20):
        world = draw(BargainWorld, BargainConfig(), seed)
        assert min(world.target, *world.worths.values()) > 0
