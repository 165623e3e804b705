from __future__ import annotations

import copy
import math
import pickle
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from agentgym import ToolCall, make, render, tool_env
from agentgym.envs.gsm_agent.database import DatabaseOptions, get_database
from agentgym.envs.gsm_agent.prompts import TOOL_SETS
from agentgym.envs.gsm_agent.search_world import SearchWorld
from agentgym.oracles import OraclePolicy
from agentgym.text.search import Dense, Lexical, load_embed, rank
from agentgym.training.rollout import rollout
from tests.helpers import play, say, start

SMALL: dict[str, Any] = {"tasks": 80}


def search(query: str, name: str = "search") -> ToolCall:
    return ToolCall(name, {"query": query})


NEXT = ToolCall("next_page", {})


def shown_ids(text: str) -> list[str]:
    return re.findall(r"^\[([^\]]+)\]", text, re.MULTILINE)


# Search.


def bm25(texts: list[str], query: str) -> list[float]:
    """Return the scores of Lucene's variant of Okapi BM25, according to the definition."""
    bags = [Counter(re.findall("[a-z0-9]+", text.lower())) for text in texts]
    mean = sum(sum(bag.values()) for bag in bags) / len(bags)
    scores = []
    for bag in bags:
        total = 0.0
        for word in re.findall("[a-z0-9]+", query.lower()):
            holding = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - holding + 0.5) / (holding + 0.5))
            total += idf * bag[word] / (bag[word] + 1.5 * (0.25 + 0.75 * sum(bag.values()) / mean))
        scores.append(total)
    return scores


def test_results_are_those_of_bm25() -> None:
    database = get_database(DatabaseOptions(**SMALL))
    texts = [document.content for document in database.documents]
    for query in (
        "the host sold red apples",
        "May 1990",
        "dollars spent on flour flour",
        "Thora",
    ):
        scores = bm25(texts, query)
        found = database.index.best(query, 20)
        expected = sorted(
            (place for place in range(len(texts)) if scores[place] > 0),
            key=lambda place: -scores[place],
        )[:20]
        assert [scores[place] for place in found] == pytest.approx(
            [scores[place] for place in expected], rel=1e-4
        )
        assert list(database.index.best(query, 5)) == list(found[:5])


def test_ties_go_by_the_document_id() -> None:
    texts = ["kite", "cup", "kite", "cup kite", "kite"]
    assert Lexical.of(texts).best("kite", 3) == (0, 2, 4)
    assert Lexical.of(texts).best("kite", 2) == (0, 2)
    assert Lexical.of(texts).best("kite", 9) == (0, 2, 4, 3)
    assert Lexical.of(texts).best("plane", 9) == ()
    assert Lexical.of(texts).best("?!", 9) == ()
    assert rank(np.array([1, 3, 3, 0, 3], np.float32), 2, positive=True) == (1, 2)
    assert rank(np.array([0, 0], np.float32), 2, positive=True) == ()
    assert rank(np.array([0, 0, 1], np.float32), 2, positive=False) == (2, 0)


def letters(texts: list[str]) -> np.ndarray:
    return np.array(
        [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts],
        float,
    )


def test_search_by_vectors() -> None:
    texts = ["aaa", "ab", "bbb", "", "ba"]
    index = Dense.of(texts, letters)
    assert index.best("a", 3) == (0, 1, 4)
    assert index.best("zz", 2) == (0, 1), "nothing is near, so all are alike"
    assert index.best("b", 3) == (2, 1, 4)
    env = start("SearchWorld", search_by=f"{__name__}:letters", **SMALL)
    assert "Page 1 of 20" in play(env, search("kites")).text
    with pytest.raises(
        ValueError,
        match=r"embed 'nowhere:f' cannot be imported .*; write 'wordllama' or 'package.module:function'",
    ):
        load_embed("nowhere:f")


def test_search_by_vectors_that_a_package_ships() -> None:
    pytest.importorskip("wordllama")
    embed = load_embed("wordllama")
    index = Dense.of(
        ["A letter about kittens.", "The price of bread.", "Rain and storm over the town."], embed
    )
    assert [
        index.best(query, 1) for query in ("a young cat", "how much is a loaf?", "the weather")
    ] == [(0,), (1,), (2,)]


# The database.


def test_sizes_lie_within_one_another() -> None:
    names = {}
    for size in ("full", "medium", "small"):
        database = get_database(DatabaseOptions(tasks=100, size=size, distractors=0.5))
        names[size] = {task.id for task in database.tasks}
        gold = {database.documents[place].id for task in database.tasks for place in task.documents}
        every = {document.id for document in database.documents}
        assert gold < every, "those of tasks that are never asked are there too"
    assert names["small"] < names["medium"] < names["full"]
    assert [len(names[size]) for size in ("full", "medium", "small")] == [100, 25, 7]


