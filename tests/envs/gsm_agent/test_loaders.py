from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gymnasium.envs.registration import EnvSpec

from agentgym import Chat, Message, Reply, make, tool_env
from agentgym.envs.gsm_agent.decomposition import decompose, read_parts
from agentgym.envs.gsm_agent.documents import Document, Task
from agentgym.envs.gsm_agent.loaders import load_folder, load_gsm8k, publish
from agentgym.envs.gsm_agent.numbers import parse_number
from agentgym.envs.gsm_agent.user_data.stories import take_apart
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout

CLIPS = (
    "Natalia sold clips to 48 of her friends in April. She sold half as many in May. "
    "How many clips did Natalia sell altogether?"
)


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
        ("**#### 18**", "18"), ("#### **18**.", "18"), ("#### $18.00", "18"), ("#### 18 dollars", "18"), ("#### 1,234", "1234"),
        ("#### -$5", "-5"), ("#### \u22122.5", "-2.5"), ("--5", None), ("2*3", None), ("1 " + " " * 50_000 + "!", None),
        ("12,50", None), ("nan", None), ("1e5", None), ("٣", None), ("5..", None), ("5.", "5"), (".5", "0.5"), ("9" * 401, None),
    ],
)  # fmt: skip
def test_numbers_are_read(text: str, number: str | None) -> None:
    assert parse_number(text) == (None if number is None else Decimal(number))


def test_gsm8k_is_taken_apart(tmp_path: Path) -> None:
    path = write(
        tmp_path / "test.jsonl",
        "\ufeff" + json.dumps({"question": CLIPS, "answer": "<<48/2=24>>24\n**#### 1,072**"}),
        "\r\n \n",
        {
            "question": "“Zoë” sold 4\u2028hats. She sold 5 caps. How much is 1?",
            "answer": "#### -2",
        },
    )
    problem, other = load_gsm8k(path)
    assert problem.question == "How many clips did Natalia sell altogether?"
    assert problem.premises == (
        "Natalia sold clips to 48 of her friends in April.",
        "She sold half as many in May.",
    )
    assert (problem.id, problem.answer, problem.unclear) == ("test-1", "1072", "")
    assert take_apart("q", 'Bo said:\n"There are 3."\nShe has 4.', "1").names == ()
    assert (other.id, other.answer) == ("test-3", "-2")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Al had 3. How much did he earn?", "only the story says who 'he' is"),
        ("Al had 3. What is it now?", "only the story says what 'it' is"),
        ("Al had 3. How much was the total cost?", "names nothing to search for"),
        ("Al had 3. How many of 5 pens are left?", "its question contains 5"),
        ("Al had 3. Bo had 3. How many pens had Bo?", "no sentence contains a number of its own"),
        ("Al had 3.", "no sentence ends in a question mark"),
        ("How many pens has Al?", "its question is the whole problem"),
    ],
)
def test_ill_posed_questions_are_rejected_with_the_reason(text: str, why: str) -> None:
    assert why in take_apart("a", text, "1").unclear


def test_a_condition_of_the_question_becomes_a_premise() -> None:
    for text in (
        "If Al has 3 pens, how many pens does Bo have?",
        "How many pens does Bo have if Al has 3 pens?",
    ):
        problem = take_apart("a", f"Bo has twice as many pens as Al. {text}", "6")
        assert problem.question == "How many pens does Bo have?"
        assert problem.premises == ("Bo has twice as many pens as Al.", "Al has 3 pens.")
        assert not problem.unclear


GOOD = json.dumps({"question": CLIPS, "answer": "#### 1"}).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "d.jsonl: expected JSON lines, the file is empty"),
        (b"\n \r\n", "the file is empty"),
        (GOOD + b'{"question": "Q?"}', "line 2, field answer: expected a non-empty string, it is missing"),
        (GOOD + b'{"question": 3, "answer": "#### 1"}', "line 2, field question: expected a non-empty string, got 3"),
        (GOOD + b'{"question": " ", "answer": "#### 1"}', "line 2, field question: expected a non-empty string"),
        (GOOD + b'{"question": "Q?", "answer": "42"}', "line 2, field answer: expected a number after the last ####"),
        (GOOD + b'{"question": "Q?", "answer": "#### 1/2"}', "line 2, field answer: expected a number"),
        (GOOD + b'{"question": "\\ud800?", "answer": "#### 1"}', "line 2, field question: expected valid Unicode"),
        (GOOD + b"[1]", r"line 2: expected a JSON object, got \[1\]"),
        (GOOD + b"{", "line 2: expected a JSON object"),
        (GOOD + b"[" * 100_000, "line 2: expected a JSON object"),
        (GOOD + GOOD.replace(b"April", "Março".encode("latin-1")), "line 2: expected UTF-8"),
        (GOOD.decode().encode("utf-16"), "line 1: expected UTF-8"),
    ],
)  # fmt: skip
def test_malformed_gsm8k_is_refused_with_line_and_field(
    tmp_path: Path, content: bytes, told: str
) -> None:
    (tmp_path / "d.jsonl").write_bytes(content)
    for place in (tmp_path, tmp_path / "d.jsonl"):
        with pytest.raises(ValueError, match=told):
            make("SearchWorld", data=place).reset(seed=0)


