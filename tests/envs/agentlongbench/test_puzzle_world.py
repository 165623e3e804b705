from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from agentgym import ToolCall, make, tool_env
from agentgym.assemble.registry import worlds
from agentgym.envs.agentlongbench.config import PuzzleConfig
from agentgym.envs.agentlongbench.engine import TOOL, Feedback, read_feedback, search
from agentgym.envs.agentlongbench.puzzle_world import PuzzleWorld
from agentgym.oracles import NoisyPolicy
from tests.helpers import play, play_optimally, say, start


def world(seed: int = 0, **options: Any) -> PuzzleWorld:
    made = PuzzleWorld(PuzzleConfig(**options), seed)
    made.generate()
    return made


def heard(chat: Any, number: int) -> list[Feedback]:
    several = [m.text for m in chat.messages if m.text.startswith(f"Hidden item {number}.\n")]
    return [f for text in several or map(str, texts(chat)) for f in read_feedback(text)]


def texts(chat: Any) -> list[str]:
    return [message.text for message in chat.messages if "Hidden item" not in message.text]


@pytest.mark.parametrize("hidden", [1, 5])
@pytest.mark.parametrize("style", ["concise", "verbose"])
@pytest.mark.parametrize("knowledge", ["intensive", "free"])
@pytest.mark.parametrize("source", ["species", "synthetic"])
def test_exact_candidates_are_the_items_that_agree_with_all_feedback(
    style: str, knowledge: str, source: str, hidden: int
) -> None:
    options: dict[str, Any] = {
        "style": style,
        "knowledge": knowledge,
        "source": source,
        "items": 150,
        "hidden": hidden,
        "rounds": 30,
        "budget_slack": 20,
    }
    env, exact = make("PuzzleWorld", **options), 0
    policy = NoisyPolicy("PuzzleWorld", 0.5)
    for seed in range(6 if hidden == 1 else 2):
        chat, _ = env.reset(seed=seed)
        inner = tool_env(env)
        while not inner.over:
            played: Any = inner.world
            table = played.table
            for number, belief in played.hunt.beliefs.items():
                feedback = heard(inner.chat, number)
                agree = [
                    name
                    for place, name in enumerate(table.names)
                    if name not in {f.name for f in feedback}
                    and all(
                        table.feedback_atoms(table.find(f.name), place) == list(f.atoms)
                        for f in feedback
                    )
                ]
                target = table.names[played.targets[number]]
                assert target in agree
                if belief.exact:
                    exact += 1
                    assert belief.pool == agree or belief.pool == [target]
                elif belief.pool is not None:
                    assert set(belief.pool) >= set(agree)
            chat, *_ = env.step(policy([chat])[0].text)
    assert exact > 8


def test_hidden_items_are_due_in_turn_and_a_query_may_be_about_any() -> None:
    env = start("PuzzleWorld", hidden=3, seed=4)
    played: Any = env.world
    due = []
    for name in played.table.names[:3]:
        due.append(played.hunt.number)
        assert not [call for call in played.optimal_calls() if call.name == TOOL]
        play(env, ToolCall("guess", {"name": name}))
    first, second = (
        ToolCall(TOOL, {"conditions": played.hunt.beliefs[k].conditions()}) for k in (1, 2)
    )
    assert due == [1, 2, 3]
    assert played.hunt.number == 1
    assert all(call in played.optimal_calls() for call in (first, second))
    assert list(played.optimal_calls()) == [first]
    play(env, second)
    assert [belief.exact for belief in played.hunt.beliefs.values()] == [False, True, False]
    assert second not in played.optimal_calls(), "it has nothing new to say"
    play(env, first)
    target = played.table.names[played.target]
    assert ToolCall("guess", {"name": target}) in played.optimal_calls()
    outcome = play(env, ToolCall("guess", {"name": target}))
    assert outcome.text.endswith("Next: hidden item 2.")
    assert list(played.hunt.beliefs) == [2, 3]


def test_a_query_is_optimal_if_and_only_if_its_result_makes_the_candidates_exact() -> None:
    tried = {True: 0, False: 0}
    for seed in range(20):
        played = world(seed, hidden=1, budget_slack=9)
        assert not played.belief.exact
        conditions = played.belief.conditions()
        for asked in (
            conditions,
            conditions[::-1],
            conditions[1:],
            conditions[:1],
            [],
            "x",
            [3],
            [{"type": "value"}],
        ):
            call = ToolCall(TOOL, {"conditions": asked})
            again = world(seed, hidden=1, budget_slack=9)
            if (
                asked
                and isinstance(asked, list)
                and isinstance(asked[0], dict)
                and "section" in asked[0]
            ):
                again.hunt.add_result(asked, search(again.table, asked, "concise"))
            optimal = call in played.optimal_calls()
            tried[optimal] += 1
            if optimal:
                assert again.belief.exact
            elif again.belief.exact:
                assert len(again.belief.pool or ()) == 1, (
                    "one candidate is exact whatever was asked, which nobody can know before"
                )
    assert all(tried.values())
    assert ToolCall("guess", {"name": "x"}) not in world(0, hidden=1).optimal_calls()


def test_a_list_that_the_hidden_item_may_not_be_in_tells_nothing() -> None:
    played = world(3, hidden=1, knowledge="intensive", source="synthetic")
    name = played.table.sections[0].name
    wrong = next(
        v
        for values in played.table.columns[0]
        for v in values
        if v not in played.table.columns[0][played.target]
    )
    played.query([{"type": "value", "section": name, "values": [str(wrong)]}])
    assert played.belief.pool is None


