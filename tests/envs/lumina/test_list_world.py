"""ListWorld against an exhaustive search that does not use the formula."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from agentgym import ToolCall
from agentgym.envs.lumina.list_world import ListWorld
from tests.helpers import play, play_optimally, start

DONE = ToolCall("done", {})
PLENTY = 1_000


def pop(index: object) -> ToolCall:
    return ToolCall("pop", {"id": index})


def task(
    items: list[int] | tuple[int, ...], target: list[int] | tuple[int, ...], budget: int = PLENTY
) -> str:
    return f"Initial list: {list(items)}\nTarget list: {list(target)}\nTurn budget: {budget}"


class Search:
    """All ways to play one instance.

    A state is the remaining positions of the initial list, and the first that may be removed.
    """

    def __init__(self, items: tuple[int, ...], target: tuple[int, ...]) -> None:
        self.items, self.target = items, target
        self.cost = functools.cache(self._cost)

    def solved(self, left: tuple[int, ...]) -> bool:
        return tuple(self.items[place] for place in left) == self.target

    def legal(self, left: tuple[int, ...], bound: int) -> list[int]:
        return [place for place in left if place >= bound]

    def _cost(self, left: tuple[int, ...], bound: int) -> float:
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
    """Yield lists in which a symbol first appears after all smaller ones."""
    for items in itertools.product(range(symbols), repeat=length):
        if all(value <= max(items[:k], default=-1) + 1 for k, value in enumerate(items)):
            yield items


def subsequences(items: tuple[int, ...]) -> set[tuple[int, ...]]:
    return {kept for size in range(len(items) + 1) for kept in itertools.combinations(items, size)}


def check_every_state(items: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Drive a world into every reachable state, which is a set of removed positions."""
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


@pytest.mark.parametrize("length", range(1, 5))
def test_every_state_of_every_short_list_has_the_alive_cost_and_optimal_set_of_a_search(
    length: int,
) -> None:
    for items in lists_up_to_renaming(length, 3):
        for target in subsequences(items):
            check_every_state(items, target)


