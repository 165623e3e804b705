"""Knowledge about tasks whose questions cannot be read: it comes from their documents, which the
data names.

Which documents belong to a task is hidden from the agent, so what is said of them here is for
oracles and labels; it names only documents that were shown, and how many are missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.envs.gsm_agent.knowledge import SearchKnowledge
from agentgym.messages import ToolCall

_MISSING = re.compile(r"Still missing: (?:(nothing)|(not known)|([0-9]+) documents?)")
_READ = "Document of the task that was read: "


@dataclass
class GoldKnowledge(SearchKnowledge):
    """Documents of the task that were shown, and queries that were made.

    Attributes:
        texts: The documents of the task that were shown, as results show them.
        missing_count: The number of the others; None in a world that was read from a chat, which
            does not know them.
        solution: The answer of the data; empty where it is not known.
    """

    texts: tuple[str, ...] = ()
    missing_count: int | None = None
    solution: str = ""

    def record(self, texts: Sequence[str], missing_count: int) -> None:
        """Record the documents of the task that were shown so far."""
        self.texts, self.missing_count = tuple(texts), missing_count

    def learn(self, shown: str) -> None:
        """Take nothing from a text: which documents matter cannot be read from it."""

    def answer(self) -> str | None:
        """Return the answer, once all documents of the task were shown."""
        return (self.solution or None) if self.missing_count == 0 else None

    def lines(self) -> Iterator[str]:
        """Write the knowledge in words; `read_lines` reads it."""
        yield from (f"{_READ}{json.dumps(text, ensure_ascii=False)}" for text in self.texts)
        count = self.missing_count
        plural = "" if count == 1 else "s"
        missing = {None: "not known", 0: "nothing"}.get(count, f"{count} document{plural}")
        yield f"Still missing: {missing}"
        yield from self.search_lines()

    @classmethod
    def read_lines(cls, lines: Sequence[str]) -> GoldKnowledge:
        """Read the text of `lines`.

        Raises:
            ValueError: The text is something else.
        """
        *texts, missing, pages, last = ["", "", "", *lines]
        match = _MISSING.fullmatch(missing)
        texts = texts[3:]
        if match is None or not all(text.startswith(_READ) for text in texts):
            raise ValueError(f"this is not what a searcher knows: {list(lines)!r}")
        known = cls(None, texts=tuple(json.loads(text.removeprefix(_READ)) for text in texts))
        known.missing_count = None if match[2] else int(match[3] or 0)
        known.read_searches(pages, last)
        return known


class ProductiveSearches(Sequence[ToolCall]):
    """Set of the searches that show a document of the task that was not shown yet.

    Membership carries the search out; iteration yields a search for each missing document, by its
    own text, which only one who knows the documents can make.

    Args:
        first_page: Returns the documents on the first page for a query.
        next_page: The documents on the next page of the last search.
        missing: The documents that are missing, by place.
        text_of: Returns the text of a document.
    """

    def __init__(
        self,
        first_page: Callable[[str], Collection[int]],
        next_page: Collection[int],
        missing: Collection[int],
        text_of: Callable[[int], str],
    ) -> None:
        self._first_page, self._next_page = first_page, next_page
        self._missing, self._text_of = sorted(missing), text_of

    def __contains__(self, call: object) -> bool:
        if not isinstance(call, ToolCall):
            return False
        query = call.arguments.get("query")
        if call.name == "next_page":
            return not set(self._missing).isdisjoint(self._next_page)
        return isinstance(query, str) and not set(self._missing).isdisjoint(self._first_page(query))

    def __iter__(self) -> Iterator[ToolCall]:
        return (ToolCall("search", {"query": self._text_of(place)}) for place in self._missing)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __len__(self) -> int:
        return len(self._missing)
