from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from agentgym import ToolCall, ToolEnv, make, render, tool_env
from agentgym.envs.gsm_agent import gold
from agentgym.envs.gsm_agent.gold import GoldSearches
from agentgym.envs.gsm_agent.knowledge import GoldKnowledge
from agentgym.envs.gsm_agent.loaders import as_folder, load_gsm8k
from agentgym.envs.gsm_agent.search_world import SearchWorld
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.oracles.choices import best_call
from agentgym.oracles.hints import split_hints
from agentgym.training.rollout import rollout

NAMES = ["Natalia", "Weng", "Betty", "Julie", "Ken", "Alexis"]
THINGS = ["clips", "pencils", "wallets", "pages", "boxes", "shoes"]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    lines = [
        {
            "question": f"{name} sold {10 + k} {thing} in April. In May {name} sold {k + 2} times "
            f"as many {thing} to friends. How many {thing} did {name} sell altogether?",
            "answer": f"so #### {(10 + k) * (k + 3)}",
        }
        for k, (name, thing) in enumerate(zip(NAMES, THINGS, strict=True))
    ]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    as_folder(load_gsm8k(path), tmp_path / "data")
    return str(tmp_path / "data")


def world_of(env: gymnasium.Env[Any, Any]) -> SearchWorld:
    world = tool_env(env).world
    assert isinstance(world, SearchWorld)
    return world


def state(chat: Any) -> str:
    return split_hints(chat.messages[-1].text)[1]["state"]


def test_the_state_comes_from_the_documents_of_the_task(folder: str) -> None:
    env = make("SearchWorld", data=folder, oracles="S", labels=True)
    chat, _ = env.reset(seed=0)
    world = world_of(env)
    first, second = (world.database.documents[place] for place in world.problem.documents)
    assert "Still missing: 2 documents" in state(chat)
    assert "Document of the task" not in state(chat)
    chat, _, _, _, info = env.step(render(ToolCall("search", {"query": "zebra"})))
    assert (info["optimal"], info["alive"], info["labels"]) == (False, True, ("barren",))
    assert "Still missing: 2 documents" in state(chat)
    shown = set()
    for document in (first, second):
        chat, _, _, _, info = env.step(render(ToolCall("search", {"query": document.content})))
        if document.content not in shown:
            assert (info["optimal"], info["labels"]) == (True, ("productive",))
        shown = {each.content for each in (first, second) if each.content in chat.messages[-1].text}
        if len(shown) == 2:
            break
    assert "Still missing: nothing" in state(chat)
    assert all(json.dumps(each.show()) in state(chat) for each in (first, second))
    wrong = ToolCall("answer", {"value": "0"})
    assert wrong not in world.optimal_calls()  # type: ignore[operator]
    *_, info = env.step(render(ToolCall("answer", {"value": world.problem.answer})))
    assert (info["optimal"], info["success"]) == (True, True)


def test_the_next_page_is_optimal_if_it_shows_what_is_missing(folder: str) -> None:
    env = ToolEnv(SearchWorld, data=folder)
    agree = 0
    for seed in range(10):
        env.reset(seed=seed)
        world = world_of(env)
        for call in (ToolCall("search", {"query": "How many in May?"}), ToolCall("next_page", {})):
            best, before = world.optimal_calls(), len(world.log)
            expected = call in (best or ())
            env.step(render(call))
            assert expected == (world.log[before]["label"] == "productive")
            agree += expected
    assert agree


def test_the_scripted_oracle_solves_it_from_the_chat_with_optimal_calls(folder: str) -> None:
    for seed in range(12):
        options = {"oracles": "PS" if seed % 2 else "", "tools": "explore_revisit"}
        env = make("SearchWorld", data=folder, labels=True, **options)
        trajectory = rollout(OraclePolicy("SearchWorld"), env, seed)
        assert trajectory.reward == 1.0
        assert len(trajectory.steps) <= 3
        assert all(step.info["optimal"] for step in trajectory.steps)


