"""Guess answers with constants, rules and lookup tables learnt from examples.

A rule, such as choosing the last option, must not find the answers of other episodes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mode

from agentgym.testing.playing import Transcript

# a transcript and the right answer as a string
Example = tuple[Transcript, str]

_WORD = re.compile(r'"[^"\n]+"|-?\d+(?:\.\d+)?(?![\w.])|\w(?:[\w.@/-]*\w)?')
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?!\w)")
_SEPARATORS = re.compile(r"[\n,;|:]+")
_LINES = re.compile(r"\n|\}, ?\{")

# number of positions to try at each end of a text
_ENDS = 12
# maximum number of marker words to try, the most frequent first
_MARKS = 6
# minimum share of examples in which a marker word shares a line with the answer
_MARK_SHARE = 0.6
# maximum length in characters of a line that may contain the answer
_LINE_CHARS = 2_000
# Maximum length in characters; the middle of longer texts is removed to save time.
_TEXT_CHARS = 40_000
# number of rules to keep per feature value
_RULES = 10
# this many numbers at a prompt's start, and fewer at its end, become features
_PLACES = 8


@dataclass(frozen=True)
class Selector:
    """Rule that selects a word, number or segment from an observation.

    Attributes:
        source: The text to read: `task`, or `result` for the results of the last reply.
        unit: What to select: `words`, `numbers` or `segments` between separators.
        mark: A word that the selected line must contain; empty for any line.
    """

    source: str
    unit: str
    rule: str
    place: int = 0
    mark: str = ""

    def pick(self, seen: Transcript) -> str | None:
        """Return the part that the rule selects, or None."""
        text = cut(_sources(seen)[self.source])
        if self.mark:
            text = next((line for line in _LINES.split(text) if self.mark in words(line)), "")
        parts = UNITS[self.unit](text)
        if self.place >= len(parts):  # rules in `EXTREMES` have the place 0 and need one part
            return None
        if self.rule == "front":
            return parts[self.place]
        if self.rule == "back":
            return parts[-1 - self.place]
        return EXTREMES[self.rule](parts)


def _sources(seen: Transcript) -> dict[str, str]:
    return {"task": seen.task, "result": seen.last_result}


def cut(text: str) -> str:
    """Remove the middle of a long text."""
    half = _TEXT_CHARS // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n{text[-half:]}"


def words(text: str) -> list[str]:
    """Return the words, numbers and quoted phrases in a text, without quotation marks."""
    return [word.strip('"') for word in _WORD.findall(text)]


def segments(text: str) -> list[str]:
    """Split a text at commas, colons, semicolons, vertical bars and line breaks."""
    parts = (part.strip(" .\"'[](){}") for part in _SEPARATORS.split(text))
    return list(filter(None, parts))


UNITS: Mapping[str, Callable[[str], list[str]]] = {
    "words": words,
    "numbers": _NUMBER.findall,
    "segments": segments,
}


def options(text: str) -> list[str]:
    """Return the longest comma-separated or bulleted list of options in a text."""
    rows: list[list[str]] = []
    bullets: list[str] = []
    for line in text.split("\n"):
        if "," in line:
            rows.append(segments(line.partition(":")[2] or line))
        item = line.strip()
        if item.startswith(("- ", "* ")):
            bullets.append(item[2:].strip())
    return max([*rows, bullets], key=len)


def _value(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else 0.0


EXTREMES: Mapping[str, Callable[[list[str]], str]] = {
    "longest": lambda parts: max(parts, key=len),
    "shortest": lambda parts: min(parts, key=len),
    "largest": lambda parts: max(parts, key=_value),
    "smallest": lambda parts: min(parts, key=_value),
    "most frequent": mode,
    "least frequent": lambda parts: Counter(parts).most_common()[-1][0],
    "first of all sorted": min,
    "last of all sorted": max,
}


def matching_selectors(seen: Transcript, answer: str) -> Iterable[Selector]:
    """Yield the rules that find an answer without a marker word."""
    for source, text in _sources(seen).items():
        for unit, split in UNITS.items():
            parts = split(cut(text))
            for place in range(min(_ENDS, len(parts))):
                if parts[place] == answer:
                    yield Selector(source, unit, "front", place)
                if parts[-1 - place] == answer:
                    yield Selector(source, unit, "back", place)
            if answer in parts:
                for rule, pick in EXTREMES.items():
                    if pick(parts) == answer:
                        yield Selector(source, unit, rule)


def marked_selectors(examples: Sequence[Example]) -> list[Selector]:
    """Return rules that read the answer from a line that contains a marker word."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    places: Counter[Selector] = Counter()
    for seen, answer in examples:
        for source, text in _sources(seen).items():
            lines = (line for line in _LINES.split(cut(text)) if len(line) < _LINE_CHARS)
            for parts in map(words, lines):
                if answer in parts:
                    marks = dict.fromkeys(parts)  # unlike a set, the same order in every process
                    del marks[answer]
                    found[source].update(list(marks))
                    places[Selector(source, "words", "front", parts.index(answer))] += 1
                    break
    selectors: list[Selector] = []
    for place, _ in places.most_common(_MARKS):
        for mark, count in found[place.source].most_common(4 * _MARKS):
            if count >= _MARK_SHARE * len(examples):
                selectors.append(replace(place, mark=mark))
    return selectors


