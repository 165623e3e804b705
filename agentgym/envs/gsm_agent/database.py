"""Databases with the documents of all tasks and a search index.

Worlds in the same process share databases. Each task is determined by its number and the seed.
Graph colouring assigns different months to tasks that share a person (Zhu et al., appendix B.1).
The medium database contains the small database, and the full database contains both.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, product
from math import ceil
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from agentgym.envs.gsm_agent.documents import Document, Task, month_name, places_of, shuffled_months
from agentgym.envs.gsm_agent.facts import owners_of
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
# A database with more tasks would not fit into memory.
MAX_TASKS = 1_000_000
_TASKS_PER_PERSON = 6  # a person's name must not identify a task
_FEWEST_PEOPLE = 12
# These offsets to the task seeds give each split different problems.
_SALTS = {"all": 0, "train": 1 << 64, "test": 2 << 64}
_TYPE = re.compile("[^a-z]+")


@dataclass(frozen=True, kw_only=True)
class DatabaseOptions(ProblemOptions):
    """Options of the database.

    Attributes:
        tasks: The number of tasks in the full database; a task has 4.4 documents on average.
        size: The size of the database: `full`, `medium` (a quarter) or `small` (a sixteenth).
        distractors: The number of additional tasks per playable task. The additional tasks are not
            played, but their documents are in the database.
        decoys: The number of additional problems per task about the same people in the same month,
            so that names and dates do not reveal which documents matter.
        near_duplicates: The share of documents for which there is also an outdated version with a
            different number and the same month. If the question states the month, up to half of
            these documents also have a version with a different number and a different month.
        anonymised: The share of single-person documents in which `I` or a role replaces the name.
        search_by: The search method: `words` for BM25, or the embedding function `wordllama` or
            `package.module:function`.
        database_seed: The seed of the database.
        people: Which names to use: `all`, `train` or `test`; the `split` argument sets this option.
        data: The path of a file or folder with tasks to use instead of generated tasks, in a format
            supported by `loaders.load_data`. A GSM8K dataset is saved to disk and replaced by its
            path.
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
    """The documents (sorted by id) and tasks of a database, with a search index."""

    def __init__(
        self, documents: Sequence[Document], tasks: Sequence[Task], index: Lexical | Dense
    ) -> None:
        self.documents, self.tasks, self.index = documents, tasks, index

    @classmethod
    def of(cls, documents: Sequence[Document], tasks: Sequence[Task], search_by: str) -> Database:
        # Static tasks may lack documents, but the index must not be empty.
        texts = [document.content for document in documents] or ["none"]
        if search_by == "words":
            return cls(documents, tasks, Lexical.of(texts))
        return cls(documents, tasks, Dense.of(texts, load_embed(search_by)))

    @cached_property
    def searchable(self) -> list[int]:
        """Indices of the tasks that searching can solve; raise ValueError if there are none."""
        places = [place for place, task in enumerate(self.tasks) if not task.static_only]
        if not places:
            raise ValueError(
                f"searching cannot solve any of {len(self.tasks)} tasks "
                f"({next(iter(self.rejected.values()))}); use setting='static', or decompose the "
                "tasks with agentgym decompose"
            )
        return places

    @cached_property
    def rejected(self) -> dict[str, str]:
        """Ids of the tasks that searching cannot solve, with the reasons."""
        return {task.id: task.static_only for task in self.tasks if task.static_only}

    def people_of(self, task: Task) -> frozenset[str]:
        """Return the people in all tasks that have the same question and answer as this task."""
        return self._casts[task.question, task.answer]

    @cached_property
    def _casts(self) -> dict[tuple[str, str], frozenset[str]]:
        casts: dict[tuple[str, str], frozenset[str]] = {}
        for task in self.tasks:
            names = ",".join(self.documents[place].name for place in task.documents)
            people = set(map(str.strip, names.split(",")))
            # Tasks that differ only in their id must be in the same split.
            key = task.question, task.answer
            casts[key] = casts.get(key, frozenset()) | (people - {""})
        return casts


def colour(casts: Sequence[Sequence[str]]) -> list[int]:
    """Colour tasks so that no two tasks of the same colour share a person (Welsh and Powell)."""
    tasks_of = defaultdict[str, set[int]](set)
    for number, cast in enumerate(casts):
        for person in cast:
            tasks_of[person].add(number)
    degree = [len(set().union(*(tasks_of[person] for person in cast))) for cast in casts]
    colours_of = defaultdict[str, set[int]](set)
    colours = [0] * len(casts)
    for number in sorted(range(len(casts)), key=lambda n: (-degree[n], n)):
        used = set().union(*(colours_of[person] for person in casts[number]))
        colours[number] = min({*range(len(used) + 1)} - used)
        for person in casts[number]:
            colours_of[person].add(colours[number])
    return colours


