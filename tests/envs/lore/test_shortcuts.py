from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from agentgym import ToolCall, make, render, tool_env, worlds
from tests.envs.lore.games import LORE, default, read, submit
from tests.envs.lore.lore_solver import Solver
from tests.helpers import play_optimally, start

_ID = re.compile(r"v[0-9]+%-?[A-Za-z0-9]+|m_[a-z]+\.py")


def mean(env_id: str, player: Callable[[Random], Any], seeds: int, **options: Any) -> float:
    env, total = make(env_id, **options), 0.0
    for seed in range(seeds):
        chat, _ = env.reset(seed=seed)
        task, choose = chat.messages[1].text, player(Random(seed))
        while not tool_env(env).over:
            last = [m.text for m in chat.messages[2:] if m.role == "tool"][-1:]
            calls = choose(task, last[0] if last else "")
            chat, reward, *_ = env.step("\n".join(map(render, calls)))
        total += float(reward)
    return total / seeds


def greedy(rng: Random) -> Any:
    """Player that reads all known documents, oldest first, and answers as soon as possible."""
    solver: list[Solver] = []
    queue: dict[str, None] = {}

    def choose(task: str, last: str) -> list[ToolCall]:
        if not solver:
            solver.append(Solver(task))
        else:
            solver[0].take(list(queue)[len(solver[0].read)], last)
        queue.update(dict.fromkeys(_ID.findall(task)))
        queue.update(dict.fromkeys(sorted(solver[0].frontier)))
        if solver[0].answer is not None:
            return [submit(str(solver[0].answer))]
        return [read(list(queue)[len(solver[0].read)])]

    return choose


def forgetful(rng: Random) -> Any:
    """Player that guesses the answer from the last result and has no other memory of results."""
    unread: list[str] = []

    def choose(task: str, last: str) -> list[ToolCall]:
        if not last:
            unread.extend(_ID.findall(task) or ["main.py"])
            rng.shuffle(unread)
        answers = re.findall(r"\bv0\b\D*?\b([A-Za-z]{8})\b", last)
        numbers = re.findall(r"return (-?[0-9]+)\n", last)
        leads = [file for file in _ID.findall(last) if "X" not in file]
        leads += [f"{name}.py" for name in re.findall(r"import (m_[a-z]+)", last)]
        unread.extend(leads)
        if answers or (numbers and not unread) or not unread:
            return [submit((answers or numbers or ["0"])[0])]
        return [read(unread.pop())]

    return choose


@pytest.mark.parametrize("env_id", LORE)
def test_nothing_but_what_follows_can_be_read_and_only_once(env_id: str) -> None:
    env = start(env_id, operations=6, max_failed_rounds=None, budget_slack=1_000)
    world: Any = env.world
    assert world.config.strict_ids
    while not env.over:
        known = {*world.known.unread()}
        before = world.state().rpartition("\n")[0]
        for node in world.graph.nodes:
            if node.file not in known:
                *_, info = env.step(render(read(node.file)))
                assert info["detail"].errors == 1
        assert world.state().rpartition("\n")[0] == before
        env.step(render(world.optimal_calls()[0]))
    assert world.score() == 1.0


def test_reading_again_does_not_reset_the_failures() -> None:
    assert {start(env_id).max_failed_rounds for env_id in LORE} == {3}
    env = start("DocumentWorld", operations=6)
    first = next(iter(env.world.known.useful()))
    env.step(render(read(first)))
    for k, call in enumerate([read("v1%no"), read(first), read("v2%no")], 1):
        *_, info = env.step(render(call))
        assert info["detail"].failed_rounds == k
    assert env.over


@pytest.mark.rotation
def test_reading_all_there_is_takes_more_turns_than_there_are() -> None:
    for operations, seeds in ((3, 40), (20, 10), (120, 2)):
        assert mean("DocumentWorld", greedy, seeds, operations=operations) <= 0.1
        assert play_optimally(start("DocumentWorld", operations=operations)).reward == 1.0


@pytest.mark.parametrize("env_id", LORE)
def test_the_last_result_is_not_enough(env_id: str) -> None:
    options = {"render": "scene"} if env_id == "MultimodalWorld" else {}
    assert mean(env_id, forgetful, 40, **options) <= 0.1
    assert mean(env_id, forgetful, 2, operations=350, difficulty="hard", **options) == 0.0


@pytest.mark.parametrize("env_id", LORE)
def test_the_budget_is_that_of_the_configuration(env_id: str) -> None:
    presets = [entry.options for entry in worlds(presets=True) if entry.world.__name__ == env_id]
    for preset in presets:
        if preset.get("operations", 3) > 60:
            continue
        env = make(env_id, **preset)
        budgets = set()
        for seed in range(6):
            env.reset(seed=seed)
            budgets.add(tool_env(env).world.max_turns)
        assert len(budgets) == 1


def test_irrelevant_documents_are_told_by_rules_alone() -> None:
    for seed in range(12):
        world = default("DocumentWorld", seed, operations=25, theta=6)
        irrelevant = {node.file for node in world.graph.nodes if not node.needed}
        assert len(irrelevant) > len(world.graph.start) // 2
        named = dict(re.findall(r"(v[0-9]+%\S+) \((v[0-9]+)\)", world.task()))
        listed = set(re.findall(r"v[0-9]+%[^,. ]+", world.task()))
        asked, rng = set[str](), Random(seed)
        while world.known.answer is None:
            useful = set(world.known.useful())
            assert useful
            assert not useful & irrelevant
            certain = {f for f in listed if f not in named or named[f] in asked}
            assert {f for f in useful if f in listed} == certain - world.known.read.keys()
            text = str(world.read_document(rng.choice(sorted(useful))))
            if "%X'" in text:
                asked |= set(re.findall(r"v[0-9]+\b(?!%)", text))
            named |= dict(re.findall(r"'(v[0-9]+%[^']+)' \((v[0-9]+)\)", text))
            listed |= set(re.findall(r"'(v[0-9]+%[^'X]+)'", text)) if "%X'" not in text else set()
        assert not world.known.read.keys() & irrelevant
        assert world.report()["reads"] == world.graph.needed


def test_variables_of_irrelevant_documents_have_numbers_like_any_others() -> None:
    ranks = []
    for seed in range(60):
        nodes = [n for n in default("DocumentWorld", seed).graph.nodes[1:] if n.kind == "value"]
        order = sorted(n.number for n in nodes)
        ranks += [order.index(n.number) / len(order) - 0.5 for n in nodes if not n.needed]
    assert abs(sum(ranks)) < 3.3 * sum(rank * rank for rank in ranks) ** 0.5, "1 in 1,000"


def test_answers_of_programs_are_spread() -> None:
    for options in ({"operations": 1}, {}, {"operations": 10, "difficulty": "hard"}):
        answers = [default("CodeWorld", seed, **options).graph.answer for seed in range(200)]
        assert max(map(answers.count, answers)) <= 20
