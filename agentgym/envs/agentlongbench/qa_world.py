"""LongContextQA: questions about long puzzle logs (AgentLongBench, section 2.3.3, appendix D)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.agentlongbench.config import QAConfig
from agentgym.envs.agentlongbench.engine import TOOL, explain_game
from agentgym.envs.agentlongbench.logs import LARGEST, Log, LogMessages
from agentgym.envs.agentlongbench.published import OpenRow, PublishedRow, load_rows
from agentgym.envs.agentlongbench.questions import Evidence, QuestionSpec
from agentgym.envs.agentlongbench.rollout import draw_log
from agentgym.envs.agentlongbench.scoring import (
    describe_form,
    form,
    last_tag,
    metric,
    read,
    score,
    score_published,
)
from agentgym.envs.agentlongbench.tasks import (
    LogQuestion,
    as_json,
    ask,
    context_length,
)
from agentgym.envs.reading import expect
from agentgym.text.messages import Chat, Message, ToolCall
from agentgym.text.tokens import counter
from agentgym.text.tools import ToolError, Toolset, echo, tool
from agentgym.text.validation import check_int
from agentgym.world.world import CallSet, World

_PAGES = re.compile(r"The log has ([0-9]+) rounds on ([0-9]+) pages of ([0-9]+)\b")
_BUDGET = re.compile(r"\nTurn budget: ([0-9]+)$")
_STATE = re.compile(r"Pages read: ([0-9, -]+|none)\n(.*?)\n?Turns left: ([0-9]+)", re.DOTALL)
_READ = re.compile(r"Read page ([0-9]+) of the log\.")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_CHANCE_DRAWS = 32  # few draws suffice, because the chance score hardly varies
_HERE = "The log:\n\n"
_LOST = "No turn is left to find the answer."
_UNPROVED = (
    "{where}: no oracle exists, because the answer does not follow from the log by the rules of "
    "LongContextQA; play other rows with verified=True, or one with row="
)
_UNKNOWN = {
    "int": "0",
    "bool": "no",
    "pair": "unknown and unknown",
    "list": '["unknown"]',
    "name": "unknown",
}


class LongContextQA(World[QAConfig]):
    """Answer a question about the long log of an agent that searched for a hidden item.

    If the log is paged, the optimal calls read the pages that contain evidence, in any order, and
    then give the right answer. If the task contains the log, only the right answer is optimal, and
    pruning the history does not remove the log.

    Attributes:
        log: The log; undefined in a world rebuilt from a chat.
    """

    Config = QAConfig
    parallel_calls = False
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {"reader": (), "writer": ("answer",)}
    log: LogMessages
    question: LogQuestion
    evidence: Evidence
    pages: dict[int, None]
    opened: OpenRow | None = None
    _on_page: dict[int, list[int]]

    @classmethod
    def undefined_hooks(cls, config: QAConfig) -> Mapping[str, str]:
        if not config.data or config.verified:
            return {}
        chosen = load_rows(config.data)
        if config.row is not None:
            chosen = chosen[config.row : config.row + 1]
        unproved = next((row for row in chosen if not row.proved), None)
        if unproved is None:
            return {}
        why = _UNPROVED.format(where=f"{unproved.path}, line {unproved.line}")
        return dict.fromkeys(("state", "subtask", "reasoning"), why)

    def generate(self) -> None:
        if self.config.data:
            rows = _rows(self.config)
            number = self.config.row
            if number is None:
                number = int(self.rng.integers(len(rows)))
            if number >= len(rows):
                raise ValueError(
                    f"row must be below {len(rows)}, the number of rows in {self.config.data!r}, "
                    f"got {number}"
                )
            self.opened = rows[number].open(counter(self.config.counter))
            self.log, self.question = self.opened.log, self.opened.question
        else:
            drawn = draw_log(
                self.config,
                self.rng,
                counter(self.config.counter),
                isolate=(self.config.task, self.config.style) == ("intersection", "concise"),
                peak=self.config.task == LARGEST,
            )
            self.log, self.question = drawn, ask(self.config.task, drawn, self.rng)
        self._submitted: str | None = None
        rounds, paged = len(self.log.rounds), self.config.delivery == "pages"
        self._begin(self.question.spec, rounds, self.config.page, paged=paged)
        if self._proved and not self._paged:
            self.evidence.take(_text(self.log, 1, len(self.log.rounds)))
        if self._paged and not self._proved:  # any page may contain the evidence
            self._on_page = {page: [] for page in range(1, self._count + 1)}
        self.max_turns = self.config.budget(len(self._on_page) + 1)

    @property
    def _proved(self) -> bool:
        return self.opened is None or self.opened.proved

    def _begin(self, spec: QuestionSpec, rounds: int, page: int, *, paged: bool) -> None:
        self.evidence, self.pages, self._paged = Evidence(spec), {}, paged
        self._count, self._size = -(-rounds // page), page
        self._on_page = {}
        if paged:
            for number in sorted({*spec.results, *spec.feedback}):
                self._on_page.setdefault((number - 1) // page + 1, []).append(number)

    @classmethod
    def chance(cls, config: QAConfig) -> float:
        """Return the score of the best constant answer, averaged over some instances."""
        return _mean_chance(config)

    def toolsets(self) -> Sequence[object]:
        return (_Reader(self), self) if self.config.delivery == "pages" else (self,)

    def rules(self) -> str:
        where = "stands in the task"
        if self.config.delivery == "pages":
            where = "is read page by page with read_log"
        return (
            "You answer a question about the log of another agent, which plays a game. Its log "
            f"{where}: calls of the tool and their results, guesses, and the feedback on each "
            "guess. The game: "
            f"{explain_game(self.log.style, self._log_tool())}\nYou answer once, with the tool answer or in the "
            "form <answer>...</answer>, and "
            "the task ends."
        )

    def _log_tool(self) -> str:
        return next((call.name for message in self.log.messages for call in message.calls), TOOL)

    def task(self) -> str:
        return f"{self.restate()}\nTurn budget: {self.max_turns}"

    def restate(self) -> str:
        rounds = len(self.log.rounds)
        if self._paged:
            log = (
                f"The log has {rounds} rounds on {self._count} pages of {self._size}; page 1 has "
                "the rounds from 1 on."
            )
        else:
            log = f"{_HERE}{_text(self.log, 1, rounds)}"
        asked = self.opened.wording if self.opened else self.question.spec.text()
        return f"{log}\n\nThe question: {asked}"

    def read_page(self, number: int) -> str:
        """Return the text of a page."""
        text = _text(self.log, (number - 1) * self._size + 1, number * self._size)
        self._take(number, text)
        return text

    def _take(self, number: int, text: str) -> None:
        self.evidence.take(text)
        if self.evidence.seen.issuperset(self._on_page.get(number, ())):
            self.pages[number] = None

    @tool(final=True)
    def answer(self, value: str) -> str:
        """Answer the question. This ends the task.

        Args:
            value: The answer alone, in the form that the question asks for.
        """
        spec = self.question.spec
        if self._points(value) is None:
            raise ToolError(
                f"the answer must be {describe_form(spec.task, spec.style)}, got {echo(value)}"
            )
        self._submitted = value
        return "Your answer has been taken."

    def final_answer(self, text: str) -> ToolCall | None:
        """Parse the last `<answer>` of a reply without a call."""
        value = last_tag(text)
        if value is None:
            return None
        return ToolCall("answer", {"value": value})

    def score(self) -> float:
        """Return the score of the answer in the task's metric; 0 without an answer.

        The published evaluator scores published rows.
        """
        return self._points(self._submitted or "") or 0.0

    def _points(self, value: str) -> float | None:
        kind = form(self.question.spec.task, self.question.spec.style)
        if self.opened:
            return score_published(kind, self.opened.setting, self.question.answer, value)
        answer = read(kind, value)
        return None if answer is None else score(kind, self.question.answer, answer)

    def report(self) -> Mapping[str, Any]:
        """Return the setting, task, length, metric, chance score and context lengths.

        The minimal context length is None for a published row.
        """
        tokens, spec = counter(self.config.counter), self.question.spec
        setting, length = self.config.setting, self.config.length or self.log.tokens
        if self.opened:
            setting, length = self.opened.setting, self.opened.length
        scan = None
        if self._proved:
            scan = context_length(self.question.scan, self.log, tokens)
        drawn = self.log if isinstance(self.log, Log) else None
        return {
            "setting": setting,
            "task": spec.task,
            "length": length,
            "tokens": self.log.tokens,
            "rounds": len(self.log.rounds),
            "metric": metric(spec.task, spec.style),
            "chance": self.question.chance,
            "acl_scan": scan,
            "acl_min": drawn and context_length(self.question.least, drawn, tokens),
        }

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """Return options for a log of `steps - 1` pages, which leaves one turn for the answer."""
        check_int("horizon", steps, 2, 10_001)
        return {
            "task": "find_round_largest_value_env",
            "rounds": max(3, steps - 1),
            "page": -(-3 // (steps - 1)),
        }

    def optimal_calls(self) -> Sequence[ToolCall] | None:
        if not self._proved:
            return None
        unread = [page for page in self._on_page if page not in self.pages]
        if self.done or self.turns_left < len(unread) + 1:
            return ()
        if unread:
            return CallSet("read_log", "page", unread)
        return self._right()

    def _right(self) -> Sequence[ToolCall]:
        if self.evidence.complete:
            return (ToolCall("answer", {"value": as_json(self.evidence.answer())}),)
        return ()  # a context strategy has removed pages that are needed

    def legal_calls(self) -> Sequence[ToolCall]:
        guess = _UNKNOWN[form(self.evidence.spec.task, self.evidence.spec.style)]
        answers = self._right() or (ToolCall("answer", {"value": guess}),)
        if self._paged:
            return (*CallSet("read_log", "page", range(1, self._count + 1)), *answers)
        return tuple(answers)

    def action_catalog(self) -> Sequence[ToolCall]:
        """Return one call per page, and a call with the answer.

        Raise ValueError if the options do not determine the number of pages.
        """
        if self.config.length or (self.config.data and self.config.row is None):
            given = "data" if self.config.data else f"length={self.config.length}"
            raise ValueError(
                f"{given} does not determine the number of pages; set rounds and length=0, or select one "
                "row of data"
            )
        return self.legal_calls()

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [0, 1], shape `(2 * pages + 1,)`.

        The features are flags for the pages read, flags for the pages still needed, and the turns
        left divided by `pages + 1`.
        """
        rows = np.zeros((2, 1 + self._count), np.float32)  # pages count from 1
        rows[0, list(self.pages)] = 1
        rows[1, list(self._on_page.keys() - self.pages.keys())] = 1
        left = np.float32(min(self.turns_left / (self._count + 1), 1))
        return np.append(rows[:, 1:], left)

    def state(self) -> str:
        pages = f"Pages read: {_ranges(sorted(self.pages))}"
        return "\n".join([pages, *self.evidence.lines(), f"Turns left: {self.turns_left}"])

    def subtask(self, with_state: bool) -> str:
        if calls := self.optimal_calls():
            return self.subtask_for(calls[0], with_state)
        return _LOST

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        if call.name == "read_log":
            return f"Read page {call.arguments['page']} of the log."
        spec = self.evidence.spec
        kind = "tool result" if spec.results else "feedback"
        numbers = spec.results or spec.feedback
        if spec.last:
            rounds = f"rounds {numbers[0]} to {numbers[-1]}"
        else:
            rounds = " and ".join(f"round {number}" for number in numbers)
        return f"Use the {kind} of {rounds}. {self.evidence.how()}; then answer."

    def reasoning(self, call: ToolCall) -> str:
        return f"Pages read: {_ranges(sorted(self.pages))}. {self.subtask(with_state=False)}"

    @classmethod
    def read_task(cls, task: str) -> Self:
        world = cls(QAConfig(), 0)
        budget, pages = _BUDGET.search(task), _PAGES.match(task)
        head, _, question = task.rpartition("\n\nThe question: ")
        if not (pages or head.startswith(_HERE)):
            raise ValueError(f"this is not a task of LongContextQA: {task[:100]!r}")
        spec = QuestionSpec.read(question)
        if pages:
            world._begin(spec, int(pages[1]), int(pages[3]), paged=True)
        else:
            world._begin(spec, 1, 1, paged=False)
            world.evidence.take(head[len(_HERE) :])
        world.max_turns = int(budget[1]) if budget else None
        return world

    def read_result(self, call: ToolCall, result: str) -> None:
        if call.name == "read_log":
            self._take(call.arguments["page"], result)

    def read_state(self, state: str) -> None:
        match = expect(_STATE.fullmatch(state), "a state of LongContextQA", state)
        self.pages = {}
        for first, last in _RANGE.findall(match[1]):
            for page in range(int(first), int(last or first) + 1):
                self.pages[page] = None
        spec = self.evidence.spec
        self.evidence.seen = {*spec.results, *spec.feedback}
        if self._paged:
            self.evidence.seen = set()
            for page in self.pages:
                self.evidence.seen.update(self._on_page.get(page, ()))
        self.evidence.read_lines(match[2])
        self.set_turns_left(int(match[3]))

    def read_subtask(self, subtask: str) -> ToolCall | None:
        if page := _READ.fullmatch(subtask):
            return ToolCall("read_log", {"page": int(page[1])})
        if subtask.endswith("then answer."):
            return next(iter(self._right()), None)
        return None


