"""Compare TreeWorld with an exact search over beliefs, and test special cases."""

from __future__ import annotations

import copy
import functools
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest

from agentgym import ToolCall
from agentgym.envs.lumina.tree_world import TreeWorld, uniform_tree
from tests.envs.lumina.tree_beliefs import (
    Beliefs,
    History,
    Path,
    Prior,
    Tree,
    mixed,
    shape_of,
    uniform,
)
from tests.helpers import play, start

UNREACHABLE = ToolCall("unreachable", {})
PLENTY = 1_000  # more turns than any case needs


def ask(node: str) -> ToolCall:
    return ToolCall("get_children", {"id": node})


def found(node: str) -> ToolCall:
    return ToolCall("found", {"id": node})


class Choice:
    def __init__(self, slots: int, chosen: Sequence[int]) -> None:
        self.slots, self.chosen = slots, chosen

    def choice(self, a: int, size: int, *, replace: bool) -> np.ndarray[Any, Any]:
        assert (a, size, replace) == (self.slots, len(self.chosen), False)
        return np.array(self.chosen, dtype=int)


@pytest.mark.parametrize(
    ("nodes", "arity"), [(1, 2), (2, 1), (3, 2), (4, 2), (3, 3), (4, 3), (5, 3), (6, 2)]
)
def test_each_tree_with_slots_comes_from_equally_many_choices_of_slots(
    nodes: int, arity: int
) -> None:
    shapes: Counter[Tree] = Counter()
    for chosen in itertools.combinations(range(nodes * arity), nodes - 1):
        children = uniform_tree(nodes, arity, Choice(nodes * arity, chosen))
        assert sorted(itertools.chain(*children)) == list(range(1, nodes))
        shapes[shape_of(children)] += 1
    # Each tree must occur once per rotation of its child counts, and thus once per node.
    assert shapes == {tree: nodes * count for tree, count in uniform(nodes, arity).items()}
    assert shapes.total() == comb(nodes * arity, nodes - 1)


def name(path: Path) -> str:
    return "n" + "".join("abcdef"[k] for k in path)


def world_at(history: History, may_be_absent: bool, turns: int = PLENTY) -> TreeWorld:
    """Return a world whose k-th visible node has value k. No visible node is the target."""
    hope = (
        "The target may be missing from the tree."
        if may_be_absent
        else "The target is in the tree."
    )
    lines = []
    for value, path in enumerate(Beliefs.known(history)):
        count = dict(history).get(path)
        children = (
            "UNKNOWN" if count is None else f"[{', '.join(name((*path, k)) for k in range(count))}]"
        )
        lines.append(f"(id={name(path)}, value={value}) -> {children}")
    return TreeWorld.read_task(
        "\n".join([f"Find the node with value 999. {hope}", *lines, f"Turn budget: {turns}"])
    )


def optimal(world: TreeWorld) -> set[Path | str]:
    return {
        tuple("abcdef".index(letter) for letter in call.arguments["id"][1:])
        if call.name == "get_children"
        else call.name
        for call in world.optimal_calls()
    }


THOROUGH = [
    *range(1, 5),
    *(pytest.param(nodes, marks=pytest.mark.exhaustive) for nodes in (5, 6, 7)),  # grows fast
]
SETTINGS = pytest.mark.parametrize(
    ("target", "absent"),
    list(itertools.product(("leaf", "any"), (Fraction(0), Fraction(1, 3)))),
    ids=str,
)


@SETTINGS
@pytest.mark.parametrize("prior", [uniform, mixed])
@pytest.mark.parametrize("nodes", THOROUGH)
def test_the_optimal_set_is_the_argmax_of_an_exact_search_over_beliefs(
    nodes: int, prior: Callable[[int], Prior], target: str, absent: Fraction
) -> None:
    beliefs = Beliefs(prior(nodes), target, absent)
    for history in beliefs.histories():
        values, frontier = beliefs.values(history, None), beliefs.frontier(history)
        assert len({values[path] for path in frontier}) <= 1, history
        # Skip states in which all nodes are visible: the agent cannot know that no node is hidden.
        hidden = len(beliefs.known(history)) < nodes
        if hidden or not frontier:
            assert optimal(world_at(history, absent > 0)) == beliefs.best(history), history
        for turns in range(1, nodes + 3) if hidden and prior is mixed else ():
            best = beliefs.best(history, turns)
            assert optimal(world_at(history, absent > 0, turns)) == best, (history, turns)


