from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from agentgym.envs.lore.code_world import CodeWorld
from agentgym.envs.lore.growth import letters
from tests.envs.lore.code_solver import Program
from tests.envs.lore.games import default, read, submit
from tests.helpers import play, start


def generated(seed: int, **options: Any) -> Any:
    return default("CodeWorld", seed, **options)


def test_useful_files_are_those_that_every_run_asks_for_whatever_unread_files_return() -> None:
    """Execute the program with random constants in place of the unread files."""
    compared = waiting = 0
    for seed in range(10):
        rng, operators = Random(seed), ("conditional", "scale", "async")
        world = generated(seed, operations=4, operators=operators, difficulty="hard", p=0.0)
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


def test_what_the_state_leaves_out_is_of_no_more_use() -> None:
    """A world restored from a state continues like the world that wrote the state."""
    told_ahead = shared_again = 0
    for seed in range(12):
        world, rng = (
            generated(seed, operations=12, difficulty="hard", theta=4, strict_ids=False),
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
    """The state is always shorter than half of the text that has been read."""
    for seed in range(2):
        world, longest, told = generated(seed, operations=120), 0, 0
        while world.known.answer is None:
            told += len(str(world.read_document(world.known.useful()[0])))
            longest = max(longest, len(world.state()))
        assert longest < told / 2
        assert len(world.known.read) == world.graph.needed


def test_a_state_in_words() -> None:
    """In this handwritten program, main compares a with b and returns c."""
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


def test_names_are_unique_and_those_of_the_paper_can_be_guessed() -> None:
    opaque = list(generated(0, operations=350).files())
    assert len(set(opaque)) == len(opaque)
    assert opaque[0] == "main.py"
    assert all(re.fullmatch(r"m_[a-z]{4}\.py", file) for file in opaque[1:])
    for strict in (False, True):
        env = start("CodeWorld", names="sequential", operations=4, strict_ids=strict)
        files = list(env.world.files())
        assert files == ["main.py", *(f"v{k}.py" for k in range(len(files) - 1))]
        outcome = play(env, read(files[-1]))
        assert outcome.text.startswith("error: there is no document") is strict
        assert env.world.report()["guessed_reads"] == (not strict)


def test_names_differ_and_grow_longer_in_very_large_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With names shortened by two letters, a small task has as many collisions as a large task."""
    module = "agentgym.envs.lore.code_world"
    monkeypatch.setattr(f"{module}.letters", lambda rng, count: letters(rng, count - 2))
    monkeypatch.setattr(f"{module}._NAMES_PER_LETTER", 100)
    files = list(generated(0, operations=60, p=0.0).files())
    assert len(set(files)) == len(files) > 150
    assert {len(file) for file in files[1:100]} == {7}
    assert {len(file) for file in files[100:]} == {8}


def test_there_is_no_tool_that_runs_code() -> None:
    names = [tool.name for tool in start("CodeWorld").chat.tools]
    assert names == ["read_document", "submit"]
    assert "You cannot run the program" in start("CodeWorld").chat.messages[0].text
    assert "asyncio.sleep" in start("CodeWorld", difficulty="hard").chat.messages[0].text
    assert "asyncio" not in start("CodeWorld").chat.messages[0].text
