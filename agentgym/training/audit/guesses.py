"""Guesses of an answer from a prompt: constants, rules, and one of them for each value of a
feature.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentgym.training.audit.selectors import (
    Selector,
    marked_selectors,
    matching_selectors,
    numbers,
)
from agentgym.training.audit.transcripts import Transcript

Example = tuple[Transcript, str]
"""What was seen, and the answer as text."""

_RULES = 10
"""Rules that are remembered for each value of a feature: more than there are tries."""
_PLACES = 8
"""Numbers of a prompt that are features: budgets and sizes stand among the first or the last."""


@dataclass(frozen=True)
class Constant:
    """The same answer whatever was seen."""

    text: str

    def pick(self, seen: Transcript) -> str | None:
        """Return the answer."""
        return self.text


Rule = Constant | Selector
Lesson = tuple[Transcript, frozenset[Rule]]
"""What was seen, and the rules that would have been right."""
Feature = Callable[[Transcript], str]


def _number(place: int) -> Feature:
    def feature(seen: Transcript) -> str:
        found = numbers(seen.task)
        return found[place] if -len(found) <= place < len(found) else ""

    return feature


FEATURES: Mapping[str, Feature] = {
    "nothing": lambda seen: "",
    "length of the prompt": lambda seen: str(len(seen.task)),
    "lines of the prompt": lambda seen: str(seen.task.count("\n")),
    "length of the last result": lambda seen: str(len(seen.last_result)),
    **{f"number {place} of the prompt": _number(place) for place in range(_PLACES)},
    **{f"number {place} from its end": _number(-place) for place in range(1, _PLACES // 2)},
}
"""Simple facts about what was shown, on which an answer must not depend."""


@dataclass
class Guess:
    """Lookup of the answer by a feature of what was seen, learnt from examples.

    Attributes:
        feature: The name of the feature.
        rules: The best rules for each of its values, best first.
        others: The rules for values that were not seen.
    """

    feature: str = "nothing"
    rules: Mapping[str, Sequence[Rule]] = field(default_factory=dict)
    others: Sequence[Rule] = ()

    def pick(self, seen: Transcript) -> Iterator[str]:
        """Yield different answers, the likeliest first."""
        answers: set[str] = set()
        for rule in self.rules_for(seen):
            if (answer := rule.pick(seen)) is not None and answer not in answers:
                answers.add(answer)
                yield answer

    def rules_for(self, seen: Transcript) -> Iterator[Rule]:
        """Yield the rules for what was seen, the best first."""
        yield from self.rules.get(FEATURES[self.feature](seen), ())
        yield from self.others


def learn_guess(examples: Sequence[Example]) -> Guess:
    """Return the guess whose feature does best on examples that it was not learnt from."""
    right = [frozenset(rules) for rules in _right_rules(examples)]
    lessons = list(zip((seen for seen, _ in examples), right, strict=True))
    halves = lessons[::2], lessons[1::2]

    def hits(feature: str) -> int:
        return sum(_hits(_fit(feature, one), two) for one, two in (halves, halves[::-1]))

    best = max(FEATURES, key=hits)  # the first of equals: the simplest
    return _fit(best, lessons)


def _right_rules(examples: Sequence[Example]) -> Iterator[set[Rule]]:
    """Yield the rules that are right in each example."""
    marked = marked_selectors(examples)
    for seen, answer in examples:
        rules: set[Rule] = {Constant(answer), *matching_selectors(seen, answer)}
        yield rules | {rule for rule in marked if rule.pick(seen) == answer}


def _hits(guess: Guess, lessons: Sequence[Lesson]) -> int:
    """Return the number of lessons whose answer is guessed at once."""
    firsts = (next(guess.rules_for(seen), None) for seen, _ in lessons)
    return sum(rule in right for rule, (_, right) in zip(firsts, lessons, strict=True))


def _fit(feature: str, lessons: Sequence[Lesson]) -> Guess:
    total = Counter(rule for _, right in lessons for rule in right)
    bins: dict[str, Counter[Rule]] = defaultdict(Counter)
    for seen, right in lessons:
        bins[FEATURES[feature](seen)].update(right)
    # Of rules that do equally well in a bin, the one that does best elsewhere comes first.
    known = {
        value: sorted(hits, key=lambda rule: (-hits[rule], -total[rule], str(rule)))[:_RULES]
        for value, hits in bins.items()
    }
    others = sorted(total, key=lambda rule: (-total[rule], str(rule)))[:_RULES]
    return Guess(feature, known, others)
