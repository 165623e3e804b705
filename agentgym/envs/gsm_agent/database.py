"""The database: all documents of all tasks with a search index, shared by the worlds of a process.

Each task is drawn from `(seed, number)`. Graph colouring gives tasks that share a person different
months (Zhu et al., appendix B.1). The small database is part of the medium and the full one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from math import ceil
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from agentgym.envs.gsm_agent.documents import Document, Task, month_name
from agentgym.envs.gsm_agent.loaders import load_data
from agentgym.envs.gsm_agent.problems import Problem, ProblemOptions, draw_problem
from agentgym.envs.gsm_agent.questions import write_question
from agentgym.envs.gsm_agent.user_data.records import keep_dataset
from agentgym.envs.gsm_agent.vocabulary import FIRST_NAMES, LAST_NAMES
from agentgym.envs.gsm_agent.writer import Writer
from agentgym.text.search import Dense, Lexical, load_embed
from agentgym.world.config import Choice, Share
from agentgym.world.splits import split_of

SIZES = {"full": 1, "medium": 4, "small": 16}
"""The paper's databases; each contains one in this many tasks of Full."""
# More tasks would not fit into memory.
MAX_TASKS = 1_000_000
FIRST_YEAR, YEARS = 1960, 60  # 720 months, enough colours for the largest database

_TASKS_PER_PERSON = 6  # several, so a name alone does not identify a task
_FEWEST_PEOPLE = 12  # otherwise all tasks of a small database would concern the same people
# These bits go above the seed and the task number. Without them, the splits' tasks would differ
# only in names.
_SALTS = {"all": 0, "train": 1 << 64, "test": 2 << 64}
_TYPE = re.compile("[^a-z]+")


@dataclass(frozen=True, kw_only=True)
class DatabaseOptions(ProblemOptions):
    """Options of the database.

    Attributes:
        tasks: The number of tasks in Full; a task has 4.4 documents on average.
        size: The part of Full in the database: `full`, `medium` (a quarter) or `small` (a
            sixteenth).
        distractors: The number of unasked tasks per asked task; their documents are in the database
            too.
        decoys: The number of unasked problems per task about the same people in the same month, so
            that names and dates do not reveal which documents matter.
        near_duplicates: The share of documents that correct an outdated document of the same month,
            which has a different number. Half of the corrections have a copy with another
            number in another month.
        anonymised: The share of documents about one person in which `I` or a role replaces the name.
        search_by: The search method: `words` (BM25), or vectors from `wordllama` or
            `package.module:function`.
        database_seed: The seed of the database, which depends only on these options.
        people: The names in use: `all`, or those of a split, which `split` selects automatically.
        data: The path of tasks that replace the drawn ones: GSM8K, templates, or a folder for
            `loaders.load_data`. A dataset of GSM8K becomes a path.
    """

    tasks: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1_000
    size: Annotated[str, Choice(SIZES)] = "full"
    distractors: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    decoys: Annotated[int, Field(ge=0, le=10)] = 1
    near_duplicates: Share = 0.2
    anonymised: Share = 0.3
    search_by: str = "words"
    database_seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    people: Literal["all", "train", "test"] = "all"
    data: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", keep_dataset(self.data))
        super().__post_init__()
        if self.search_by not in ("words", "wordllama") and ":" not in self.search_by:
            raise ValueError(
                "search_by must be words, wordllama or package.module:function, got "
                f"{self.search_by!r}"
            )


class Database:
    """Documents sorted by id, their tasks, and a search index."""

    def __init__(
        self, documents: Sequence[Document], tasks: Sequence[Task], index: Lexical | Dense
    ) -> None:
        self.documents, self.tasks, self.index = documents, tasks, index

    @classmethod
    def of(cls, documents: Sequence[Document], tasks: Sequence[Task], search_by: str) -> Database:
        # Static tasks need no documents, but the index must not be empty.
        texts = [document.content for document in documents] or ["none"]
        if search_by == "words":
            index: Lexical | Dense = Lexical.of(texts)
        else:
            index = Dense.of(texts, load_embed(search_by))
        return cls(documents, tasks, index)

    @cached_property
    def searchable(self) -> list[int]:
        """Indices of the tasks that searching can solve; raises ValueError if there are none."""
        places = [place for place, task in enumerate(self.tasks) if not task.static_only]
        if not places:
            raise ValueError(
                f"none of {len(self.tasks)} tasks can be searched for before a model has "
                f"decomposed it ({next(iter(self.rejected.values()))}); use setting='static' or "
                "agentgym decompose"
            )
        return places

    @cached_property
    def rejected(self) -> dict[str, str]:
        """Ids of the tasks that searching cannot solve, with the reasons."""
        return {task.id: task.static_only for task in self.tasks if task.static_only}

    def people_of(self, task: Task) -> frozenset[str]:
        """Return the people of all tasks with this task's question and answer."""
        return self._casts[task.question, task.answer]

    @cached_property
    def _casts(self) -> dict[tuple[str, str], frozenset[str]]:
        casts: dict[tuple[str, str], frozenset[str]] = {}
        for task in self.tasks:
            names = ",".join(self.documents[place].name for place in task.documents)
            people = {name.strip() for name in names.split(",")}
            # Tasks that differ only in id must share a split.
            key = task.question, task.answer
            casts[key] = casts.get(key, frozenset()) | (people - {""})
        return casts


