"""Dates, times and counts in the words of office texts; see `phrase_book.py`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import numpy as np

from agentgym.envs.loca.phrase_book import Slot

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
    texts = DURATIONS.get(value, (f"{value} minutes",))
    return texts[int(rng.integers(len(texts)))]


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
