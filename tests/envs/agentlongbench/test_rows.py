"""AgentLongBench rows: answers recomputed from the messages, and present evidence."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jinja2.sandbox
import numpy as np
import pytest

from agentgym.envs.agentlongbench import FULL, TASKS
from agentgym.envs.agentlongbench.config import QAConfig
from agentgym.envs.agentlongbench.qa_world import LongContextQA
from agentgym.envs.agentlongbench.questions import Evidence, QuestionSpec
from agentgym.envs.agentlongbench.rows import (
    COUNTS,
    LENGTHS,
    TARGETS,
    count,
    make_rows,
    prompt,
)
from agentgym.text.messages import Chat
from agentgym.text.tokens import counter
from tests.envs.agentlongbench.puzzle_reader import Reader
from tests.envs.agentlongbench.vocabulary import vocabulary

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


@pytest.mark.rotation(setting=list(FULL))
def test_answers_are_what_an_independent_reader_finds(setting: str) -> None:
    for tokens, samples in ((16_384, 3), (32_768, 1)):
        for sample in range(samples):
            made = rows(setting, tokens, sample)
            reader = Reader(made[0]["messages"])
            assert [row["task"] for row in made] == list(TASKS)
            for row in made:
                check(row, reader)


@pytest.mark.exhaustive
@pytest.mark.parametrize("setting", list(FULL))
@pytest.mark.parametrize(
    ("tokens", "samples"), [(16_384, 90), (65_536, 80), (262_144, 30), (4_194_304, 1)]
)
def test_all_answers_are_what_an_independent_reader_finds(
    setting: str, tokens: int, samples: int
) -> None:
    for sample in range(100, 100 + samples):
        reader = None
        for row in make_rows(setting, tokens, sample, ALL, 0, HEURISTIC):
            reader = reader or Reader(row["messages"])
            check(row, reader)


@pytest.mark.parametrize("setting", list(FULL))
def test_the_reader_of_the_package_finds_the_same_from_text(setting: str) -> None:
    for sample in range(3):
        for row in rows(setting, 16_384, sample):
            asked = QuestionSpec.read(row["question"])
            evidence = Evidence(asked)
            evidence.take(Chat.from_openai(row["messages"]).to_text())
            assert evidence.complete
            assert evidence.answer() == row["answer"]
            told = Evidence(asked, set(evidence.seen))
            told.read_lines("\n".join(evidence.lines()))
            assert told.answer() == row["answer"]


@pytest.mark.parametrize("setting", list(FULL))
def test_no_evidence_no_answer(setting: str) -> None:
    """Without evidence, the reader fails or errs in most rows, so the spans matter."""
    changed = 0
    made = [row for sample in range(3) for row in rows(setting, 16_384, sample)]
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


def world(task: str, seed: int, **options: Any) -> LongContextQA:
    made = LongContextQA(QAConfig(task=task, **options), seed)
    made.generate()
    return made


def test_labels_of_yes_and_no_are_balanced() -> None:
    for task in ("find_duplicates_tool", "count_frequency_tool"):
        answers = Counter(world(task, seed, rounds=8).question.answer for seed in range(60))
        assert len(answers) == 2
        assert max(answers.values()) < 45


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
    for row in rows("kf-v", 16_384, 0):
        assert {
            "id",
            "sample_id",
            "question_type",
            "messages",
            "question",
            "answer",
            "setting",
        } <= set(row)
        assert row["setting"] == "kf-v"
        json.dumps(row)
    by_task = {row["task"]: row for row in rows("kf-c", 16_384, 1)}
    assert {"round", "target_name"} <= set(by_task["count_frequency_tool"])
    assert {"i_round", "j_round", "pokemon_name"} <= set(by_task["find_duplicates_tool"])
    assert {"guess_name", "i_round"} <= set(by_task["find_target_offsets_tool"])
    assert "property_value" in by_task["count_frequency_env"]
    assert (
        len(by_task["find_round_largest_value_env"]["base_stats_info"])
        == by_task["count_frequency_env"]["rounds"]
    )
    assert by_task["intersection"]["answer_name"] == by_task["intersection"]["answer"]
    assert (
        by_task["count_correctness_env"]["id"] == f"1_r{by_task['count_correctness_env']['round']}"
    )


def test_ties_are_met_and_the_first_round_counts() -> None:
    ties = 0
    for seed in range(30):
        question = world("find_round_largest_value_env", seed, rounds=40).question
        numbers = list(question.extra["base_stats_info"].values())
        ties += numbers.count(max(numbers)) > 1
        assert question.answer == 1 + int(np.argmax(numbers))
    assert ties


@pytest.mark.rotation
def test_no_word_of_the_species_stands_in_a_knowledge_free_row() -> None:
    words = sorted(word for word in vocabulary() if word not in ("None", "Special", "Basic"))
    for setting in ("kf-c", "kf-v"):
        text = "\n".join(
            json.dumps(row["messages"]) + row["question"] for row in rows(setting, 16_384, 0)
        )
        assert not [
            word
            for word in words
            if f'"{word}"' in text or f" {word} (" in text or f"{word}:" in text
        ]


TEMPLATES = (
    "qwen2_5",
    "qwen3",
    "qwen3_instruct_2507",
    "glm4moe",
    "deepseekv3",
    "gptoss",
    "llama3_1",
    "llama3_2",
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_stock_chat_templates_show_the_needed_results(name: str) -> None:
    """The published evaluation's rewritten tool results silently vanish in these templates."""
    trl = pytest.importorskip("trl")
    source = Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja"
    render = template(source.read_text(encoding="utf-8"))
    for setting in FULL:
        for row in rows(setting, 16_384, 0)[:8]:
            messages = prompt(row)
            try:
                shown = render([as_objects(message) for message in messages])
            except TypeError:  # expects the arguments as text
                shown = render(messages)
            for place, start, end in row["evidence"]:
                text = row["messages"][place]["content"][start:end]
                # gpt-oss shows a tool result as a JSON string.
                assert (
                    text in shown
                    or json.dumps(text)[1:-1] in shown
                    or json.dumps(text, ensure_ascii=False)[1:-1] in shown
                )
            assert row["question"] in shown
            roles = [message["role"] for message in messages]
            assert all(pair != ("user", "user") for pair in pairwise(roles))


def as_objects(message: dict[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    (call,) = message["tool_calls"]
    function = {**call["function"], "arguments": json.loads(call["function"]["arguments"])}
    return {**message, "tool_calls": [{**call, "function": function}]}


def template(source: str) -> Any:
    def fail(message: str) -> None:
        raise ValueError(message)

    options = {
        "trim_blocks": True,
        "lstrip_blocks": True,
        "extensions": ["jinja2.ext.loopcontrols"],
    }
    environment: Any = jinja2.sandbox.ImmutableSandboxedEnvironment(**options)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals.update(raise_exception=fail, strftime_now=lambda form: "2026")
    compiled = environment.from_string(source)
    return lambda messages: compiled.render(
        messages=messages, add_generation_prompt=True, bos_token="", eos_token="", tools=None
    )