def test_a_folder_is_read(tmp_path: Path) -> None:
    task = {"id": "GSM8k-466-test", "question": "How much?", "answer": "18"}
    write(tmp_path / "tasks.jsonl", {**task, "documents": ["b_log", "a_log"]})
    about = {"timestamp": "1990-05", "name": "Becky", "type": "log"}
    write(
        tmp_path / "documents.jsonl",
        {"id": "b_log", "content": "Two.", "metadata": about},
        {"id": "a_log", "content": "One."},
    )
    documents, tasks = load_folder(tmp_path)
    assert documents == [
        Document("a_log", "One."),
        Document("b_log", "Two.", "1990-05", "Becky", "log"),
    ]
    assert tasks == [Task("GSM8k-466-test", "How much?", "18", (1, 0))]


def test_all_mistakes_of_a_folder_are_told(tmp_path: Path) -> None:
    task = {"id": "t", "question": "?", "answer": "many", "documents": ["a", "zz"]}
    write(
        tmp_path / "tasks.jsonl",
        task,
        {**task, "answer": True, "documents": "a"},
        {"id": "u"},
        "no\n",
        "[]\n",
        {**task, "id": "v", "answer": 3, "documents": [], "static_only": 1, "premises": [2]},
    )
    metadata = {"id": "b", "content": "y", "metadata": []}
    write(
        tmp_path / "documents.jsonl",
        {"id": "a", "content": "x"},
        {"id": "a"},
        {**metadata, "metadata": "z"},
    )
    with pytest.raises(ValueError, match="contains 18 mistakes") as caught:
        load_folder(tmp_path)
    for told in (
        "documents.jsonl, field id: expected unique ids, 'a' occurs 2 times",
        "documents.jsonl, line 2, field content: expected a non-empty string, it is missing",
        "documents.jsonl, line 3, field metadata: expected an object, got 'z'",
        "tasks.jsonl, field id: expected unique ids, 't' occurs 2 times",
        "tasks.jsonl, line 1, field answer: expected a number, got 'many'",
        "tasks.jsonl, line 1, field documents: expected ids in documents.jsonl, and not 'zz'",
        "tasks.jsonl, line 2, field answer: expected a number, got True",
        "tasks.jsonl, line 2, field documents: expected a list of strings, got 'a'",
        "tasks.jsonl, line 3, field question: expected a non-empty string, it is missing",
        "tasks.jsonl, line 4: expected a JSON object",
        "tasks.jsonl, line 5: expected a JSON object",
        "tasks.jsonl, line 6, field static_only: expected True, False or a reason, got 1",
        "tasks.jsonl, line 6, field premises: expected a list of strings",
    ):
        assert told in str(caught.value)
    with pytest.raises(
        ValueError, match=r"documents.jsonl: expected a file .*tasks.jsonl: expected a file"
    ):
        load_folder(tmp_path / "nowhere")
    for place in (tmp_path / "nowhere", tmp_path / "nowhere.jsonl"):
        with pytest.raises(ValueError, match="contains no tasks; give a GSM8K JSONL file"):
            make("SearchWorld", data=str(place)).reset(seed=0)


