"""An agent's knowledge from search results, and useful next searches.

The knowledge about a generated question comes only from search results. Knowledge about other
questions is derived from the hidden list of documents, so only oracles and labels may use it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agentgym.envs.gsm_agent.documents import Task, month_name
from agentgym.envs.gsm_agent.facts import Fact, Quantity, open_quantities, owners_of
from agentgym.envs.gsm_agent.narration import read_facts
from agentgym.envs.gsm_agent.questions import Question, read_question
from agentgym.text.messages import ToolCall

PAGE = 5
"""Documents per page of results."""
# Ten times the length of a typical sentence, to limit the search time.
MAX_QUERY_CHARS = 2_000
PAGES = 20
"""Pages per search: the first and 19 more (Zhu et al., section 3.1)."""
# The maximum number of pages to read per query in each pass over the queries. The first pass reads
# only first pages, because most documents are on a first page.
DEPTHS = (1, 4, PAGES)

_SHOWN = re.compile(r"^\[[^\]\n]+\] date: ([^;\n]*); name: ([^;\n]*); type: [^\n]*\n", re.MULTILINE)
_MISSING = re.compile(r"Still missing: (?:(nothing)|(not known)|([0-9]+) documents?)")
_READ = "Document of the task that was read: "
_KNOWN = re.compile(r"(?P<target>[^=]+) = (?P<terms>.+)")
_QUANTITY = re.compile(r"\[([^|\[\]]+) \| ([^\[\]]+)\]")
_NUMBER = re.compile(r"[0-9]+")
_FORMS = {
    "is": "{n}",
    "more": "{a} + {n}",
    "fewer": "{a} - {n}",
    "times": "{a} * {n}",
    "part": "{a} / {n}",
    "rest": "{a} without a part in {n}",
    "percent": "{n}% of {a}",
    "raise": "{a} + {n}%",
    "cut": "{a} - {n}%",
    "sum": "{a} + {b}",
    "minus": "{a} - {b}",
    "product": "{a} * {b}",
    "quotient": "{a} / {b}",
    "around": "twice {a} + {b}",
    "convert": "{a} in the smaller unit",
}
_KINDS = {form.format(n="N", a="Q", b="Q"): kind for kind, form in _FORMS.items()}


@dataclass
class SearchKnowledge:
    """Past queries, and the facts parsed from search results.

    Attributes:
        question: The parsed question; None if agentgym did not generate it.
        month: The month of the question; an empty string if unknown.
        facts: The facts about the people in the task, from documents of the question's month. Tasks
            of the same month share no people, so each fact belongs to the task.
        pages: The number of pages shown for the last query and for each query about a missing
            quantity.
        cursor: The number of pages shown since the last query.
    """

    question: Question | None
    month: str = ""
    facts: dict[Quantity, Fact] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    last: str = ""
    cursor: int = 0

    @classmethod
    def of(cls, question: str) -> SearchKnowledge:
        return cls(*(read_question(question) or (None,)))

    def record(self, task: Task, shown: Sequence[str], missing_count: int) -> None:
        """Do nothing, because `learn` finds all facts in the search results."""

    def add_page(self, query: str, page: int) -> None:
        """Record that a page of results was shown."""
        self.last, self.cursor = query, page
        self.pages[query] = max(page, self.pages.get(query, 0))

    def learn(self, shown: str) -> None:
        """Add relevant facts from search results."""
        if self.question is None:
            return
        people = {target.owner for target in self.question.targets}
        candidates: list[Fact] = []
        _, *parts = _SHOWN.split(shown)
        for date, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            names, month = tuple(name.split(", ")), month_name(date)
            # A question without a month is about people who occur in no other task.
            if not self.month and people & set(names):
                self.month = month
            if self.month == month:
                candidates += read_facts(text.rstrip(), names)
        people.update(owners_of(self.facts.values()))
        # Search again, because a new fact may name another person.
        while fresh := [
            fact
            for fact in candidates
            if fact.target not in self.facts and fact.target.owner in people
        ]:
            for fact in fresh:
                self.facts.setdefault(fact.target, fact)
                people.update(fact.owners)
        # Drop queries for known quantities, to shorten the state.
        kept = {self.last}
        for quantity in self.missing():
            kept.update(self.queries(quantity))
        self.pages = {query: count for query, count in self.pages.items() if query in kept}

    def answer(self) -> str | None:
        """Return the answer if it follows from the facts."""
        if self.question is None:
            return None
        value = self.question.answer(self.facts)
        return None if value is None else str(value)

    def missing(self) -> list[Quantity]:
        """List the unknown quantities that the answer depends on."""
        if self.question is None:
            return []
        return open_quantities(self.facts, self.question.targets)

    def queries(self, quantity: Quantity) -> tuple[str, ...]:
        """Return search queries that may find a quantity, starting with the best query."""
        wordings = (
            (quantity.phrase, quantity.owner, self.month),
            # A document may omit the month or the name.
            (quantity.phrase, quantity.owner),
            (quantity.phrase, self.month),
        )
        return tuple(dict.fromkeys(" ".join(filter(None, words)) for words in wordings))

    def next_call(self, quantity: Quantity) -> ToolCall | None:
        """Return the next search for a quantity, or None if no searches are left."""
        for depth in DEPTHS:
            for query in self.queries(quantity):
                shown = self.pages.get(query, 0)
                if 0 < shown < depth and self.last == query:
                    return ToolCall("next_page", {})
                # `next_page` works only for the last search; other queries start again at page 1.
                if shown < depth:
                    return ToolCall("search", {"query": query})
        return None

    def useful(self) -> list[ToolCall]:
        """List the next search for each missing quantity."""
        calls: list[ToolCall] = []
        for call in map(self.next_call, self.missing()):
            if call is not None and call not in calls:
                calls.append(call)
        return calls

    def lines(self) -> Iterator[str]:
        """Format the knowledge for `from_lines`."""
        yield f"Month: {self.month or 'not known'}"
        for target, fact in self.facts.items():
            first, last, *_ = [*map(_write, fact.sources), "", ""]
            terms = _FORMS[fact.kind].format(n=fact.number, a=first, b=last)
            yield f"{_write(target)} = {terms}"
        yield f"Still missing: {', '.join(map(_write, self.missing())) or 'nothing'}"
        yield from self.search_lines()

    def search_lines(self) -> Iterator[str]:
        """Format the searches for `read_searches`."""
        yield f"Pages of results seen: {json.dumps(self.pages, ensure_ascii=False)}"
        yield f"Looked up last: {json.dumps([self.last, self.cursor], ensure_ascii=False)}"

    @classmethod
    def from_lines(cls, question: Question | None, lines: Sequence[str]) -> SearchKnowledge:
        """Parse the output of `lines`; raise ValueError for any other text."""
        if len(lines) < 4:
            raise ValueError(f"this is not a valid search state: {list(lines)!r}")
        first, *facts, _, pages, last = lines
        month = first.removeprefix("Month: ")
        known = cls(question)
        if month != "not known":
            known.month = month
        known.facts = dict(map(_read, facts))
        known.read_searches(pages, last)
        return known

    def read_searches(self, pages: str, last: str) -> None:
        """Parse `search_lines`."""
        try:
            self.pages = dict(json.loads(pages.partition(": ")[2]))
            self.last, self.cursor = json.loads(last.partition(": ")[2])
        except (ValueError, TypeError) as error:
            raise ValueError(f"this is not a valid search state: {error}") from error


@dataclass
class GoldKnowledge(SearchKnowledge):
    """Past queries, and the shown documents of the task.

    `missing_count` is None in a world rebuilt from a chat, and `solution` is empty if unknown.
    """

    texts: tuple[str, ...] = ()
    missing_count: int | None = None
    solution: str = ""

    def record(self, task: Task, shown: Sequence[str], missing_count: int) -> None:
        self.texts, self.missing_count = tuple(shown), missing_count
        self.solution = task.answer

    def learn(self, shown: str) -> None:
        """Do nothing, because search results do not reveal which documents the task requires."""

    def answer(self) -> str | None:
        if self.missing_count != 0:
            return None
        return self.solution or None

    def lines(self) -> Iterator[str]:
        for text in self.texts:
            yield f"{_READ}{json.dumps(text, ensure_ascii=False)}"
        count = self.missing_count
        few = {None: "not known", 0: "nothing", 1: "1 document"}
        yield f"Still missing: {few.get(count, f'{count} documents')}"
        yield from self.search_lines()

    @classmethod
    def from_lines(cls, question: Question | None, lines: Sequence[str]) -> GoldKnowledge:
        *texts, missing, pages, last = ["", "", "", *lines]
        match = _MISSING.fullmatch(missing)
        texts = texts[3:]
        if match is None or not all(text.startswith(_READ) for text in texts):
            raise ValueError(f"this is not a valid search state: {list(lines)!r}")
        known = cls(None, texts=tuple(json.loads(text.removeprefix(_READ)) for text in texts))
        if not match[2]:
            known.missing_count = int(match[3] or 0)
        known.read_searches(pages, last)
        return known


def knowledge_of(question: str) -> SearchKnowledge:
    """Return the initial knowledge about a question."""
    known = SearchKnowledge.of(question)
    return GoldKnowledge(None) if known.question is None else known


def _write(quantity: Quantity) -> str:
    return f"[{quantity.owner} | {quantity.phrase}]"


def _read(line: str) -> tuple[Quantity, Fact]:
    match = _KNOWN.fullmatch(line)
    if match is None:
        raise ValueError(f"this is not a fact: {line[:100]!r}")
    (target,) = (Quantity(*pair) for pair in _QUANTITY.findall(match["target"]))
    sources = tuple(Quantity(*pair) for pair in _QUANTITY.findall(match["terms"]))
    terms = _QUANTITY.sub("Q", match["terms"])
    number = _NUMBER.search(terms)
    kind = _KINDS.get(_NUMBER.sub("N", terms))
    if kind is None:
        raise ValueError(f"this is not a fact: {line[:100]!r}")
    return target, Fact(target, kind, int(number[0]) if number else None, sources)
