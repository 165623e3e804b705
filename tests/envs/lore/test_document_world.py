"""DocumentWorld against a solver that sees only texts, and brute force over readable documents."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys
from random import Random
from typing import Any

import pytest

import agentgym
from agentgym import ToolCall, make, render, tool_env
from agentgym.envs.lore import PAPER
from agentgym.envs.lore.document_world import DocumentWorld
from agentgym.envs.lore.graph import Graph
from agentgym.oracles import NoisyPolicy, OraclePolicy, RandomPolicy
from agentgym.oracles.reading import ParsedChat
from agentgym.training.rollout import rollout
from tests.envs.lore.lore_solver import Solver
from tests.helpers import compare, play, play_optimally, say, start

BOTH = ["standard", "hard"]


def read(file: str) -> ToolCall:
    return ToolCall("read_document", {"file_id": file})


def submit(value: str) -> ToolCall:
    return ToolCall("submit", {"value": value})


def generated(seed: int, **options: Any) -> DocumentWorld:
    # Under the paper's rules unless options differ.
    rules = {**PAPER, "distractor_documents": 0.0, **options}
    return default(seed, **rules)


def default(seed: int, **options: Any) -> DocumentWorld:
    world = DocumentWorld(DocumentWorld.Config(**options), seed)
    world.generate()
    return world


def reply(*calls: ToolCall) -> str:
    return "\n".join(map(render, calls))


def labelled(seed: int = 0, **options: Any) -> Any:
    env = make("DocumentWorld-paper", labels=True, **options)
    env.reset(seed=seed)
    return env


def computable(graph: Graph, done: set[int]) -> set[int]:
    """Return the documents that follow from those read, by the task's structure."""
    behind = {node.uid for node in graph.nodes if node.children and done.issuperset(node.children)}
    return (set(graph.start) | behind) - done


def solve(seed: int, **options: Any) -> None:
    world = generated(seed, **options)
    solver = Solver(world.task())
    rounds = solver.solve(lambda files: [str(world.read_document(file)) for file in files])
    world.submit(str(solver.answer))
    assert world.score() == 1.0
    assert rounds == world.graph.height + 1
    assert solver.read == {node.file for node in world.graph.nodes}, (
        "every document is needed, and read once"
    )
    assert (world.known.answer, list(world.known.unread())) == (solver.answer, [])
    report = world.report()
    assert report["reads"] == report["useful_reads"] == report["needed"] == report["documents"]
    assert (report["guessed_reads"], report["redundant_reads"], report["furthest"]) == (
        0,
        0,
        report["height"],
    )


@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("operations", [0, 1, 2, 3, 8, 30, 120, 350])
def test_a_solver_that_sees_texts_solves_in_one_round_more_than_the_height(
    operations: int, difficulty: str
) -> None:
    for seed in range(3 if operations > 30 else 12):
        solve(seed, operations=operations, difficulty=difficulty)


@pytest.mark.exhaustive
@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("part", range(8))
def test_the_solver_solves_two_thousand_tasks_of_each_difficulty(
    part: int, difficulty: str
) -> None:
    rng = Random(part)
    for seed in range(250 * part, 250 * (part + 1)):
        solve(
            seed,
            operations=rng.randint(1, 350),
            difficulty=difficulty,
            distractor_fields=rng.choice([0.0, 0.25, 1.0]),
        )


@pytest.mark.parametrize(
    "options",
    [
        {"p": 0.0},
        {"p": 1.0, "theta": 1},
        {"theta": 40, "max_arity": 10},
        {"distractor_fields": 4.0},
    ],
)
def test_extremes_are_solved(options: dict[str, Any]) -> None:
    for seed in range(4):
        solve(seed, operations=25, difficulty="hard", **options)