def test_without_distractors_and_decoys_a_database_holds_the_documents_of_its_tasks() -> None:
    database = get_database(DatabaseOptions(size="medium", decoys=0, near_duplicates=0.0, **SMALL))
    gold = [place for task in database.tasks for place in task.documents]
    assert sorted(gold) == list(range(len(database.documents)))


def test_worlds_share_one_copy_and_hold_none() -> None:
    one, two = (start("SearchWorld", seed=seed, **SMALL) for seed in (1, 2))
    assert one.world.database is two.world.database
    play(one, search("kites"))
    assert len(pickle.dumps(one.world)) < 20_000


# The episode.


def test_pages_follow_one_another_up_to_the_twentieth() -> None:
    env = start("SearchWorld", tasks=200)
    world: Any = env.world
    assert "next_page requires a previous search" in play(env, NEXT).text
    query = "the number of muffins that was more than in"
    best = world.database.index.best(query, 100)
    ids = [world.database.documents[place].id for place in best]
    seen = shown_ids(play(env, search(query)).text)
    for page in range(2, 21):
        text = play(env, NEXT).text
        assert text.startswith(f'Page {page} of 20 for "{query}"')
        seen += shown_ids(text)
    assert seen == ids
    assert len(ids) == 100
    before = copy.deepcopy(vars(world))
    assert "all 20 pages of this search have been shown" in play(env, NEXT).text
    before.pop("rng"), before.pop("turn")
    assert {name: value for name, value in vars(world).items() if name in before} == before
    assert shown_ids(play(env, search("kites")).text)
    assert play(env, NEXT).text.startswith('Page 2 of 20 for "kites"')


def test_a_search_that_finds_nothing_and_an_empty_one() -> None:
    env = start("SearchWorld", **SMALL)
    assert play(env, search("qwxz")).text.endswith("No document fits.")
    assert play(env, NEXT).text.endswith("No document fits.")
    assert "the query must not be empty" in play(env, search("  \n")).text
    assert len(env.world.log) == 2


def test_contents_are_searched_and_metadata_is_not() -> None:
    env = start("SearchWorld", **SMALL)
    documents = env.world.database.documents
    hidden = next(d for d in documents if d.name.split()[0] not in d.content)
    assert hidden.id not in shown_ids(play(env, search(hidden.name)).text)
    assert f"name: {hidden.name}" in hidden.show()


@pytest.mark.parametrize("tools", TOOL_SETS)
def test_tool_sets(tools: str) -> None:
    env = start("SearchWorld", tools=tools, **SMALL)
    more = [] if tools == "base" else tools.split("_")
    assert [tool.name for tool in env.tools] == ["search", "next_page", "answer", *more]
    assert all(f"Use {name}" in env.chat.messages[0].text for name in more)
    expected = play(env, search("almond croissants")).text
    searches = [name for name in more if name != "think"]
    for name in searches:
        assert play(env, search("almond croissants", name)).text == expected
    if "think" in more:
        assert play(env, ToolCall("think", {"thought": "Hm."})).text == "Hm."
    assert [entry["tool"] for entry in env.world.log] == ["search", *searches]


def test_prompts() -> None:
    texts = {
        prompt: start("SearchWorld", prompt=prompt, **SMALL).chat.messages[0].text
        for prompt in ("zero_shot", "few_shot", "cot")
    }
    assert "An example." in texts["few_shot"]
    assert "step by step" in texts["cot"]
    assert not re.search("An example|step by step", texts["zero_shot"])


def test_static_and_agentic_are_the_same_problems() -> None:
    for seed in range(5):
        agentic, static = (
            start("SearchWorld", seed=seed, setting=setting, **SMALL)
            for setting in ("agentic", "static")
        )
        one, two = agentic.world.problem, static.world.problem
        assert one == two
        assert shown_ids(static.chat.messages[-1].text) == [
            agentic.world.database.documents[place].id for place in one.documents
        ]
        assert f"Question: {one.question}" in agentic.chat.messages[-1].text
        assert [tool.name for tool in static.tools] == ["answer"]
        assert say(static, f"So it is #### {one.answer}.").reward == 1.0


