"""Compare ListWorld with an exhaustive search."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator

import pytest

from agentgym import ToolCall
from agentgym.envs.lumina.list_world import ListWorld
from tests.helpers import play, start

DONE = ToolCall("done", {})
PLENTY = 1_000  # more turns than any case needs


def pop(index: object) -> ToolCall:
    return ToolCall("pop", {"id": index})


def task(
    items: list[int] | tuple[int, ...], target: list[int] | tuple[int, ...], budget: int = PLENTY
) -> str:
    return f"Initial list: {list(items)}\nTarget list: {list(target)}\nTurn budget: {budget}"


class Search:
    """Search over all ways to play one instance.

    A state consists of the initial positions of the remaining elements and the first position that
    can still be removed.
    """

    def __init__(self, items: tuple[int, ...], target: tuple[int, ...]) -> None:
        self.items, self.target = items, target
        self.cost = functools.cache(self._cost)

    def solved(self, left: tuple[int, ...]) -> bool:
        return tuple(self.items[place] for place in left) == self.target

    def legal(self, left: tuple[int, ...], bound: int) -> list[int]:
        return [place for place in left if place >= bound]

    def _cost(self, left: tuple[int, ...], bound: int) -> float:
        """Return the minimum number of turns to success, including `done`, or infinity."""
        ways = [self._after(left, place) for place in self.legal(left, bound)]
        return 1 + min([0.0] if self.solved(left) else ways, default=math.inf)

    def _after(self, left: tuple[int, ...], place: int) -> float:
        return self.cost(tuple(p for p in left if p != place), place + 1)

    def best(self, left: tuple[int, ...], bound: int) -> list[ToolCall]:
        cost = self.cost(left, bound)
        if cost == math.inf:
            return []
        done = [DONE] if self.solved(left) and cost == 1 else []
        return done + [
            pop(left.index(place))
            for place in self.legal(left, bound)
            if 1 + self._after(left, place) == cost
        ]


def lists_up_to_renaming(length: int, symbols: int) -> Iterator[tuple[int, ...]]:
    """Yield lists in which every symbol first appears after all smaller symbols."""
    for items in itertools.product(range(symbols), repeat=length):
        if all(value <= max(items[:k], default=-1) + 1 for k, value in enumerate(items)):
            yield items


def subsequences(items: tuple[int, ...]) -> set[tuple[int, ...]]:
    return {kept for size in range(len(items) + 1) for kept in itertools.combinations(items, size)}


def check_every_state(items: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Check each reachable state once by removing each set of positions from left to right."""
    search, text = Search(items, target), task(items, target)
    for size in range(len(items) + 1):
        for gone in itertools.combinations(range(len(items)), size):
            world = ListWorld.read_task(text)
            for already, place in enumerate(gone):
                world.pop(place - already)
            left = tuple(place for place in range(len(items)) if place not in gone)
            bound = gone[-1] + 1 if gone else 0
            assert world.items == [items[place] for place in left]
            assert list(world.legal_calls()) == [
                *(pop(left.index(place)) for place in search.legal(left, bound)),
                DONE,
            ]
            check_state(world, search.cost(left, bound), search.best(left, bound))


def check_state(world: ListWorld, cost: float, best: list[ToolCall]) -> None:
    where = (world.items, world.target, world.locked)
    assert list(world.optimal_calls()) == best, where
    if cost < math.inf:
        world.max_turns = int(cost)
        assert list(world.optimal_calls()) == best, where
        world.max_turns -= 1
        assert not world.optimal_calls(), where


@pytest.mark.parametrize(
    "length", [*range(1, 5), *(pytest.param(k, marks=pytest.mark.exhaustive) for k in (5, 6))]
)
def test_every_state_of_every_short_list_has_the_alive_cost_and_optimal_set_of_a_search(
    length: int,
) -> None:
    for items in lists_up_to_renaming(length, 3):
        for target in subsequences(items):
            check_every_state(items, target)


def test_random_longer_lists_have_the_alive_cost_and_optimal_set_of_a_search() -> None:
    rng = random.Random(0)
    for _ in range(60):
        items = tuple(rng.choices(range(rng.randint(1, 4)), k=rng.randint(5, 8)))
        kept = sorted(rng.sample(range(len(items)), rng.randint(0, len(items))))
        check_every_state(items, tuple(items[place] for place in kept))


