"""Phrase books, which write facts as sentences and read facts from sentences.

A phrase is a sentence with alternatives in brackets and slots in braces, such as `[It|The exam]
begins at {time}.` A phrase book groups phrases by kind. Phrases of one kind state the same fact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, TypeAlias

from numpy.random import Generator

from agentgym.envs.loca.draws import pick, shuffled, whole
from agentgym.envs.loca.records import Fields, Record

# The kind of a phrase, and the values in its slots.
Fact: TypeAlias = tuple[str, Record]
# Alternatives, a slot, or ordinary text.
_PIECE = re.compile(r"\[([^\[\]]*)\]|\{(\w+)\}|([^\[{]+|.)")
_BRACKETS = set("[]{}")
# Separator between sentences. Starting the pattern with whitespace makes the search fast.
_SENTENCE = re.compile(r"\s(?:(?<=[.!?]\s)\s*|(?<=\n)\n)")


@dataclass(frozen=True, slots=True)
class PhraseSlot:
    """Format of the values of one type. `pattern` must match every spelling of a value."""

    pattern: str
    write: Callable[[Any, Generator], str] = lambda value, rng: str(value)
    read: Callable[[str], Any] = str


class Phrase:
    """A sentence with alternatives and slots.

    `slots` maps each type to the format of the values. The last word of a slot name is the type, so
    `old_date` is a `date`. `count` is the number of possible combinations of alternatives.
    """

    def __init__(self, text: str, slots: Mapping[str, PhraseSlot]) -> None:
        self._slots: dict[str, PhraseSlot] = {}
        # In each form, strings and slot names alternate.
        self._forms, pattern = [[""]], ""
        for options, name, literal in _PIECE.findall(text):
            if name:
                slot = self._slots[name] = slots[name.rpartition("_")[2]]
                pattern += f"(?P<{name}>{slot.pattern})"
                for form in self._forms:
                    form += [name, ""]
                continue
            if not _BRACKETS.isdisjoint(options + literal):
                raise ValueError(
                    f"brackets must be closed and must not contain slots, got the phrase {text!r}"
                )
            alternatives = [literal] if literal else options.split("|")
            pattern += f"(?:{'|'.join(map(re.escape, alternatives))})"
            shorter, self._forms = self._forms, []
            for alternative in alternatives:
                self._forms += [[*form[:-1], form[-1] + alternative] for form in shorter]
        self.names = list(self._slots)
        self.count = len(self._forms)
        self._pattern = re.compile(pattern)

    def forms(self) -> Iterator[str]:
        """Yield the sentence for each combination of alternatives, with slots in braces."""
        braces = {name: f"{{{name}}}" for name in self.names}
        for form in self._forms:
            yield "".join(braces.get(part, part) for part in form)

    def write(self, rng: Generator, values: Fields) -> str:
        """Choose alternatives at random, and fill the slots with values."""
        texts = list(self._forms[whole(rng, self.count) if self.count > 1 else 0])
        for place in range(1, len(texts), 2):
            name = texts[place]
            texts[place] = self._slots[name].write(values[name], rng)
        return "".join(texts)

    def read(self, text: str, *, anywhere: bool = False) -> Record | None:
        """Return the slot values in a sentence, or None if the phrase does not match.

        With `anywhere`, search for the phrase in a longer text.
        """
        match = self._pattern.search(text) if anywhere else self._pattern.fullmatch(text)
        if match is None:
            return None
        return {name: slot.read(match[name]) for name, slot in self._slots.items()}


class PhraseBook:
    """Phrases, grouped by kind."""

    def __init__(
        self, phrases: Mapping[str, Sequence[str]], slots: Mapping[str, PhraseSlot]
    ) -> None:
        self.kinds: dict[str, Sequence[Phrase]] = {}
        # The phrases are indexed by first word, so that `read` tries only a few phrases.
        self._by_start: dict[str, list[tuple[str, Phrase]]] = {}
        for kind, texts in phrases.items():
            self.kinds[kind] = [Phrase(text, slots) for text in texts]
            for phrase in self.kinds[kind]:
                for start in set(map(_first_word, phrase.forms())):
                    self._by_start.setdefault(start, []).append((kind, phrase))

    def write(
        self, kind: str, rng: Generator, values: Fields | None = None, /, **named: Any
    ) -> str:
        """Draw a sentence of the given kind, with slot values from a mapping or keyword arguments."""
        return pick(rng, self.kinds[kind]).write(rng, named if values is None else values)

    def write_some(
        self, kind: str, rng: Generator, count: int, values: Callable[[], Fields]
    ) -> list[str]:
        """Draw sentences of one kind from different phrases, with new `values` for each sentence."""
        return [phrase.write(rng, values()) for phrase in shuffled(rng, self.kinds[kind], count)]

    def read(self, text: str) -> list[Fact]:
        """Return the kind and the values of each sentence that matches a phrase."""
        facts = map(self._read_sentence, sentences(text))
        return [fact for fact in facts if fact is not None]

    def find(self, text: str) -> Iterator[Fact]:
        """Yield the kind and the values of each phrase in a text, in the order of the phrase book.

        Use this method for text without reliable sentence ends, such as PDF text.
        """
        joined = " ".join(text.split())
        for kind, group in self.kinds.items():
            for phrase in group:
                values = phrase.read(joined, anywhere=True)
                if values is not None:
                    yield kind, values

    def _read_sentence(self, sentence: str) -> Fact | None:
        for start in (_first_word(sentence), ""):
            for kind, phrase in self._by_start.get(start, ()):
                values = phrase.read(sentence)
                if values is not None:
                    return kind, values
        return None


def _first_word(text: str) -> str:
    word = text.partition(" ")[0]
    if "{" in word:
        return ""
    return word


def sentences(text: str) -> list[str]:
    """Split a text into sentences, at empty lines and after punctuation marks."""
    parts = map(str.strip, _SENTENCE.split(text))
    return [part for part in parts if part]


YEAR = 2025
"""The year of dates that do not mention one."""
NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
DURATIONS = {
    15: ("15 minutes", "a quarter of an hour"),
    30: ("30 minutes", "half an hour"),
    60: ("60 minutes", "one hour"),
    90: ("90 minutes", "an hour and a half", "one and a half hours"),
    120: ("120 minutes", "two hours"),
    150: ("150 minutes", "two and a half hours"),
    180: ("180 minutes", "three hours"),
    210: ("210 minutes", "three and a half hours"),
}
_MINUTES = {text: minutes for minutes, texts in DURATIONS.items() for text in texts}
_MONTHS = [f"{date(YEAR, month, 1):%B}" for month in range(1, 13)]
_WEEKDAYS = [f"{date(YEAR, 9, day):%A}" for day in range(1, 8)]


def shift_day(day: str, days: int) -> str:
    """Add days to a date, and return the result in ISO 8601."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def _write_date(value: str, rng: Generator) -> str:
    day = date.fromisoformat(value)
    form, month = whole(rng, 5), _MONTHS[day.month - 1]
    if form == 4:
        return value
    text, year = f"{month} {day.day}", f", {day.year}"
    if form % 2:  # British
        text, year = f"{day.day} {month}", f" {day.year}"
    if day.year != YEAR:
        text += year
    if form > 1:
        return f"{_WEEKDAYS[day.weekday()]}, {text}"
    return text


