"""Write questions as sentences, and parse them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random

from agentgym.envs.gsm_agent.facts import Fact, Quantity, divide, solve
from agentgym.envs.gsm_agent.narration import PHRASE, SLOTS, groups, to_pattern
from agentgym.envs.gsm_agent.stories import BASE, PARTICIPLE, PAST, STORIES, Parts, Relation
from agentgym.envs.gsm_agent.vocabulary import pronouns
from agentgym.envs.reading import load_texts

_QUESTIONS: Mapping[str, Sequence[str]] = load_texts(__file__, "wordings")["questions"]
# The optional month is at the end of a sentence.
_SLOTS = SLOTS | {
    **groups("w w2", "[A-Z][a-z]+ [A-Z][a-z]+"),
    **groups("i2", PHRASE),
    **groups("b b2 p2", "[a-z]+"),
    "m": r"(?: in (?P<m>[A-Z][a-z]+ [0-9]{4}))?",
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one or two quantities.

    Attributes:
        kind: `total`, `gap`, `excess` (one person, two kinds of items), `together`,
            `average`, `ratio`, `left`, `percentage`, `share`, `need`, `change`, `area` or `around`.
        wording: The sentence pattern of a question from a story, ignored when comparing questions.
    """

    kind: str
    targets: tuple[Quantity, ...]
    wording: str = field(default="", compare=False)

    def answer(self, facts: Mapping[Quantity, Fact]) -> int | None:
        """Compute the answer; return None if a fact is missing or the answer is not whole."""
        values = [solve(facts, target) for target in self.targets]
        if None in values:
            return None
        first, last = values[0] or 0, values[-1] or 0
        results = {
            "total": (first, 1),
            "together": (first + last, 1),
            "average": (first + last, 2),
            "ratio": (first, last),
            "share": (first, last),
            "percentage": (100 * last, first),
            "area": (first * last, 1),
            "around": (2 * (first + last), 1),
        }
        return divide(*results.get(self.kind, (first - last, 1)))


def write_question(question: Question, month: str, rng: Random) -> str:
    """Write the question as a sentence, without the month if `month` is empty."""
    first, last = question.targets[0], question.targets[-1]
    one, two = first.parts, last.parts
    unit = f"{question.kind} {first.unit}"
    wordings = _QUESTIONS.get(unit) or _QUESTIONS.get(question.kind, ())
    wording = question.wording or rng.choice(wordings)
    return wording.format(
        w=first.owner,
        w2=last.owner,
        **pronouns(first.owner),
        i=one.item,
        v=one.verb.past,
        b=one.verb.base,
        t=one.tail,
        i2=two.item,
        v2=two.verb.past,
        b2=two.verb.base,
        p2=two.verb.participle,
        t2=two.tail,
        m=f" in {month}" if month else "",
    )


def read_question(text: str) -> tuple[Question, str] | None:
    """Parse a question and its month from the output of `write_question`, or return None."""
    for schema, pattern in _story_patterns():
        if match := pattern.fullmatch(text):
            targets = tuple(Quantity(match["w"], phrase) for phrase in schema.sources)
            return Question(schema.kind, targets), match["m"] or ""
    for kind, pattern in _question_patterns():
        match = pattern.fullmatch(text)
        if match and (targets := _targets(kind, match.groupdict())):
            return Question(kind.partition(" ")[0], targets), match["m"] or ""
    return None


def _targets(kind: str, parts: Mapping[str, str]) -> tuple[Quantity, ...]:
    kind, _, unit = kind.partition(" ")
    verb = PAST.get(parts.get("v", "")) or BASE.get(parts.get("b", ""))
    if unit == "years":
        verb = PAST["was"]
    if verb is None:
        return ()
    one = Parts(parts.get("i", unit), verb, parts.get("t", ""))
    other = PAST.get(parts.get("v2", "")) or BASE.get(parts.get("b2", "")) or verb
    if "p2" in parts:
        other = PARTICIPLE.get(parts["p2"], verb)
    two = Parts(parts.get("i2", one.item), other, parts.get("t2", one.tail))
    first = Quantity(parts["w"], one.phrase)
    # Reject a quantity if its unit differs from the unit of the wording.
    if kind == "total":
        return (first,) if not unit or first.unit == unit else ()
    return first, Quantity(parts.get("w2", parts["w"]), two.phrase)


@cache
def _question_patterns() -> Sequence[tuple[str, re.Pattern[str]]]:
    # Try wordings with more slots first; wordings with fewer slots would match the same questions.
    pairs: list[tuple[str, str]] = []
    for kind, wordings in _QUESTIONS.items():
        pairs += [(kind, wording) for wording in wordings]
    pairs.sort(key=lambda pair: -pair[1].count("{"))
    return [(kind, to_pattern(wording, _SLOTS)) for kind, wording in pairs]


@cache
def _story_patterns() -> Sequence[tuple[Relation, re.Pattern[str]]]:
    patterns = []
    for story in STORIES.values():
        for schema in story.asks:
            for text in schema.texts:
                patterns.append((schema, to_pattern(text, _SLOTS)))
    return patterns
