from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from agentgym.envs.agentlongbench import rollout
from agentgym.envs.agentlongbench.config import QAConfig
from agentgym.envs.agentlongbench.engine import search
from agentgym.envs.agentlongbench.logs import SHORTEST, Log, within
from agentgym.envs.agentlongbench.rollout import FILLED, RESERVE, play
from agentgym.text.messages import Chat
from agentgym.text.tokens import TokenCounter, counter

HEURISTIC = counter("heuristic")
SETTINGS = [(k, s) for k in ("intensive", "free") for s in ("concise", "verbose")]


def make(
    knowledge: str = "free", style: str = "concise", seed: int = 0, items: int = 300, **options: Any
) -> Log:
    tokens, isolate = options.pop("counter", HEURISTIC), options.pop("isolate", False)
    options = {"min_list": 50, **options}
    config = QAConfig(knowledge=knowledge, items=items, style=style, **options)
    rng = np.random.default_rng(seed)
    table = config.table(rng)
    least = min(config.min_list, items // 4)
    target = next(iter(config.targets(table, rng, least)))
    return play(table, target, config, seed, tokens, isolate=isolate)


def calls(log: Log) -> list[list[dict[str, Any]]]:
    return [each.messages[0].calls[0].arguments["conditions"] for each in log.rounds[1:]]


@pytest.mark.parametrize(("knowledge", "style"), SETTINGS)
def test_every_list_is_a_function_of_the_call_and_holds_the_hidden_item(
    knowledge: str, style: str
) -> None:
    for seed in range(4):
        log = make(knowledge, style, seed, rounds=25)
        assert list(log.messages) == list(make(knowledge, style, seed, rounds=25).messages)
        name = log.table.names[log.target]
        for each in log.rounds[1:]:
            conditions = each.messages[0].calls[0].arguments["conditions"]
            assert search(log.table, conditions, style) == each.result.text
            data = json.loads(each.result.text)
            lists = (
                [data["intersection"]]
                if style == "concise"
                else [part["candidates"] for part in data["per_section"]]
            )
            assert [[log.table.names[k] for k in places] for places in each.lists] == lists
            assert all(name in names and len(names) >= 50 for names in lists)
            assert each.guess != log.target


@pytest.mark.parametrize("style", ["concise", "verbose"])
def test_the_order_of_messages_and_the_ids_of_calls_are_those_of_the_paper(style: str) -> None:
    log = make(style=style, rounds=6)
    messages = Chat(tuple(log.messages)).to_openai()
    assert [m["role"] for m in messages[:7]] == (
        "system assistant user assistant tool assistant user".split()
    )
    for place, message in enumerate(messages):
        for call in message.get("tool_calls", ()):
            assert call["id"] == f"call_{place}" == messages[place + 1]["tool_call_id"]
            assert isinstance(call["function"]["arguments"], str)
    assert messages[3]["tool_calls"][0]["id"] == "call_3"
    assert messages[1]["content"].startswith("<answer>")
    assert [m["content"].split(":")[0] for m in messages if m["role"] == "user"] == [
        f"Round {k}" for k in range(1, 7)
    ]
    left = [int(m["content"].rsplit(" ", 1)[1]) for m in messages if m["role"] == "user"]
    assert left == list(range(left[0], left[0] - 6, -1))
    assert left[0] == (2010 if style == "concise" else 260)


@pytest.mark.parametrize(("knowledge", "style"), SETTINGS)
@pytest.mark.parametrize("length", [SHORTEST, 9_000, 32_768, 150_000])
def test_lengths_are_filled_with_whole_rounds(knowledge: str, style: str, length: int) -> None:
    small = length < 30_000
    log = make(
        knowledge, style, 3, items=60 if small else 300, length=length, min_list=10 if small else 40
    )
    room = length - RESERVE
    assert FILLED * room <= log.tokens <= room
    assert log.tokens == sum(map(HEURISTIC.count, log.messages))
    assert list(log.messages)[-1].text.startswith(f"Round {len(log.rounds)}: ")
    assert len(log.rounds) >= 4
    messages = list(log.messages)
    for each in log.rounds:
        assert messages[each.start : each.start + len(each.messages)] == list(each.messages)


def test_any_tokenizer_counts() -> None:
    letters = TokenCounter("letters", len)
    log = make(length=200_000, counter=letters)
    assert (
        FILLED * (200_000 - RESERVE) <= sum(map(letters.count, log.messages)) <= 200_000 - RESERVE
    )


@pytest.mark.parametrize("knowledge", ["intensive", "free"])
def test_the_lists_together_leave_the_hidden_item_and_only_late(knowledge: str) -> None:
    for seed in range(6):
        log = make(knowledge, "concise", seed, length=60_000, isolate=True)
        common, spent, alone = set(log.table.names), 0, 0
        for each in log.rounds:
            spent += each.tokens
            if each.lists:
                names = json.loads(each.result.text)["intersection"]
                assert len(names) >= 50, "no list alone tells it"
                common &= set(names)
                alone = alone or (spent if len(common) == 1 else 0)
        assert common == {log.table.names[log.target]}
        assert alone / log.tokens > 0.5, "and no early part of the log"
        assert (
            within([places for each in log.rounds for places in each.lists], len(log.table)).sum()
            == 1
        )


def test_isolation_that_cannot_be_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"cannot generate a log of 3 rounds; increase the length, or use a min_list below 75",
    ):
        make(rounds=3, min_list=75, seed=1, isolate=True)