def _read_date(text: str) -> str:
    if text[0].isdigit() and "-" in text:
        return date.fromisoformat(text).isoformat()
    words = [word for word in text.replace(",", "").split() if word not in _WEEKDAYS]
    [month] = [word for word in words if word in _MONTHS]
    words.remove(month)
    day, *year = map(int, words)
    return date(year[0] if year else YEAR, _MONTHS.index(month) + 1, day).isoformat()


def _write_time(value: str, rng: Generator) -> str:
    hour, minute = map(int, value.split(":"))
    if minute or hour == 12 or rng.integers(3):
        return value
    return f"{hour % 12} {'am' if hour < 12 else 'pm'}"


def _read_time(text: str) -> str:
    if ":" in text:
        return text
    hour, half = text.split()
    return f"{int(hour) + 12 * (half == 'pm'):02}:00"


def read_number(text: str) -> int:
    """Return the number that a word or digits express."""
    return NUMBERS.index(text) + 1 if text in NUMBERS else int(text)


def _write_days(value: int, rng: Generator) -> str:
    weeks, rest = divmod(value, 7)
    count, unit = value, "day"
    if rest == 0 and rng.integers(2):
        count, unit = weeks, "week"
    word = NUMBERS[count - 1] if count <= len(NUMBERS) else str(count)
    return f"{word} {unit}{'s' * (count > 1)}"


def _read_days(text: str) -> int:
    word, unit = text.split()
    return read_number(word) * (7 if unit.startswith("week") else 1)


def _write_duration(value: int, rng: Generator) -> str:
    return pick(rng, DURATIONS.get(value, (f"{value} minutes",)))


def _read_duration(text: str) -> int:
    return _MINUTES.get(text) or int(text.split(maxsplit=1)[0])


COMMON_SLOTS: Mapping[str, PhraseSlot] = {
    "date": PhraseSlot(
        r"\d{4}-\d\d-\d\d|"
        rf"(?:(?:{'|'.join(_WEEKDAYS)}), )?"
        rf"(?:\d{{1,2}} (?:{'|'.join(_MONTHS)})|(?:{'|'.join(_MONTHS)}) \d{{1,2}})(?:,? \d{{4}})?",
        _write_date,
        _read_date,
    ),
    "time": PhraseSlot(r"\d\d:\d\d|\d{1,2} [ap]m", _write_time, _read_time),
    "duration": PhraseSlot(rf"\d+ minutes|{'|'.join(_MINUTES)}", _write_duration, _read_duration),
    "days": PhraseSlot(rf"(?:{'|'.join(NUMBERS)}|\d+) (?:days?|weeks?)", _write_days, _read_days),
    "number": PhraseSlot(r"\d+", read=int),
    "name": PhraseSlot(r"[A-Z][\w' -]*"),
}
"""Slot types that several tasks share: ISO 8601 dates, HH:MM times, durations in minutes and day
counts.
"""
