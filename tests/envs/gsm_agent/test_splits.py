from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentgym.envs.gsm_agent.database as drawing
from agentgym import make, tool_env
from agentgym.envs.gsm_agent.documents import Document
from agentgym.envs.gsm_agent.search_world import SearchWorld
from agentgym.envs.gsm_agent.vocabulary import FIRST_NAMES, LAST_NAMES
from agentgym.world.splits import SplitName, split_of

INSTANCES = 200
NAME = re.compile(rf"\b(?:{'|'.join(FIRST_NAMES)}) (?:{'|'.join(LAST_NAMES)})\b")
SPLITS: tuple[SplitName, ...] = ("train", "test")


def worlds_of(split: str, **options: Any) -> Iterator[SearchWorld]:
    env = make("SearchWorld", split=split, **options)
    for seed in range(INSTANCES):
        env.reset(seed=seed)
        world = tool_env(env).world
        assert isinstance(world, SearchWorld)
        yield world


def people_in(world: SearchWorld, documents: Iterable[Document]) -> set[str]:
    texts = [world.problem.question, *(document.show() for document in documents)]
    return set(NAME.findall("\n".join(texts)))


def people_of_task(world: SearchWorld) -> set[str]:
    return people_in(world, (world.database.documents[k] for k in world.problem.documents))


@pytest.mark.rotation
@pytest.mark.parametrize("options", [{}, {"tasks": 100, "decoys": 3, "distractors": 1.0}], ids=str)
def test_no_person_of_a_test_instance_is_one_of_training(options: dict[str, Any]) -> None:
    people: dict[str, set[str]] = {split: set() for split in SPLITS}
    for split, seeds in (("train", (0, 1)), ("test", (0, 2))):
        for database_seed in seeds:
            drawn = list(worlds_of(split, **options, database_seed=database_seed))
            people[split] |= people_in(drawn[0], drawn[0].database.documents)
            assert set().union(*map(people_of_task, drawn)) <= people[split]
            assert len({world.instance_key() for world in drawn}) > INSTANCES / 4
    assert len(people["test"]) > 30
    assert not people["train"] & people["test"]


def test_a_test_problem_is_no_training_problem_with_other_names() -> None:
    """The question and answer of a task with several premises occur in only one split."""
    stories: dict[str, set[str]] = {split: set() for split in SPLITS}
    for split in SPLITS:
        for world in worlds_of(split):
            if len(world.problem.documents) > 2:
                question = re.sub(r" in [A-Z][a-z]+ \d{4}", "", world.problem.question)
                stories[split].add(f"{NAME.sub('N', question)} {world.problem.answer}")
    assert min(map(len, stories.values())) > INSTANCES / 4
    assert not stories["train"] & stories["test"]


def test_a_split_needs_names_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    make("SearchWorld", split="test", people="test", tasks=200)
    with pytest.raises(ValueError, match="split='test' sets the people, so omit people='train'"):
        make("SearchWorld", split="test", people="train")
    with pytest.raises(
        ValueError, match=r"tasks=20000 with people='test' needs 3333 names, .* has only 1309"
    ):
        make("SearchWorld", split="test", tasks=20_000)
    monkeypatch.setattr(drawing, "FIRST_NAMES", ("Adela", "Bruno"))
    monkeypatch.setattr(drawing, "LAST_NAMES", ("Marsh", "Novak"))
    for split in SPLITS:
        with pytest.raises(ValueError, match=rf"with people='{split}' needs 26 names"):
            make("SearchWorld", split=split, tasks=160)


def write_folder(folder: Path, tasks: int, names: Any) -> str:
    rows, documents = [], []
    for k in range(tasks):
        ids = [f"d{k}-{n}" for n in range(2)]
        for n, identity in enumerate(ids):
            about = {"name": names(k)[n]} if names(k)[n] else {}
            documents.append({"id": identity, "content": f"Note {k} {n}.", "metadata": about})
        rows.append({"id": f"t{k}", "question": f"What {k}?", "answer": str(k), "documents": ids})
    for name, records in (("tasks", rows), ("documents", documents)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return str(folder)


def test_tasks_of_a_folder_are_split_by_the_people_whom_documents_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, 300, lambda k: (f"Person {k % 90}", f"Person {k * 7 % 90}"))
    played = {split: list(worlds_of(split, data=folder)) for split in SPLITS}
    people = {
        split: {
            world.database.documents[place].name
            for world in worlds
            for place in world.problem.documents
        }
        for split, worlds in played.items()
    }
    assert not people["train"] & people["test"]
    assert min(map(len, people.values())) >= 4


def test_one_problem_with_two_casts_is_in_one_split(tmp_path: Path) -> None:
    folder = Path(write_folder(tmp_path, 600, lambda k: (f"Person {k}", "")))
    path = folder / "tasks.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:  # pairs of tasks with the same question and answer but different people
        row["question"], row["answer"] = f"What {int(row['answer']) // 2}?", "1"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    keys = {s: {w.instance_key() for w in worlds_of(s, data=str(folder))} for s in SPLITS}
    assert not keys["train"] & keys["test"]
    assert all(keys.values())


def test_where_documents_name_nobody_the_problem_decides(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, 200, lambda k: ("", ""))
    for split in SPLITS:
        assert all(split_of(w.instance_key()) == split for w in worlds_of(split, data=folder))
