"""Load GSM8K, GSM-Symbolic templates, and GSM-Agent folders (Zhu et al., section 3.2).

`agentgym.make("SearchWorld", data=path)` plays the loaded tasks; `data=` also accepts a GSM8K
dataset. If the data contain mistakes, a single error lists all of them and nothing is loaded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from agentgym.envs.gsm_agent.documents import Document, Task, month_name, places_of, shuffled_months
from agentgym.envs.gsm_agent.numbers import MARK, parse_number
from agentgym.envs.gsm_agent.user_data.records import (
    InputRecord,
    raise_any,
    read_records,
    write_records,
)
from agentgym.envs.gsm_agent.user_data.stories import RawProblem, take_apart
from agentgym.envs.gsm_agent.user_data.templates import load_templates
from agentgym.envs.gsm_agent.user_data.vetting import vet
from agentgym.world.splits import split_of

_REDRAWS = 50  # a template with few variants may repeat a problem


def load_data(
    path: Path, tasks: int, seed: int = 0, people: str = "all"
) -> tuple[list[Document], list[Task]]:
    """Load GSM8K files, GSM-Symbolic templates, or a folder in the format of `load_folder`.

    For templates, `tasks` problems are drawn with `seed`; `people` is `all` or the split whose
    templates are used. Raise ValueError for unknown or malformed data.
    """
    if (path / "tasks.jsonl").exists() or (path / "documents.jsonl").exists():
        return load_folder(path)
    return publish(load_problems(path, tasks, seed, people), seed)


def load_problems(path: Path, tasks: int, seed: int = 0, people: str = "all") -> list[RawProblem]:
    """Load problems as `load_data` does, but reject a folder with documents."""
    templates = [*path.glob("*.toml"), *path.glob("symbolic/*.toml")]
    if templates or path.suffix == ".toml":
        return draw_problems(path, tasks, seed, people)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise ValueError(
            f"data {str(path)!r} contains no tasks; give a GSM8K JSONL file, or a folder with such files, "
            "TOML templates, or tasks.jsonl and documents.jsonl"
        )
    return list(chain.from_iterable(map(load_gsm8k, files)))


def load_gsm8k(path: Path) -> list[RawProblem]:
    """Load JSON lines with `question` and `answer`; the number follows the last `####`.

    A ValueError lists all malformed lines.
    """
    problems, mistakes = [], list[str]()
    for record in read_records(path, mistakes):
        text, solution = record.text("question").strip(), record.text("answer")
        value = parse_number(solution)
        if solution and (value is None or MARK not in solution):
            record.refuse("answer", "a number after the last ####")
        if text:
            number = record.where.rpartition(" ")[2]
            problems.append(take_apart(f"{path.stem}-{number}", text, str(value)))
    raise_any(path, mistakes)
    return problems


def draw_problems(path: Path, count: int, seed: int, people: str) -> list[RawProblem]:
    """Draw different problems from each template in turn; `people` selects a split.

    Raise ValueError if a template is malformed, or if the split has no templates.
    """
    templates = [
        template for template in load_templates(path) if people in ("all", split_of(template.name))
    ]
    if not templates:
        raise ValueError(f"data {str(path)!r} has no templates for split={people!r}; add templates")
    problems: dict[str, RawProblem] = {}
    for number in range(count):
        template = templates[number % len(templates)]
        for again in range(_REDRAWS):
            problem = template.draw(number, Random(f"{seed}:{template.name}:{number}:{again}"))
            if problem.text not in problems:
                problems[problem.text] = problem
                break
    return list(problems.values())


def publish(problems: Sequence[RawProblem], seed: int = 0) -> tuple[list[Document], list[Task]]:
    """Convert problems to tasks and documents.

    Problems that share a person or a template get different months, which the questions state. A
    problem gets no documents if searching cannot solve it, or if it fails a check in `vetting`.
    """
    while True:
        documents, tasks = _write(problems, seed)
        reasons = vet(problems, documents, tasks)
        if not reasons:
            return documents, tasks
        # Start again without the failed tasks, because searches must not find their documents.
        problems = [
            replace(problem, unclear=reasons.get(problem.id, problem.unclear))
            for problem in problems
        ]


def _write(problems: Sequence[RawProblem], seed: int) -> tuple[list[Document], list[Task]]:
    names = [frozenset((*problem.names, problem.id.partition("#")[0])) for problem in problems]
    shared = Counter(chain.from_iterable(names))
    months = _choose_months(names, seed)
    rng = Random(seed)
    numbers = list(range(sum(len(problem.premises) for problem in problems)))
    # Ids must not reveal the task.
    rng.shuffle(numbers)
    documents: list[Document] = []
    tasks: list[Task] = []
    places: list[list[str]] = []
    for problem, some, stamp in zip(problems, names, months, strict=True):
        unclear = problem.unclear
        if not unclear and not stamp:
            unclear = "too many other tasks are about the same"
        texts = () if unclear else problem.documents or problem.premises
        own = [_write_note(f"note_{numbers.pop():05d}", text, stamp, problem) for text in texts]
        question = " ".join(problem.question.split())
        if texts and any(shared[name] > 1 for name in some):
            heading = [month_name(stamp)]
            if problem.exact:
                heading = [*problem.names, *heading]
            question = f"{', '.join(heading)}: {question}"
        documents += own
        places.append([document.id for document in own])
        premises = problem.premises if texts else (problem.text,)
        tasks.append(Task(problem.id, question, problem.answer, (), premises, unclear))
    documents.sort(key=lambda document: document.id)
    place = places_of(documents)
    for number, ids in enumerate(places):
        tasks[number] = replace(tasks[number], documents=tuple(place[each] for each in ids))
    return documents, tasks


def _choose_months(names: Sequence[frozenset[str]], seed: int) -> list[str]:
    months = shuffled_months(seed + 1)
    taken = defaultdict[str, set[str]](set)
    chosen = []
    for some in names:
        used = set().union(*(taken[name] for name in some))
        free = next((month for month in months if month not in used), "")
        chosen.append(free)
        for name in some:
            taken[name].add(free)
    return chosen


def _write_note(name: str, text: str, stamp: str, problem: RawProblem) -> Document:
    # A document without names is about the main person, as in the paper.
    people = [each for each in problem.names if each in text] or list(problem.names[:1])
    return Document(name, f"Note, {month_name(stamp)}\n{text}", stamp, ", ".join(people), "note")


def as_folder(problems: Sequence[RawProblem], folder: Path) -> None:
    """Write problems to a folder in the format of `load_folder`."""
    documents, tasks = publish(problems)
    task_records, document_records = [], []
    for task in tasks:
        names = [documents[place].id for place in task.documents]
        task_records.append({**asdict(task), "documents": names})
    for document in documents:
        metadata = asdict(document)
        record = {"id": metadata.pop("id"), "content": metadata.pop("content")}
        document_records.append({**record, "metadata": metadata})
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder / "tasks.jsonl", task_records)
    write_records(folder / "documents.jsonl", document_records)


def load_folder(folder: Path) -> tuple[list[Document], list[Task]]:
    """Load a folder of tasks and documents.

    The folder contains `tasks.jsonl` (id, question, answer, ids of the documents) and
    `documents.jsonl` (id, content, and metadata with timestamp, name and type). If searching cannot
    solve a task, `static_only` contains the reason; such a task may have `premises` instead of
    documents.

    A ValueError lists all missing or mistyped fields, duplicate or dangling ids, and answers that
    are not numbers.
    """
    mistakes: list[str] = []
    # The file of documents may be empty if searching cannot solve any task.
    records = read_records(folder / "documents.jsonl", mistakes, may_be_empty=True)
    documents = sorted(map(_read_document, records), key=lambda document: document.id)
    _check_ids("documents.jsonl", documents, mistakes)
    place = places_of(documents)
    tasks = [_read_task(record, place) for record in read_records(folder / "tasks.jsonl", mistakes)]
    _check_ids("tasks.jsonl", tasks, mistakes)
    raise_any(folder, mistakes)
    return documents, tasks


def _check_ids(file: str, items: Sequence[Document | Task], mistakes: list[str]) -> None:
    for name, count in Counter(item.id for item in items).items():
        if count > 1 and name:
            mistakes.append(f"{file}, field id: expected unique ids, {name!r} occurs {count} times")


def _read_document(record: InputRecord) -> Document:
    about: Any = record.fields.get("metadata") or {}
    if not isinstance(about, dict):
        record.refuse("metadata", "an object")
        about = {}
    metadata = (str(about.get(key, "")) for key in ("timestamp", "name", "type"))
    return Document(record.name("id"), record.text("content"), *metadata)


def _read_task(record: InputRecord, place: Mapping[str, int]) -> Task:
    answer = record.fields.get("answer")
    if isinstance(answer, bool) or parse_number(str(answer)) is None:
        record.refuse("answer", "a number")
    static: Any = record.fields.get("static_only", "")
    if not isinstance(static, bool | str):
        record.refuse("static_only", "True, False or a reason")
    if static is True:
        static = "its documents make no sense individually"
    premises = record.texts("premises")
    own = record.texts("documents", required=True)
    if not own and not (static and premises):
        record.refuse("documents", "at least one id")
    if missing := [name for name in own if name not in place]:
        record.refuse("documents", f"ids in documents.jsonl, and not {missing[0]!r}")
    return Task(
        record.name("id"),
        record.text("question"),
        str(answer),
        tuple(place[name] for name in own if name in place),
        premises,
        static or "",
    )
