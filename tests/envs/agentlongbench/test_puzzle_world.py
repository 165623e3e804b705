"""PuzzleWorld: what is known is exactly what follows from what was shown, and rounds, budgets
and puzzles count as told.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentgym import ToolCall, make, tool_env
from agentgym.envs.agentlongbench.engine import TOOL, read_feedback, search
from agentgym.envs.agentlongbench.puzzle_world import PuzzleConfig, PuzzleWorld
from agentgym.oracles import NoisyPolicy, RandomPolicy
from agentgym.oracles.policies import ParsedChat
from tests.helpers import play, play_optimally, say, start


def world(seed: int = 0, **options: Any) -> PuzzleWorld:
    made = PuzzleWorld(PuzzleConfig(**options), seed)
    made.generate()
    return made


@pytest.mark.parametrize("style", ["concise", "verbose"])
@pytest.mark.parametrize("knowledge", ["intensive", "free"])
@pytest.mark.parametrize("source", ["species", "synthetic"])
def test_exact_candidates_are_the_items_that_agree_with_all_feedback(
    style: str, knowledge: str, source: str
) -> None:
    options: dict[str, Any] = {
        "style": style,
        "knowledge": knowledge,
        "source": source,
        "items": 150,
        "budget_slack": 20,
    }
    env, exact = make("PuzzleWorld", **options), 0
    policy = NoisyPolicy("PuzzleWorld", 0.5)
    for seed in range(12):
        chat, _ = env.reset(seed=seed)
        inner = tool_env(env)
        while not inner.over:
            played: Any = inner.world
            table, belief = played.table, played.belief
            heard = [f for m in inner.chat.messages for f in read_feedback(m.text)]
            agree = [
                name
                for place, name in enumerate(table.names)
                if name not in {f.name for f in heard}
                and all(
                    table.feedback_atoms(table.find(f.name), place) == list(f.atoms) for f in heard
                )
            ]
            assert table.names[played.target] in agree
            if belief.exact:
                exact += 1
                assert belief.pool == agree or belief.pool == [table.names[played.target]]
            elif belief.pool is not None:
                assert set(belief.pool) >= set(agree)
            chat, *_ = env.step(policy([chat])[0].text)
    assert exact > 12


def test_a_query_is_optimal_if_and_only_if_its_result_makes_the_candidates_exact() -> None:
    tried = {True: 0, False: 0}
    for seed in range(20):
        played = world(seed, budget_slack=9)
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
            again = world(seed, budget_slack=9)
            if (
                asked
                and isinstance(asked, list)
                and isinstance(asked[0], dict)
                and "section" in asked[0]
            ):
                again.belief.add_result(asked, search(again.table, asked, "concise"))
            optimal = call in played.optimal_calls()
            tried[optimal] += 1
            if optimal:
                assert again.belief.exact
            elif again.belief.exact:
                assert len(again.belief.pool or ()) == 1, (
                    "one candidate is exact whatever was asked, which nobody can know before"
                )
    assert all(tried.values())
    assert ToolCall("guess", {"name": "x"}) not in world(0).optimal_calls()


def test_a_list_that_the_hidden_item_may_not_be_in_tells_nothing() -> None:
    played = world(3, knowledge="intensive", source="synthetic")
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
    env = start("PuzzleWorld", rounds=2, seed=1)
    played: Any = env.world
    names = [name for name in played.table.names if name != played.table.names[played.target]]
    outcome = say(env, f"I think it is <answer>{names[0]}</answer>")
    assert "Round 2: Guess" in outcome.text
    assert outcome.text.endswith("Remaining rounds: 0")
    assert (outcome.terminated, outcome.reward) == (True, 0.0)


def test_puzzles_follow_one_another_and_each_counts() -> None:
    env = start("PuzzleWorld", puzzles=3, seed=2, budget_factor=1.0, budget_slack=0)
    first: Any = env.world
    tables = [first.table]
    while first.belief.puzzle < 2:
        outcome = play(env, first.optimal_calls()[0])
    assert "Puzzle 2 of 3.\nRound 1: Guess" in outcome.text
    tables.append(first.table)
    assert tables[0] != tables[1]
    assert play_optimally(env).reward == 1.0
    half = start("PuzzleWorld", puzzles=2, seed=2, rounds=4, budget_slack=50)
    played: Any = half.world
    while played.belief.puzzle < 2:
        play(half, played.optimal_calls()[0])
    wrong = next(name for k, name in enumerate(played.table.names) if k != played.target)
    while True:
        outcome = play(half, ToolCall("guess", {"name": wrong}))
        if outcome.terminated:
            break
    assert outcome.reward == 0.5
    assert played.report() == {"puzzles": 2, "found": 1, "round": 4}


def test_on_the_last_turn_only_a_guess_can_succeed() -> None:
    env = start("PuzzleWorld", seed=5, budget_slack=3)
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
    env = start("PuzzleWorld", knowledge="intensive", items=1025, seed=1)
    played: Any = env.world
    target = played.table.names[played.target]
    assert say(env, f"<answer>no</answer> <answer> {target.upper()} </answer>").reward == 1.0
    env = start("PuzzleWorld", knowledge="intensive", items=1025, seed=1)
    assert (
        say(env, "<answer>Missingno</answer>").text == 'error: there is no item called "Missingno"'
    )


def test_a_replay_gives_the_same_lists() -> None:
    for style in ("concise", "verbose"):
        env = start("PuzzleWorld", style=style, seed=4, items=200)
        outcome = play_optimally(env)
        assert outcome.reward == 1.0
        played: Any = env.world
        for ask, answer in zip(env.chat.messages, env.chat.messages[1:], strict=False):
            for call in ask.calls:
                if call.name == TOOL:
                    assert search(played.table, call.arguments["conditions"], style) == answer.text
                    assert json.loads(answer.text)


@pytest.mark.parametrize("steps", [2, 4, 64, 400])
def test_at_horizon_gives_episodes_that_take_about_that_many_turns(steps: int) -> None:
    options = {**PuzzleWorld.config_for_horizon(steps), "budget_factor": 1.0, "budget_slack": 0}
    turns = [world(seed, **options).max_turns or 0 for seed in range(max(3, 400 // steps))]
    assert abs(sum(turns) / len(turns) - steps) <= max(1, 0.15 * steps)


def test_at_horizon_refuses_what_no_configuration_takes() -> None:
    with pytest.raises(ValueError, match=r"horizon must be an integer in \[2, 38000\], got 1"):
        PuzzleWorld.config_for_horizon(1)
    for name in ("rounds", "puzzles"):
        with pytest.raises(ValueError, match=f"{name} must be an integer in"):
            PuzzleConfig(**{name: 0})


def test_texts_of_other_worlds_are_refused() -> None:
    played = world(1)
    for bad in ("", "Puzzle 1 of 1.\nTurn budget: 3", "Initial list: [1]"):
        with pytest.raises(
            ValueError, match=r"this is not a task of PuzzleWorld|there is no feedback in"
        ):
            PuzzleWorld.read_task(bad)
    for bad in ("", "Turns left: 3", "x\nTurns left: 3"):
        with pytest.raises(ValueError, match="this is not a state of"):
            played.read_state(bad)
    with pytest.raises(ValueError, match="this is not a result of query_items"):
        played.read_result(ToolCall(TOOL, {"conditions": []}), '{"intersection": ["a", "b')
    assert played.read_subtask("Do something else.") is None


def test_menu_and_features_have_the_shape_of_the_configuration() -> None:
    env = make("PuzzleWorld", items=30)
    policy = RandomPolicy("PuzzleWorld")
    chat, _ = env.reset(seed=3)
    while not tool_env(env).over:
        played: Any = tool_env(env).world
        seen = policy.recall(ParsedChat.of(chat))
        assert len(played.action_catalog()) == 31
        features = played.features()
        assert features.shape == (6,)
        assert ((features >= 0) & (features <= 1)).all()
        assert seen.reasoning(ToolCall("guess", {"name": "x"})) == played.reasoning(
            ToolCall("guess", {"name": "x"})
        )
        chat, *_ = env.step(policy([chat])[0].text)
