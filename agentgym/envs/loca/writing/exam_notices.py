"""Notices about exams in prose: their wording, from what is true of an exam, and their reading,
back to that.

A fact is stated by itself, or by way of another: relative to the midterm or to the deadline of the
projects, as a correction, for all sections but one, as the end of a span. Later notices change some
facts and leave the others as they were.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, TypeAlias

import numpy as np

from agentgym.envs.loca.draws import pick
from agentgym.envs.loca.writing.phrase_book import (
    COMMON_SLOTS,
    PhraseBook,
    Slot,
    load_texts,
    shift_day,
)

OPEN, CLOSED = "Open-book", "Closed-book"
BUILDINGS = (
    "Hall", "Lecture Theatre", "Gymnasium", "Computer Lab", "Seminar Room", "North Wing", "Old Library", "Auditorium",
    "Physics Annex", "Garden Pavilion", "Drawing Studio", "Assembly Room",
)  # fmt: skip
_FAR = 60
"""The most days that are counted from another date; a reader would lose count of more."""
_DAY = 24 * 60
"""Minutes of a day."""

Said: TypeAlias = Sequence[Any]
"""Something that a sentence says: its kind in the phrase book, and the values by slot."""


@dataclass(frozen=True, slots=True)
class Exam:
    """What is known of a final exam; None is what is not known yet.

    Attributes:
        day: ISO 8601.
        time: When it begins, as HH:MM.
        minutes: The duration.
        place: The room.
        proctor: Name and address, if it is not the teacher.
        books: `OPEN` or `CLOSED`, if a notice says so.
        held: False if there is none, or none any more.
    """

    day: str | None = None
    time: str | None = None
    minutes: int | None = None
    place: str | None = None
    proctor: str | None = None
    books: str | None = None
    held: bool = True


@dataclass(frozen=True, slots=True)
class Setting:
    """What notices about an exam refer to: the section of the course, day and room of the midterm,
    the deadline of the projects.
    """

    section: int
    midterm: str | None = None
    midterm_place: str | None = None
    project: str | None = None


SLOTS: Mapping[str, Slot] = {
    **COMMON_SLOTS,
    "place": Slot(rf"(?:{'|'.join(BUILDINGS)}) \d+"),
    "person": Slot(r"[A-Z][\w.' -]+ \([^()\s]+@[^()\s]+\)"),
    "course": Slot(r"[A-Z][\w',: -]*"),
}
"""The types of slots in the texts about exams."""


@functools.cache
def facts_book() -> PhraseBook:
    """Return the phrases that say something about exams."""
    return PhraseBook(load_texts("exam_facts"), SLOTS)


@functools.cache
def fillers_book() -> PhraseBook:
    """Return the phrases around them."""
    return PhraseBook(load_texts("exam_fillers"), SLOTS)


def read_notice(text: str) -> list[Said]:
    """Return what a text says about exams, in the order of its sentences."""
    return [[kind, values] for kind, values in facts_book().read(text)]


def by_kind(said: Iterable[Said]) -> dict[str, Any]:
    """Return the values of what was said last of each kind."""
    return {each[0]: each[1] for each in said}


def shift_time(time: str, minutes: int) -> str:
    """Return the time of day so many minutes later."""
    hour, minute = divmod((_minute_of_day(time) + minutes) % _DAY, 60)
    return f"{hour:02}:{minute:02}"


def _minute_of_day(time: str) -> int:
    hour, minute = time.split(":")
    return 60 * int(hour) + int(minute)


def _days_between(first: str, second: str) -> int:
    return (date.fromisoformat(second) - date.fromisoformat(first)).days


Update: TypeAlias = Callable[[Mapping[str, Any], Exam, Setting], Mapping[str, Any]]

UPDATES: Mapping[str, Update] = {
    "none": lambda said, exam, where: {"held": False},
    "off": lambda said, exam, where: {"held": False},
    "on": lambda said, exam, where: {"held": True},
    "date": lambda said, exam, where: {"day": said["date"]},
    "date_corrected": lambda said, exam, where: {"day": said["date"]},
    "after_midterm": lambda said, exam, where: {"day": _from(where.midterm, said["days"])},
    "after_project": lambda said, exam, where: {"day": _from(where.project, said["days"])},
    "before_project": lambda said, exam, where: {"day": _from(where.project, -said["days"])},
    "sections": lambda said, exam, where: {
        "day": said["section_date" if said["section_number"] == where.section else "all_date"]
    },
    "later": lambda said, exam, where: {"day": _from(exam.day, said["days"])},
    "earlier": lambda said, exam, where: {"day": _from(exam.day, -said["days"])},
    "start": lambda said, exam, where: {"time": said["time"]},
    "start_corrected": lambda said, exam, where: {"time": said["time"]},
    "doors": lambda said, exam, where: {
        "time": shift_time(said["doors_time"], said["gap_duration"])
    },
    "duration": lambda said, exam, where: {"minutes": said["duration"]},
    "duration_corrected": lambda said, exam, where: {"minutes": said["duration"]},
    "span": lambda said, exam, where: {
        "time": said["time"],
        "minutes": _minute_of_day(said["end_time"]) - _minute_of_day(said["time"]),
    },
    "end": lambda said, exam, where: {
        "time": shift_time(said["end_time"], -said["duration"]),
        "minutes": said["duration"],
    },
    "longer": lambda said, exam, where: {"minutes": (exam.minutes or 0) + said["duration"]},
    "place": lambda said, exam, where: {"place": said["place"]},
    "place_corrected": lambda said, exam, where: {"place": said["place"]},
    "place_midterm": lambda said, exam, where: {"place": where.midterm_place},
    "proctor": lambda said, exam, where: {"proctor": said["person"]},
    "proctor_self": lambda said, exam, where: {"proctor": None},
    "books_open": lambda said, exam, where: {"books": OPEN},
    "books_closed": lambda said, exam, where: {"books": CLOSED},
    "when_open": lambda said, exam, where: {"day": None, "time": None},
    "duration_open": lambda said, exam, where: {"minutes": None},
    "place_open": lambda said, exam, where: {"place": None},
}
"""What changes in an exam when a sentence of some kind is read."""


def _from(day: str | None, days: int) -> str:
    if day is None:
        raise ValueError("the day that another is counted from is not known")
    return shift_day(day, days)


def resolve(said: Iterable[Said], section: int) -> Exam | None:
    """Return an exam after all that was said about it, oldest first; None if nothing was."""
    facts = list(said)
    where = Setting(section)
    for kind, values in facts:
        if kind == "midterm":
            where = replace(where, midterm=values["date"], midterm_place=values["place"])
        elif kind == "project":
            where = replace(where, project=values["date"])
    exam = None
    for kind, values in facts:
        if update := UPDATES.get(kind):
            exam = exam or Exam()
            exam = replace(exam, **update(values, exam, where))
    return exam


class Wording:
    """Draws sentences about an exam.

    Args:
        rng: The generator to draw from.
        setting: What the sentences may refer to.
        indirect: The probability that a fact is told by way of another.
    """

    def __init__(self, rng: np.random.Generator, setting: Setting, indirect: float) -> None:
        self._rng = rng
        self._setting = setting
        self._indirect = indirect

    def say(self, kind: str, **values: Any) -> str:
        """Draw a sentence of a kind."""
        return facts_book().write(kind, self._rng, **values)

    def all_of(self, exam: Exam) -> list[str]:
        """Draw sentences on when, how long and where an exam is."""
        return [*self.when(exam), *self.where(exam)]

    def when(self, exam: Exam) -> list[str]:
        """Draw sentences on day, time and duration."""
        if exam.day is None or exam.time is None:
            return [self.say("when_open"), *self.how_long(exam)]
        if exam.minutes is not None and self._by_way():
            finish = shift_time(exam.time, exam.minutes)
            if self._rng.integers(2):
                return [self.day(exam.day), self.say("span", time=exam.time, end_time=finish)]
            return [self.day(exam.day), self.say("end", end_time=finish, duration=exam.minutes)]
        return [self.day(exam.day), self.hour(exam.time), *self.how_long(exam)]

    def day(self, day: str) -> str:
        """Draw a sentence on the day."""
        if not self._by_way():
            return self.say("date", date=day)
        other = shift_day(day, pick(self._rng, [-7, -3, -2, -1, 1, 2, 3, 7]))
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("date_corrected", {"date": day, "old_date": other}),
            ("sections", self._sections(day, other)),
        ]
        if self._setting.midterm and 0 < (days := _days_between(self._setting.midterm, day)) < _FAR:
            kinds += [("after_midterm", {"days": days})] * 2
        if self._setting.project:
            days = _days_between(self._setting.project, day)
            kind = "after_project" if days > 0 else "before_project"
            kinds += [(kind, {"days": abs(days)})] * 2 if 0 < abs(days) < _FAR else []
        kind, values = pick(self._rng, kinds)
        return self.say(kind, **values)

    def _sections(self, day: str, other: str) -> dict[str, Any]:
        """Draw which section is the exception; the day is that of the section of the course."""
        if self._rng.integers(2):
            number = self._setting.section
            return {"section_number": number, "section_date": day, "all_date": other}
        number = self._setting.section + int(self._rng.integers(1, 9))
        return {"section_number": number, "section_date": other, "all_date": day}

    def hour(self, time: str) -> str:
        """Draw a sentence on when it begins."""
        if not self._by_way():
            return self.say("start", time=time)
        if self._rng.integers(2):
            gap = pick(self._rng, [15, 30])
            return self.say("doors", doors_time=shift_time(time, -gap), gap_duration=gap)
        shift = pick(self._rng, [-120, -60, 60, 120])
        return self.say("start_corrected", time=time, old_time=shift_time(time, shift))

    def how_long(self, exam: Exam) -> list[str]:
        """Draw a sentence on the duration."""
        if exam.minutes is None:
            return [self.say("duration_open")]
        if not self._by_way():
            return [self.say("duration", duration=exam.minutes)]
        other = int(self._rng.choice([m for m in (60, 90, 120, 150, 180) if m != exam.minutes]))
        return [self.say("duration_corrected", duration=exam.minutes, old_duration=other)]

    def where(self, exam: Exam) -> list[str]:
        """Draw a sentence on the place."""
        if exam.place is None:
            return [self.say("place_open")]
        if exam.place == self._setting.midterm_place:
            return [self.say("place_midterm")]
        if not self._by_way():
            return [self.say("place", place=exam.place)]
        return [
            self.say(
                "place_corrected", place=exam.place, old_place=draw_place(self._rng, exam.place)
            )
        ]

    def _by_way(self) -> bool:
        return bool(self._rng.random() < self._indirect)


def draw_place(rng: np.random.Generator, other: str | None = None) -> str:
    """Draw a room that is not the other."""
    place = f"{pick(rng, BUILDINGS)} {int(rng.integers(1, 90))}"
    return draw_place(rng, other) if place == other else place
