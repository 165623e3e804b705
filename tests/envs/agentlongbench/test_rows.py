from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from agentgym.envs.agentlongbench import FULL, TASKS
from agentgym.envs.agentlongbench.config import species
from agentgym.envs.agentlongbench.rows import COUNTS, LENGTHS, TARGETS, count, make_rows, prompt
from agentgym.text.tokens import counter
from tests.envs.agentlongbench.puzzle_reader import Reader

HEURISTIC = counter("heuristic")
ALL = dict.fromkeys(TASKS, 10**6)


@cache
def rows(setting: str, tokens: int, sample: int) -> list[dict[str, Any]]:
    return list(make_rows(setting, tokens, sample, ALL, 0, HEURISTIC))


def check(row: dict[str, Any], reader: Reader) -> None:
    assert row["answer"] == reader.answer(row["question_type"], row["question"])
    assert type(row["answer"]) in (int, bool, str, list)
    texts = [message["content"] for message in row["messages"]]
    for place, start, end in row["evidence"]:
        assert 0 <= start < end <= len(texts[place])
        assert texts[place][start:end].startswith(("{", "Sections:"))
    assert 0 < row["acl_min"] <= row["acl_scan"] * 1.05 + 3
    assert 0 < row["chance"] <= 1


THOROUGH = [
    pytest.param(tokens, samples, marks=pytest.mark.exhaustive)
    for tokens, samples in ((16_384, 90), (65_536, 80), (262_144, 30), (4_194_304, 1))
]


@pytest.mark.parametrize(("tokens", "samples"), [(16_384, 3), (32_768, 1), *THOROUGH])
@pytest.mark.rotation(setting=list(FULL))
def test_answers_are_what_an_independent_reader_finds(
    setting: str, tokens: int, samples: int
) -> None:
    for sample in range(samples):
        made = list(make_rows(setting, tokens, sample, ALL, 0, HEURISTIC))
        reader = Reader(made[0]["messages"])
        assert [row["task"] for row in made] == list(TASKS)
        for row in made:
            check(row, reader)
            roles = [message["role"] for message in prompt(row)]
            assert ("user", "user") not in pairwise(roles)
            assert prompt(row)[-1]["content"].endswith(row["question"])


@pytest.mark.parametrize("setting", list(FULL))
def test_no_evidence_no_answer(setting: str) -> None:
    """Without the evidence spans, the reader fails or gives a wrong answer in most rows."""
    changed = 0
    made = rows(setting, 16_384, 0)
    for row in made:
        messages = [dict(message) for message in row["messages"]]
        for place in {span[0] for span in row["evidence"]}:
            text = messages[place]["content"]
            hidden = (
                '{"intersection": []}'
                if text.startswith("{")
                else text.replace("(correct)", "(wrong)")
            )
            messages[place]["content"] = hidden.replace("8", "0").replace("Val_", "Gone_")
        try:
            changed += (
                Reader(messages).answer(row["question_type"], row["question"]) != row["answer"]
            )
        except (KeyError, IndexError, ValueError, StopIteration, AssertionError):
            changed += 1
    assert changed > 0.4 * len(made)


def test_the_counts_are_those_of_the_paper() -> None:
    totals = {
        "concise": (200, 200, 200, 200, 140, 148, 112, 400),
        "verbose": (200, 199, 201, 200, 157, 136, 107, 400),
    }
    for style, table in COUNTS.items():
        assert tuple(sum(numbers) for numbers in table.values()) == totals[style]
        assert all(sum(numbers[k] for numbers in table.values()) == 200 for k in range(8))
        assert list(table) == list(TASKS)
    assert (
        sum(
            count(setting, length, task) for setting in FULL for length in LENGTHS for task in TASKS
        )
        == 6_400
    )
    assert list(LENGTHS.values()) == [2**k for k in range(15, 23)]
    assert set(TARGETS.values()) == {"tool_response", "env_response", "final_guess"}


def test_rows_have_the_published_fields() -> None:
    by_task = {row["task"]: row for row in rows("kf-c", 16_384, 1)}
    counted, common = by_task["count_correctness_env"], by_task["intersection"]
    assert {"id", "sample_id", "question_type", "setting"} <= counted.keys()
    assert counted["id"] == f"1_r{counted['round']}"
    assert common["answer_name"] == common["answer"]
    largest = by_task["find_round_largest_value_env"]
    assert len(largest["base_stats_info"]) == largest["rounds"]


@pytest.mark.rotation
def test_no_word_of_the_species_stands_in_a_knowledge_free_row() -> None:
    table = species()
    words = {*table.names, *(section.name for section in table.sections)}
    for column in table.columns:
        words.update(value for values in column for value in values if isinstance(value, str))
    words -= {"None", "Special", "Basic"}
    for setting in ("kf-c", "kf-v"):
        text = "\n".join(
            json.dumps(row["messages"]) + row["question"] for row in rows(setting, 16_384, 0)
        )
        assert not [
            word
            for word in words
            if f'"{word}"' in text or f" {word} (" in text or f"{word}:" in text
        ]
