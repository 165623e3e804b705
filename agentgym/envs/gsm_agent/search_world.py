"""SearchWorld: a maths problem with its premises in a database (GSM-Agent, section 3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, ClassVar, Self

from agentgym.envs.gsm_agent.config import SearchConfig, options_for_turns
from agentgym.envs.gsm_agent.database import SIZES
from agentgym.envs.gsm_agent.gold import GoldPlay, GoldSearches, remember
from agentgym.envs.gsm_agent.knowledge import (
    MAX_QUERY_CHARS,
    PAGE,
    PAGES,
    GoldKnowledge,
    SearchKnowledge,
    knowledge_of,
)
from agentgym.envs.gsm_agent.numbers import MARK, parse_number
from agentgym.envs.gsm_agent.prompts import EXTRA_TOOLS, TOOL_SETS, AnswerTool, rules
from agentgym.envs.reading import expect
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, tool
from agentgym.text.validation import check_int
from agentgym.world.world import CallSet, SplitName, World

_TASK = re.compile(r"Question: (?P<question>[^\n]*)(?:\n(?P<documents>.*))?", re.DOTALL)
_BUDGET = "\nTurn budget: "
_ROUNDS = re.compile(r"^Search for at least ([0-9]+) turns before you answer\.$", re.MULTILINE)
_HEAD = re.compile(r'Page ([0-9]+) of [0-9]+ for (".*")$', re.MULTILINE)
_LEFT = re.compile(r"Turns spent looking: ([0-9]+)\nTurns left: (-?[0-9]+)")
_ANSWER, _LOST = "Give the answer.", "Nothing is left to search for."
_SEARCH = 'Search for "{}".'
_NEXT = "Turn to the next page of the last search."
_SEARCHES = ("search", "next_page", "explore", "revisit")


class SearchWorld(GoldPlay, World[SearchConfig]):
    """Answer a grade-school question whose premises are spread over a searchable database.

    Queries are free text, so optimal queries cannot be enumerated. Instead, `optimal_calls` returns
    the calls of a searcher that knows only the results so far: the next query or page for each
    missing quantity, then the answer. `label_calls` reports the effect of each search.
    """

    Config = SearchConfig
    prose_fails = False
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {"searcher": (), "writer": ("answer",)}
    labels_decide = False

    def __init__(self, config: SearchConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.max_calls = config.max_calls_per_turn
        self.known = SearchKnowledge(None)
        self.log: list[dict[str, Any]] = []
        self.rounds = 0
        self.min_rounds = config.min_rounds
        self.static = config.setting == "static"
        self._results: tuple[int, ...] = ()
        self._searched_in = 0
        self._missing: set[int] = set()
        self._early_stops = 0
        self._submitted: str | None = None

    @classmethod
    def requirements(cls, config: SearchConfig) -> Mapping[str, str]:
        return {"embed": "search_by='words'"} if config.search_by == "wordllama" else {}

    def generate(self) -> None:
        database = self.database
        playable = range(len(database.tasks)) if self.static else database.searchable
        number = int(self.rng.integers(len(playable)))
        if self.config.task is not None:
            number = self.config.task
        if number >= len(playable):
            raise ValueError(
                f"task must be below {len(playable)}, the number of tasks in this database, got "
                f"{number}"
            )
        self.problem = database.tasks[playable[number]]
        self.max_turns = self.config.budget(self.config.max_rounds)
        self.known = knowledge_of(self.problem.question)
        if isinstance(self.known, GoldKnowledge):
            remember(self.config.database_options, self.problem)
        self._missing = set() if self.static else set(self.problem.documents)
        self._record()
        if self.static:
            self.known.learn("\n\n".join(self._shown_texts()))

    def instance_key(self) -> str:
        """Return the question and the answer."""
        return f"{self.problem.question} #### {self.problem.answer}"

    def split_keys(self) -> Collection[str]:
        """Return the template, people or instance that determines the task's split."""
        template, drawn, _ = self.problem.id.partition("#")
        if drawn:
            return (template,)
        return self.database.people_of(self.problem) or (self.instance_key(),)

    @classmethod
    def config_for_split(cls, config: SearchConfig, split: SplitName) -> SearchConfig:
        return config.with_people_of(split)

    @classmethod
    def instance_count(cls, config: SearchConfig) -> float | None:
        """Return the number of tasks, or None for loaded data."""
        if config.data:
            return None
        return 1 if config.task is not None else ceil(config.tasks / SIZES[config.size])

    def rules(self) -> str:
        return rules(self.static, self.config.tools, self.config.prompt)

    def task(self) -> str:
        return f"{self.restate()}{_BUDGET}{self.max_turns}"

    def restate(self) -> str:
        lines = [f"Question: {self.problem.question}"]
        if self.static:
            lines.append("\n\n".join(["Documents:", *self._shown_texts()]))
        if self.min_rounds:
            lines.append(f"Search for at least {self.min_rounds} turns before you answer.")
        return "\n".join(lines)

    def toolsets(self) -> Sequence[object]:
        if self.static:
            return (AnswerTool(self),)
        extras = (EXTRA_TOOLS[name](self) for name in TOOL_SETS[self.config.tools])
        return (self, AnswerTool(self), *extras)

    @tool
    def search(self, query: str) -> str:
        """Search the database; shows the five documents that fit best.

        Args:
            query: What to look for: a sentence or words.
        """
        return self.run_search("search", query)

    @tool
    def next_page(self) -> str:
        """Show the next five documents of your last search; up to 19 times for each search."""
        if not self.known.last:
            raise ToolError("next_page requires a previous search; call search first")
        if self.known.cursor >= PAGES:
            raise ToolError(
                f"all {PAGES} pages of this search have been shown; search for something else"
            )
        self.known.add_page(self.known.last, self.known.cursor + 1)
        return self._page("next_page")

    def run_search(self, name: str, query: str) -> str:
        """Run a search and log it under the name of a tool."""
        if not query.strip():
            raise ToolError("the query must not be empty; describe what to look for")
        if len(query) > MAX_QUERY_CHARS:
            raise ToolError(
                f"the query must have at most {MAX_QUERY_CHARS} characters, got {len(query)}; describe "
                "what to look for in one sentence"
            )
        self._results = self.database.index.best(query, PAGE * PAGES)
        self.known.add_page(query, 1)
        return self._page(name)

    def _page(self, name: str) -> str:
        query, page = self.known.last, self.known.cursor
        places = self._results[PAGE * (page - 1) : PAGE * page]
        documents = [self.database.documents[place] for place in places]
        hits = self._missing & set(places)
        label = "productive" if hits else "barren"
        if any((entry["query"], entry["page"]) == (query, page) for entry in self.log):
            label = "repeat"
        # Create a new set, because copies of the world share the old set.
        self._missing = self._missing - hits
        entry = {
            "turn": self.turn,
            "tool": name,
            "query": query,
            "page": page,
            "ids": [document.id for document in documents],
            "found": len(hits),
            "label": label,
        }
        # Create a new list, because copies of the world share the old list.
        self.log = [*self.log, entry]
        self._record()
        head = f"Page {page} of {PAGES} for {json.dumps(query, ensure_ascii=False)}"
        texts = [document.show() for document in documents]
        result = "\n\n".join([head, *(texts or ["No document fits."])])
        self._learn(result)
        return result

    def _learn(self, result: str) -> None:
        # Several searches in one reply count as one round.
        self.rounds += self._searched_in != self.turn
        self._searched_in = self.turn
        self.known.learn(result)

    def answer(self, value: str) -> str:
        """Submit an answer; if it is too early, return a request to keep searching."""
        if not self.static and self.rounds < self.min_rounds:
            self._early_stops += 1
            return "Keep searching: there may be more to find. Look again before you answer."
        self._submitted, self.done = value, True
        return "Your answer has been taken."

    def final_answer(self, text: str) -> ToolCall | None:
        """Parse the answer after `####`; accept any reply while more searches are required."""
        if MARK not in text and (not text.strip() or self.static or self.rounds >= self.min_rounds):
            return None
        value = MARK + text.rpartition(MARK)[2] if MARK in text else text
        return ToolCall("answer", {"value": value[:400]})  # numbers are shorter

    def score(self) -> float:
        """Return 1 if the right number was submitted, else 0."""
        answer = parse_number(self._submitted or "")
        return float(answer is not None and answer == parse_number(self.problem.answer))

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """Choose options for tasks that take the scripted searcher about `steps` turns."""
        check_int("horizon", steps, 2, 10_000)
        return options_for_turns(steps)

    def optimal_calls(self) -> Sequence[ToolCall] | None:
        """Return the answer if it is known, or else the next search for each missing quantity.

        For questions that cannot be parsed, return all searches that show a missing document. If
        the world was rebuilt from the chat of another process, return None.
        """
        # For questions that cannot be parsed, the oracle requires the hidden list of documents.
        if isinstance(self.known, GoldKnowledge) and self.known.missing_count is None:
            return None
        if self.done or self.turns_left < 1:
            return ()
        answer = self.known.answer()
        if answer is None and self.turns_left == 1:
            return ()
        if answer is None and isinstance(self.known, GoldKnowledge):
            following = self._results[PAGE * self.known.cursor : PAGE * (self.known.cursor + 1)]
            return GoldSearches(self.database, self.problem, self.known, following, self._missing)
        if answer is None:
            return () if self.static else self.known.useful()
        if self.turns_left > 1 and not self.static and self.rounds < self.min_rounds:
            # Any search counts towards `min_rounds`.
            again = ToolCall("search", {"query": self.known.last or "documents"})
            return self._next_pages() or (again,)
        return (ToolCall("answer", {"value": answer}),)

    def _next_pages(self) -> tuple[ToolCall, ...]:
        return (ToolCall("next_page", {}),) if 0 < self.known.cursor < PAGES else ()

    def legal_calls(self) -> Sequence[ToolCall]:
        answer = ToolCall("answer", {"value": self.known.answer() or "0"})
        if self.static:
            return (answer,)
        queries: list[str] = []
        for quantity in self.known.missing():
            queries += self.known.queries(quantity)[:2]
        queries.append(self.known.last or "what was counted")
        return (answer, *self._next_pages(), *CallSet("search", "query", queries))

    def state(self) -> str:
        turns = f"Turns spent looking: {self.rounds}\nTurns left: {self.turns_left}"
        return "\n".join([*self.known.lines(), turns])

    def subtask(self, with_state: bool) -> str:
        calls = self.optimal_calls()
        return self.subtask_for(calls[0], with_state) if calls else _LOST

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        if call.name == "search":
            return _SEARCH.format(call.arguments["query"])
        return _ANSWER if call.name == "answer" else _NEXT

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]]:
        """Label the calls of the next reply.

        A search is `productive` if it shows a document of the task for the first time, `repeat` if
        the same page was shown before, and `barren` otherwise. An answer is `right`, `wrong` or
        `early`. Other tools are `neutral`. `optimal_calls` alone decides whether a step is optimal.
        """
        start = len(self.log)

        def label(call: ToolCall, entries: Iterator[Mapping[str, Any]]) -> str:
            if call.name in _SEARCHES:
                return str(next(entries)["label"])
            if call.name != "answer":
                return "neutral"
            if self._submitted is None:
                return "early"
            return "right" if self.score() else "wrong"

        def labels(calls: Sequence[ToolCall]) -> list[str]:
            entries = iter(self.log[start:])
            return [label(call, entries) for call in calls]

        return labels

    @classmethod
    def read_task(cls, task: str) -> Self:
        text, budget, turns = task.rpartition(_BUDGET)
        match = expect(_TASK.fullmatch(text if budget else task), "a task of SearchWorld", task)
        documents = match["documents"] or ""
        world = cls(cls.Config(), 0)
        world.known = knowledge_of(match["question"])
        world.static = documents.startswith("Documents:\n")
        if rounds := _ROUNDS.search(documents):
            world.min_rounds = int(rounds[1])
        if budget:
            world.max_turns = int(turns)
        if world.static:
            world.known.learn(documents)
        world._recall(match["question"], documents)
        return world

    def read_result(self, call: ToolCall, result: str) -> None:
        if call.name not in _SEARCHES:
            return
        head = expect(_HEAD.match(result), "a page of results", result)
        # Use the result's page number, because a context strategy may have removed earlier pages.
        self.known.add_page(json.loads(head[2]), int(head[1]))
        self._learn(result)
        self._see(result)

    def read_state(self, state: str) -> None:
        lines, _, ends = state.rpartition("\nTurns spent")
        left = expect(_LEFT.fullmatch(f"Turns spent{ends}"), "a state of SearchWorld", state)
        self.known = self.known.from_lines(self.known.question, lines.split("\n"))
        self._see_state()
        self.rounds = int(left[1])
        self.set_turns_left(int(left[2]))
        self._searched_in = self.turn

    def read_subtask(self, subtask: str) -> ToolCall | None:
        if subtask == _ANSWER:
            answer = self.known.answer()
            return None if answer is None else ToolCall("answer", {"value": answer})
        if subtask == _NEXT:
            return ToolCall("next_page", {})
        start, end = _SEARCH.split("{}")
        if not subtask.startswith(start):
            return None
        return ToolCall("search", {"query": subtask[len(start) : -len(end)]})

    def report(self) -> Mapping[str, Any]:
        """Return the documents of the task, the log of searches, and the submitted answer."""
        documents = self.database.documents
        return {
            "task": self.problem.id,
            "setting": "static" if self.static else "agentic",
            "oracle_documents": [documents[place].id for place in self.problem.documents],
            "search_complete": not self.static and not self._missing,
            "searches": self.log,
            "early_stops": self._early_stops,
            "answer": self._submitted,
        }
