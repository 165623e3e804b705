"""Write and parse questions about a log, and collect the evidence (AgentLongBench, appendix D)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from agentgym.envs.agentlongbench.engine import TEXTS, dumps, read_verdicts
from agentgym.envs.agentlongbench.items import OPERATORS
from agentgym.envs.agentlongbench.scoring import Answer, describe_form

# Questions whose kind ends in one of these words explain the term "tool result".
_WITH_NOTE = ("tool", "verbose")
_PATTERNS = {
    "i": "(?P<i>[0-9]+)",
    "j": "(?P<j>[0-9]+)",
    "last": "(?P<last>[0-9]+)",
    "name": r'(?P<name>"(?:[^"\\]|\\.)*")',
    "section": r'(?P<section>"(?:[^"\\]|\\.)*")',
    "weights": r"(?P<weights>\{[^{}]*\})",
}


def _template(kind: str) -> str:
    template = f"{TEXTS['questions'][kind]} "
    if kind.endswith(_WITH_NOTE):
        template += f"{TEXTS['question_notes']['rounds']} "
    return template


def _reader(kind: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", _template(kind))
    for place, part in enumerate(parts):
        parts[place] = _PATTERNS[part] if place % 2 else re.escape(part)
    return re.compile("".join(parts))


_READERS = {kind: _reader(kind) for kind in TEXTS["questions"]}


@dataclass(frozen=True, slots=True)
class QuestionSpec:
    """Parameters of a question.

    Questions about one round use `i`, and questions about two rounds use `i` and a later round `j`.
    Questions about all rounds use `last`, the number of the last round.
    """

    task: str
    i: int = 0
    j: int = 0
    last: int = 0
    name: str = ""
    section: str = ""
    weights: Mapping[str, int] | None = None
    style: str = "concise"

    @property
    def results(self) -> range | tuple[int, ...]:
        return () if self.task.endswith("_env") else self._rounds(2)  # round 1 has no result

    @property
    def feedback(self) -> range | tuple[int, ...]:
        return self._rounds(1) if self.task.endswith("_env") else ()

    def _rounds(self, first: int) -> range | tuple[int, ...]:
        if self.last:
            return range(first, self.last + 1)
        return (self.i, self.j) if self.j else (self.i,)

    def text(self) -> str:
        """Write the question in words."""
        kind = f"{self.task}-{self.style}" if self.task == "intersection" else self.task
        question = _template(kind).format(
            i=self.i,
            j=self.j,
            last=self.last,
            name=dumps(self.name),
            section=dumps(self.section),
            weights=dumps(self.weights),
        )
        return f"{question}Answer with {describe_form(self.task, self.style)}."

    @classmethod
    def read(cls, text: str) -> QuestionSpec:
        """Parse the question in a text; raise ValueError if the text has no known question."""
        for kind, reader in _READERS.items():
            if match := reader.search(text):
                task, _, style = kind.partition("-")
                fields = {key: json.loads(value) for key, value in match.groupdict().items()}
                return cls(task, style=style or "concise", **fields)
        raise ValueError(
            f"no oracle exists, because LongContextQA cannot parse a question in {text[-200:]!r}"
        )


_MESSAGE = re.compile(r"^\[(?:system|user|assistant|tool)\]\n", re.MULTILINE)
_FEEDBACK = re.compile(r"Round ([0-9]+): Guess [^\n]+\nSections:((?:\n {1,2}- [^\n]+)+)")
_RESULT = re.compile(r"Round ([0-9]+), tool result: ([^\n]+)")
_SECTIONS = re.compile(r"Round ([0-9]+), feedback: ([^\n]+)")
_BULLET, _BETWEEN = "\n  - ", " | "
_ANY_BULLET = re.compile(r"\n {1,2}- ")


@dataclass
class Evidence:
    """The evidence read so far, except parts that can no longer affect the answer."""

    spec: QuestionSpec
    seen: set[int] = field(default_factory=set)
    results: dict[int, str] = field(default_factory=dict)
    feedback: dict[int, str] = field(default_factory=dict)

    def take(self, text: str) -> None:
        """Add a part of the log; the part must consist of whole rounds."""
        result = ""
        for part in _MESSAGE.split(text):
            body = part.strip("\n")
            if body.startswith('{"'):
                result = body
            elif feedback := _FEEDBACK.match(body):
                self._keep(int(feedback[1]), result, feedback[2])
                result = ""

    def _keep(self, number: int, result: str, sections: str) -> None:
        if number in self.spec.results:
            if not _whole(result):
                return
            self.results[number] = result
        elif number not in self.spec.feedback:
            return
        if number in self.spec.feedback:
            start = f"{self.spec.section}: " if self.spec.section else ""
            lines = _ANY_BULLET.split(sections)[1:]
            asked = [_BULLET + line for line in lines if line.startswith(start)]
            self.feedback[number] = "".join(asked)
        self.seen.add(number)
        if self.spec.last:
            self._forget(number)

    def _forget(self, number: int) -> None:
        if self.spec.task == "find_round_largest_value_env":
            best = self._largest()
            self.feedback = {best: self.feedback[best]}
        elif self.spec.task == "count_frequency_env":
            if not self._count_in(self.feedback[number]):
                del self.feedback[number]
        elif len(self.results) > 1:
            others = [set(self._lists(each)[0]) for each in self.results if each != number]
            if set.intersection(*others) <= set(self._lists(number)[0]):
                del self.results[number]

    @property
    def complete(self) -> bool:
        return len(self.seen) == len(self.spec.results) + len(self.spec.feedback)

    def lines(self) -> Iterator[str]:
        """Yield the evidence verbatim."""
        for number, text in sorted(self.results.items()):
            yield f"Round {number}, tool result: {text}"
        for number, text in sorted(self.feedback.items()):
            sections = text.removeprefix(_BULLET).replace(_BULLET, _BETWEEN)
            yield f"Round {number}, feedback: {sections}"

    def read_lines(self, text: str) -> None:
        """Restore the evidence from text written by `lines`."""
        self.results = {int(number): result for number, result in _RESULT.findall(text)}
        self.feedback = {}
        for number, sections in _SECTIONS.findall(text):
            self.feedback[int(number)] = _BULLET + sections.replace(_BETWEEN, _BULLET)

    def answer(self) -> Answer:
        """Compute the answer from the complete evidence."""
        return _ANSWERS[self.spec.task](self)

    def how(self) -> str:
        """Describe how the answer follows from the evidence."""
        return TEXTS["steps"][self.spec.task]

    def _lists(self, number: int) -> list[list[str]]:
        data: Mapping[str, Any] = json.loads(self.results[number])
        lists = [part["candidates"] for part in data.get("per_section", ())]
        # In some published rows, a result contains lists and their intersection.
        if "intersection" in data:
            lists.append(data["intersection"])
        return lists

    def _count_lists(self) -> int:
        return sum(self.spec.name in names for names in self._lists(self.spec.i))

    def _in_both(self) -> bool:
        return all(self.spec.name in chain(*self._lists(number)) for number in self.spec.results)

    def _next_two(self) -> list[str]:
        names = next(names for names in self._lists(self.spec.i) if self.spec.name in names)
        at = names.index(self.spec.name)
        return names[at + 1 : at + 3]

    def _correct(self, number: int) -> list[str]:
        verdicts = read_verdicts(self.feedback[number])
        return [section for section, operator, _ in verdicts if operator in OPERATORS["correct"]]

    def _count_correct(self) -> int:
        return len(self._correct(self.spec.i))

    def _count_in(self, text: str) -> int:
        values = [(section, value) for section, _, value in read_verdicts(text)]
        return values.count((self.spec.section, self.spec.name))

    def _count_value(self) -> int:
        return sum(map(self._count_in, self.feedback.values()))

    def _largest(self) -> int:
        numbers: dict[int, int] = {}
        for number, text in self.feedback.items():
            for name, _, value in read_verdicts(text):
                if name == self.spec.section and isinstance(value, int):
                    numbers[number] = value
        return min(numbers, key=lambda number: (-numbers[number], number))

    def _weight(self, number: int) -> int:
        weights = self.spec.weights or {}
        return sum(weights[section] for section in self._correct(number))

    def _difference(self) -> int:
        first, second = map(self._weight, self.spec.feedback)
        return abs(first - second)

    def _common(self) -> Answer:
        first, *others = chain.from_iterable(map(self._lists, self.results))
        common = sorted(set(first).intersection(*others))
        if self.spec.style == "verbose":
            return common
        (only,) = common
        return only


def _whole(result: str) -> bool:
    try:
        return bool(json.loads(result))
    except json.JSONDecodeError:
        return False


_ANSWERS: Mapping[str, Callable[[Evidence], Answer]] = {
    "count_frequency_tool": Evidence._count_lists,
    "find_duplicates_tool": Evidence._in_both,
    "find_target_offsets_tool": Evidence._next_two,
    "count_correctness_env": Evidence._count_correct,
    "count_frequency_env": Evidence._count_value,
    "find_round_largest_value_env": Evidence._largest,
    "weighted_summation_env": Evidence._difference,
    "intersection": Evidence._common,
}