@pytest.mark.parametrize(
    ("given", "reward"),
    [("{}", 1.0), ("${}.00", 1.0), (" {} muffins.", 1.0), ("1{}", 0.0), ("none", 0.0), ("", 0.0)],
)
def test_answers(given: str, reward: float) -> None:
    env = start("SearchWorld", **SMALL)
    outcome = play(env, ToolCall("answer", {"value": given.format(env.world.problem.answer)}))
    assert (outcome.reward, outcome.terminated) == (reward, True)
    env = start("SearchWorld", **SMALL)
    outcome = say(env, f"It was #### 3 at first, but #### {given.format(env.world.problem.answer)}")
    assert (outcome.reward, outcome.terminated) == (reward, True)


def test_prose_without_a_number_is_no_end() -> None:
    env = start("SearchWorld", max_rounds=2, **SMALL)
    assert say(env, "I do not know.").going_on
    outcome = say(env, "The answer is 5.")
    assert (outcome.truncated, outcome.reward) == (True, 0.0)


def test_scaling_asks_to_search_on() -> None:
    env = start("SearchWorld", min_rounds=2, **SMALL)
    answer = ToolCall("answer", {"value": env.world.problem.answer})
    assert "at least 2 turns" in env.chat.messages[-1].text
    assert play(env, answer).text.startswith("Keep searching")
    assert say(env, "I think that is all.").text.startswith("Keep searching")
    say(env, render(search("kites")) + render(NEXT))
    assert env.world.rounds == 1, "a round is a turn, however many searches it holds"
    assert say(env, f"#### {env.world.problem.answer}").text.startswith("Keep searching")
    play(env, NEXT)
    assert play(env, answer).reward == 1.0
    assert env.world.report()["early_stops"] == 3


def test_labels_say_what_a_search_turned_out_to_be() -> None:
    env = make("SearchWorld", labels=True, tools="think", task=0, **SMALL)
    env.reset(seed=0)
    world: Any = tool_env(env).world
    best = world.optimal_calls()[0]
    other = search("qwxz")
    calls = (
        render(best)
        + render(other)
        + render(best)
        + render(ToolCall("think", {"thought": "Hm."}))
        + render(search(" "))
    )
    *_, info = env.step(calls)
    assert info["labels"] == ("productive", "barren", "repeat", "neutral", "invalid")
    assert not info["optimal"]
    *_, info = env.step(render(NEXT))
    assert info["labels"][0] in ("productive", "barren")
    *_, info = env.step("#### 0")
    assert info["labels"] == ("wrong",)
    report = info["detail"].report
    assert report["oracle_documents"] == [
        world.database.documents[place].id for place in world.problem.documents
    ]
    first = report["searches"][0]
    assert (first["turn"], first["tool"], first["page"], first["label"]) == (
        1,
        "search",
        1,
        "productive",
    )
    assert first["found"] == len(set(first["ids"]) & set(report["oracle_documents"]))


def test_the_report_knows_when_all_was_shown() -> None:
    for seed in range(8):
        trajectory = rollout(OraclePolicy("SearchWorld"), make("SearchWorld", **SMALL), seed)
        report = trajectory.steps[-1].info["detail"]["report"]
        ids = {name for entry in report["searches"] for name in entry["ids"]}
        assert report["search_complete"] == (set(report["oracle_documents"]) <= ids)


def test_a_task_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        ValueError, match="task must be below 80, the number of tasks in this database, got 80"
    ):
        make("SearchWorld", task=80, **SMALL).reset(seed=0)


# A searcher's knowledge.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Month: May 1990",
        "Turns spent looking: 0\nTurns left: 9",
        "a\nb\nc\nTurns spent looking: 0\nTurns left: 9",
    ],
)
def test_texts_that_are_no_state_are_refused(text: str) -> None:
    world = start("SearchWorld", **SMALL).world
    with pytest.raises(ValueError, match="this is not"):
        SearchWorld.read_task(world.task()).read_state(text)


def test_a_question_without_a_month_is_answered() -> None:
    """If the people occur in only one task, the question does not mention the month."""
    env = make("SearchWorld", tasks=1)
    chat, _ = env.reset(seed=0)
    assert not re.search(r" in [A-Z][a-z]+ [0-9]{4}", chat.messages[-1].text)
    assert rollout(OraclePolicy("SearchWorld"), env, 0).reward == 1.0


@pytest.mark.exhaustive
def test_all_of_small_is_solved_from_shown_text() -> None:
    world: Any = start("SearchWorld-small").world
    for number in range(len(world.database.tasks)):
        assert (
            rollout(OraclePolicy("SearchWorld"), make("SearchWorld-small", task=number), 0).reward
            == 1.0
        )
