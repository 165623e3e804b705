"""Load your own tasks: GSM8K as JSON lines, and folders like GSM-Agent's (Zhu et al., section 3.2).
No network.

`agentgym.make("SearchWorld", data=folder)` plays a folder with `tasks.jsonl`, `documents.jsonl`,
and optionally `fields.json`, which renames fields. One error reports all violations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.envs.gsm_agent.documents import Document, Task
from agentgym.envs.gsm_agent.numbers import MARK, parse_number
from agentgym.envs.reading import load_texts

Ask = Callable[[str], str]
"""A model, from prompt to reply."""
FIELDS = {
    name: name
    for name in (
        "id",
        "question",
        "answer",
        "documents",
        "premises",
        "static_only",
        "content",
        "metadata",
    )
}
"""Field names of a folder."""

_PROMPTS: Mapping[str, str] = load_texts(__file__, "prompts")["decomposition"]
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_MOST_REPORTED = 50  # more would hardly be read


@dataclass(frozen=True, slots=True)
class RawProblem:
    """A GSM8K problem split by punctuation.

    Attributes:
        id: The file name and the line, such as `test-17`.
        question: The last sentence that ends in a question mark.
        premises: The other sentences.
        needs_decomposition: Whether premises may be incomplete: the question contains a number or a
            condition, or is missing.
    """

    id: str
    text: str
    question: str
    premises: tuple[str, ...]
    answer: str
    needs_decomposition: bool


def load_gsm8k(path: Path) -> list[RawProblem]:
    """Load JSON lines with `question` and `answer`, whose number follows the last `####`.

    Raises:
        ValueError: Lines have another form; the error lists them all.
    """
    problems, wrong = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            text, solution = str(record["question"]).strip(), str(record["answer"])
        except (ValueError, KeyError, TypeError) as error:
            wrong.append(f"line {number} is no JSON object with question and answer ({error!r})")
            continue
        value = parse_number(solution) if MARK in solution else None
        if value is None:
            wrong.append(f"line {number}: no number after #### in the answer {solution[-60:]!r}")
        else:
            problems.append(take_apart(f"{path.stem}-{number}", text, str(value)))
    _refuse(path, wrong)
    return problems


def take_apart(name: str, text: str, answer: str) -> RawProblem:
    """Split a problem by punctuation."""
    sentences = [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]
    questions = [place for place, sentence in enumerate(sentences) if sentence.endswith("?")]
    question = sentences.pop(questions[-1]) if questions else ""
    unclear = (
        # A number or an "if" in the question is a premise that the sentences lack.
        not question or bool(re.search(r"[0-9]|\bif\b", question, re.IGNORECASE)) or not sentences
    )
    return RawProblem(name, text, question or text, tuple(sentences), answer, unclear)


def decompose(problems: Iterable[RawProblem], folder: Path, ask: Ask) -> None:
    """Create a folder of tasks and documents with a model; a second run resumes.

    Skips a problem that the model does not take apart, or one of whose documents tells another
    premise three times.
    """
    folder.mkdir(parents=True, exist_ok=True)
    existing = [json.loads(line) for line in _lines(folder / "tasks.jsonl")]
    done = {task["id"] for task in existing}
    # An interrupted run may leave documents of an unfinished task.
    complete = {name for task in existing for name in task["documents"]}
    written = [json.loads(line) for line in _lines(folder / "documents.jsonl")]
    _write(folder / "documents.jsonl", [each for each in written if each["id"] in complete])
    for problem in problems:
        if problem.id in done:
            continue
        question, premises = _take_apart(problem.text, ask)
        contents = [_write_document(problem.text, premise, premises, ask) for premise in premises]
        if not contents or None in contents:
            continue
        documents: list[dict[str, Any]] = [
            {"id": f"{problem.id}-{k}", "content": content, "metadata": {}}
            for k, content in enumerate(contents)
        ]
        task = {
            "id": problem.id,
            "question": question,
            "answer": problem.answer,
            "premises": premises,
            "documents": [document["id"] for document in documents],
        }
        # Documents first: a task in the file then has all its documents.
        _write(folder / "documents.jsonl", documents, mode="a")
        _write(folder / "tasks.jsonl", [task], mode="a")


def _take_apart(problem: str, ask: Ask) -> tuple[str, list[str]]:
    reply = ask(_PROMPTS["take_apart"].format(problem=problem))
    try:
        parts = json.loads(reply[reply.index("{") : reply.rindex("}") + 1])
        return str(parts["question"]), [str(premise) for premise in parts["premises"]]
    # A model's reply may have any form; no premises means that the problem is skipped.
    except (ValueError, KeyError, TypeError):
        return problem, []


def _write_document(story: str, premise: str, premises: Sequence[str], ask: Ask) -> str | None:
    others = "\n".join(f"- {other}" for other in premises if other != premise)
    for _ in range(3):
        document = ask(_PROMPTS["document"].format(premise=premise, story=story)).strip()
        prompt = _PROMPTS["leak"].format(document=document, premise=premise, others=others)
        if ask(prompt).strip().lower().startswith("no"):
            return document
    return None


def as_folder(problems: Iterable[RawProblem], folder: Path) -> None:
    """Write problems unchanged, one document per premise; unclear ones become static."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks: list[dict[str, Any]] = []
    documents: list[dict[str, Any]] = []
    for problem in problems:
        texts = (problem.text,) if problem.needs_decomposition else problem.premises
        names = [f"{problem.id}-{k}" for k in range(len(texts))]
        documents += [
            {"id": name, "content": text, "metadata": {}}
            for name, text in zip(names, texts, strict=True)
        ]
        tasks.append(
            {
                "id": problem.id,
                "question": problem.question,
                "answer": problem.answer,
                "documents": names,
                "static_only": problem.needs_decomposition,
            }
        )
    _write(folder / "tasks.jsonl", tasks)
    _write(folder / "documents.jsonl", documents)