# The number of turns of an optimal policy.


def slowest_search(world: TreeWorld) -> int:
    goal = {value: node for node, value in explored(world).known.items()}.get(world.target)
    unknown = frozenset(re.findall(r"\(id=([a-z]+), value=[0-9]+\) -> UNKNOWN", world.task()))

    @functools.cache
    def longest(frontier: frozenset[str], seen: bool) -> int:
        if seen or not frontier:
            return 1
        return 1 + max(
            longest(frontier - {u} | set(world.children[u]), goal in world.children[u])
            for u in frontier
        )

    return longest(unknown, goal in world.known)


def explored(world: TreeWorld) -> TreeWorld:
    world = copy.deepcopy(world)
    waiting = list(world.known)
    while waiting:
        waiting += [child["id"] for child in world.get_children(waiting.pop())]
    return world


def exact(seed: int, **options: Any) -> TreeWorld:
    return start("TreeWorld", seed=seed, budget_factor=1.0, budget_slack=0, **options).world


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_the_budget_is_enough_for_any_search_and_tells_nothing_about_the_target(count: int) -> None:
    rng = random.Random(count)
    for seed in range(count):
        nodes, absent = rng.randint(1, 7), rng.choice([0, 0.5, 1])
        options = {"nodes": nodes, "revealed": rng.randint(0, nodes), "arity": rng.randint(1, 4)}
        world = exact(
            seed, target=rng.choice(["leaf", "any"]), absent_probability=absent, **options
        )
        assert world.max_turns is not None
        assert world.max_turns >= slowest_search(world), (seed, options)
        shown = world.target in world.known.values()
        unexplored = nodes - min(options["revealed"], nodes)
        assert world.max_turns == (1 if shown else unexplored + (absent > 0)), (seed, options)


def test_the_budget_is_no_larger_than_the_slowest_search_in_some_tree() -> None:
    """Among trees of the same size, the slowest search needs the whole turn budget."""
    for options in ({"nodes": 5, "absent_probability": 1}, {"nodes": 5, "absent_probability": 0}):
        worlds = [exact(seed, revealed=1, **options) for seed in range(60)]
        hidden = [world for world in worlds if world.target not in world.known.values()]
        (budget,) = {world.max_turns for world in hidden}
        assert max(map(slowest_search, hidden)) == budget


def test_a_target_at_the_root_is_known_from_the_start() -> None:
    worlds = [
        exact(seed, nodes=3, target="any", absent_probability=0, revealed=0) for seed in range(30)
    ]
    at_root = [world for world in worlds if world.target in world.known.values()]
    assert 0 < len(at_root) < len(worlds)
    for world in at_root:
        (root,) = world.known
        assert (world.max_turns, list(world.optimal_calls())) == (1, [found(root)])


# Visible and hidden information.


@pytest.mark.parametrize("call", [ask, found])
def test_an_id_that_was_not_shown_is_answered_like_one_that_does_not_exist(
    call: Callable[[str], ToolCall],
) -> None:
    env = start("TreeWorld", nodes=30)
    known = dict(env.world.known)
    hidden = [node for node in env.world.children if node not in known]
    assert "zzzzzzz" not in env.world.children
    answers = {
        play(env, call(node)).text
        for node in (hidden[0], hidden[-1], "zzzzzzz", "", str(env.world.target))
    }
    assert answers == {"error: no node with this id has been shown"}
    assert env.world.known == known
    assert not env.over


