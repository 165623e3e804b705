"""Knowledge of an agent that has read the shown texts, and its next searches; nothing here is
hidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agentgym.envs.gsm_agent.documents import month_name
from agentgym.envs.gsm_agent.facts import Fact, Quantity, open_quantities, read_facts
from agentgym.envs.gsm_agent.problems import Question, read_question
from agentgym.messages import ToolCall

PAGES = 20
"""Pages of results that a search may show: the first, and 19 more (Zhu et al., section 3.1)."""
DEPTHS = (1, 4, PAGES)
"""Pages of each query for a quantity to read before the next depth: most documents are on the first
page, so all queries are tried before any is followed further.
"""

_SHOWN = re.compile(
    r"^\[(?P<id>[^\]\n]+)\] date: (?P<date>[^;\n]*); name: (?P<name>[^;\n]*); type: [^\n]*\n",
    re.MULTILINE,
)
_KNOWN = re.compile(r"(?P<target>[^=]+) = (?P<terms>.+)")
_QUANTITY = re.compile(r"\[([^|\[\]]+) \| ([^\[\]]+)\]")
_NUMBER = re.compile(r"[0-9]+")
_FORMS = {
    "is": "{n}",
    "more": "{a} + {n}",
    "fewer": "{a} - {n}",
    "times": "{a} * {n}",
    "part": "{a} / {n}",
    "sum": "{a} + {b}",
    "minus": "{a} - {b}",
    "product": "{a} * {b}",
}
_SIGNS = {
    "+": ("more", "sum"),
    "-": ("fewer", "minus"),
    "*": ("times", "product"),
    "/": ("part", ""),
}


@dataclass
class SearchKnowledge:
    """Facts that were read, and queries that were made.

    Attributes:
        question: The question; None if the question is not one of the procedural ones.
        month: The month it is about; empty while unknown.
        facts: The facts in documents of that month, and of people whom the question or a fact names:
            two tasks of a month have nobody in common, so all this is about the question. In the
            order of reading.
        pages: The number of pages shown of the last query, and of each that asked for something
            that is still missing.
        last: The query of the last search.
        cursor: The number of its pages shown since it was made.
    """

    question: Question | None
    month: str = ""
    facts: dict[Quantity, Fact] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    last: str = ""
    cursor: int = 0

    @classmethod
    def of(cls, question: str) -> SearchKnowledge:
        """Return the knowledge from the question alone."""
        parts = read_question(question)
        return cls(*parts) if parts else cls(None)

    def add_page(self, query: str, page: int) -> None:
        """Record that a page of results was shown."""
        self.last, self.cursor = query, page
        self.pages[query] = max(page, self.pages.get(query, 0))

    def learn(self, shown: str) -> None:
        """Take in documents as a result shows them: their facts of the month of the question, about
        people who matter.
        """
        if self.question is None:
            return
        heads = list(_SHOWN.finditer(shown))
        people = {target.owner for target in self.question.targets}
        candidates: list[Fact] = []
        for head, after in zip(heads, [*heads[1:], None], strict=False):
            names, month = tuple(head["name"].split(", ")), month_name(head["date"])
            if not self.month and people & set(names):
                self.month = month
            if self.month == month:
                end = after.start() if after else len(shown)
                candidates += read_facts(shown[head.end() : end].rstrip(), names)
        people.update(owner for fact in self.facts.values() for owner in fact.owners)
        while fresh := [
            fact
            for fact in candidates
            if fact.target not in self.facts and fact.target.owner in people
        ]:
            for fact in fresh:
                self.facts.setdefault(fact.target, fact)
                people.update(fact.owners)
        open_queries = {query for quantity in self.missing() for query in self.queries(quantity)}
        self.pages = {
            query: count
            for query, count in self.pages.items()
            if query in open_queries or query == self.last
        }

    def answer(self) -> str | None:
        """Return the answer, once it follows from what was read."""
        value = self.question.answer(self.facts) if self.question else None
        return None if value is None else str(value)

    def missing(self) -> list[Quantity]:
        """List the quantities that the answer depends on and that are not known yet."""
        return open_quantities(self.facts, self.question.targets) if self.question else []

    def queries(self, quantity: Quantity) -> tuple[str, ...]:
        """Return queries for a quantity: with the person; without, as a document may leave the name
        out; the month once.

        In BM25, a month that occurs twice weighs as much as a phrase that a document repeats.
        """
        month = f"{self.month} {self.month}".strip()
        wordings = (
            (quantity.phrase, quantity.owner, month),
            (quantity.phrase, month),
            (quantity.phrase, self.month),
        )
        return tuple(dict.fromkeys(" ".join(filter(None, words)) for words in wordings))

    def next_call(self, quantity: Quantity) -> ToolCall | None:
        """Return the next search for a quantity: the first page of each query, then more of each.

        None once all were shown.
        """
        for depth in DEPTHS:
            for query in self.queries(quantity):
                shown = self.pages.get(query, 0)
                if shown == 0:
                    return ToolCall("search", {"query": query})
                if shown < depth:
                    # Only the last search can show its next page; any other one starts again at its
                    # first page.
                    if self.last == query:
                        return ToolCall("next_page", {})
                    return ToolCall("search", {"query": query})
        return None

    def useful(self) -> list[ToolCall]:
        """List the next search for each missing quantity, without duplicates."""
        calls: list[ToolCall] = []
        for quantity in self.missing():
            call = self.next_call(quantity)
            if call is not None and call not in calls:
                calls.append(call)
        return calls

    def lines(self) -> Iterator[str]:
        """Write the knowledge in words; `from_lines` reads it."""
        yield f"Month: {self.month or 'not known'}"
        for target, fact in self.facts.items():
            first, last, *_ = [*map(_write, fact.sources), "", ""]
            terms = _FORMS[fact.kind].format(n=fact.number, a=first, b=last)
            yield f"{_write(target)} = {terms}"
        missing = ", ".join(map(_write, self.missing()))
        yield f"Still missing: {missing or 'nothing'}"
        yield from self.search_lines()

    def search_lines(self) -> Iterator[str]:
        """Write the searches in words; `read_searches` reads them."""
        yield f"Pages of results seen: {json.dumps(self.pages, ensure_ascii=False)}"
        yield f"Looked up last: {json.dumps([self.last, self.cursor], ensure_ascii=False)}"

    @classmethod
    def from_lines(cls, question: Question | None, lines: Sequence[str]) -> SearchKnowledge:
        """Read the text of `lines`.

        Raises:
            ValueError: The text is something else.
        """
        if len(lines) < 4:
            raise ValueError(f"this is not what a searcher knows: {list(lines)!r}")
        first, *facts, _, pages, last = lines
        month = first.removeprefix("Month: ")
        known = cls(question, "" if month == "not known" else month)
        known.facts = dict(map(_read, facts))
        known.read_searches(pages, last)
        return known

    def read_searches(self, pages: str, last: str) -> None:
        """Read the text of `search_lines`.

        Raises:
            ValueError: The text is something else.
        """
        try:
            self.pages = dict(json.loads(pages.partition(": ")[2]))
            self.last, self.cursor = json.loads(last.partition(": ")[2])
        except (ValueError, TypeError) as error:
            raise ValueError(f"this is not what a searcher knows: {error}") from error


def _write(quantity: Quantity) -> str:
    return f"[{quantity.owner} | {quantity.phrase}]"


def _read(line: str) -> tuple[Quantity, Fact]:
    match = _KNOWN.fullmatch(line)
    if match is None:
        raise ValueError(f"this is no known fact: {line[:100]!r}")
    (target,) = (Quantity(*pair) for pair in _QUANTITY.findall(match["target"]))
    sources = tuple(Quantity(*pair) for pair in _QUANTITY.findall(match["terms"]))
    terms = _QUANTITY.sub("", match["terms"])
    number, sign = _NUMBER.search(terms), terms.strip(" 0123456789")
    kind = "is" if not sources else _SIGNS[sign][number is None]
    return target, Fact(target, kind, int(number[0]) if number else None, sources)
