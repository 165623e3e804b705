"""CodeWorld against a solver that sees only sources, and brute force over unread files."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from random import Random
from typing import Any

import pytest

import agentgym
from agentgym import make, tool_env
from agentgym.envs.lore.code_world import CodeWorld
from agentgym.oracles import NoisyPolicy, OraclePolicy, RandomPolicy
from agentgym.oracles.reading import ParsedChat
from agentgym.training.rollout import rollout
from tests.envs.lore.code_solver import CodeSolver, Program
from tests.envs.lore.test_document_world import read, reply, submit
from tests.envs.lore.test_programs import BOTH, generated
from tests.helpers import compare, say, start


def solve(seed: int, **options: Any) -> None:
    world = generated(seed, **options)
    solver = CodeSolver(world.task())
    rounds = solver.solve(lambda files: [str(world.read_document(file)) for file in files])
    world.submit(str(solver.answer))
    assert world.score() == 1.0
    assert rounds == world.shortest_rounds()
    assert {f"{name}.py" for name in solver.trees} == set(world.needed()), (
        "what is needed is reached, and nothing else is read"
    )
    assert world.known.answer == str(solver.answer)
    assert set(world.known.unread()) == solver.frontier
    report = world.report()
    assert (
        report["reads"]
        == report["useful_reads"]
        == report["needed"]
        <= report["documents"]
        == len(world.files())
    )
    assert (report["guessed_reads"], report["redundant_reads"], world.rounds_left()) == (0, 0, 0)


@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize(
    ("operations", "count"),
    [(0, 3), (1, 12), (2, 12), (3, 12), (8, 12), (30, 5), (120, 2), (350, 1)],
)
def test_a_solver_that_sees_sources_solves_in_the_fewest_rounds(
    operations: int, count: int, difficulty: str
) -> None:
    for seed in range(count):
        solve(seed, operations=operations, difficulty=difficulty)


@pytest.mark.exhaustive
@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("part", range(40))
def test_the_solver_solves_two_thousand_tasks_of_each_difficulty(
    part: int, difficulty: str
) -> None:
    rng = Random(part)
    for seed in range(50 * part, 50 * (part + 1)):
        style = rng.choice(["wrap", "wrap", "plain"])
        solve(
            seed,
            operations=rng.randint(1, 350),
            difficulty=difficulty,
            consolidation=style,
            names=NAMES[seed % 3 == 0],
        )


NAMES = ["opaque", "sequential"]


@pytest.mark.parametrize(
    "options",
    [
        {"p": 0.0},
        {"p": 1.0, "theta": 1},
        {"theta": 40, "max_arity": 10},
        {"consolidation": "plain"},
        {"names": "sequential"},
    ],
)
def test_extremes_are_solved(options: dict[str, Any]) -> None:
    for seed in range(4):
        solve(seed, operations=25, difficulty="hard", **options)


def test_conditionals_make_reading_take_more_rounds_than_the_height_or_fewer() -> None:
    # More if a comparison precedes its branch, fewer if a shortcut finds shared files.
    worlds = [generated(seed, operations=12) for seed in range(40)]
    assert any(world.shortest_rounds() > world.graph.height + 1 for world in worlds)
    assert any(world.shortest_rounds() < world.graph.height + 1 for world in worlds)


def test_without_conditionals_all_files_are_needed_and_each_is_read_as_soon_as_one_imports_it() -> (
    None
):
    for seed in range(20):
        world = generated(
            seed, operations=12, difficulty="hard", weights={"arithmetic": 1.0, "async": 1.0}
        )
        distance = [0] + [10**6] * (len(world.graph.nodes) - 1)
        for node in world.graph.nodes:
            for child in node.children:
                distance[child] = min(distance[child], distance[node.uid] + 1)
        assert world.shortest_rounds() == max(distance) + 1 <= world.graph.height + 1
        assert world.graph.needed == len(world.graph.nodes)


@pytest.mark.parametrize("difficulty", BOTH)
def test_all_at_once_takes_a_turn_for_each_round_through_the_env(difficulty: str) -> None:
    options: dict[str, Any] = {
        "operations": 20,
        "difficulty": difficulty,
        "max_calls_per_turn": 128,
        "budget_by": "rounds",
    }
    env = start("CodeWorld", seed=5, budget_factor=1.0, budget_slack=0, **options)
    solver = CodeSolver(env.chat.messages[1].text)

    def reading(files: Any) -> list[str]:
        files = list(files)
        chat, *_ = env.step(reply(*map(read, files)))
        return [message.text for message in chat.messages[-len(files) :]]

    rounds = solver.solve(reading)
    outcome = say(env, f"I have it.\nFinal answer: {solver.answer}")
    assert (outcome.reward, outcome.terminated, outcome.turn) == (1.0, True, rounds + 1)
    assert env.world.turns() == env.world.shortest_rounds() == rounds
    assert env.world.max_turns == env.world.most_turns() + 1 > rounds
    assert env.world.report()["round_optimal_turns"] == rounds


# Conclusions from the sources equal those from the graph.


@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("operations", [0, 1, 4, 40])
def test_the_frontier_from_the_sources_is_the_frontier_of_the_graph(
    operations: int, difficulty: str
) -> None:
    # At every state of a random order, whether or not it defers branches.
    for seed in range(6 if operations < 40 else 2):
        world, rng = generated(seed, operations=operations, difficulty=difficulty), Random(seed)
        solver, done = CodeSolver(world.task()), set[int]()
        while world.known.answer is None:
            frontier = {world.graph.nodes[uid].file for uid in told_of(world, done)}
            assert frontier == solver.frontier == set(world.known.unread())
            useful = solver.useful()
            assert useful == set(world.known.useful()) <= set(world.needed())
            if len(done) % 9 == 0:
                assert world.rounds_left() == rounds_by_playing(world, done)
            file = rng.choice(sorted(useful if rng.random() < 0.6 else frontier))
            solver.take(file, str(world.read_document(file)))
            done.add(world.graph.uids[file])
        assert world.rounds_left() == 0
        assert not solver.useful()
        assert solver.answer == world.graph.answer


def told_of(world: CodeWorld, done: set[int]) -> set[int]:
    return ({0} | {child for uid in done for child in world.graph.nodes[uid].children}) - done


def rounds_by_playing(world: CodeWorld, done: set[int]) -> int:
    solver, sources = CodeSolver(world.task()), world.files()
    for uid in done:
        solver.take(world.graph.nodes[uid].file, sources[world.graph.nodes[uid].file])
    return solver.solve(lambda files: [sources[file] for file in files])


def test_useful_files_are_those_that_every_run_asks_for_whatever_unread_files_return() -> None:
    # Unread files become random constants, and the rest is executed.
    compared = waiting = 0
    for seed in range(10):
        rng, weights = Random(seed), {"conditional": 2, "scale": 1, "async": 1}
        world = generated(seed, operations=4, difficulty="hard", p=0.0, weights=weights)
        sources = world.files()
        while world.known.answer is None:
            asked = [ask(sources, world.known.read, rng) for _ in range(8)]
            while (certain := set.intersection(*asked)) != set(world.known.useful()) and len(
                asked
            ) < 400:
                asked.append(ask(sources, world.known.read, rng))
            assert certain == set(world.known.useful())
            assert {call.arguments["file_id"] for call in world.optimal_calls()} == certain
            waiting += set.union(*asked) != certain
            compared += 1
            world.read_document(rng.choice(sorted(certain)))
        assert list(world.optimal_calls()) == [submit(str(world.graph.answer))]
        assert world.report()["reads"] == world.graph.needed
        assert world.turns() == world.graph.needed
        assert world.max_turns == world.config.budget(world.most_turns() + 1)
    assert compared > 60
    assert waiting > 20


def ask(sources: dict[str, str], done: Any, rng: Random) -> set[str]:
    unread = sources.keys() - done
    values = {
        file: f"def main():\n    return {rng.choice([-1, 1]) * rng.choice([0, 50, 10**4, 10**8]) + rng.randint(-99, 99)}\n"
        for file in sorted(unread)
    }
    program = Program({**sources, **values})
    program.run()
    return {f"{name}.py" for name in program.called} & unread


def test_calls_are_labelled() -> None:
    seen: dict[str, int] = {}
    for seed in range(12):
        env = make(
            "CodeWorld-paper",
            labels=True,
            operations=5,
            budget_slack=100,
            difficulty=BOTH[seed % 2],
        )
        env.reset(seed=seed)
        world: Any = tool_env(env).world
        rng, sources = Random(seed), world.files()
        solver = CodeSolver(world.task())
        while not tool_env(env).over:
            useful, imported = solver.useful(), set(solver.frontier)
            file = rng.choice([*sorted(sources), *sorted(useful), "m_none.py"])
            expected = label(file, solver, useful, imported, sources.keys())
            seen[expected] = seen.get(expected, 0) + 1
            info = env.step(reply(read(file)))[4]
            assert (info["labels"], info["optimal"]) == ((expected,), expected == "optimal")
            if file in sources:
                solver.take(file, sources[file])
            if solver.useful() == set():
                break
        for value, expected in (
            (str(world.graph.answer + 1), "wrong"),
            (str(world.graph.answer), "optimal"),
        ):
            again = agentgym.clone(env)
            assert again.step(reply(submit(value)))[4]["labels"] == (expected,)
    assert (
        min(seen[name] for name in ("optimal", "redundant", "speculative", "lucky", "invalid")) > 5
    )
    env = make("CodeWorld-paper", labels=True)
    env.reset(seed=0)
    assert env.step(reply(submit(str(tool_env(env).world.graph.answer))))[4]["labels"] == ("lucky",)  # type: ignore[attr-defined]


def label(file: str, solver: CodeSolver, useful: set[str], imported: set[str], exist: Any) -> str:
    if file not in exist:
        return "invalid"
    if file[:-3] in solver.trees:
        return "redundant"
    return "optimal" if file in useful else "speculative" if file in imported else "lucky"


@pytest.mark.parametrize("hints", ["plain", "full"])
@pytest.mark.parametrize(
    "options",
    [
        {"difficulty": "hard", "theta": 3, "p": 1.0},
        {"operations": 0},
        {"consolidation": "plain", "names": "sequential"},
    ],
)
def test_hints_are_functions_of_what_was_shown_in_all_settings(
    options: dict[str, Any], hints: str
) -> None:
    env = make("CodeWorld", **{"operations": 8, **options}, hints=hints)
    reader, compared = RandomPolicy("CodeWorld"), 0
    for seed in range(6):
        chat, _ = env.reset(seed=seed)
        noisy = NoisyPolicy("CodeWorld", 0.3, seed)
        while not tool_env(env).over:
            hidden: Any = tool_env(env).world
            seen: Any = reader.recall(ParsedChat.of(chat))
            seen.config = hidden.config
            compare(hidden, seen)
            told = reader.recall(ParsedChat(ParsedChat.of(chat).task, {"state": hidden.state()}))
            told.config = hidden.config
            compare(hidden, told)
            compared += 1
            chat, *_ = env.step(noisy([chat])[0].text)
    assert compared >= 6


@pytest.mark.parametrize("hints", ["plain", "full"])
def test_what_the_state_leaves_out_is_of_no_more_use(hints: str) -> None:
    told_ahead = shared_again = 0
    for seed in range(12):
        world, rng = (
            generated(
                seed, operations=12, difficulty="hard", theta=4, hints=hints, strict_ids=False
            ),
            Random(seed),
        )
        told: CodeWorld | None = None
        while world.known.answer is None:
            if told is None or rng.random() < 0.1:
                told = CodeWorld.read_task(world.task())
                told.config = world.config
                told.read_state(world.state())
            assert told.state() == world.state()
            for flag in (True, False):
                assert told.subtask(flag) == world.subtask(flag)
                assert told.read_subtask(world.subtask(flag)) in world.optimal_calls()
            assert list(told.legal_calls()) == list(world.legal_calls())
            told_ahead += "Read before their imports" in world.state()
            shared_again += any(
                name[:-3] in world.state().split("Known values")[1] for name in world.known.shared
            )
            unread = [file for file in world.files() if file not in world.known.read]
            file = rng.choice(
                [rng.choice(unread), *world.known.unread()]
                if rng.random() < 0.3
                else list(world.known.useful())
            )
            told.read_result(read(file), str(world.read_document(file)))
        told.turn = world.turn
        assert told.state() == world.state()
    assert told_ahead > 10
    assert shared_again > 10


def test_the_state_stays_short() -> None:
    # It drops finished computations: at most half of everything read.
    for seed in range(2):
        world, longest, told = generated(seed, operations=120, hints="full"), 0, 0
        while world.known.answer is None:
            told += len(str(world.read_document(world.known.useful()[0])))
            longest = max(longest, len(world.state()))
        assert longest < told / 2
        assert len(world.known.read) == world.graph.needed


def test_plain_hints_leave_comparing_and_the_last_value_to_the_agent() -> None:
    steps: dict[str, list[str]] = {}
    for hints in ("plain", "full"):
        for seed in range(6):
            env = make("CodeWorld", oracles="SP", hints=hints, operations=8)
            trajectory = rollout(env, OraclePolicy("CodeWorld"), seed)
            assert trajectory.reward == 1.0
            last = trajectory.steps[-1].chat.messages[-1].text
            answer = str(tool_env(env).world.graph.answer)  # type: ignore[attr-defined]
            assert (f"What main.py returns is {answer}." in last) is (hints == "full")
            steps.setdefault(hints, []).extend(
                step.chat.messages[-1].text for step in trajectory.steps
            )
    assert any("Work out which branch 'm" in text for text in steps["plain"])
    assert not any("Work out" in text for text in steps["full"])
    assert all("Certainly needed: " in text for text in steps["full"])
    assert not any("Certainly needed: " in text for text in steps["plain"])


def test_a_state_in_words() -> None:
    # main compares a with b and takes c.
    world = CodeWorld.read_task(
        "Find what main() in main.py of the program 'abc' returns.\nTurn budget: 9"
    )
    assert world.state() == (
        "What main.py returns is not known yet.\nKnown values: none\nUnread documents: main.py\nRead last: none\nTurns left: 9"
    )
    sources = {
        "main.py": "import a\nimport b\nimport c\nimport d\n\ndef main():\n    if a.main() < b.main():\n        return c.main()\n"
        '    return d.main()\n\nif __name__ == "__main__":\n    print(main(), end="")\n',
        "a.py": "import w\n\ndef main():\n    return (w.main() * 7 + 13) % 100\n",
        "w.py": "def main():\n    return 12\n",
        "b.py": "def main():\n    return 5\n",
    }
    for file, source in sources.items():
        world.read_result(read(file), source)
        if file == "a.py":
            assert world.subtask(with_state=False) == "Read document 'b.py'."
    assert world.state() == (
        "What main.py returns is not known yet.\nmain = if a() < b() then c() else d()\nKnown values: a = 97, b = 5, w = 12\n"
        "Unread documents: c.py, d.py\nBehind redirects, and perhaps imported again: w.py\nRead last: a.py, w.py, b.py\n"
        "Turns left: 9"
    )
    assert (
        world.subtask(with_state=False)
        == "Work out which branch 'main.py' takes, then read the document of that branch."
    )
    assert list(world.optimal_calls()) == [read("d.py")]
    assert list(world.known.unread()) == ["c.py", "d.py"], "97 < 5 does not hold"
    assert (
        world.read_subtask(
            "Work out which branch 'b.py' takes, then read the document of that branch."
        )
        is None
    )
    assert world.read_subtask("Read on.") is None


def test_texts_that_were_cut_or_are_no_modules_tell_nothing() -> None:
    world = generated(1, operations=12, difficulty="hard")
    seen = CodeWorld.read_task(world.task())
    for file, text in world.files().items():
        for cut in (
            "[cleared]",
            "",
            text[:-1],
            text[: len(text) // 2],
            f"{text}And more.",
            text.replace("main()", "man()"),
        ):
            with pytest.raises(ValueError, match="this is not a document"):
                seen.read_result(read(file), cut)
    for text in (
        "def main():\n    return x\n",
        "import a\n\ndef main():\n    return a.main() ** 2\n",
        "def main():\n    pass\n",
    ):
        with pytest.raises(ValueError, match="this is not a document"):
            seen.read_result(read("main.py"), text)
    assert seen.state() == world.state()
    with pytest.raises(ValueError, match="this is not a task of CodeWorld"):
        CodeWorld.read_task("Find a way.\nTurn budget: 3")
    world.read_document("main.py")
    for state in (
        "",
        "Turns left: 3",
        "main is x.\nTurns left: 3",
        world.state()[:-1] + "x",
        world.state().replace("main =", "main = x"),
    ):
        with pytest.raises(ValueError, match="this is n"):
            seen.read_state(state)


def test_same_seed_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib; from agentgym.envs.lore.code_world import CodeWorld as W\n"
        "w = W(W.Config(operations=80, difficulty='hard'), 7); w.generate()\n"
        "print(hashlib.sha256((w.task() + str(w.files())).encode()).hexdigest())"
    )
    world = generated(7, operations=80, difficulty="hard")
    here = hashlib.sha256((world.task() + str(world.files())).encode()).hexdigest()
    for hash_seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        shown = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert shown.stdout.strip() == here