def colour(casts: Sequence[Sequence[str]]) -> list[int]:
    """Colour tasks so that tasks with a common person differ (Welsh and Powell)."""
    tasks_of: dict[str, list[int]] = {}
    for number, cast in enumerate(casts):
        for person in cast:
            tasks_of.setdefault(person, []).append(number)
    degree = [len({other for person in cast for other in tasks_of[person]}) for cast in casts]
    colours_of: dict[str, set[int]] = {person: set() for person in tasks_of}
    colours = [0] * len(casts)
    for number in sorted(range(len(casts)), key=lambda n: (-degree[n], n)):
        used = set().union(*(colours_of[person] for person in casts[number]))
        colours[number] = next(c for c in range(len(used) + 1) if c not in used)
        for person in casts[number]:
            colours_of[person].add(colours[number])
    return colours


@dataclass(frozen=True, slots=True)
class TaskPool:
    """Tasks in drawing order, playable ones first, with their documents and decoys."""

    tasks: tuple[Task, ...]
    documents: tuple[tuple[Document, ...], ...]
    decoys: tuple[tuple[Document, ...], ...]
    playable: int

    def part(self, one_in: int, seed: int) -> tuple[list[Document], list[Task]]:
        """Return the documents, sorted by id, and the playable tasks of one task in `one_in`."""
        numbers = []
        for group in (range(self.playable), range(self.playable, len(self.tasks))):
            order = list(group)
            Random(seed).shuffle(order)
            # All parts are prefixes of one shuffle, so they are nested.
            numbers += sorted(order[: ceil(len(order) / one_in)])
        documents = [
            document
            for number in numbers
            for document in (*self.documents[number], *self.decoys[number])
        ]
        documents.sort(key=lambda document: document.id)
        place = {document.id: k for k, document in enumerate(documents)}
        tasks = [
            replace(
                self.tasks[number],
                documents=tuple(place[document.id] for document in self.documents[number]),
            )
            for number in numbers
            if number < self.playable
        ]
        return documents, tasks


def draw_tasks(options: DatabaseOptions) -> TaskPool:
    """Draw all tasks of Full; raise ValueError if there are too few months or names."""
    seed, total = options.database_seed, _task_count(options)
    people = draw_people(options)
    rngs = [Random(_SALTS[options.people] | seed << 32 | number) for number in range(total)]
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
    # Shuffle the months: otherwise the most frequent colours would be the earliest months.
    months = list(range(12 * YEARS))
    Random(seed + 1).shuffle(months)
    stamps = [f"{FIRST_YEAR + month // 12}-{month % 12 + 1:02d}" for month in months]
    spare = tuple(stamps[max(colours) + 1 :])
    writer = Writer(options.near_duplicates, options.anonymised, spare)
    tasks, documents, decoys = [], [], []
    for number, (problem, rng) in enumerate(zip(problems, rngs, strict=True)):
        stamp = stamps[colours[number]]
        # Without a month, a shared name would fit several tasks.
        ambiguous = any(shared[person] > 1 for person in casts[number])
        month = month_name(stamp) if ambiguous else ""
        question = write_question(problem.question, month, rng)
        tasks.append(Task(f"gsm-{number:05d}", question, str(problem.answer)))
        story = [problem, *_draw_decoys(problem, casts[number], options, rng)]
        (told, others), *apart = [writer.write(each, stamp, bool(month), rng) for each in story]
        documents.append(told)
        decoys.append([*others, *chain.from_iterable(chain(*pair) for pair in apart)])
    written = _with_ids([*documents, *decoys], seed)
    return TaskPool(tuple(tasks), written[: len(tasks)], written[len(tasks) :], options.tasks)


def draw_people(options: DatabaseOptions) -> list[str]:
    """Draw the people of a database or split; raise ValueError if it has too few names."""
    count = max(_FEWEST_PEOPLE, _task_count(options) // _TASKS_PER_PERSON)
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    if options.people != "all":
        names = [name for name in names if split_of(name) == options.people]
        if len(names) < count:
            raise ValueError(
                f"tasks={options.tasks} with people={options.people!r} needs {count} names, and "
                f"that split has {len(names)}; ask for fewer tasks or distractors"
            )
    Random(options.database_seed).shuffle(names)
    return names[:count]


def _task_count(options: DatabaseOptions) -> int:
    return options.tasks + round(options.distractors * options.tasks)


def _draw_decoys(
    problem: Problem, cast: Sequence[str], options: DatabaseOptions, rng: Random
) -> Iterator[Problem]:
    defined = set(problem.facts)
    for _ in range(options.decoys):
        decoy = draw_problem(rng, cast, options, several_searches=False)
        # A repeated definition would make the question ambiguous.
        while not defined.isdisjoint(decoy.facts):
            decoy = draw_problem(rng, cast, options, several_searches=False)
        defined |= decoy.facts.keys()
        yield decoy


def _with_ids(
    documents: Sequence[Sequence[Document]], seed: int
) -> tuple[tuple[Document, ...], ...]:
    numbers = list(range(sum(map(len, documents))))
    # Ids must not reveal the task.
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
def _drawn(options: DatabaseOptions) -> TaskPool:
    return draw_tasks(options)


@lru_cache(maxsize=8)
def get_database(options: DatabaseOptions) -> Database:
    """Return the database of these options, built once per process, or raise ValueError."""
    if options.data:
        return _open(options)
    # Neither `size` nor `search_by` affects the draw, so these variants share one.
    drawn = _drawn(replace(options, size="full", search_by="words"))
    return Database.of(*drawn.part(SIZES[options.size], options.database_seed), options.search_by)


def _open(options: DatabaseOptions) -> Database:
    documents, tasks = load_data(
        Path(options.data), options.tasks, options.database_seed, options.people
    )
    return Database.of(documents, tasks, options.search_by)
