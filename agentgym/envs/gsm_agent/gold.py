"""Optimal play for questions that cannot be parsed, given the required documents and the answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.envs.gsm_agent.database import Database
from agentgym.envs.gsm_agent.documents import Task, month_name
from agentgym.envs.gsm_agent.knowledge import MAX_QUERY_CHARS, PAGE, PAGES, GoldKnowledge
from agentgym.envs.gsm_agent.narration import NUMBER_WORDS
from agentgym.text.messages import ToolCall

_DIGIT = re.compile(r"[0-9]")


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
