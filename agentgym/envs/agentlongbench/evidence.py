"""Evidence of the answer to a question about a log: the needed parts of the text, and the answer
that follows from them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym.envs.agentlongbench.engine import read_verdicts
from agentgym.envs.agentlongbench.questions import QuestionSpec
from agentgym.envs.agentlongbench.scoring import Answer

_MESSAGE = re.compile(r"^\[(?:system|user|assistant|tool)\]\n", re.MULTILINE)
_FEEDBACK = re.compile(r"Round ([0-9]+): Guess [^\n]+\nSections:((?:\n  - [^\n]+)+)")
_RESULT = re.compile(r"Round ([0-9]+), tool result: ([^\n]+)")
_SECTIONS = re.compile(r"Round ([0-9]+), feedback: ([^\n]+)")
_BULLET, _BETWEEN = "\n  - ", " | "
_CORRECT = ("has", "==")


@dataclass
class Evidence:
    """The evidence that was read so far, without what can no longer change the answer: rounds in
    which the value that is counted does not occur, numbers that are not the largest, lists that
    exclude nothing more.

    Attributes:
        spec: The question.
        seen: The rounds that are needed and were read.
        results: The tool results that are needed and were read, by round.
        feedback: The profiles with their marks, likewise; of one section, if the question is about
            one.
    """

    spec: QuestionSpec
    seen: set[int] = field(default_factory=set)
    results: dict[int, str] = field(default_factory=dict)
    feedback: dict[int, str] = field(default_factory=dict)

    def take(self, text: str) -> None:
        """Take in a part of the log that begins and ends with a whole round."""
        result = ""
        for part in _MESSAGE.split(text):
            body = part.strip("\n")
            feedback = _FEEDBACK.match(body)
            if body.startswith('{"'):
                result = body
            elif feedback:
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
            lines = sections.split(_BULLET)[1:]
            if self.spec.section:
                lines = [line for line in lines if line.startswith(f"{self.spec.section}: ")]
            self.feedback[number] = "".join(_BULLET + line for line in lines)
        self.seen.add(number)
        if self.spec.last:
            self._forget(number)

    def _forget(self, number: int) -> None:
        """Drop what the newest round makes superfluous, or the round itself."""
        if self.spec.task == "find_round_largest_value_env":
            self.feedback = {best: self.feedback[best] for best in [self._largest()]}
        elif self.spec.task == "count_frequency_env":
            if not self._count_in(self.feedback[number]):
                del self.feedback[number]
        elif len(self.results) > 1:
            others = [set(self._lists(each)[0]) for each in self.results if each != number]
            if set.intersection(*others) <= set(self._lists(number)[0]):
                del self.results[number]

    @property
    def complete(self) -> bool:
        """Return whether all needed parts were read."""
        return len(self.seen) == len(self.spec.results) + len(self.spec.feedback)

    def lines(self) -> list[str]:
        """The evidence, word for word."""
        results = [
            f"Round {number}, tool result: {self.results[number]}"
            for number in sorted(self.results)
        ]
        for number in sorted(self.feedback):
            lines = _BETWEEN.join(self.feedback[number].split(_BULLET)[1:])
            results.append(f"Round {number}, feedback: {lines}")
        return results

    def read_lines(self, text: str) -> None:
        """Take what `lines` wrote, in place of the texts that are known."""
        self.results = {int(number): result for number, result in _RESULT.findall(text)}
        parts = {int(number): lines.split(_BETWEEN) for number, lines in _SECTIONS.findall(text)}
        self.feedback = {
            number: "".join(_BULLET + line for line in lines) for number, lines in parts.items()
        }

    def answer(self) -> Answer:
        """Compute the answer from the complete evidence.

        Raises:
            ValueError: A result was cut.
        """
        return _ANSWERS[self.spec.task](self)

    def how(self) -> str:
        """Describe the way from the evidence to the answer."""
        return _STEPS[self.spec.task]

    def _lists(self, number: int) -> list[list[str]]:
        data: Mapping[str, Any] = json.loads(self.results[number])
        return (
            [data["intersection"]]
            if "intersection" in data
            else [part["candidates"] for part in data["per_section"]]
        )

    def _count_lists(self) -> int:
        return sum(self.spec.name in names for names in self._lists(self.spec.i))

    def _in_both(self) -> bool:
        return all(
            any(self.spec.name in names for names in self._lists(number))
            for number in self.spec.results
        )

    def _next_two(self) -> list[str]:
        names = next(names for names in self._lists(self.spec.i) if self.spec.name in names)
        at = names.index(self.spec.name)
        return names[at + 1 : at + 3]

    def _count_correct(self) -> int:
        return sum(
            operator in _CORRECT for _, operator, _ in read_verdicts(self.feedback[self.spec.i])
        )

    def _count_in(self, text: str) -> int:
        expected = self.spec.section, self.spec.name
        return sum((name, value) == expected for name, _, value in read_verdicts(text))

    def _count_value(self) -> int:
        return sum(map(self._count_in, self.feedback.values()))

    def _largest(self) -> int:
        numbers = {
            number: value
            for number, text in self.feedback.items()
            for name, _, value in read_verdicts(text)
            if name == self.spec.section and isinstance(value, int)
        }
        return min(numbers, key=lambda number: (-numbers[number], number))

    def _difference(self) -> int:
        weights = self.spec.weights or {}
        scores = [
            sum(
                weights[name]
                for name, operator, _ in read_verdicts(self.feedback[number])
                if operator in _CORRECT
            )
            for number in self.spec.feedback
        ]
        return abs(scores[0] - scores[1])

    def _common(self) -> Answer:
        lists = [names for number in self.results for names in self._lists(number)]
        common = sorted(set(lists[0]).intersection(*lists[1:]))
        return common if self.spec.style == "verbose" else common[0]


def _whole(result: str) -> bool:
    """Return whether a tool result is there, and was not cut."""
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
_STEPS = {
    "count_frequency_tool": "Count the lists of the tool result that hold the item",
    "find_duplicates_tool": "Look for the item in both tool results",
    "find_target_offsets_tool": "Find the item in the tool result, and take the two after it",
    "count_correctness_env": "Count the values that are marked correct",
    "count_frequency_env": "Count how often the value stands in the section",
    "find_round_largest_value_env": "Find the first round with the largest number in the section",
    "weighted_summation_env": "Add up the weights of the values that are marked correct, for each "
    "of the two rounds, and subtract",
    "intersection": "Keep the items that are in all of the lists",
}