def test_rejected_tasks_are_static(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    hard = "Ann has 3 pens and eats 1. How many has she?"
    write(path, *({"question": text, "answer": "#### 72"} for text in (CLIPS, hard)))
    for number, problem in enumerate([CLIPS, hard]):
        env = make("SearchWorld", data=path, setting="static", task=number)
        chat, _ = env.reset(seed=0)
        assert problem.split(". ")[0] in chat.messages[-1].text
        *_, info = env.step("**#### 72**")
        assert info["success"]
    searched = make("SearchWorld", data=path)
    asked = {searched.reset(seed=seed)[0].messages[-1].text.split("\n")[0] for seed in range(9)}
    assert asked == {"Question: How many clips did Natalia sell altogether?"}
    world = tool_env(searched).world
    assert list(world.database.rejected) == ["data-2"]  # type: ignore[attr-defined]
    shown = [document.content for document in world.database.documents]  # type: ignore[attr-defined]
    assert not any("Ann" in text for text in shown)
    write(path, {"question": hard, "answer": "#### 72"})
    with pytest.raises(
        ValueError,
        match=r"searching cannot solve any of 1 tasks .*only the story says who 'she' is",
    ):
        make("SearchWorld", data=str(tmp_path)).reset(seed=0)


@pytest.mark.parametrize("form", ["rows", "parts", "Dataset", "DatasetDict"])
def test_a_dataset_is_played_in_one_call(tmp_path: Path, monkeypatch: Any, form: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows: Any = [{"question": CLIPS, "answer": "#### 72"}]
    if form.startswith("Dataset"):
        rows = pytest.importorskip("datasets").Dataset.from_list(rows)
    if form == "DatasetDict":
        rows = pytest.importorskip("datasets").DatasetDict({"test": rows})
    env = make("SearchWorld", data={"test": rows} if form == "parts" else rows)
    assert rollout(OraclePolicy("SearchWorld"), env, 1).reward == 1.0
    assert env.spec is not None
    again = EnvSpec.from_json(env.spec.to_json())
    assert again.kwargs["data"] == env.spec.kwargs["data"] == make("SearchWorld", data=env.spec.kwargs["data"]).spec.kwargs["data"]  # type: ignore[union-attr] # fmt: skip
    for wrong in (3, [object()], "x.txt"):
        with pytest.raises(ValueError, match="data "):
            make("SearchWorld", data=wrong).reset(seed=0)


class Model:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, chats: Any) -> list[Reply]:
        self.asked += 1
        prompt = chats[0].messages[-1].text
        if prompt.startswith("Take"):
            premises = ["48 in April.", "Half as many in May."]
            parts = {"question": "How many clips in all?", "premises": premises}
            text = f"Here it is: {json.dumps(parts)}"
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
    limits = [3, 9, 100]

    def ask(prompt: str) -> str:
        if model.asked == limits[0]:
            raise KeyboardInterrupt
        (reply,) = model([Chat((), ()).add(Message("user", prompt, id="ask"))])
        return reply.text

    problems = [
        take_apart(name, text, "72")
        for name, text in (("a", CLIPS), ("b", "broken"), ("c", "a leaking story"))
    ]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            decompose(problems, tmp_path, ask)
        assert not (tmp_path / "tasks.jsonl").exists()
        with (tmp_path / "replies.jsonl").open("a") as file:
            file.write('{"prompt": "cut o')
        limits.pop(0)
    decompose(problems, tmp_path, ask)
    assert model.asked == 13, "one and two for each document; one; one and six"
    documents, tasks = load_folder(tmp_path)
    assert {document.content.partition("\n")[2] for document in documents} == {
        "A note. 48 in April.",
        "A note. Half as many in May.",
    }
    assert tasks[0].premises == ("48 in April.", "Half as many in May.")
    assert "How many clips" in tasks[0].question
    assert [bool(task.static_only) for task in tasks] == [False, True, True]
    assert "3 documents of the premise" in tasks[2].static_only
    decompose(problems, tmp_path, ask)
    assert load_folder(tmp_path) == (documents, tasks)
    assert model.asked == 13


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "no question and premises"),
        ("```json\n[", "no question and premises"),
        ('{"question": "How many clips did Natalia sell?", "premises": []}', "it has no premises"),
        (
            '{"question": "How many did she sell?", "premises": ["48."]}',
            "3 documents of the premise",
        ),
    ],
)
def test_a_model_that_takes_nothing_apart_leaves_static_tasks(
    tmp_path: Path, reply: str, why: str
) -> None:
    problems = [take_apart("a", CLIPS, "72"), take_apart("b", f"{CLIPS} ", "72")]
    decompose(problems, tmp_path, lambda prompt: reply)
    documents, tasks = load_folder(tmp_path)
    assert not documents
    assert len(tasks) == 2
    assert all(why in str(task.static_only) for task in tasks)
    env = make("SearchWorld", data=str(tmp_path), setting="static")
    assert "clips" in env.reset(seed=0)[0].messages[-1].text
    with pytest.raises(ValueError, match=why):
        make("SearchWorld", data=str(tmp_path)).reset(seed=0)


PART = {"id": "a", "question": "How many clips did Natalia sell?", "premises": ["48.", "Half."]}


@pytest.mark.parametrize(
    ("documents", "why"),
    [
        (["Ann sold 48 clips.", "Then half as many clips."], ""),
        (["Ann sold 48 clips.", "Then as many clips."], "the number 1/2 of the problem is in none"),
        (["Ann sold 48 clips.", "Then half as many clips in 7 days."], "also contains 7"),
        (["Ann sold 48 clips, half.", "Then half as many clips."], "it can be solved without 'Then half"),
        (["Ann sold 48 clips.", "Half xyzzy."], ""),
        (["Qux 48.", "Half zork."], "searching from its question on does not find"),
    ],
)  # fmt: skip
def test_the_checks_reject_what_was_written_by_hand(
    tmp_path: Path, documents: list[str], why: str
) -> None:
    path = write(tmp_path / "parts.jsonl", {**PART, "documents": documents})
    (problem,) = read_parts([take_apart("a", CLIPS, "72")], path)
    # If no document mentions a month, only words in common lead from one document to another.
    (task,) = publish([problem])[1]
    assert why in task.static_only
    assert bool(why) == bool(task.static_only)


def test_malformed_parts_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "parts.jsonl", {**PART, "id": "z"}, {**PART, "documents": ["x"]}, PART)
    with pytest.raises(
        ValueError,
        match=r"line 1, field id: .*line 2, field documents: .*line 3, field id: expected a unique",
    ):
        read_parts([take_apart("a", CLIPS, "72")], path)
