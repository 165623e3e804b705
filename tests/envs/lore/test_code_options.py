"""CodeWorld: names, sizes, options, answers, and tools."""

from __future__ import annotations

import re

import pytest

from agentgym import ToolCall, make
from agentgym.envs.lore.code_world import CodeWorld
from tests.envs.lore.test_document_world import read, submit
from tests.envs.lore.test_programs import generated
from tests.helpers import play, play_optimally, start


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


@pytest.mark.rotation
def test_names_grow_longer_in_very_large_tasks() -> None:
    files = list(generated(0, operations=20_000, p=0.0).files())
    assert len(set(files)) == len(files) > 50_000
    assert {len(file) for file in files[1:]} == {9, 10}


def test_files_that_do_not_exist_are_refused_and_change_nothing() -> None:
    env = start("CodeWorld", budget_slack=1_000, max_failed_rounds=None)
    before = env.world.state().rpartition("\n")[0]
    for file in [
        "",
        " ",
        "main",
        "MAIN.py",
        "main.py ",
        "./main.py",
        "/etc/passwd",
        "m_a.py\n",
        "asyncio.py",
        "x" * 9_999,
    ]:
        outcome = play(env, read(file))
        assert outcome.text.startswith("error: there is no document ")
        assert len(outcome.text) < 300
        assert env.world.state().rpartition("\n")[0] == before
    assert play_optimally(env).reward == 1.0


@pytest.mark.parametrize(
    ("said", "right"),
    [("{}", 1), ("{}.", 1), ("'{}'", 1), ("main() = {}", 0), ("{}0", 0), ("{}.0", 0), ("", 0)],
)
def test_answers_are_compared_as_integers(said: str, right: int) -> None:
    for seed in range(4):
        env = start("CodeWorld", seed=seed, operations=2)
        assert play(env, submit(said.format(env.world.graph.answer))).reward == right
    assert env.world.graph.answer


def test_there_is_no_tool_that_runs_code() -> None:
    names = [tool.name for tool in start("CodeWorld").chat.tools]
    assert names == ["read_document", "submit"]
    assert "You cannot run the program" in start("CodeWorld").chat.messages[0].text
    assert "asyncio.sleep" in start("CodeWorld", difficulty="hard").chat.messages[0].text
    assert "asyncio" not in start("CodeWorld").chat.messages[0].text


def test_documents_fit_the_menu() -> None:
    for seed, options in enumerate(
        [{"max_arity": 2}, {"p": 1.0, "theta": 1}, {"min_arity": 10, "max_arity": 10}]
    ):
        for operations in (0, 1, 9):
            world = generated(
                seed, operations=operations, weights={"conditional": 1, "arithmetic": 2}, **options
            )
            assert len(world.files()) <= world.config.most_documents
            assert len(world.action_catalog()) == world.config.most_documents + 1
            assert world.features().shape == (2 * world.config.most_documents + 2,)
            assert world.action_catalog()[0] == ToolCall("read_document", {"file_id": "main.py"})


@pytest.mark.parametrize("steps", [2, 10, 30, 100, 400])
def test_at_horizon_gives_tasks_that_take_about_that_many_turns(steps: int) -> None:
    turns = [
        generated(seed, **CodeWorld.config_for_horizon(steps)).graph.needed + 1
        for seed in range(40)
    ]
    assert steps * 0.85 - 1 < sum(turns) / len(turns) < steps * 1.15 + 1
    with pytest.raises(ValueError, match=r"horizon must be an integer in \[2, "):
        CodeWorld.config_for_horizon(1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"names": "short"}, "names must be one of opaque, sequential, got 'short'"),
        ({"consolidation": "none"}, "consolidation must be one of wrap, plain, got 'none'"),
        (
            {"weights": {"async": 1.0}},
            "weights must be one of arithmetic, scale, conditional, got 'async'",
        ),
        (
            {"weights": {"async": 0}, "difficulty": "hard"},
            "weights must not all be 0, got {'async': 0}; operators: arithmetic, scale, conditional, async",
        ),
        (
            {"operations": 1_001, "consolidation": "plain"},
            "operations with consolidation='plain' must be an integer in [0, 1000], got 1001",
        ),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_value_and_its_range(
    options: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared whole
        make("CodeWorld", **options)
    assert str(refused.value) == why