def test_the_cap_of_rounds_ends_the_episode() -> None:
    env = start("PuzzleWorld", hidden=1, rounds=2, seed=1)
    played: Any = env.world
    names = [name for name in played.table.names if name != played.table.names[played.target]]
    outcome = say(env, f"I think it is <answer>{names[0]}</answer>")
    assert "Round 2: Guess" in outcome.text
    assert outcome.text.endswith("Remaining rounds: 0")
    assert (outcome.terminated, outcome.reward) == (True, 0.0)


STATED = re.compile(r"with ([0-9]+) rounds each")
BUDGET = re.compile(r"Turn budget: ([0-9]+)")


@pytest.mark.parametrize(
    "options",
    [
        *(entry.options for entry in worlds(presets=True) if "/PuzzleWorld" in entry.id),
        {"hidden": 1, "rounds": 100_000},
        {"hidden": 3, "rounds": 2_000, "puzzles": 2},
        {"hidden": 1, "rounds": 50, "budget_factor": 1.0, "budget_slack": 0, "items": 8},
    ],
    ids=str,
)
def test_no_text_states_more_rounds_than_the_turn_budget(options: Mapping[str, Any]) -> None:
    played = world(1, **options)
    budget = int(BUDGET.search(played.task())[1])  # type: ignore[index]
    for text in (played.task(), played.restate()):
        assert int(STATED.search(text)[1]) <= budget  # type: ignore[index]
    shown = f"{played.task()}\n{played.state()}"
    left = re.findall(r"(?:Remaining rounds|rounds left): ([0-9]+)", shown)
    assert left
    assert all(int(number) <= budget for number in left)
    assert PuzzleWorld.read_task(played.task()).state() == played.state()


@pytest.mark.parametrize("hidden", [1, 3])
def test_puzzles_follow_one_another_and_each_counts(hidden: int) -> None:
    env = start("PuzzleWorld", hidden=hidden, puzzles=3, seed=2, budget_factor=1.0, budget_slack=0)
    first: Any = env.world
    tables = [first.table]
    while first.belief.puzzle < 2:
        outcome = play(env, first.optimal_calls()[0])
    opening = "Round 1: Guess" if hidden == 1 else "All items: ["
    assert f"Puzzle 2 of 3.\n{opening}" in outcome.text
    tables.append(first.table)
    assert tables[0] != tables[1]
    assert play_optimally(env).reward == 1.0
    half = start("PuzzleWorld", hidden=hidden, puzzles=2, seed=2, budget_slack=50)
    played: Any = half.world
    while played.belief.puzzle < 2:
        play(half, played.optimal_calls()[0])
    wrong = next(
        name for k, name in enumerate(played.table.names) if k not in played.targets.values()
    )
    while True:
        outcome = play(half, ToolCall("guess", {"name": wrong}))
        if outcome.terminated:
            break
    assert outcome.reward == 0.5
    assert played.report() == {"puzzles": 2, "hidden": 2 * hidden, "found": hidden, "round": 8}


def test_on_the_last_turn_only_a_guess_can_succeed() -> None:
    env = start("PuzzleWorld", hidden=1, seed=5, budget_slack=3)
    played: Any = env.world
    played.turn = played.max_turns - 1
    assert list(played.optimal_calls()) == []
    assert played.subtask(False) == "No turn is left to find the hidden item."
    played.turn = 0
    play(env, ToolCall(TOOL, {"conditions": played.belief.conditions()[:1]}))
    assert not played.belief.exact
    played.turn = played.max_turns - 1
    assert [call.name for call in played.optimal_calls()] == ["guess"] * len(played.belief.pool)


def test_answers_in_tags_and_odd_names_are_taken() -> None:
    env = start("PuzzleWorld", hidden=1, knowledge="intensive", items=1025, seed=1)
    played: Any = env.world
    target = played.table.names[played.target]
    assert say(env, f"<answer>no</answer> <answer> {target.upper()} </answer>").reward == 1.0
    env = start("PuzzleWorld", hidden=1, knowledge="intensive", items=1025, seed=1)
    assert (
        say(env, "<answer>Missingno</answer>").text == 'error: there is no item called "Missingno"'
    )


def test_texts_of_other_worlds_are_refused() -> None:
    played = world(1)
    head = "Puzzle 1 of 1. There are 9 items, of which {} hidden, with 3 rounds each."
    cut = [f"{head.format(count)}\nTurn budget: 3" for count in ("1 is", "2 are")]
    for bad in ("", "Puzzle 1 of 1.\nTurn budget: 3", "Initial list: [1]", *cut):
        with pytest.raises(
            ValueError,
            match=r"this is not a task of PuzzleWorld|expected feedback, got|expected a list of items, got",
        ):
            PuzzleWorld.read_task(bad)
    for bad in ("", "Turns left: 3", "x\nTurns left: 3"):
        with pytest.raises(ValueError, match="this is not a state of"):
            played.read_state(bad)
    with pytest.raises(ValueError, match="this is not a result of query_items"):
        played.read_result(ToolCall(TOOL, {"conditions": []}), '{"intersection": ["a", "b')
    assert played.read_subtask("Do something else.") is None
