from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from agentgym import make, tool_env
from agentgym.oracles import NoisyPolicy, RandomPolicy
from agentgym.oracles.reading import ParsedChat
from tests.envs.lore.games import BOTH, LORE, SOLVERS, generated, read, reply, shown, told_of
from tests.helpers import compare, say, start


def solve(env_id: str, seed: int, **options: Any) -> None:
    world = generated(env_id, seed, **options)
    solver = SOLVERS[env_id](world.task())
    rounds = solver.solve(lambda files: [shown(world, file) for file in files])
    world.submit(str(solver.answer))
    assert world.score() == 1.0
    assert rounds == world.shortest_rounds()
    needed = {node.file for node in world.graph.nodes if node.needed}
    assert solver.read == needed, "what is needed is reached, and nothing else is read"
    assert world.known.answer == str(solver.answer)
    assert set(world.known.unread()) == solver.frontier
    report = world.report()
    assert report["reads"] == report["useful_reads"] == report["needed"] == len(needed)
    assert report["documents"] == len({node.file for node in world.graph.nodes})
    assert (report["guessed_reads"], report["redundant_reads"]) == (0, 0)
    if env_id != "CodeWorld":
        assert needed == world.graph.uids.keys()
        assert report["height"] == rounds - 1


@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("operations", [0, 1, 3, 30, 350])
@pytest.mark.parametrize("env_id", LORE)
def test_a_solver_that_sees_observations_solves_in_the_fewest_rounds(
    env_id: str, operations: int, difficulty: str
) -> None:
    options: dict[str, Any] = {"operations": operations, "difficulty": difficulty}
    if env_id == "MultimodalWorld":
        options["render"] = "image" if operations < 30 else "scene"
    small = 3 if env_id == "MultimodalWorld" else 12
    for seed in range(small if operations < 4 else 1 + 30 // operations):
        solve(env_id, seed, **options)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("DocumentWorld", {"p": 0.0}),
        ("DocumentWorld", {"p": 1.0, "theta": 1}),
        ("DocumentWorld", {"theta": 40, "max_arity": 10}),
        ("DocumentWorld", {"distractor_fields": 4.0}),
        ("MultimodalWorld", {"counted": 0.1}),
        ("CodeWorld", {"p": 0.0}),
        ("CodeWorld", {"p": 1.0, "theta": 1}),
        ("CodeWorld", {"theta": 40, "max_arity": 10}),
        ("CodeWorld", {"consolidation": "plain"}),
        ("CodeWorld", {"names": "sequential"}),
        ("CodeWorld", {"min_arity": 4}),
        ("CodeWorld", {"operators": ("async",)}),
    ],
)
def test_extremes_are_solved(env_id: str, options: dict[str, Any]) -> None:
    for seed in range(4):
        solve(env_id, seed, operations=25, difficulty="hard", **options)


@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("operations", [0, 1, 4, 40])
@pytest.mark.parametrize("env_id", LORE)
def test_the_frontier_from_the_observations_is_the_frontier_of_the_graph(
    env_id: str, operations: int, difficulty: str
) -> None:
    options: dict[str, Any] = {"operations": operations, "difficulty": difficulty}
    if env_id == "MultimodalWorld" and operations > 4:
        options["render"] = "scene"
    for seed in range(2 if env_id == "MultimodalWorld" or operations == 40 else 6):
        world, rng = generated(env_id, seed, **options), Random(seed)
        solver, done = SOLVERS[env_id](world.task()), set[int]()
        while world.known.answer is None:
            frontier = {world.graph.nodes[uid].file for uid in told_of(world, done)}
            assert frontier == solver.frontier == set(world.known.unread())
            useful = solver.useful()
            assert useful == set(world.known.useful())
            assert all(world.graph.node(file).needed for file in useful)
            file = rng.choice(sorted(useful if rng.random() < 0.6 else frontier))
            solver.take(file, shown(world, file))
            done.add(world.graph.uids[file])
        assert not solver.useful()
        assert str(solver.answer) == world.known.answer == str(world.graph.answer)


@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("env_id", ["DocumentWorld", "CodeWorld"])
def test_reading_all_at_once_takes_a_turn_for_each_round(env_id: str, difficulty: str) -> None:
    options: dict[str, Any] = {
        "operations": 20,
        "difficulty": difficulty,
        "max_calls_per_turn": 128,
    }
    tight = {"budget_by": "rounds", "budget_factor": 1.0, "budget_slack": 0}
    env = start(f"{env_id}-paper", seed=5, **options, **tight)
    solver = SOLVERS[env_id](env.chat.messages[1].text)

    def reading(files: Any) -> list[str]:
        files = list(files)
        say(env, reply(*map(read, files)))
        return [message.text for message in env.chat.messages[-len(files) :]]

    rounds = solver.solve(reading)
    outcome = say(env, f"I have it.\nFinal answer: {solver.answer}")
    assert (outcome.reward, outcome.terminated, outcome.turn) == (1.0, True, rounds + 1)
    assert env.world.turns() == env.world.shortest_rounds() == rounds
    assert env.world.max_turns == env.world.most_turns() + 1 > rounds


