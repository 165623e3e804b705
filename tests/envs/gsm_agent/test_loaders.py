"""User data: accepted and refused input, with all errors reported at once."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agentgym import Chat, Message, Reply, make, tool_env
from agentgym.envs.gsm_agent.documents import Document, Task
from agentgym.envs.gsm_agent.loaders import (
    as_folder,
    decompose,
    load_folder,
    load_gsm8k,
    take_apart,
)
from agentgym.envs.gsm_agent.numbers import parse_number

CLIPS = "Natalia sold clips to 48 of her friends in April. She sold half as many in May. How many clips did she sell altogether?"


def write(path: Path, *records: Any) -> Path:
    path.write_text(
        "".join(
            record if isinstance(record, str) else json.dumps(record) + "\n" for record in records
        ),
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18", "18"), ("18.0", "18"), ("1,250", "1250"), ("$1,250.50", "1250.5"), ("-3", "-3"), ("I think so. #### 7", "7"),
        ("#### 3 #### 4", "4"), ("#### 12 apples.", "12"), ("#### 20%", "20"), ("####\n 5\n", "5"), ("#### $5 dollars", "5"),
        ("", None), ("####", None), ("seven", None), ("1/2", None), ("1,2,3", None), ("#### 5 #### none", None), ("3 or 4", None),
        ("12,50", None), ("nan", None), ("1e5", None), ("٣", None), ("5..", None), ("5.", "5"), (".5", "0.5"), ("9" * 401, None),
    ],
)  # fmt: skip
def test_numbers_are_read(text: str, number: str | None) -> None:
    assert parse_number(text) == (None if number is None else Decimal(number))


def test_gsm8k_is_taken_apart(tmp_path: Path) -> None:
    path = write(
        tmp_path / "test.jsonl",
        {"question": CLIPS, "answer": "48/2=<<48/2=24>>24\n#### 1,072"},
        "\n",
    )
    (problem,) = load_gsm8k(path)
    assert problem.question == "How many clips did she sell altogether?"
    assert problem.premises == (
        "Natalia sold clips to 48 of her friends in April.",
        "She sold half as many in May.",
    )
    assert (problem.id, problem.answer, problem.needs_decomposition) == ("test-1", "1072", False)


@pytest.mark.parametrize(
    "text",
    [
        "If he has 3, how many are left?",
        "He had 3. How many of 5 are left?",
        "He has 3.",
        "How many?",
        "A. If so, what?",
    ],
)
def test_what_punctuation_does_not_take_apart_needs_decomposition(text: str) -> None:
    assert take_apart("a", text, "1").needs_decomposition


def test_all_mistakes_of_gsm8k_are_told(tmp_path: Path) -> None:
    path = write(
        tmp_path / "bad.jsonl",
        {"question": "Q?"},
        "{\n",
        {"question": "Q?", "answer": "42"},
        "[1]\n",
    )
    with pytest.raises(
        ValueError,
        match=r"has 4 mistakes: line 1 is no .*; line 2 is no .*; line 3: no number after ####.*; line 4",
    ):
        load_gsm8k(path)


def folder_of(path: Path, **names: str) -> Path:
    ids = names.get("documents", "documents")
    write(
        path / "tasks.jsonl",
        {"id": "GSM8k-466-test", "question": "How much?", "answer": "18", ids: ["b_log", "a_log"]},
    )
    about = {"timestamp": "1990-05", "name": "Becky", "type": "log"}
    write(
        path / "documents.jsonl",
        {"id": "b_log", "content": "Two.", "metadata": about},
        {"id": "a_log", "content": "One."},
    )
    return path


def test_a_folder_is_read(tmp_path: Path) -> None:
    documents, tasks = load_folder(folder_of(tmp_path))
    assert documents == [
        Document("a_log", "One."),
        Document("b_log", "Two.", "1990-05", "Becky", "log"),
    ]
    assert tasks == [Task("GSM8k-466-test", "How much?", "18", (1, 0))]


def test_fields_can_be_renamed(tmp_path: Path) -> None:
    folder_of(tmp_path, documents="document_ids")
    assert load_folder(tmp_path, {"documents": "document_ids"})[1][0].documents == (1, 0)
    write(tmp_path / "fields.json", {"documents": "document_ids"})
    assert load_folder(tmp_path)[1][0].documents == (1, 0)
    with pytest.raises(
        ValueError, match="fields has no field 'docs' to rename; fields: id, question"
    ):
        load_folder(tmp_path, {"docs": "x"})


def test_all_mistakes_of_a_folder_are_told(tmp_path: Path) -> None:
    task = {"id": "t", "question": "?", "answer": "many", "documents": ["a", "zz"]}
    write(
        tmp_path / "tasks.jsonl",
        task,
        {**task, "answer": 3, "documents": "a"},
        {"id": "u"},
        "no\n",
        "[]\n",
    )
    write(tmp_path / "documents.jsonl", {"id": "a", "content": "x"}, {"id": "a", "content": "y"})
    with pytest.raises(ValueError, match="has 8 mistakes") as caught:
        load_folder(tmp_path)
    for told in (
        "documents.jsonl, line 2: the id 'a' is there already",
        "tasks.jsonl, line 1: the answer 'many' is no number",
        "tasks.jsonl, line 1: there is no document 'zz'",
        "tasks.jsonl, line 2: the id 't' is there already",
        "tasks.jsonl, line 2: documents must be a list of ids, got 'a'",
        "tasks.jsonl, line 3: the field question, answer, documents is missing",
        "tasks.jsonl, line 4: no JSON",
        "tasks.jsonl, line 5: no JSON object",
    ):
        assert told in str(caught.value)
    with pytest.raises(ValueError, match=r"documents.jsonl is missing; tasks.jsonl is missing"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is no folder; give one with tasks\.jsonl"):
        make("SearchWorld", data=str(tmp_path / "nowhere")).reset(seed=0)


def test_gsm8k_is_played_in_the_static_setting(tmp_path: Path) -> None:
    hard = take_apart("b", "If he has 3 and eats 1, how many are left?", "2")
    as_folder([take_apart("a", CLIPS, "72"), hard], tmp_path / "data")
    for number, problem in enumerate([CLIPS, "eats 1"]):
        env = make("SearchWorld", data=str(tmp_path / "data"), setting="static", task=number)
        chat, _ = env.reset(seed=0)
        assert problem.split(". ")[0] in chat.messages[-1].text
        *_, info = env.step("#### 72" if number == 0 else "#### 2.0")
        assert info["success"]
    searched = make("SearchWorld", data=str(tmp_path / "data"), oracles="S")
    assert {searched.reset(seed=seed)[0].messages[-1].text.split("\n")[0] for seed in range(9)} == {
        "Question: How many clips did she sell altogether?"
    }
    world = tool_env(searched).world
    assert world.read_subtask(world.subtask(True)) is None
    chat, *_ = searched.step(
        '<tool_call>{"name": "search", "arguments": {"query": "friends in April"}}</tool_call>'
    )
    assert "Natalia sold clips to 48" in chat.messages[-1].text
    as_folder([hard], tmp_path / "hard")
    with pytest.raises(
        ValueError,
        match="none of 1 tasks can be searched for before a model has decomposed it; use setting='static'",
    ):
        make("SearchWorld", data=str(tmp_path / "hard")).reset(seed=0)


class Model:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, chats: Any) -> list[Reply]:
        self.asked += 1
        prompt = chats[0].messages[-1].text
        if prompt.startswith("Take"):
            premises = ["48 in April.", "Half as many in May."]
            text = (
                f"Here it is: {json.dumps({'question': 'How many in all?', 'premises': premises})}"
            )
            return [Reply("I cannot." if "broken" in prompt else text)]
        if prompt.startswith("Does"):
            return [Reply("Yes." if "leaky" in prompt else "No, it does not.")]
        return [
            Reply(
                "leaky"
                if "leaking" in prompt
                else f"A note. {prompt.split('number: ')[1].splitlines()[0]}"
            )
        ]


def test_a_model_takes_problems_apart_once(tmp_path: Path) -> None:
    model = Model()

    def ask(prompt: str) -> str:
        (reply,) = model([Chat((), ()).add(Message("user", prompt, id="ask"))])
        return reply.text

    problems = [
        take_apart(name, text, "72")
        for name, text in (("a", CLIPS), ("b", "broken"), ("c", "a leaking story"))
    ]
    decompose(problems, tmp_path, ask)
    documents, tasks = load_folder(tmp_path)
    assert [task.id for task in tasks] == ["a"], (
        "what cannot be taken apart, or tells too much, is left out"
    )
    assert [document.content for document in documents] == [
        "A note. 48 in April.",
        "A note. Half as many in May.",
    ]
    assert tasks[0].premises == ("48 in April.", "Half as many in May.")
    before = model.asked
    with (tmp_path / "documents.jsonl").open(
        "a"
    ) as file:  # left by a run interrupted within a task
        file.write(json.dumps({"id": "z-0", "content": "Half done."}) + "\n")
    decompose(problems[:1], tmp_path, ask)
    assert load_folder(tmp_path) == (documents, tasks)
    assert model.asked == before
    assert (
        make("SearchWorld", data=str(tmp_path))
        .reset(seed=0)[0]
        .messages[-1]
        .text.startswith("Question: How many in all?")
    )