def load_folder(
    folder: Path, fields: Mapping[str, str] | None = None
) -> tuple[list[Document], list[Task]]:
    """Load a folder of tasks and documents.

    Args:
        folder: Contains `tasks.jsonl` (id, question, answer, and documents: their ids) and
            `documents.jsonl` (id, content, and metadata: timestamp, name, type).
        fields: The folder's names of these fields, such as `{"documents": "document_ids"}`; None
            for its `fields.json`.

    Raises:
        ValueError: Fields are missing, ids are duplicate or dangling, or an answer is not a number;
            the error lists all of them.
    """
    if fields is None and (folder / "fields.json").exists():
        fields = json.loads((folder / "fields.json").read_text(encoding="utf-8"))
    if unknown := [name for name in fields or {} if name not in FIELDS]:
        raise ValueError(
            f"fields has no field {unknown[0]!r} to rename; fields: {', '.join(FIELDS)}"
        )
    names = {**FIELDS, **(fields or {})}
    wrong: list[str] = []
    documents = sorted(_documents(folder, names, wrong), key=lambda document: document.id)
    place = {document.id: number for number, document in enumerate(documents)}
    tasks = _tasks(folder, names, place, wrong)
    _refuse(folder, wrong)
    return documents, tasks


def _documents(folder: Path, names: Mapping[str, str], wrong: list[str]) -> list[Document]:
    documents: dict[str, Document] = {}
    for where, record in _records(
        folder / "documents.jsonl", (names["id"], names["content"]), wrong
    ):
        about = record.get(names["metadata"]) or {}
        name = str(record[names["id"]])
        if name in documents:
            wrong.append(f"{where}: the id {name!r} is there already")
        documents[name] = Document(
            name,
            str(record[names["content"]]),
            *(str(about.get(key, "")) for key in ("timestamp", "name", "type")),
        )
    return list(documents.values())


def _tasks(
    folder: Path, names: Mapping[str, str], place: Mapping[str, int], wrong: list[str]
) -> list[Task]:
    tasks: dict[str, Task] = {}
    required = tuple(names[key] for key in ("id", "question", "answer", "documents"))
    for where, record in _records(folder / "tasks.jsonl", required, wrong):
        name, question, answer, ids = (record[key] for key in required)
        name, answer = str(name), str(answer)
        if name in tasks:
            wrong.append(f"{where}: the id {name!r} is there already")
        if parse_number(answer) is None:
            wrong.append(f"{where}: the answer {record[required[2]]!r} is no number")
        if not isinstance(ids, list) or not ids:
            wrong.append(f"{where}: {required[3]} must be a list of ids, got {ids!r}")
            ids = []
        wrong += [
            f"{where}: there is no document {each!r}" for each in ids if str(each) not in place
        ]
        tasks[name] = Task(
            name,
            str(question),
            answer,
            documents=tuple(place[str(each)] for each in ids if str(each) in place),
            premises=tuple(map(str, record.get(names["premises"]) or ())),
            static_only=bool(record.get(names["static_only"], False)),
        )
    return list(tasks.values())


def _records(
    path: Path, required: Sequence[str], wrong: list[str]
) -> Iterable[tuple[str, dict[str, Any]]]:
    if not path.exists():
        wrong.append(f"{path.name} is missing")
    for number, line in enumerate(_lines(path), 1):
        where = f"{path.name}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            wrong.append(f"{where}: no JSON ({error})")
            continue
        if not isinstance(record, dict):
            wrong.append(f"{where}: no JSON object")
        elif missing := [name for name in required if name not in record]:
            wrong.append(f"{where}: the field {', '.join(missing)} is missing")
        else:
            yield where, record


def _lines(path: Path) -> list[str]:
    # A first run has no files to resume from.
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line for line in text.splitlines() if line.strip()]


def _write(path: Path, records: Iterable[Mapping[str, Any]], mode: str = "w") -> None:
    with path.open(mode, encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _refuse(path: Path, wrong: Sequence[str]) -> None:
    if wrong:
        rest = len(wrong) - _MOST_REPORTED
        more = f"; and {rest} more" if rest > 0 else ""
        raise ValueError(
            f"{path} has {len(wrong)} mistakes: {'; '.join(wrong[:_MOST_REPORTED])}{more}"
        )
