"""Seven checks that tasks are well-posed. They read only the texts, as an agent does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from agentgym.envs.gsm_agent.database import Database
from agentgym.envs.gsm_agent.documents import Document, Task, month_name
from agentgym.envs.gsm_agent.facts import Fact, Quantity
from agentgym.envs.gsm_agent.knowledge import SearchKnowledge
from agentgym.envs.gsm_agent.narration import NUMBER_WORDS, number_word, read_facts
from agentgym.envs.gsm_agent.questions import read_question

Violations = Iterator[tuple[str, str]]
"""A task or document id, and a sentence."""


def facts_of(documents: Sequence[Document]) -> dict[Quantity, Fact]:
    """Parse the facts in documents, with omitted names from the metadata."""
    return {
        fact.target: fact
        for document in documents
        for fact in read_facts(document.content, tuple(document.name.split(", ")))
    }


def solve_from_text(task: Task, documents: Sequence[Document]) -> int | None:
    """Return the answer that follows from the question and documents, if any."""
    question = read_question(task.question)
    return question[0].answer(facts_of(documents)) if question else None


def solvable(database: Database) -> Violations:
    """Check 1: the question and documents determine the answer."""
    for task, documents in _tasks(database):
        value = solve_from_text(task, documents)
        if str(value) != task.answer:
            yield task.id, f"its documents give {value}, its answer is {task.answer}"


def necessary(database: Database) -> Violations:
    """Check 2: no task can be solved without all of its documents."""
    for task, documents in _tasks(database):
        for left_out in documents:
            others = [document for document in documents if document is not left_out]
            if solve_from_text(task, others) is not None:
                yield task.id, f"it can be solved without {left_out.id}"


def unambiguous(database: Database) -> Violations:
    """Check 3: no phrase about a person has two definitions in one month."""
    seen: dict[tuple[str, Quantity], str] = {}
    for document in database.documents:
        for target in facts_of([document]):
            first = seen.setdefault((document.timestamp, target), document.id)
            if first != document.id:
                what = f"{target.phrase!r} of {target.owner} in {document.timestamp}"
                yield document.id, f"it defines {what}, as {first} does"


def without_leaks(database: Database) -> Violations:
    """Check 4: a document contains no number but its premise's, and no task repeats one."""
    for task, documents in _tasks(database):
        own = []
        for document in documents:
            numeric = [fact for fact in facts_of([document]).values() if fact.number is not None]
            # The date contains a year.
            text = document.content.replace(month_name(document.timestamp), "")
            numbers = _numbers(text)
            expected = [number_word(fact) for fact in numeric]
            if len(numeric) != 1 or numbers != _numbers(expected[0]):
                yield (
                    document.id,
                    f"its premises tell {expected}, but it holds the numbers {numbers}",
                )
            own += [fact.number for fact in numeric if fact.number is not None]
        if len(set(own)) != len(own):
            yield task.id, f"its premises hold a number twice: {sorted(own)}"


def unique(database: Database) -> Violations:
    """Check 5: contents and ids are unique, and documents are sorted by id."""
    contents: dict[str, str] = {}
    last = ""
    for document in database.documents:
        if document.id <= last:
            yield document.id, f"it stands after {last}"
        last = document.id
        first = contents.setdefault(document.content, document.id)
        if first != document.id:
            yield document.id, f"its content is that of {first}"


def apart(database: Database) -> Violations:
    """Check 6: tasks that share a person never share a month, and they name their month."""
    tasks_of: dict[str, dict[str, str]] = {}
    questions = {}
    for task, documents in _tasks(database):
        questions[task.id] = task.question
        for person in {name for document in documents for name in document.name.split(", ")}:
            months = tasks_of.setdefault(person, {})
            if documents[0].timestamp in months:
                yield (
                    task.id,
                    f"{person} is in {months[documents[0].timestamp]} too, in the same month",
                )
            months[documents[0].timestamp] = task.id
    for person, months in tasks_of.items():
        for stamp, name in months.items():
            if len(months) > 1 and month_name(stamp) not in questions[name]:
                yield name, f"it shares {person} with another task, but its question tells no month"


def discoverable(database: Database) -> Violations:
    """Check 7: searches from the question on find all documents within 20 pages, and the answer."""
    for task, documents in _tasks(database):
        _, shown = search_alone(database, task.question)
        missing = {document.id for document in documents} - set(shown)
        if missing:
            yield task.id, f"searching does not find {sorted(missing)}"


def search_alone(
    database: Database, question: str, most: int = 400
) -> tuple[str | None, list[str]]:
    """Search as the scripted policy does; return the answer and all shown ids."""
    known = SearchKnowledge.of(question)
    shown: list[str] = []
    results: tuple[int, ...] = ()
    for _ in range(most):
        calls = known.useful()
        if known.answer() is not None or not calls:
            break
        if calls[0].name == "search":
            query = calls[0].arguments["query"]
            # The world's limits: 20 pages of five documents.
            results = database.index.best(query, 100)
            known.add_page(query, 1)
        else:
            known.add_page(known.last, known.cursor + 1)
        page = results[5 * (known.cursor - 1) : 5 * known.cursor]
        documents = [database.documents[place] for place in page]
        shown += [document.id for document in documents]
        known.learn("\n\n".join(document.show() for document in documents))
    return known.answer(), shown


CHECKS: Mapping[str, Callable[[Database], Violations]] = {
    check.__name__: check
    for check in (solvable, necessary, unambiguous, without_leaks, unique, apart, discoverable)
}


def _numbers(text: str) -> list[str]:
    return [*re.findall(r"[0-9]+", text), *NUMBER_WORDS.findall(text.lower())]


def _tasks(database: Database) -> Iterator[tuple[Task, list[Document]]]:
    for task in database.tasks:
        yield task, [database.documents[place] for place in task.documents]
