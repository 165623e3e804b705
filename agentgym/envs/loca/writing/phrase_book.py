"""Phrase books: the sentences of office texts as data, which write facts in words and read them
back.

A phrase is a sentence with alternatives in brackets and slots in braces: `[It|The exam] begins at
{time}.` A book has phrases by kind, which is what they say. Slots that texts of several tasks have
are at the end.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.envs.loca.draws import pick, shuffled

TEXTS = Path(__file__).parents[1] / "texts"
_PIECE = re.compile(r"\[([^\[\]]*)\]|\{(\w+)\}")
_SENTENCE = re.compile(r"\s(?:(?<=[.!?]\s)\s*|(?<=\n)\n)")
"""What stands between sentences. It begins with a blank, for which the text is searched fast."""


@dataclass(frozen=True, slots=True)
class Slot:
    """How values of one type stand in a sentence.

    Attributes:
        pattern: A regular expression without groups of all the forms that `write` draws.
        write: Draws a form of a value.
        read: Returns the value of a form.
    """

    pattern: str
    write: Callable[[Any, np.random.Generator], str] = lambda value, rng: str(value)
    read: Callable[[str], Any] = str


Parts = Sequence[tuple[str, ...] | str]
"""A phrase: alternatives, and the names of slots."""


class Phrase:
    """A sentence with alternatives and slots.

    Args:
        text: The sentence.
        slots: Slots by type; `old_date` is of the type `date`.
    """

    def __init__(self, text: str, slots: Mapping[str, Slot]) -> None:
        self.parts = _split(text)
        self.names = [part for part in self.parts if isinstance(part, str)]
        self._slots = {name: slots[name.rpartition("_")[2]] for name in self.names}
        self.count = math.prod(len(part) for part in self.parts if isinstance(part, tuple))
        self._pattern = re.compile(
            "".join(
                f"(?P<{part}>{self._slots[part].pattern})"
                if isinstance(part, str)
                else f"(?:{'|'.join(map(re.escape, part))})"
                for part in self.parts
            )
        )
        self._forms: dict[int, list[str]] = {}

    def forms(self) -> Iterator[str]:
        """Yield the sentence with each choice of alternatives, slots in braces."""
        parts = [part if isinstance(part, tuple) else (f"{{{part}}}",) for part in self.parts]
        yield from map("".join, itertools.product(*parts))

    def write(self, rng: np.random.Generator, values: Mapping[str, Any]) -> str:
        """Draw a form of the sentence with values in its slots."""
        form = self._form(int(rng.integers(self.count)) if self.count > 1 else 0)
        texts = list(form)
        for place in range(1, len(form), 2):
            texts[place] = self._slots[form[place]].write(values[form[place]], rng)
        return "".join(texts)

    def _form(self, number: int) -> list[str]:
        """Return the form of a number: texts, and between them the names of slots. It is made once,
        as most sentences are drawn many times.
        """
        form = self._forms.get(number)
        if form is None:
            form, rest = [""], number
            for part in self.parts:
                if isinstance(part, str):
                    form += [part, ""]
                else:
                    rest, place = divmod(rest, len(part))
                    form[-1] += part[place]
            self._forms[number] = form
        return form

    def read(self, sentence: str) -> dict[str, Any] | None:
        """Return the values in a sentence; None if it is another sentence."""
        match = self._pattern.fullmatch(sentence)
        return None if match is None else self._values(match)

    def find(self, text: str) -> dict[str, Any] | None:
        """Return the values in the first place of a text that has the sentence; None without one."""
        match = self._pattern.search(text)
        return None if match is None else self._values(match)

    def _values(self, match: re.Match[str]) -> dict[str, Any]:
        return {name: self._slots[name].read(match[name]) for name in self.names}


class PhraseBook:
    """Phrases by kind.

    Args:
        phrases: The texts of the phrases, by kind.
        slots: See `Phrase`.
    """

    def __init__(self, phrases: Mapping[str, Sequence[str]], slots: Mapping[str, Slot]) -> None:
        self.kinds = {
            kind: tuple(Phrase(text, slots) for text in texts) for kind, texts in phrases.items()
        }
        # Phrases by the first and last words of the sentence: most others need not be tried.
        self._by_ends: dict[str, dict[str, list[tuple[str, Phrase]]]] = {}
        for kind, group in self.kinds.items():
            for phrase in group:
                for start, end in {_literal_ends(form) for form in phrase.forms()}:
                    by_end = self._by_ends.setdefault(start, {})
                    by_end.setdefault(end, []).append((kind, phrase))

    def write(
        self,
        kind: str,
        rng: np.random.Generator,
        idle: Mapping[str, Any] | None = None,
        /,
        **values: Any,
    ) -> str:
        """Draw a sentence that says something of a kind, with values by name or, where nothing
        depends on them, those of `idle`.
        """
        return pick(rng, self.kinds[kind]).write(rng, values if idle is None else idle)

    def write_some(
        self,
        kind: str,
        rng: np.random.Generator,
        count: int,
        values: Callable[[], Mapping[str, Any]],
    ) -> list[str]:
        """Draw sentences of a kind by different phrases; `values` draws those of each."""
        return [phrase.write(rng, values()) for phrase in shuffled(rng, self.kinds[kind], count)]

    def read(self, text: str) -> list[tuple[str, dict[str, Any]]]:
        """Return what the sentences of a text say, in their order: kind and values, without those
        that are in no phrase of the book.
        """
        return [fact for each in sentences(text) if (fact := self._read_sentence(each)) is not None]

    def find(self, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what the phrases that occur in a text say, in the order of the book; for texts whose
        sentences and lines cannot be told apart, such as those of PDF files.
        """
        joined = " ".join(text.split())
        for kind, group in self.kinds.items():
            for phrase in group:
                if (values := phrase.find(joined)) is not None:
                    yield kind, values

    def _read_sentence(self, sentence: str) -> tuple[str, dict[str, Any]] | None:
        starts, ends = _ends(sentence)
        for start in starts:
            if by_end := self._by_ends.get(start):
                for end in ends:
                    for kind, phrase in by_end.get(end, ()):
                        if (values := phrase.read(sentence)) is not None:
                            return kind, values
        return None