def _rows(config: QAConfig) -> Sequence[PublishedRow]:
    rows = [row for row in load_rows(config.data) if not config.verified or row.proved]
    if not rows:
        raise ValueError(f"{config.data!r} has no row whose answer follows from its log")
    return rows


class _Reader(Toolset):
    """Tool for reading the log."""

    def __init__(self, world: LongContextQA) -> None:
        self._world = world

    @tool
    def read_log(self, page: int) -> str:
        """Read a page of the log.

        Args:
            page: The number of the page, from 1.
        """
        if not 1 <= page <= self._world._count:
            raise ToolError(f"page must be from 1 to {self._world._count}, got {echo(page)}")
        return self._world.read_page(page)


@lru_cache(maxsize=64)
def _mean_chance(config: QAConfig) -> float:
    total = 0.0
    for seed in range(_CHANCE_DRAWS):
        world = LongContextQA(config, seed)
        world.generate()
        total += world.question.chance
    return total / _CHANCE_DRAWS


def _ranges(numbers: Sequence[int]) -> str:
    """Format sorted numbers as ranges such as `1-3, 5`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join("-".join(map(str, span)) for span in spans) or "none"


def _text(log: LogMessages, first: int, last: int) -> str:
    messages: list[Message] = []
    for each in log.rounds[first - 1 : last]:
        messages += each.messages
    return Chat(tuple(messages)).to_text()