# Hints.


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("DocumentWorld", {"difficulty": "hard", "distractor_documents": 1.0}),
        ("DocumentWorld", {"operations": 0}),
        ("DocumentWorld", {"theta": 1, "p": 1.0}),
        ("MultimodalWorld", {"difficulty": "hard", "distractor_documents": 1.0}),
        ("MultimodalWorld", {"difficulty": "hard", "render": "scene"}),
        ("CodeWorld", {"difficulty": "hard", "theta": 3, "p": 1.0}),
        ("CodeWorld", {"operations": 0}),
        ("CodeWorld", {"consolidation": "plain", "names": "sequential"}),
    ],
)
def test_hints_are_functions_of_what_was_shown_in_all_settings(
    env_id: str, options: dict[str, Any]
) -> None:
    env = make(env_id, **{"operations": 6, **options})
    reader, compared = RandomPolicy(env_id), 0
    for seed in range(3 if env_id == "MultimodalWorld" else 6):
        chat, _ = env.reset(seed=seed)
        noisy = NoisyPolicy(env_id, 0.3, seed)
        while not tool_env(env).over:
            hidden: Any = tool_env(env).world
            parsed = ParsedChat.of(chat)
            for known in (parsed, ParsedChat(parsed.task, {"state": hidden.state()})):
                seen: Any = reader.recall(known)
                seen.config = hidden.config
                compare(hidden, seen)
            compared += 1
            chat, *_ = env.step(noisy([chat])[0].text)
    assert compared >= 3


@pytest.mark.parametrize("env_id", LORE)
def test_texts_that_were_cut_or_are_no_documents_tell_nothing(env_id: str) -> None:
    scene = {"render": "scene"} if env_id == "MultimodalWorld" else {}
    for difficulty in BOTH:
        world = generated(env_id, 1, operations=8, difficulty=difficulty, **scene)
        seen = LORE[env_id].read_task(world.task())
        before = seen.state()
        for node in world.graph.nodes:
            text = str(world.show(node))
            half = text[: len(text) // 2].rstrip(". ")
            without_picture = text.split("\n")[: "\nPicture" in text]
            for cut in ("[cleared]", "", text[:-1], half, f"{text} And more.", *without_picture):
                with pytest.raises(ValueError, match="this is not a document"):
                    seen.read_result(read(node.file), cut)
        assert seen.state() == before
    with pytest.raises(ValueError, match=f"this is not a task of {env_id}"):
        LORE[env_id].read_task("Find a way.\nTurn budget: 3")
    world.read_document(world.known.useful()[0])
    for state in ("", "Turns left: 3", "v0 is x.\nTurns left: 3", world.state()[:-1] + "x"):
        with pytest.raises(ValueError, match="this is not"):
            seen.read_state(state)


def test_what_was_guessed_is_part_of_the_state() -> None:
    """Once a guessed document has been read, documents that only lead to it are not useful."""
    for seed in range(10):
        world = generated("DocumentWorld", seed, operations=6)
        target = next(node for node in world.graph.nodes if node.uid and len(node.children) > 1)
        world.read_document(target.file)
        assert f"Read ahead of their rules: {target.file}" in world.state()
        while world.known.useful() and world.known.answer is None:
            told = LORE["DocumentWorld"].read_task(world.task())
            told.config = world.config
            told.read_state(world.state())
            compare(world, told)
            world.read_document(world.known.useful()[0])
        assert world.known.answer == world.graph.answer
        assert "Read ahead" not in world.state()


def test_documents_tell_irrelevant_variables_as_often_as_asked_for_and_in_all_wordings() -> None:
    def nodes(rate: float) -> list[Any]:
        worlds = [
            generated("DocumentWorld", seed, operations=60, distractor_fields=rate)
            for seed in range(10)
        ]
        return [node for world in worlds for node in world.graph.nodes if node.kind == "value"]

    assert not any(node.fields for node in nodes(0.0))
    values = nodes(0.25)
    assert 0.2 < sum(len(node.fields) for node in values) / len(values) < 0.3
    world = generated("DocumentWorld", 0, operations=60, difficulty="hard")
    texts = " ".join(str(world.show(node)) for node in world.graph.nodes)
    for words in (" = ", ": ", " holds ", "The value recorded for ", " was fixed at ", "Entry "):
        assert words in texts
    for function in {*re.findall(r"([a-z]+)\(", texts), "mod"}:
        assert re.search(rf"\b{function}\b", world.rules())
    assert "reverse" not in generated("DocumentWorld", 0).rules()