@dataclass(frozen=True)
class Constant:
    """A constant answer."""

    text: str

    def pick(self, seen: Transcript) -> str | None:
        """Return the answer."""
        return self.text


Rule = Constant | Selector
# a transcript and the rules that find the right answer
Lesson = tuple[Transcript, frozenset[Rule]]
Feature = Callable[[Transcript], str]


def _number(place: int, seen: Transcript) -> str:
    try:
        return str(_NUMBER.findall(seen.task)[place])
    except IndexError:
        return ""


# simple features of an observation, which must not predict the answer
FEATURES: Mapping[str, Feature] = {
    "nothing": lambda seen: "",
    "length of the prompt": lambda seen: str(len(seen.task)),
    "lines of the prompt": lambda seen: str(seen.task.count("\n")),
    "length of the last result": lambda seen: str(len(seen.last_result)),
    **{f"number {k} of the prompt": partial(_number, k) for k in range(_PLACES)},
    **{f"number {k} from its end": partial(_number, -k) for k in range(1, _PLACES // 2)},
}


@dataclass
class Guess:
    """Guesser that chooses a rule according to one feature of the observation.

    `rules` lists the best rules for each feature value, best first.
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
        """Yield the rules for an observation, best first."""
        yield from self.rules.get(FEATURES[self.feature](seen), ())
        yield from self.others


def learn_guess(examples: Sequence[Example]) -> Guess:
    """Return a guesser based on the feature that performs best on held-out examples."""
    lessons = list(_lessons(examples))
    even, odd = lessons[::2], lessons[1::2]

    def hits(feature: str) -> int:
        return _hits(_fit(feature, even), odd) + _hits(_fit(feature, odd), even)

    return _fit(max(FEATURES, key=hits), lessons)


def _lessons(examples: Sequence[Example]) -> Iterator[Lesson]:
    marked = marked_selectors(examples)
    for seen, answer in examples:
        rules: set[Rule] = {Constant(answer), *matching_selectors(seen, answer)}
        rules.update(rule for rule in marked if rule.pick(seen) == answer)
        yield seen, frozenset(rules)


def _hits(guess: Guess, lessons: Sequence[Lesson]) -> int:
    return sum(next(guess.rules_for(seen), None) in right for seen, right in lessons)


def _fit(feature: str, lessons: Sequence[Lesson]) -> Guess:
    total: Counter[Rule] = Counter()
    bins: dict[str, Counter[Rule]] = defaultdict(Counter)
    for seen, right in lessons:
        total.update(right)
        bins[FEATURES[feature](seen)].update(right)
    known: dict[str, Sequence[Rule]] = {}
    for value, hits in bins.items():
        # Rank rules with equally many hits by their hits on all feature values.
        ranked = sorted(hits, key=lambda rule: (-hits[rule], -total[rule], str(rule)))
        known[value] = ranked[:_RULES]
    others = sorted(total, key=lambda rule: (-total[rule], str(rule)))[:_RULES]
    return Guess(feature, known, others)
