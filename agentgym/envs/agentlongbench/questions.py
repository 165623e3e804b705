"""Questions about a log: the words of the eight tasks, and reading them (AgentLongBench, appendix D).

A question states every convention that its answer depends on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentgym.envs.agentlongbench.engine import dumps
from agentgym.envs.agentlongbench.scoring import describe_form

_ROUNDS = (
    'The tool result of a round is the one right before the feedback that begins with "Round" and '
    "its number: the guess of that "
    "round was chosen by it. Round 1 has none. "
)
_TEMPLATES: Mapping[str, str] = {
    "count_frequency_tool": "How many lists of items in the tool result of round {i} hold the item "
    "{name}? " + _ROUNDS,
    "find_duplicates_tool": (
        "Does the item {name} occur both in the tool result of round {i} and in that of round {j}? "
        "If a result has several "
        "lists, any of them counts. " + _ROUNDS
    ),
    "find_target_offsets_tool": (
        "Which two items stand right after the item {name} where it first occurs in the tool "
        "result of round {i}? " + _ROUNDS
    ),
    "count_correctness_env": (
        "How many values does the feedback of round {i} mark as correct? Each marked value counts, "
        "also where a section has "
        "several. "
    ),
    "count_frequency_env": (
        "How often does {name} occur as a value of the section {section} in the feedback of rounds "
        "1 to {last}? Each round counts, "
        "the last one too, whether the value is marked correct or wrong; only the whole value "
        "counts. "
    ),
    "find_round_largest_value_env": (
        "Which of the rounds 1 to {last} has the guess with the largest number in the section "
        "{section}, by the feedback? If "
        "several rounds have it, give the first of them. "
    ),
    "weighted_summation_env": (
        "The score of a round is the sum of the weights of the values that its feedback marks as "
        "correct: each such value counts "
        "the weight of its section, also where a section has several. The weights: {weights}. What "
        "is the absolute difference "
        "between the scores of round {i} and round {j}? "
    ),
    "intersection-concise": (
        "Which item is in the tool results of all rounds from 2 to {last}? It is the hidden item, "
        "and the only one. "
    ),
    "intersection-verbose": "Which items are in every list of items in the tool result of round "
    "{i}? " + _ROUNDS,
}
_PATTERNS = {
    "i": "(?P<i>[0-9]+)",
    "j": "(?P<j>[0-9]+)",
    "last": "(?P<last>[0-9]+)",
    "name": r'(?P<name>"(?:[^"\\]|\\.)*")',
    "section": r'(?P<section>"(?:[^"\\]|\\.)*")',
    "weights": r"(?P<weights>\{[^{}]*\})",
}
_FORM = "Answer with {form}."


def _compiled(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    return re.compile(
        "".join(_PATTERNS[part] if k % 2 else re.escape(part) for k, part in enumerate(parts))
    )


_READERS = {kind: _compiled(template) for kind, template in _TEMPLATES.items()}


@dataclass(frozen=True, slots=True)
class QuestionSpec:
    """Parameters of a question.

    Attributes:
        task: The task.
        i: The round, or the first of two.
        j: The second round; it is after the first.
        last: The last round, if all rounds count.
        name: The item, or the value that is counted.
        section: The section.
        weights: The weight of a correct value, by section.
        style: `concise` or `verbose`; it matters for the task `intersection` only.
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
        """The rounds whose tool results are needed."""
        return () if self.task.endswith("_env") else self._rounds(2)  # round 1 has no result

    @property
    def feedback(self) -> range | tuple[int, ...]:
        """The rounds whose feedback is needed."""
        return self._rounds(1) if self.task.endswith("_env") else ()

    def _rounds(self, first: int) -> range | tuple[int, ...]:
        if self.last:
            return range(first, self.last + 1)
        return (self.i, self.j) if self.j else (self.i,)

    def text(self) -> str:
        """The question in words."""
        kind = f"{self.task}-{self.style}" if self.task == "intersection" else self.task
        values = {
            "i": self.i,
            "j": self.j,
            "last": self.last,
            "name": dumps(self.name),
            "section": dumps(self.section),
            "weights": dumps(self.weights),
        }
        return _TEMPLATES[kind].format(**values) + _FORM.format(
            form=describe_form(self.task, self.style)
        )

    @classmethod
    def read(cls, text: str) -> QuestionSpec:
        """The question that a text holds.

        Raises:
            ValueError: There is none.
        """
        for kind, reader in _READERS.items():
            match = reader.search(text)
            if match:
                task, _, style = kind.partition("-")
                values = match.groupdict()
                fields: dict[str, Any] = {key: json.loads(value) for key, value in values.items()}
                return cls(task, style=style or "concise", **fields)
        raise ValueError(f"there is no question in {text[-200:]!r}")