def test_guesses_are_repeated_only_where_the_list_has_no_other() -> None:
    log = make(items=60, rounds=150, min_list=5)
    seen: set[int] = set()
    repeats = 0
    for each in log.rounds:
        repeats += each.guess in seen
        if each.lists and each.guess in seen:
            assert all(place in seen or place == log.target for place in each.lists[0].tolist())
        seen.add(each.guess)
    assert repeats > 0


def sizes(query: list[dict[str, Any]]) -> int:
    return sum(len(condition.get("values", [0])) for condition in query)


HABITS = {"HISTORY_WINDOW": (3, 1), "FORGET_HISTORY": (0.0, 0.5, 1.0), "MASK": (0.0, 0.5, 1.0)}
HABITS |= {"MOST_MASKED": (0, 2, 6), "EPSILON": (0.0, 1.0)}


@pytest.mark.parametrize("habit", HABITS)
def test_an_agent_that_forgets_more_asks_less(habit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = {"FORGET_HISTORY": 1.0, "MASK": float(habit == "MOST_MASKED"), "MOST_MASKED": 6}
    for name, value in {**quiet, "EPSILON": 0.0}.items():
        monkeypatch.setattr(rollout, name, value)
    means = []
    for value in HABITS[habit]:
        monkeypatch.setattr(rollout, habit, value)
        logs = [make(style="verbose", rounds=15, min_list=2, seed=seed) for seed in range(4)]
        means.append(np.mean([sizes(query) for log in logs for query in calls(log)]))
    assert means == sorted(means, reverse=True)
    assert means[-1] < 0.9 * means[0]


def test_what_is_forgotten_at_once_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORGET_HISTORY": 1.0, "MASK": 0.0, "EPSILON": 0.0}.items():
        monkeypatch.setattr(rollout, name, value)
    log = make(style="verbose", rounds=12, min_list=2)
    for before, conditions in zip(log.rounds, calls(log), strict=False):
        told = log.table.feedback_atoms(before.guess, log.target)
        known = {(section, str(value)) for section, _, value in told}
        for each in conditions:
            values = each.get("values", [each.get("threshold")])
            assert {(each["section"], str(value)) for value in values} <= known


def test_time_and_memory_grow_linearly() -> None:
    """The number of items bounds the number of conditions and the work per round."""
    logs = [make(length=length, items=300) for length in (60_000, 600_000)]
    per_round = [
        np.mean([len(json.dumps(conditions)) for conditions in calls(log)]) for log in logs
    ]
    assert per_round[1] < 1.5 * per_round[0]
    assert len(list(logs[1].messages)) == 1 + 4 * len(logs[1].rounds) - 2