@pytest.mark.parametrize("difficulty", BOTH)
def test_all_at_once_takes_height_and_two_turns_through_the_env(difficulty: str) -> None:
    options: dict[str, Any] = {
        "operations": 20,
        "difficulty": difficulty,
        "max_calls_per_turn": 128,
        "budget_by": "rounds",
    }
    env = start("DocumentWorld-paper", seed=5, budget_factor=1.0, budget_slack=0, **options)
    solver = Solver(env.chat.messages[1].text)

    def reading(files: Any) -> list[str]:
        files = list(files)
        chat, *_ = env.step(reply(*map(read, files)))
        return [message.text for message in chat.messages[-len(files) :]]

    rounds = solver.solve(reading)
    outcome = say(env, f"I have it.\nFinal answer: {solver.answer}")
    assert (outcome.reward, outcome.terminated, outcome.turn) == (1.0, True, rounds + 1)
    graph = env.world.graph
    assert env.world.turns() == max(graph.height + 1, -(-graph.needed // 128)) == rounds
    assert env.world.max_turns == env.world.most_turns() + 1 > rounds
    assert env.world.report()["round_optimal_turns"] == rounds


@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("operations", [0, 1, 4, 40])
def test_the_frontier_from_the_texts_is_the_frontier_of_the_graph(
    operations: int, difficulty: str
) -> None:
    # At every state of a random reading order, including the remaining rounds.
    for seed in range(6):
        world, rng = generated(seed, operations=operations, difficulty=difficulty), Random(seed)
        solver, done = Solver(world.task()), set[int]()
        while world.known.answer is None:
            frontier = {world.graph.nodes[uid].file for uid in computable(world.graph, done)}
            assert (
                frontier
                == solver.frontier
                == set(world.known.unread())
                == set(world.known.useful())
            )
            assert world.rounds_left() == rounds_by_playing(world.graph, done)
            file = rng.choice(sorted(frontier))
            solver.take(file, str(world.read_document(file)))
            done.add(world.graph.uids[file])
        assert world.rounds_left() == 0
        assert solver.answer == world.known.answer


def rounds_by_playing(graph: Graph, done: set[int]) -> int:
    read_now, rounds = set(done), 0
    while 0 not in read_now:
        read_now |= computable(graph, read_now)
        rounds += 1
    return rounds


def test_optimal_reads_are_those_of_a_search_over_everything_that_can_be_read() -> None:
    compared = 0
    for seed in range(12):
        world = generated(seed, operations=2, max_arity=2, theta=2, p=0.5)
        graph = world.graph

        @functools.cache
        def cost(done: frozenset[int], graph: Graph = graph) -> int:
            return (
                0
                if 0 in done
                else 1 + min(cost(done | {uid}) for uid in computable(graph, set(done)))
            )

        def walk(
            done: frozenset[int],
            rng: Random,
            world: DocumentWorld = world,
            graph: Graph = graph,
            cost: Any = cost,
        ) -> int:
            best = {
                graph.nodes[u].file
                for u in computable(graph, set(done))
                if cost(done) == 1 + cost(done | {u})
            }
            assert {call.arguments["file_id"] for call in world.optimal_calls()} == best
            file = rng.choice(sorted(best))
            world.read_document(file)
            return graph.uids[file]

        done: frozenset[int] = frozenset()
        while 0 not in done:
            done |= {walk(done, Random(seed))}
            compared += 1
        assert list(world.optimal_calls()) == [submit(str(graph.answer))]
        assert cost(frozenset()) == graph.needed
        assert world.turns() == graph.needed
        assert world.max_turns == 2 * (world.most_turns() + 1) + 10
    assert compared > 80


def test_no_document_is_needed_that_is_not_told_of_and_irrelevant_ones_are_never_referred_to() -> (
    None
):
    irrelevant = 0
    for seed in range(8):
        world = generated(
            seed, operations=30, difficulty="hard", distractor_fields=1.0, distractor_documents=1.0
        )
        texts = {node.file: str(world.show(node)) for node in world.graph.nodes}
        used = set(re.findall(r"v\d+", " ".join(text for text in texts.values() if "%X'" in text)))
        for node in world.graph.nodes:
            fields = {f"v{number}" for number, _ in node.fields}
            assert not fields & used
            assert fields <= set(re.findall(r"v\d+", texts[node.file])), "but they are told"
            if not node.needed:
                irrelevant += 1
                assert f"v{node.number}" not in used
                assert (
                    sum(
                        f"{node.file}{quote} (v{node.number})" in text
                        for quote, text in [("", world.task()), *(("'", t) for t in texts.values())]
                    )
                    == 1
                ), "one list names it, with its variable"
        assert (
            world.graph.needed
            == sum(node.needed for node in world.graph.nodes)
            < len(world.graph.nodes)
        )
        outcome = play_optimally(
            start("DocumentWorld-paper", seed=seed, operations=15, distractor_documents=1.0)
        )
        assert outcome.reward == 1.0
    assert irrelevant > 30


def test_without_irrelevant_fields_a_document_tells_one_value_and_with_them_a_quarter_more_in_the_mean() -> (
    None
):
    def mean(rate: float) -> float:
        nodes = [
            n
            for s in range(10)
            for n in generated(s, operations=60, distractor_fields=rate).graph.nodes
            if n.kind == "value"
        ]
        return sum(len(node.fields) for node in nodes) / len(nodes)

    assert mean(0.0) == 0.0
    assert 0.2 < mean(0.25) < 0.3


def test_all_wordings_occur_and_hard_tasks_explain_their_functions() -> None:
    world = generated(0, operations=60, difficulty="hard")
    texts = " ".join(str(world.show(node)) for node in world.graph.nodes)
    for words in (" = ", ": ", " holds ", "The value recorded for ", " was fixed at ", "Entry "):
        assert words in texts
    for function in {*re.findall(r"([a-z]+)\(", texts), "mod"}:
        assert re.search(rf"\b{function}\b", world.rules())
    assert "reverse" not in generated(0).rules()


@pytest.mark.parametrize("hints", ["plain", "full"])
@pytest.mark.parametrize(
    "options",
    [
        {"difficulty": "hard", "distractor_documents": 1.0},
        {"operations": 0},
        {"theta": 1, "p": 1.0},
    ],
)
def test_hints_are_functions_of_what_was_shown_in_all_settings(
    options: dict[str, Any], hints: str
) -> None:
    env = make("DocumentWorld", **{"operations": 6, **options}, hints=hints)
    reader, compared = RandomPolicy("DocumentWorld"), 0
    for seed in range(6):
        chat, _ = env.reset(seed=seed)
        noisy = NoisyPolicy("DocumentWorld", 0.2, seed)
        while not tool_env(env).over:
            hidden: Any = tool_env(env).world
            seen: Any = reader.recall(ParsedChat.of(chat))
            seen.config = hidden.config
            compare(hidden, seen)
            told = reader.recall(ParsedChat(ParsedChat.of(chat).task, {"state": hidden.state()}))
            told.config = hidden.config
            assert (told.state(), told.subtask(True)) == (hidden.state(), hidden.subtask(True))
            assert list(told.optimal_calls() or ()) == list(hidden.optimal_calls())
            assert list(told.legal_calls()) == list(hidden.legal_calls()), (
                "so errors are drawn alike in every arm"
            )
            compared += 1
            chat, *_ = env.step(noisy([chat])[0].text)
    assert compared >= 6


def replies_of(chat: agentgym.Chat) -> list[str]:
    return [message.raw for message in chat.messages if message.role == "assistant"]


def test_plain_hints_leave_the_computing_to_the_agent() -> None:
    for hints, spelt in (("plain", False), ("full", True)):
        env = make("DocumentWorld", oracles="SP", hints=hints)
        trajectory = rollout(env, OraclePolicy("DocumentWorld"), 3)
        world: Any = tool_env(env).world
        secret = next(
            node.file
            for node in world.graph.nodes
            if node.kind == "value" and node.children and "%-" in node.file
        )
        hints_before = [
            step.chat.messages[-1].text
            for step in trajectory.steps
            if secret not in "".join(replies_of(step.chat))
        ]
        assert any(secret in text for text in hints_before) is spelt
        assert trajectory.reward == 1.0


def test_what_was_guessed_is_part_of_the_state() -> None:
    # A document read before its rule makes the rule and its values useless.
    for seed in range(10):
        world = generated(seed, operations=6)
        target = next(node for node in world.graph.nodes if node.uid and len(node.children) > 1)
        world.read_document(target.file)
        assert f"Read ahead of their rules: {target.file}" in world.state()
        while world.known.useful() and world.known.answer is None:
            told = DocumentWorld.read_task(world.task())
            told.config = world.config
            told.read_state(world.state())
            assert told.state() == world.state()
            assert list(told.optimal_calls()) == list(world.optimal_calls())
            assert list(told.legal_calls()) == list(world.legal_calls())
            world.read_document(world.known.useful()[0])
        assert world.known.answer == world.graph.answer
        assert "Read ahead" not in world.state()


def test_texts_that_were_cut_or_are_no_documents_tell_nothing() -> None:
    world = generated(1, operations=5)
    seen = DocumentWorld.read_task(world.task())
    for file in world.known.useful():
        text = str(world.show(world.graph.nodes[world.graph.uids[file]]))
        for cut in (
            "[cleared]",
            "",
            text[:-1],
            text[: len(text) // 2].rstrip(". "),
            f"{text} And more.",
        ):
            with pytest.raises(ValueError, match="this is not a document"):
                seen.read_result(read(file), cut)
    assert seen.state() == world.state()
    with pytest.raises(ValueError, match="this is not a task of DocumentWorld"):
        DocumentWorld.read_task("Find a way.\nTurn budget: 3")
    for state in ("", "Turns left: 3", "v0 is x.\nTurns left: 3", world.state()[:-1] + "x"):
        with pytest.raises(ValueError, match="this is not"):
            seen.read_state(state)


def test_same_seed_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib; from agentgym.envs.lore.document_world import DocumentWorld as W\n"
        "w = W(W.Config(operations=80, difficulty='hard', distractor_documents=0.5), 7); w.generate()\n"
        "text = w.task() + ''.join(n.file + str(w.show(n)) for n in w.graph.nodes)\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    world = default(7, operations=80, difficulty="hard", distractor_documents=0.5)
    here = world.task() + "".join(node.file + str(world.show(node)) for node in world.graph.nodes)
    for hash_seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        shown = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert shown.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


HOSTILE = [
    "",
    " ",
    "v1",
    "%",
    "v1%",
    "%X",
    "v1%X",
    "../etc",
    "v1%a\n",
    "\u202ev1%a",
    "v\u0661%a",
    "x" * 9_999,
    "None",
    "0",
    "{file_id}",
]


@pytest.mark.parametrize("strict", [False, True])
def test_ids_that_do_not_exist_are_refused_and_change_nothing(strict: bool) -> None:
    env = start(
        "DocumentWorld-paper", strict_ids=strict, budget_slack=1_000, max_failed_rounds=None
    )
    first = env.world.known.useful()[0]

    def public() -> tuple[str, dict[str, Any]]:
        return env.world.state().rpartition("\n")[0], {**env.world.report(), "lost_leads": 0}

    before = public()
    for file in [
        *HOSTILE,
        first.upper(),
        first.swapcase(),
        f" {first}",
        f"{first} ",
        f"{first}.",
        f"'{first}'",
        first[1:],
    ]:
        if file == first:
            continue
        outcome = play(env, read(file))
        assert outcome.text.startswith("error: there is no document ")
        assert len(outcome.text) < 300
        assert public() == before
    assert play_optimally(env).reward == 1.0


def test_an_id_that_nothing_has_told_of_can_be_guessed_unless_ids_are_strict() -> None:
    for strict in (False, True):
        env = labelled(strict_ids=strict)
        world: Any = tool_env(env).world
        hidden = world.graph.nodes[0].file
        chat, _, _, _, info = env.step(reply(read(hidden)))
        if strict:
            assert chat.messages[-1].text == f'error: there is no document "{hidden}"'
            assert (info["labels"], info["optimal"], world.report()["guessed_reads"]) == (
                ("invalid",),
                False,
                0,
            )
        else:
            assert str(world.graph.answer) in chat.messages[-1].text
            assert (info["labels"], info["optimal"], world.report()["guessed_reads"]) == (
                ("lucky",),
                False,
                1,
            )
            assert list(world.optimal_calls()) == [submit(world.graph.answer)]