@pytest.mark.exhaustive
@pytest.mark.parametrize("length", [5, 6])
def test_every_state_of_every_list_of_up_to_six_has_the_alive_cost_and_optimal_set_of_a_search(
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


# Plausible but wrong shortcuts, from list, target and lock to allegedly optimal indices.


def is_subsequence(short: list[int], long: list[int]) -> bool:
    rest = iter(long)
    return all(value in rest for value in short)


def target_still_a_subsequence(items: list[int], target: list[int], locked: int) -> list[int]:
    return [
        k for k in range(locked, len(items)) if is_subsequence(target, items[:k] + items[k + 1 :])
    ]


def value_in_surplus(items: list[int], target: list[int], locked: int) -> list[int]:
    surplus = Counter(items) - Counter(target)
    return [k for k in range(locked, len(items)) if items[k] in surplus]


def first_mismatch(items: list[int], target: list[int], locked: int) -> list[int]:
    return [next(k for k in range(len(items)) if k >= len(target) or items[k] != target[k])]


def lock_ignored(items: list[int], target: list[int], locked: int) -> list[int]:
    left = tuple(range(len(items)))
    return [call.arguments["id"] for call in Search(tuple(items), tuple(target)).best(left, 0)]


@pytest.mark.parametrize(
    ("shortcut", "items", "target", "gone", "wrong", "right"),
    [
        (target_still_a_subsequence, [1, 1], [], [], [0, 1], [0]),
        (target_still_a_subsequence, [3, 3, 1], [3], [], [0, 1, 2], [0, 1]),
        (value_in_surplus, [1, 2, 1], [2, 1], [], [0, 2], [0]),
        (value_in_surplus, [3, 3, 1], [3], [], [0, 1, 2], [0, 1]),
        (first_mismatch, [3, 3, 1], [3], [], [1], [0, 1]),
        (first_mismatch, [1, 1], [], [1], [0], []),
        (lock_ignored, [3, 3, 3, 1], [3], [1], [0, 1], [1]),
        (lock_ignored, [1, 1], [], [1], [0], []),
    ],
)
def test_a_shortcut_fails_where_the_world_agrees_with_the_search(
    shortcut: Callable[[list[int], list[int], int], list[int]],
    items: list[int],
    target: list[int],
    gone: list[int],
    wrong: list[int],
    right: list[int],
) -> None:
    env = start("ListWorld", task=task(items, target))
    if gone:
        play(env, *map(pop, gone))
    left = tuple(place for place in range(len(items)) if place not in gone)
    assert shortcut(env.world.items, target, env.world.locked) == wrong
    assert Search(tuple(items), tuple(target)).best(left, env.world.locked) == [
        pop(k) for k in right
    ]
    assert list(env.world.optimal_calls()) == [pop(k) for k in right]


def test_two_pops_can_be_optimal_and_the_third_fatal_although_the_target_is_still_a_subsequence() -> (
    None
):
    for first in (0, 1):
        env = start("ListWorld", task=task([3, 3, 1], [3]))
        play(env, pop(first))
        assert list(env.world.optimal_calls()) == [pop(1)]
        assert play(env, pop(1), DONE).reward == 1.0
    env = start("ListWorld", task=task([3, 3, 1], [3]))
    play(env, pop(2))
    assert env.world.items == [3, 3]
    assert not env.world.optimal_calls()


def test_distinct_values_leave_one_optimal_call_in_each_state() -> None:
    for seed in range(20):
        env = start("ListWorld", seed=seed, items=12, removals=6)
        while env.world.items != env.world.target:
            assert len(env.world.optimal_calls()) == 1
            play(env, env.world.optimal_calls()[0])
        assert list(env.world.optimal_calls()) == [DONE]


# Edge cases, through the text interface.


def test_with_no_removals_only_done_is_optimal_and_it_succeeds() -> None:
    env = start("ListWorld", items=3, removals=0, budget_factor=1.0, budget_slack=0)
    assert env.world.max_turns == 1
    assert list(env.world.optimal_calls()) == [DONE]
    outcome = play(env, DONE)
    assert (outcome.reward, outcome.terminated, outcome.truncated) == (1.0, True, False)


def test_with_all_elements_to_remove_index_0_is_optimal_until_the_list_is_empty() -> None:
    env = start("ListWorld", items=3, removals=3, duplicates=True)
    assert env.world.target == []
    for _ in range(3):
        assert list(env.world.optimal_calls()) == [pop(0)]
        play(env, pop(0))
    assert list(env.world.optimal_calls()) == [DONE]
    assert list(env.world.legal_calls()) == [DONE]
    assert play(env, DONE).reward == 1.0


def test_done_early_ends_the_episode_without_reward() -> None:
    outcome = play(start("ListWorld", items=4, removals=1), DONE)
    assert (outcome.reward, outcome.terminated, outcome.truncated) == (0.0, True, False)


def test_done_on_a_list_of_the_right_length_with_wrong_elements_fails() -> None:
    env = start("ListWorld", task=task([1, 2], [1]))
    play(env, pop(0))
    assert not env.world.optimal_calls()
    assert play(env, DONE).reward == 0.0


def test_done_in_the_last_turn_succeeds_and_terminates() -> None:
    env = start("ListWorld", items=8, removals=5, budget_factor=1.0, budget_slack=0)
    outcome = play_optimally(env)
    assert outcome.turn == env.world.max_turns == 6
    assert (outcome.reward, outcome.terminated, outcome.truncated) == (1.0, True, False)


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


def test_the_elements_to_the_left_of_the_last_removal_are_locked_and_the_one_in_its_place_is_not() -> (
    None
):
    env = start("ListWorld", task=task([1, 2, 3, 4], [1]))
    assert play(env, pop(1), pop(1), pop(1), DONE).reward == 1.0


@pytest.mark.parametrize(("items", "removals"), [(1, 0), (1, 1), (7, 3), (30, 30)])
@pytest.mark.parametrize("duplicates", [False, True])
def test_an_optimal_policy_takes_one_turn_for_each_removal_and_one_for_done(
    items: int, removals: int, duplicates: bool
) -> None:
    env = start("ListWorld", items=items, removals=removals, duplicates=duplicates)
    outcome = play_optimally(env)
    assert (outcome.reward, outcome.turn) == (1.0, removals + 1)


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


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"items": 0}, "items must be an integer in [1, 10000], got 0"),
        ({"items": 10_001}, "items must be an integer in [1, 10000], got 10001"),
        ({"items": 4.0}, "items must be an integer in [1, 10000], got 4.0"),
        ({"items": True}, "items must be an integer in [1, 10000], got True"),
        ({"items": 3, "removals": 4}, "removals must be an integer in [0, 3], got 4"),
        ({"removals": -1}, "removals must be an integer in [0, 10000], got -1"),
        ({"duplicates": 1}, "duplicates must be True or False, got 1"),
        ({"budget_factor": 0.9}, "budget_factor must be a number in [1.0, 100.0], got 0.9"),
        ({"budget_factor": math.nan}, "budget_factor must be a number in [1.0, 100.0], got nan"),
        ({"budget_slack": -1}, "budget_slack must be an integer in [0, 1000000], got -1"),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_value_and_its_range(
    options: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared whole
        start("ListWorld", **options)
    assert str(refused.value) == why


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


@pytest.mark.parametrize("steps", [1, 2, 17, 300])
def test_at_horizon_gives_instances_that_take_that_many_turns(steps: int) -> None:
    env = start("ListWorld", **ListWorld.config_for_horizon(steps))
    outcome = play_optimally(env)
    assert (outcome.reward, outcome.turn) == (1.0, steps)


@pytest.mark.parametrize("steps", [0, 5_001, 2.0])
def test_at_horizon_refuses_what_no_configuration_takes(steps: int) -> None:
    with pytest.raises(
        ValueError, match=r"horizon must be an integer in \[1, 5000\], got " + str(steps)
    ):
        ListWorld.config_for_horizon(steps)
