"""The database: all documents of all tasks, with an index; one copy in a process, shared by all its
worlds.

Tasks are drawn one by one from `(seed, number)`; tasks that share a person are given different
months, by colouring (Zhu et al., appendix B.1). Medium and Small are a quarter and a sixteenth of
the tasks of Full, one within the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import ceil
from pathlib import Path
from random import Random
from typing import Annotated

import numpy as np
from pydantic import Field

from agentgym.config import Choice, Share
from agentgym.envs.gsm_agent.documents import Document, Shelf, Task, month_name, write_document
from agentgym.envs.gsm_agent.loaders import load_folder
from agentgym.envs.gsm_agent.problems import Problem, ProblemOptions, draw_problem, write_question
from agentgym.envs.gsm_agent.search import Dense, Index, Lexical, load_embed
from agentgym.envs.gsm_agent.vocabulary import FIRST_NAMES, LAST_NAMES, TOWNS

SIZES = {"full": 1, "medium": 4, "small": 16}
"""Which part of the tasks of Full a database holds."""
MAX_TASKS = 1_000_000
"""A database of more would not fit into memory."""
FIRST_YEAR, YEARS = 1960, 60

_TASKS_PER_PERSON = 6
_TYPE = re.compile("[^a-z]+")


@dataclass(frozen=True, kw_only=True)
class DatabaseOptions(ProblemOptions):
    """What the database holds.

    Attributes:
        tasks: The number of tasks in Full; a task has 4.4 documents on average.
        size: The part of them in the database: `full`, `medium` (a quarter) or `small` (a
            sixteenth).
        distractors: The number of tasks that are never asked, for each one that is; their documents
            are in the database too.
        anonymised: The share of the documents about one person in which a role stands for the name.
        search_by: How documents are found: `words` (BM25), or by vectors from `wordllama` or
            `package.module:function`.
        database_seed: The seed of the database, which depends on nothing but the options.
        data: A folder to use in place of drawn tasks: a saved database, or one as
            `loaders.load_folder` reads it.
    """

    tasks: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1_000
    size: Annotated[str, Choice(SIZES)] = "full"
    distractors: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    anonymised: Share = 0.3
    search_by: str = "words"
    database_seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    data: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search_by not in ("words", "wordllama") and ":" not in self.search_by:
            raise ValueError(
                "search_by must be words, wordllama or package.module:function, got "
                f"{self.search_by!r}"
            )


class Database:
    """Documents, the tasks they belong to, and an index.

    Args:
        documents: In the order of their ids.
        tasks: Those that are asked.
        index: Finds documents.
    """

    def __init__(self, documents: Shelf, tasks: Shelf, index: Index) -> None:
        self.documents, self.tasks, self.index = documents, tasks, index

    @classmethod
    def of(cls, documents: Sequence[Document], tasks: Sequence[Task], search_by: str) -> Database:
        """Build a database.

        Raises:
            ValueError: There is no task or no document.
        """
        if not documents or not tasks:
            raise ValueError(
                f"a database needs tasks and documents, got {len(tasks)} tasks and "
                f"{len(documents)} documents"
            )
        texts = [document.content for document in documents]
        index = (
            Lexical.of(texts) if search_by == "words" else Dense.of(texts, load_embed(search_by))
        )
        return cls(Shelf.of(documents), Shelf.of(tasks), index)

    @cached_property
    def searchable(self) -> list[int]:
        """The places of the tasks that can be played by searching.

        Raises:
            ValueError: There is none.
        """
        found = [
            number for number in range(len(self.tasks)) if not self.tasks.task(number).static_only
        ]
        if not found:
            raise ValueError(
                f"none of {len(self.tasks)} tasks can be searched for before a model has "
                "decomposed it; use setting='static'"
            )
        return found

    def save(self, folder: Path) -> None:
        """Write the database into a folder, from which `load` maps it into memory."""
        (folder / "index").mkdir(parents=True, exist_ok=True)
        for name, shelf in (("documents", self.documents), ("tasks", self.tasks)):
            np.save(folder / f"{name}.npy", shelf.block)
            np.save(folder / f"{name}.ends.npy", shelf.ends)
        self.index.save(folder / "index")

    @classmethod
    def load(cls, folder: Path, search_by: str = "words") -> Database:
        """Open a saved database: its files are mapped into memory, so that any number of processes
        hold them once.

        Raises:
            OSError: The folder holds none.
        """

        def shelf(name: str) -> Shelf:
            return Shelf(
                np.load(folder / f"{name}.npy", mmap_mode="r"),
                np.load(folder / f"{name}.ends.npy", mmap_mode="r"),
            )

        index = folder / "index"
        found = (
            Lexical.load(index)
            if search_by == "words"
            else Dense.load(index, load_embed(search_by))
        )
        return cls(shelf("documents"), shelf("tasks"), found)


def colour(casts: Sequence[Sequence[str]]) -> list[int]:
    """A colour for each task, so that tasks that share a person differ (Welsh and Powell: by
    falling degree, the first that fits).

    Args:
        casts: The people of each task.
    """
    tasks_of: dict[str, list[int]] = {}
    for number, cast in enumerate(casts):
        for person in cast:
            tasks_of.setdefault(person, []).append(number)
    degree = [len({other for person in cast for other in tasks_of[person]}) for cast in casts]
    taken: dict[str, set[int]] = {person: set() for person in tasks_of}
    colours = [0] * len(casts)
    for number in sorted(range(len(casts)), key=lambda n: (-degree[n], n)):
        used = set().union(*(taken[person] for person in casts[number]))
        colours[number] = next(c for c in range(len(used) + 1) if c not in used)
        for person in casts[number]:
            taken[person].add(colours[number])
    return colours


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tasks with the documents of each, in the order of drawing; those that are asked come
    first.
    """

    tasks: tuple[Task, ...]
    documents: tuple[tuple[Document, ...], ...]
    asked: int

    def part(self, one_in: int, seed: int) -> tuple[list[Document], list[Task]]:
        """The documents, by id, and the asked tasks of a part of the tasks; a smaller part lies
        within a larger.
        """
        chosen = []
        for group in (range(self.asked), range(self.asked, len(self.tasks))):
            order = list(group)
            Random(seed).shuffle(order)
            chosen += sorted(order[: ceil(len(order) / one_in)])
        documents = sorted(
            (document for number in chosen for document in self.documents[number]),
            key=lambda document: document.id,
        )
        place = {document.id: k for k, document in enumerate(documents)}
        tasks = [self.tasks[number] for number in chosen if number < self.asked]
        gold = [
            tuple(place[document.id] for document in self.documents[number])
            for number in chosen
            if number < self.asked
        ]
        return documents, [
            replace(task, documents=places) for task, places in zip(tasks, gold, strict=True)
        ]


