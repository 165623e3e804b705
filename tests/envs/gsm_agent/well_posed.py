"""Checks for faults in a database, and a searcher that knows only the search results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentgym.envs.gsm_agent.database import Database
from agentgym.envs.gsm_agent.documents import Document, Task, month_name
from agentgym.envs.gsm_agent.facts import Fact, Quantity
from agentgym.envs.gsm_agent.knowledge import SearchKnowledge
from agentgym.envs.gsm_agent.narration import NUMBER_WORDS, number_word, read_facts


def tasks_of(database: Database) -> Iterator[tuple[Task, list[Document]]]:
    for task in database.tasks:
        yield task, [database.documents[place] for place in task.documents]


def find_faults(database: Database) -> Iterator[str]:
    """Yield faults, such as ambiguous facts, leaked numbers and documents that no search finds."""
    yield from _faults_of_documents(database.documents)
    yield from _shared_months(database)
    for task, documents in tasks_of(database):
        yield from _leaks(task, documents)
        _, shown = search_alone(database, task.question)
        missing = {document.id for document in documents} - set(shown)
        if missing:
            yield f"{task.id}: searching does not find {sorted(missing)}"


def _facts_of(document: Document) -> tuple[Fact, ...]:
    return read_facts(document.content, tuple(document.name.split(", ")))


def _faults_of_documents(documents: Sequence[Document]) -> Iterator[str]:
    contents: dict[str, str] = {}
    defined: dict[tuple[str, Quantity], str] = {}
    last = ""
    for document in documents:
        if document.id <= last:
            yield f"{document.id} comes after {last}"
        last = document.id
        if contents.setdefault(document.content, document.id) != document.id:
            yield f"{document.id} has the content of another document"
        for fact in _facts_of(document):
            if defined.setdefault((document.timestamp, fact.target), document.id) != document.id:
                yield f"{document.id} defines {fact.target} a second time"


def _leaks(task: Task, documents: Sequence[Document]) -> Iterator[str]:
    own = []
    for document in documents:
        numeric = [fact for fact in _facts_of(document) if fact.number is not None]
        text = document.content.replace(month_name(document.timestamp), "")
        if len(numeric) != 1 or _numbers(text) != _numbers(number_word(numeric[0])):
            yield f"{document.id} contains the numbers {_numbers(text)} for {numeric}"
        own += [fact.number for fact in numeric]
    if len(set(own)) != len(own):
        yield f"{task.id}: its premises contain a number twice: {own}"


def _numbers(text: str) -> list[str]:
    return [*re.findall(r"[0-9]+", text), *NUMBER_WORDS.findall(text.lower())]


def _shared_months(database: Database) -> Iterator[str]:
    months: dict[str, dict[str, str]] = {}
    for task, documents in tasks_of(database):
        for person in {name for document in documents for name in document.name.split(", ")}:
            questions = months.setdefault(person, {})
            if documents[0].timestamp in questions:
                yield f"{task.id} shares {person} with another task of the same month"
            questions[documents[0].timestamp] = task.question
    for person, questions in months.items():
        for stamp, question in questions.items():
            if len(questions) > 1 and month_name(stamp) not in question:
                yield f"{person} is in several tasks, but {question!r} names no month"


def search_alone(database: Database, question: str) -> tuple[str | None, list[str]]:
    """Search like the scripted policy, and return the answer and the ids of the shown documents."""
    known = SearchKnowledge.of(question)
    shown: list[str] = []
    results: tuple[int, ...] = ()
    while known.answer() is None and (calls := known.useful()):
        if calls[0].name == "search":
            query = calls[0].arguments["query"]
            # The world shows at most 20 pages of five documents.
            results = database.index.best(query, 100)
            known.add_page(query, 1)
        else:
            known.add_page(known.last, known.cursor + 1)
        page = results[5 * (known.cursor - 1) : 5 * known.cursor]
        documents = [database.documents[place] for place in page]
        shown += [document.id for document in documents]
        known.learn("\n\n".join(document.show() for document in documents))
    return known.answer(), shown
