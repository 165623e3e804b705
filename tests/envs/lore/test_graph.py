"""Test the guarantees of LORE's generator, and compare operators with a simple evaluator."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest

from agentgym.envs.lore.document_world import DocumentConfig
from agentgym.envs.lore.graph import Graph, Rule, number
from agentgym.envs.lore.growth import LETTERS, BottomUp
from agentgym.envs.lore.operators import BY_NAME, HARD, STANDARD, evaluate, text, variables
from tests.envs.lore.games import default, longest_chain
from tests.envs.lore.lore_solver import calculate


def grow(
    seed: int,
    operations: int,
    field: Callable[[Random], Any] = number,
    operators: Any = STANDARD,
    distractors: float = 0.0,
    **options: Any,
) -> Graph:
    class Config(DocumentConfig):
        operators_of: ClassVar[Any] = {"standard": operators}

    options |= {"distractor_fields": distractors, "distractor_documents": distractors}
    config = Config(operations=operations, **options)
    return BottomUp(Random(seed), config, lambda r, each: (each.child(r), None), field).grow()


@pytest.mark.parametrize("operations", [0, 1, 2, 7, 60])
def test_ids_differ_numbers_are_used_once_and_all_hangs_together(operations: int) -> None:
    for seed in range(30):
        graph = grow(seed, operations, text, HARD, distractors=0.5)
        files = [node.file for node in graph.nodes]
        assert len(set(files)) == len(files)
        assert all(
            re.fullmatch(r"v\d+%(-?\d+|[A-Za-z]+)", file) and not file.endswith("%-0")
            for file in files
        )
        told = [
            n
            for node in graph.nodes
            if node.kind == "value"
            for n in (node.number, *(field for field, _ in node.fields))
        ]
        prefixes = [int(file[1:].split("%")[0]) for file in files]
        assert sorted(told + prefixes) == list(range(len(told) + len(prefixes))), (
            "one counter, every number once"
        )
        reached = set(graph.start)
        for node in reversed(graph.nodes):
            assert node.uid in reached or (node.children and reached.issuperset(node.children))
            reached.add(node.uid)
        assert graph.height == longest_chain(graph)
        assert re.fullmatch(f"[{LETTERS}]{{8}}", str(graph.answer))
        assert sum(node.kind == "rule" for node in graph.nodes) == operations


def test_the_counter_runs_as_in_the_example_of_the_paper() -> None:
    """The counter numbers the target first, then the operations, then the index documents."""
    for seed in range(20):
        graph = grow(seed, 2, theta=100)
        first, second = (node for node in graph.nodes if node.kind == "rule")
        count = len(first.content.operands)
        assert graph.nodes[0].number == 0
        assert [graph.nodes[uid].number for uid in range(1, count + 1)] == list(range(1, count + 1))
        assert (first.number, graph.nodes[0].file.split("%")[0]) == (count + 1, f"v{count + 1}")
        last = second.number
        assert [int(graph.nodes[uid].file[1:].split("%")[0]) for uid in graph.start] == list(
            range(last + 1, len(graph.nodes) + last - 1)
        )


def test_a_rule_is_a_document_too_and_may_be_the_result_of_another() -> None:
    kinds = {
        node.kind
        for seed in range(20)
        for node in grow(seed, 12).nodes
        if re.search(r"%-?\d+$", node.file)
    }
    assert kinds == {"value", "rule", "index"}


@pytest.mark.parametrize(
    ("options", "consolidations"),
    [
        ({"p": 0.0}, {0}),
        ({"theta": 10**6}, {0}),
        ({"p": 1.0, "theta": 1}, {25}),
        ({}, set(range(1, 15))),
    ],
)
def test_theta_and_p_set_how_often_leaves_are_gathered(
    options: dict[str, Any], consolidations: set[int]
) -> None:
    for seed in range(20):
        graph = grow(seed, 25, **options)
        assert sum(node.kind == "index" for node in graph.nodes) in consolidations
        assert graph.height == longest_chain(graph)


def test_gathering_makes_tasks_deep() -> None:
    heights = {p: sum(grow(seed, 120, p=p).height for seed in range(30)) / 30 for p in (0.0, 0.5)}
    assert 10 < heights[0.0] < 15
    assert 62 < heights[0.5] < 84


def rules(graphs: Any) -> list[Rule]:
    return [node.content for graph in graphs for node in graph.nodes if node.kind == "rule"]


def test_operands_are_as_many_as_asked_for_and_operators_as_frequent_as_their_weights() -> None:
    counted = rules(grow(seed, 20, min_arity=3, max_arity=5) for seed in range(20))
    assert {len(rule.operands) for rule in counted} == {3, 4, 5}
    capped = rules(
        grow(seed, 9, operators=[BY_NAME["multiply"]], min_arity=5, max_arity=6)
        for seed in range(9)
    )
    assert {len(rule.operands) for rule in capped} == {3}
    operators = replace(BY_NAME["add"], weight=3.0), BY_NAME["join"]
    names = [rule.operator for rule in rules(grow(s, 40, operators=operators) for s in range(20))]
    assert 0.7 < names.count("add") / len(names) < 0.8  # `add` has 3/4 of the total weight


@pytest.mark.parametrize("name", list(BY_NAME))
def test_what_an_operator_writes_is_what_it_does(name: str) -> None:
    operator, rng = BY_NAME[name], Random(1)
    for _ in range(300):
        count = rng.randint(operator.least, min(operator.most, 5))
        values = [operator.child(rng) for _ in range(count)]
        drawn = operator.draw(rng, count)
        names = [f"v{k + 7}" for k in range(count)]
        expression, known = operator.write(drawn, names), dict(zip(names, values, strict=True))
        result = operator.execute(drawn, values)
        assert result == evaluate(expression, known) == calculate(expression, known)
        assert sorted(variables(expression)) == sorted(names)
        assert type(result) is (int if operator.operand == "number" else str)
        assert result != ""
        assert not isinstance(result, int) or abs(result) <= 1_728


def test_a_difference_has_a_minus_and_negative_ids_occur() -> None:
    assert all(-1 in BY_NAME["subtract"].draw(Random(k), 2 + k % 3)[1:] for k in range(50))
    assert any(re.search("%-[1-9]", node.file) for node in grow(0, 60).nodes)


NO_EXPRESSIONS = "|v1 +|v1 ** 9|v9|v1 + v2|v1.real|open(v1)|[v1]|'a'|1.5".split("|")


@pytest.mark.parametrize("expression", [*NO_EXPRESSIONS, "v1(" * 999])
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="cannot evaluate this expression with the known values"):
        evaluate(expression, {"v1": 1, "v2": "a"})


def test_copies_of_a_graph_are_the_graph_and_it_pickles() -> None:
    graph = grow(0, 30, operators=HARD)
    assert copy.deepcopy(graph) is copy.copy(graph) is graph
    assert pickle.loads(pickle.dumps(graph)).nodes == graph.nodes


@pytest.mark.parametrize("env_id", ["DocumentWorld", "CodeWorld"])
def test_large_graphs_need_no_recursion(env_id: str) -> None:
    assert default(env_id, 0, operations=3_000).graph.height > 1_000