# Edge cases.


@pytest.mark.parametrize(
    ("items", "target", "gone", "reward"),
    [
        ([1, 2], [1, 2], [], 1.0),
        ([1, 2], [], [0, 0], 1.0),
        ([1, 2, 3, 4], [1], [1, 1, 1], 1.0),
        ([1, 2], [1], [], 0.0),
        ([1, 2], [1], [0], 0.0),
        ([3, 3, 1], [3], [2], 0.0),
    ],
)
def test_done_ends_the_episode_and_succeeds_if_the_lists_are_equal(
    items: list[int], target: list[int], gone: list[int], reward: float
) -> None:
    env = start("ListWorld", task=task(items, target, budget=len(gone) + 1))
    outcome = play(env, *map(pop, gone), DONE)
    assert (outcome.reward, outcome.terminated, outcome.truncated) == (reward, True, False)
    assert outcome.turn == env.world.max_turns


def test_after_one_wasted_turn_of_an_exact_budget_the_instance_is_lost() -> None:
    env = start("ListWorld", items=4, removals=1, budget_factor=1.0, budget_slack=0)
    best = env.world.optimal_calls()[0]
    play(env, pop(-1))
    assert not env.world.optimal_calls()
    outcome = play(env, best)
    assert env.world.items == env.world.target
    assert (outcome.reward, outcome.terminated, outcome.truncated) == (0.0, False, True)


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (0, "index 0 lies to the left of an element removed before"),
        (-1, "the list has no index -1"),
        (-4, "the list has no index -4"),
        (3, "the list has no index 3"),
        (10**30, f"the list has no index {10**30}"),
        (True, "pop: argument 'id'"),
        (1.0, "pop: argument 'id'"),
        ("1", "pop: argument 'id'"),
        (None, "pop: argument 'id'"),
    ],
)
def test_an_illegal_pop_is_an_error_that_costs_the_turn_and_changes_nothing(
    index: object, why: str
) -> None:
    env = start("ListWorld", task=task([1, 2, 3, 4], [1, 3], budget=9))
    play(env, pop(1))
    items, best, left = list(env.world.items), list(env.world.optimal_calls()), env.world.turns_left
    outcome = play(env, pop(index))
    assert outcome.text.startswith(f"error: {why}")
    assert outcome.going_on
    assert (env.world.items, env.world.locked, env.world.turns_left) == (items, 1, left - 1)
    assert list(env.world.optimal_calls()) == best == [pop(2)]


@pytest.mark.parametrize(
    ("factor", "slack", "optimal", "budget"),
    # As floats, 1.1 * 50 and 2.2 * 25 are slightly more than 55.
    [
        (1.1, 0, 50, 55),
        (2.2, 0, 25, 55),
        (1.1, 0, 10, 11),
        (1.1, 3, 9, 13),
        (1.4, 0, 5, 7),
        (1, 0, 7, 7),
        (3.0, 5, 1, 8),
    ],
)
def test_the_budget_takes_the_factor_as_the_decimal_number_that_was_written(
    factor: float, slack: int, optimal: int, budget: int
) -> None:
    env = start(
        "ListWorld", items=100, removals=optimal - 1, budget_factor=factor, budget_slack=slack
    )
    assert env.world.max_turns == budget
    assert f"Turn budget: {budget}" in env.chat.messages[1].text


@pytest.mark.parametrize("items", [4, 10, 61])
def test_with_duplicates_every_list_of_four_or_more_has_a_value_twice_and_without_none_has(
    items: int,
) -> None:
    for seed in range(30):
        doubled = start(
            "ListWorld", seed=seed, items=items, removals=2, duplicates=True
        ).world.items
        assert len(set(doubled)) < len(doubled) == items
        assert len(set(start("ListWorld", seed=seed, items=items, removals=2).world.items)) == items


def test_with_duplicates_several_calls_are_optimal_in_some_states() -> None:
    worlds = [start("ListWorld", seed=seed, duplicates=True).world for seed in range(30)]
    assert any(len(world.optimal_calls()) > 1 for world in worlds)
