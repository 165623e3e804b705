"""Questions of problems, written as sentences and parsed back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from agentgym.envs.gsm_agent.facts import Fact, Quantity, solve
from agentgym.envs.reading import load_texts

_QUESTIONS: Mapping[str, Sequence[str]] = load_texts(__file__, "wordings")["questions"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question for a quantity, a difference, or an even share."""

    kind: str
    targets: tuple[Quantity, ...]

    def answer(self, facts: Mapping[Quantity, Fact]) -> int | None:
        """Compute the answer; None if a fact is missing."""
        values = [solve(facts, target) for target in self.targets]
        if None in values:
            return None
        first, last = values[0] or 0, values[-1] or 0
        if self.kind == "share":
            return first // last if last and first % last == 0 else None
        return first - last if self.kind == "gap" else first


def write_question(question: Question, month: str, rng: Random) -> str:
    """Write the question; an empty `month` is omitted."""
    first, last = question.targets[0], question.targets[-1]
    wording = rng.choice(_QUESTIONS[question.kind + ("$" if first.money else "")])
    month = f" in {month}" if month else ""
    return wording.format(a=first.phrase, w=first.owner, b=last.phrase, w2=last.owner, m=month)


def read_question(text: str) -> tuple[Question, str] | None:
    """Parse a text of `write_question` and its month; None for other texts."""
    for kind, pattern in _question_patterns():
        if match := pattern.fullmatch(text):
            parts = match.groupdict()
            targets = [Quantity(parts["w"], parts["a"])]
            if kind != "total":
                targets.append(Quantity(parts.get("w2") or parts["w"], parts["b"]))
            return Question(kind, tuple(targets)), (parts["m"] or "").removeprefix(" in ")
    return None


@cache
def _question_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    slots = {key: rf"(?P<{key}>[A-Z][a-z]+ [A-Z][a-z]+)" for key in ("w", "w2")} | {
        key: rf"(?P<{key}>[a-z ]+?)" for key in "ab"
    }
    slots["m"] = "(?P<m> in [A-Z][a-z]+ [0-9]{4})?"
    return tuple(
        (
            kind.removesuffix("$"),
            re.compile(re.escape(wording).replace(r"\{", "{").replace(r"\}", "}").format(**slots)),
        )
        for kind, wordings in sorted(_QUESTIONS.items(), reverse=True)
        for wording in wordings
    )