def test_a_plan_tells_no_hidden_number(folder: str) -> None:
    env = make("SearchWorld", data=folder, oracles="P")
    for seed in range(8):
        chat, _ = env.reset(seed=seed)
        world = world_of(env)
        plan = split_hints(chat.messages[-1].text)[1]["plan"]
        hidden = [world.database.documents[place].content for place in world.problem.documents]
        assert plan.startswith("Search for ")
        assert not set(re.findall("[0-9]+", plan)) & set(
            re.findall(r"\b[0-9]+\b", " ".join(hidden))
        )
        # The question has no words in common with the document, so the plan uses the document's
        # words.
        calls = GoldSearches(
            world.database,
            replace(world.problem, question="xyzzy"),
            GoldKnowledge(None),
            (),
            world.problem.documents[:1],
        )
        (call,) = calls
        assert call in calls
        assert ToolCall("search", {"query": "xyzzy"}) not in calls


def test_an_oracle_without_the_data_is_refused(folder: str) -> None:
    chat, _ = make("SearchWorld", data=folder).reset(seed=0)
    gold._played.clear()
    with pytest.raises(ValueError, match="SearchWorld has no oracle for this chat"):
        OraclePolicy("SearchWorld")([chat])
    assert "Still missing: not known" in SearchWorld.read_task(chat.messages[-1].text).state()


def test_where_all_documents_are_shown_the_plan_is_to_answer(folder: str) -> None:
    env = make("SearchWorld", data=folder, setting="static", oracles="SP", labels=True)
    chat, _ = env.reset(seed=2)
    assert "<plan>\nGive the answer.\n</plan>" in chat.messages[-1].text
    assert "Still missing: nothing" in state(chat)
    *_, info = env.step(render(best_call(world_of(env))))
    assert (info["optimal"], info["success"]) == (True, True)


def test_scripted_policies_read_and_sum_up_what_was_shown(folder: str) -> None:
    for arm, context in (("", "compaction"), ("S", "none"), ("SH", "none"), ("S0.5", "none")):
        env = make(
            "SearchWorld", data=folder, oracles=arm, context=context, window=1_200, max_rounds=8
        )
        assert len(rollout(NoisyPolicy("SearchWorld", 0.5), env, 3).steps) >= 1
    env = make("SearchWorld", data=folder, oracles="S")
    chat, _ = env.reset(seed=0)
    chat, *_ = env.step(render(best_call(world_of(env))))
    text = state(chat)
    world = SearchWorld.read_task(world_of(env).restate())
    world.read_state(text)
    assert world.state() == text


@pytest.mark.parametrize("setting", ["static", "agentic"])
def test_the_oracle_tells_two_data_sets_with_one_question_apart(
    tmp_path: Path, setting: str
) -> None:
    envs = []
    for name, number in (("first", 5), ("second", 8)):
        folder = tmp_path / name
        folder.mkdir()
        documents = [
            {"id": f"{name}{k}", "content": text}
            for k, text in enumerate(
                (f"Ada has {number} kites.", "Ada got 3 more kites on Monday.")
            )
        ]
        task = {
            "id": "t", "question": "How many kites does Ada have?", "answer": str(number + 3),
            "documents": [document["id"] for document in documents],
        }  # fmt: skip
        for path, rows in (("documents.jsonl", documents), ("tasks.jsonl", [task])):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / path).write_text(text, encoding="utf-8")
        envs.append(make("SearchWorld", data=str(folder), setting=setting))
    chats = [env.reset(seed=0)[0] for env in envs]
    for env, start in zip(envs, chats, strict=True):
        chat, terminated, reward = start, False, 0.0
        while not terminated:
            [reply] = OraclePolicy("SearchWorld")([chat])
            chat, reward, terminated, truncated, _ = env.step(reply.text)
            assert not truncated
        assert reward == 1.0
