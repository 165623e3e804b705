"""Optimal play for questions that cannot be parsed, given the required documents and the answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentgym.envs.gsm_agent.config import SearchConfig
from agentgym.envs.gsm_agent.database import Database, DatabaseOptions, get_database
from agentgym.envs.gsm_agent.documents import Document, Task, month_name
from agentgym.envs.gsm_agent.knowledge import (
    MAX_QUERY_CHARS,
    PAGE,
    PAGES,
    GoldKnowledge,
    SearchKnowledge,
)
from agentgym.envs.gsm_agent.narration import NUMBER_WORDS
from agentgym.text.messages import ToolCall

_DIGIT = re.compile(r"[0-9]")
# The tasks for each question, most recent first; data sets may share questions.
_played: dict[str, list[tuple[DatabaseOptions, Task]]] = {}


def remember(options: DatabaseOptions, task: Task) -> None:
    """Record a task, so that worlds rebuilt from a chat in this process can find the task.

    Scripted policies receive only the chat, which does not name the data set.
    """
    others = [each for each in _played.get(task.question, []) if each != (options, task)]
    _played[task.question] = [(options, task), *others]


class GoldPlay:
    """Mixin that tracks knowledge about a task whose question cannot be parsed."""

    config: SearchConfig
    known: SearchKnowledge
    problem: Task
    static: bool
    _missing: set[int]
    _results: tuple[int, ...]

    @property
    def database(self) -> Database:
        return get_database(self.config.database_options)

    def _shown_texts(self) -> list[str]:
        # Problems that could not be decomposed have no documents.
        if not self.problem.documents:
            return list(self.problem.premises)
        own = self.problem.documents
        return [
            self.database.documents[place].show() for place in own if place not in self._missing
        ]

    def _record(self) -> None:
        self.known.record(self.problem, self._shown_texts(), len(self._missing))

    def _recall(self, question: str, shown: str) -> None:
        if isinstance(self.known, GoldKnowledge) and question in _played:
            self._take(*_played[question][0])
            self._choose(shown)
            self._record()

    def _take(self, options: DatabaseOptions, problem: Task) -> None:
        self.config, self.problem = replace(self.config, **vars(options)), problem
        self._missing = set() if self.static else set(problem.documents)

    def _choose(self, shown: str) -> None:
        """Switch to the data set that contains the shown texts; data sets may share questions."""
        tasks = _played[self.problem.question]
        if not shown or len(tasks) == 1:
            return
        for options, problem in tasks:
            documents = get_database(options).documents
            texts: Iterable[str] = map(Document.show, documents)
            if self.static:
                texts = [documents[place].show() for place in problem.documents] or problem.premises
            if any(text in shown for text in texts):
                if (options, problem) != (self.config.database_options, self.problem):
                    self._take(options, problem)
                return

    def _see(self, text: str) -> None:
        if isinstance(self.known, GoldKnowledge) and hasattr(self, "problem"):
            self._choose(text)
            documents = self.database.documents
            # A context strategy may have truncated documents.
            self._missing = {each for each in self._missing if documents[each].show() not in text}
            self._results = self.database.index.best(self.known.last, PAGE * PAGES)
            self._record()

    def _see_state(self) -> None:
        if isinstance(self.known, GoldKnowledge) and hasattr(self, "problem"):
            self._missing = set(self.problem.documents)
            self._see("\n\n".join(self.known.texts))


@dataclass(frozen=True, eq=False, repr=False)  # a repr would list the whole database
class GoldSearches(Sequence[ToolCall]):
    """Searches that show or lead to a missing document of the task.

    Testing a call for membership runs its search. Iteration yields one call per missing document.
    The query is the text that shows the missing document on the earliest page: the
    question, a shown document, or the missing document itself, preferably without numbers.
    `following` contains the documents on the next page of the last search.
    """

    database: Database
    task: Task
    known: GoldKnowledge
    following: Collection[int]
    missing: Collection[int]

    def __contains__(self, call: object) -> bool:
        if not isinstance(call, ToolCall):
            return False
        query = call.arguments.get("query")
        page: Collection[int] = ()
        if call.name == "next_page":
            page = self.following
        elif isinstance(query, str) and query.strip():
            page = self.database.index.best(query, PAGE)
        return not set(self.missing).isdisjoint(page) or call in tuple(iter(self))

    def __iter__(self) -> Iterator[ToolCall]:
        for place in sorted(self.missing):
            ranks = self._ranks(place)
            if not ranks:
                continue
            query = min(ranks, key=lambda each: ranks[each] // PAGE)
            page = ranks[query] // PAGE
            if self.known.last == query and 0 < self.known.cursor <= page:
                yield ToolCall("next_page", {})
            else:
                yield ToolCall("search", {"query": query})

    def _ranks(self, place: int) -> dict[str, int]:
        ranks: dict[str, int] = {}
        for query in self._queries(place):
            found = self.database.index.best(query, PAGE * PAGES)
            if place in found:
                ranks[query] = found.index(place)
            if ranks.get(query, PAGE) < PAGE:
                break
        return ranks

    def _queries(self, place: int) -> Iterator[str]:
        documents = self.database.documents
        texts = [self.task.question]
        for each in self.task.documents:
            if each not in self.missing:
                texts.append(documents[each].content)
        missing = documents[place]
        month = month_name(missing.timestamp)
        words = missing.content.replace(month, "").split()
        plain = " ".join(word for word in words if not _DIGIT.search(word))
        texts += [f"{month} {NUMBER_WORDS.sub('', plain)}", missing.content]
        for text in texts:
            yield " ".join(text.split())[:MAX_QUERY_CHARS]

    def __getitem__(self, index: Any) -> Any:
        return tuple(iter(self))[index]

    def __len__(self) -> int:
        return len(tuple(iter(self)))