def draw_tasks(options: DatabaseOptions) -> Drawn:
    """Draw all tasks of Full, with their documents.

    Raises:
        ValueError: There are more colours than months.
    """
    seed, total = options.database_seed, options.tasks + round(options.distractors * options.tasks)
    people = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    Random(seed).shuffle(people)
    people = people[: max(12, total // _TASKS_PER_PERSON)]
    rngs = [Random(seed << 32 | number) for number in range(total)]
    problems = [draw_problem(rng, people, options) for rng in rngs]
    casts = [
        list(dict.fromkeys(person for fact in problem.facts.values() for person in fact.owners))
        for problem in problems
    ]
    shared = Counter(person for cast in casts for person in cast)
    colours = colour(casts)
    if max(colours) >= 12 * YEARS:
        raise ValueError(
            f"tasks={total} need {max(colours) + 1} months to keep people apart, but there are "
            f"{12 * YEARS}; ask for fewer"
        )
    months = list(range(12 * YEARS))
    Random(seed + 1).shuffle(months)
    stamps = [f"{FIRST_YEAR + month // 12}-{month % 12 + 1:02d}" for month in months]
    tasks, documents = [], []
    for number, (problem, rng) in enumerate(zip(problems, rngs, strict=True)):
        stamp = stamps[colours[number]]
        told = any(shared[person] > 1 for person in casts[number])
        question = write_question(problem.question, month_name(stamp) if told else "", rng)
        tasks.append(Task(f"gsm-{number:05d}", question, str(problem.answer)))
        documents.append(_write(problem, stamp, options.anonymised, rng))
    return Drawn(tuple(tasks), _with_ids(documents, seed), options.tasks)


def _write(problem: Problem, stamp: str, anonymised: float, rng: Random) -> tuple[Document, ...]:
    town = rng.choice(TOWNS)
    return tuple(
        write_document(facts, stamp, town, rng.random() < anonymised, rng)
        for facts in problem.premises()
    )


def _with_ids(
    documents: Sequence[Sequence[Document]], seed: int
) -> tuple[tuple[Document, ...], ...]:
    """Ids that tell the kind of document, and a number that tells nothing."""
    numbers = list(range(sum(map(len, documents))))
    Random(seed + 2).shuffle(numbers)
    width, left = len(str(len(numbers))), iter(numbers)
    return tuple(
        tuple(
            replace(document, id=f"{_TYPE.sub('_', document.type)}_{next(left):0{width}d}")
            for document in some
        )
        for some in documents
    )


@lru_cache(maxsize=2)
def _drawn(options: DatabaseOptions) -> Drawn:
    return draw_tasks(options)


@lru_cache(maxsize=8)
def get_database(options: DatabaseOptions) -> Database:
    """The database of these options: built once in a process, and shared by its worlds and by
    processes forked from it.

    Raises:
        ValueError: Options or data are not right.
    """
    if options.data:
        return _open(Path(options.data), options.search_by)
    drawn = _drawn(replace(options, size="full", search_by="words"))
    return Database.of(*drawn.part(SIZES[options.size], options.database_seed), options.search_by)


def _open(folder: Path, search_by: str) -> Database:
    if (folder / "index").is_dir():
        return Database.load(folder, search_by)
    if not folder.is_dir():
        raise ValueError(
            f"data {str(folder)!r} is no folder; give one with tasks.jsonl and documents.jsonl, or "
            "a saved database"
        )
    return Database.of(*load_folder(folder), search_by)


__all__ = ["Database", "DatabaseOptions", "colour", "draw_tasks", "get_database"]