def test_ids_are_seven_letters_so_none_looks_like_a_number_or_a_value() -> None:
    world = start("TreeWorld", nodes=2_000).world
    assert len(world.children) == 2_000
    assert all(re.fullmatch("[a-z]{7}", node) for node in world.children)
    assert len(set(explored(world).known.values())) == 2_000


def test_the_texts_tell_the_number_of_nodes_by_the_budget_only() -> None:
    small, large = (start("TreeWorld", nodes=nodes, revealed=3) for nodes in (4, 400))
    assert small.chat.messages[0] == large.chat.messages[0]
    opening, *nodes, budget = large.chat.messages[1].text.split("\n")
    assert (
        opening
        == f"Find the node with value {large.world.target}. The target may be missing from the tree."
    )
    assert all(
        re.fullmatch(r"\(id=[a-z]+, value=[0-9]+\) -> (UNKNOWN|\[[a-z, ]*\])", line)
        for line in nodes
    )
    assert len(nodes) == len(large.world.known)
    assert budget == f"Turn budget: {large.world.max_turns}"


@pytest.mark.parametrize("revealed", [0, 1, 3, 8])
def test_the_task_shows_as_many_nodes_with_their_children_as_asked_for(revealed: int) -> None:
    for seed in range(20):
        lines = (
            start("TreeWorld", seed=seed, nodes=8, revealed=revealed).world.task().split("\n")[1:-1]
        )
        assert sum(not line.endswith("UNKNOWN") for line in lines) == revealed


# Ends of episodes.


def test_on_the_last_turn_only_a_report_can_succeed() -> None:
    env = start(
        "TreeWorld", nodes=6, revealed=0, absent_probability=1, budget_factor=1.0, budget_slack=0
    )
    (root,) = env.world.known
    play(env, ask(root), ask(root))
    while env.world.turns_left > 1:
        play(env, env.world.optimal_calls()[0])
    assert list(env.world.optimal_calls()) == [UNREACHABLE]
    assert env.world.subtask(with_state=False) == "Report that the target is unreachable."
    assert play(env, UNREACHABLE).reward == 1.0


def test_on_the_last_turn_a_target_that_must_be_there_and_was_not_seen_is_lost() -> None:
    env = start(
        "TreeWorld", nodes=6, revealed=0, absent_probability=0, budget_factor=1.0, budget_slack=0
    )
    (root,) = env.world.known
    play(env, *[ask(root)] * (env.world.max_turns - 1))
    assert not env.world.optimal_calls()
    assert play(env, UNREACHABLE).reward == 0.0


@pytest.mark.parametrize(("absent", "reward"), [(0, 0.0), (1, 1.0)])
def test_unreachable_succeeds_if_and_only_if_the_target_is_missing(
    absent: int, reward: float
) -> None:
    for seed in range(10):
        outcome = play(start("TreeWorld", seed=seed, absent_probability=absent), UNREACHABLE)
        assert (outcome.reward, outcome.terminated) == (reward, True)


def test_reporting_a_node_with_another_value_fails() -> None:
    env = start("TreeWorld", nodes=5, absent_probability=0)
    outcome = play(env, found(next(iter(env.world.known))))
    assert (outcome.reward, outcome.terminated) == (0.0, True)


@pytest.mark.parametrize(("target", "kinds"), [("leaf", {True}), ("any", {True, False})])
def test_the_target_is_a_leaf_or_any_node_as_asked_for(target: str, kinds: set[bool]) -> None:
    worlds = [
        explored(start("TreeWorld", seed=s, nodes=6, target=target, absent_probability=0).world)
        for s in range(40)
    ]
    targets = [
        next(node for node, value in world.known.items() if value == world.target)
        for world in worlds
    ]
    assert {not world.children[node] for world, node in zip(worlds, targets, strict=True)} == kinds


def test_the_target_is_missing_about_as_often_as_asked_for() -> None:
    worlds = [
        explored(start("TreeWorld", seed=seed, absent_probability=0.3).world) for seed in range(200)
    ]
    assert 40 < sum(world.target not in world.known.values() for world in worlds) < 80