def sentences(text: str) -> list[str]:
    """Split a text into sentences, which end with a mark and a blank or an empty line."""
    return [sentence for part in _SENTENCE.split(text) if (sentence := part.strip())]


def load_texts(name: str) -> dict[str, Any]:
    """Return the tables of a file of texts."""
    return tomllib.loads((TEXTS / f"{name}.toml").read_text(encoding="utf-8"))


def _split(text: str) -> Parts:
    parts: list[tuple[str, ...] | str] = []
    end = 0
    for match in _PIECE.finditer(text):
        parts.append((text[end : match.start()],))
        parts.append(match[2] or tuple(match[1].split("|")))
        end = match.end()
    return [part for part in [*parts, (text[end:],)] if part != ("",)]


def _ends(text: str) -> tuple[tuple[str, str, str], tuple[str, str]]:
    """Return the first two words of a sentence, the first and none, and its last word and none."""
    first, _, rest = text.partition(" ")
    return (f"{first} {rest.partition(' ')[0]}", first, ""), (text.rpartition(" ")[2], "")


def _literal_ends(form: str) -> tuple[str, str]:
    """Return the most words at the start and at the end of a form of a phrase that no slot is in."""
    starts, ends = _ends(form)
    start, end = (next(text for text in texts if "{" not in text) for texts in (starts, ends))
    return start, end


YEAR = 2025
"""The year of dates that name none."""
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
    """Return the day so many days later, both in ISO 8601."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def _write_date(value: str, rng: np.random.Generator) -> str:
    day = date.fromisoformat(value)
    form, month = int(rng.integers(5)), _MONTHS[day.month - 1]
    if form == 4:
        return value
    british = form % 2
    text = f"{day.day} {month}" if british else f"{month} {day.day}"
    if day.year != YEAR:
        text += f" {day.year}" if british else f", {day.year}"
    return f"{_WEEKDAYS[day.weekday()]}, {text}" if form > 1 else text


def _read_date(text: str) -> str:
    if text[0].isdigit() and "-" in text:
        return date.fromisoformat(text).isoformat()
    words = [word for word in text.replace(",", "").split() if word not in _WEEKDAYS]
    [month] = [word for word in words if word in _MONTHS]
    day, *year = [int(word) for word in words if word != month]
    return date(year[0] if year else YEAR, _MONTHS.index(month) + 1, day).isoformat()


def _write_time(value: str, rng: np.random.Generator) -> str:
    hour, minute = map(int, value.split(":"))
    if minute or hour == 12 or rng.integers(3):
        return value
    return f"{hour % 12} {'am' if hour < 12 else 'pm'}"


def _read_time(text: str) -> str:
    if ":" in text:
        return text
    hour, half = text.split()
    return f"{int(hour) + 12 * (half == 'pm'):02}:00"


def _write_days(value: int, rng: np.random.Generator) -> str:
    weeks, rest = divmod(value, 7)
    count, unit = (weeks, "week") if rest == 0 and rng.integers(2) else (value, "day")
    word = NUMBERS[count - 1] if count <= len(NUMBERS) else str(count)
    return f"{word} {unit}{'s' * (count > 1)}"


def _read_days(text: str) -> int:
    word, unit = text.split()
    count = NUMBERS.index(word) + 1 if word in NUMBERS else int(word)
    return count * (7 if unit.startswith("week") else 1)


def _write_duration(value: int, rng: np.random.Generator) -> str:
    return pick(rng, DURATIONS.get(value, (f"{value} minutes",)))


def _read_duration(text: str) -> int:
    return _MINUTES[text] if text in _MINUTES else int(text.split(maxsplit=1)[0])


COMMON_SLOTS: Mapping[str, Slot] = {
    "date": Slot(
        r"\d{4}-\d\d-\d\d|"
        rf"(?:(?:{'|'.join(_WEEKDAYS)}), )?"
        rf"(?:\d{{1,2}} (?:{'|'.join(_MONTHS)})|(?:{'|'.join(_MONTHS)}) \d{{1,2}})(?:,? \d{{4}})?",
        _write_date,
        _read_date,
    ),
    "time": Slot(r"\d\d:\d\d|\d{1,2} [ap]m", _write_time, _read_time),
    "duration": Slot(rf"\d+ minutes|{'|'.join(_MINUTES)}", _write_duration, _read_duration),
    "days": Slot(rf"(?:{'|'.join(NUMBERS)}|\d+) (?:days?|weeks?)", _write_days, _read_days),
    "number": Slot(r"\d+", read=int),
    "name": Slot(r"[A-Z][\w' -]*"),
}
"""The types of slots that texts of several tasks have: dates in ISO 8601, times as HH:MM, durations in
minutes, counts of days.
"""