@dataclass(frozen=True, slots=True)
class TaskPool:
    """All tasks with their documents and decoys; the playable tasks come first."""

    tasks: tuple[Task, ...]
    documents: tuple[tuple[Document, ...], ...]
    decoys: tuple[tuple[Document, ...], ...]
    playable: int

    def part(self, one_in: int, seed: int) -> tuple[list[Document], list[Task]]:
        """Draw one in `one_in` tasks; return their documents and the playable tasks."""
        numbers = []
        for group in (range(self.playable), range(self.playable, len(self.tasks))):
            order = list(group)
            Random(seed).shuffle(order)
            # Taking prefixes of one shuffle makes smaller databases subsets of larger ones.
            numbers += sorted(order[: ceil(len(order) / one_in)])
        documents: list[Document] = []
        for number in numbers:
            documents += chain(self.documents[number], self.decoys[number])
        documents.sort(key=lambda document: document.id)
        place = places_of(documents)
        tasks = []
        for number in numbers:
            if number < self.playable:
                own = tuple(place[document.id] for document in self.documents[number])
                tasks.append(replace(self.tasks[number], documents=own))
        return documents, tasks


def draw_tasks(options: DatabaseOptions) -> TaskPool:
    """Draw all tasks of the full database; raise ValueError if months or names run out."""
    seed, total = options.database_seed, _task_count(options)
    people = draw_people(options)
    rngs = [Random(_SALTS[options.people] | seed << 32 | number) for number in range(total)]
    problems = [draw_problem(rng, people, options) for rng in rngs]
    casts = [owners_of(problem.facts.values()) for problem in problems]
    shared = Counter(chain.from_iterable(casts))
    colours = colour(casts)
    stamps = shuffled_months(seed + 1)
    if max(colours) >= len(stamps):
        raise ValueError(
            f"tasks={total} needs {max(colours) + 1} different months, but there are "
            f"only {len(stamps)}; reduce tasks"
        )
    spare = tuple(stamps[max(colours) + 1 :])
    writer = Writer(options.near_duplicates, options.anonymised, spare)
    tasks, documents, decoys = [], [], []
    for number, (problem, rng) in enumerate(zip(problems, rngs, strict=True)):
        stamp = stamps[colours[number]]
        # If several tasks are about the same person, the month distinguishes the tasks.
        ambiguous = any(shared[person] > 1 for person in casts[number])
        month = month_name(stamp) if ambiguous else ""
        question = write_question(problem.question, month, rng)
        tasks.append(Task(f"gsm-{number:05d}", question, str(problem.answer)))
        apart = list(_draw_decoys(problem, casts[number], options, rng))
        told, others = writer.write(problem, stamp, bool(month), rng)
        for decoy in apart:
            others += chain(*writer.write(decoy, stamp, bool(month), rng))
        documents.append(told)
        decoys.append(others)
    written = _with_ids([*documents, *decoys], seed)
    return TaskPool(tuple(tasks), written[: len(tasks)], written[len(tasks) :], options.tasks)


def draw_people(options: DatabaseOptions) -> list[str]:
    """Draw the people of a database; raise ValueError if the split has too few names."""
    count = max(_FEWEST_PEOPLE, _task_count(options) // _TASKS_PER_PERSON)
    names = list(map(" ".join, product(FIRST_NAMES, LAST_NAMES)))
    if options.people != "all":
        names = [name for name in names if split_of(name) == options.people]
        if len(names) < count:
            raise ValueError(
                f"tasks={options.tasks} with people={options.people!r} needs {count} names, but "
                f"the split has only {len(names)}; reduce tasks or distractors"
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
        # Defining a quantity twice would make the question ambiguous.
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
    groups = []
    for some in documents:
        group = []
        for document in some:
            kind = _TYPE.sub("_", document.type)
            group.append(replace(document, id=f"{kind}_{next(left):0{width}d}"))
        groups.append(tuple(group))
    return tuple(groups)


_drawn = lru_cache(maxsize=2)(draw_tasks)


@lru_cache(maxsize=8)
def get_database(options: DatabaseOptions) -> Database:
    """Return the cached database for these options; raise ValueError if it cannot be built."""
    seed = options.database_seed
    if options.data:
        documents, tasks = load_data(Path(options.data), options.tasks, seed, options.people)
    else:
        # Ignore `size` and `search_by`, which do not affect the drawn tasks.
        drawn = _drawn(replace(options, size="full", search_by="words"))
        documents, tasks = drawn.part(SIZES[options.size], seed)
    return Database.of(documents, tasks, options.search_by)
