"""Phrases of exam notices, and parsers that track the changing facts about an exam."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from numpy.random import Generator

from agentgym.envs.loca.draws import load_texts, pick, whole
from agentgym.envs.loca.records import Fields, Record
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook, PhraseSlot, shift_day

OPEN, CLOSED = "Open-book", "Closed-book"
_BUILDINGS: Sequence[str] = load_texts("names")["buildings"]

# A statement: the kind of phrase, and a mapping from slots to values.
Said: TypeAlias = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Exam:
    """Facts about a final exam. None means that a fact is unknown.

    Attributes:
        proctor: The name and email address of the proctor, if not the teacher.
        books: `OPEN` or `CLOSED`, for an open-book or closed-book exam.
        held: False if the course has no exam or the exam is cancelled.
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
    """Facts that notices refer to, such as the date of the midterm."""

    section: int
    midterm: str | None = None
    midterm_place: str | None = None
    project: str | None = None


SLOTS: Mapping[str, PhraseSlot] = {
    **COMMON_SLOTS,
    "place": PhraseSlot(rf"(?:{'|'.join(_BUILDINGS)}) \d+"),
    "person": PhraseSlot(r"[A-Z][\w.' -]+ \([^()\s]+@[^()\s]+\)"),
    "course": PhraseSlot(r"[A-Z][\w',: -]*"),
}


@functools.cache
def facts_book() -> PhraseBook:
    """Return the phrases that state facts about exams."""
    return PhraseBook(load_texts("exam_facts"), SLOTS)


@functools.cache
def fillers_book() -> PhraseBook:
    """Return the phrases that surround the facts in a notice."""
    return PhraseBook(load_texts("exam_fillers"), SLOTS)


def read_notice(text: str) -> list[Said]:
    """Return the statements about exams in a notice."""
    return [[kind, values] for kind, values in facts_book().read(text)]


def by_kind(said: Iterable[Said]) -> Record:
    """Return the values of the last statement of each kind."""
    return {each[0]: each[1] for each in said}


def shift_time(time: str, minutes: int) -> str:
    """Return the time of day `minutes` after `time`."""
    hour, minute = divmod((_minute_of_day(time) + minutes) % (24 * 60), 60)
    return f"{hour:02}:{minute:02}"


def _minute_of_day(time: str) -> int:
    hour, minute = time.split(":")
    return 60 * int(hour) + int(minute)


# Facts implied by the kind of a statement alone.
_FIXED: Mapping[str, Fields] = {
    "none": {"held": False},
    "off": {"held": False},
    "on": {"held": True},
    "proctor_self": {"proctor": None},
    "books_open": {"books": OPEN},
    "books_closed": {"books": CLOSED},
    "when_open": {"day": None, "time": None},
    "duration_open": {"minutes": None},
    "place_open": {"place": None},
}
# Maps kinds of statements to a slot and a field of `Exam`.
_STATED = {
    "date": ("date", "day"),
    "start": ("time", "time"),
    "duration": ("duration", "minutes"),
    "place": ("place", "place"),
    "proctor": ("person", "proctor"),
}
_DERIVED = set(
    "after_midterm after_project before_project sections later earlier doors span end longer "
    "place_midterm date_corrected start_corrected duration_corrected place_corrected".split()
)
# Kinds of statements that change an exam.
UPDATES = _FIXED.keys() | _STATED.keys() | _DERIVED


def _update(kind: str, said: Fields, exam: Exam, where: Setting) -> Exam:
    if kind in _FIXED:
        return replace(exam, **_FIXED[kind])
    stated = kind.removesuffix("_corrected")
    if stated in _STATED:
        slot, field = _STATED[stated]
        fact: Record = {field: said[slot]}
        return replace(exam, **fact)
    if kind == "place_midterm":
        return replace(exam, place=where.midterm_place)
    if kind in ("doors", "span", "end", "longer"):
        return _timed(kind, said, exam)
    if kind == "sections":
        slot = "section_date" if said["section_number"] == where.section else "all_date"
        return replace(exam, day=said[slot])
    begin, _, anchor = kind.partition("_")
    day = getattr(where, anchor) if anchor else exam.day
    if day is None:
        raise ValueError(f"{kind!r} requires an earlier statement of the reference day")
    sign = 1 if begin in ("after", "later") else -1
    return replace(exam, day=shift_day(day, sign * said["days"]))


def _timed(kind: str, said: Fields, exam: Exam) -> Exam:
    if kind == "longer":
        return replace(exam, minutes=(exam.minutes or 0) + said["duration"])
    if kind == "doors":
        return replace(exam, time=shift_time(said["doors_time"], said["gap_duration"]))
    if kind == "end":
        minutes = said["duration"]
        return replace(exam, time=shift_time(said["end_time"], -minutes), minutes=minutes)
    minutes = _minute_of_day(said["end_time"]) - _minute_of_day(said["time"])
    return replace(exam, time=said["time"], minutes=minutes)


def resolve(said: Iterable[Said], section: int) -> Exam | None:
    """Build an exam from statements, oldest first; return None if no statement is about an exam."""
    facts = list(said)
    where = Setting(section)
    for kind, values in facts:
        if kind == "midterm":
            where = replace(where, midterm=values["date"], midterm_place=values["place"])
        elif kind == "project":
            where = replace(where, project=values["date"])
    exam = None
    for kind, values in facts:
        if kind in UPDATES:
            exam = _update(kind, values, exam or Exam(), where)
    return exam


def draw_place(rng: Generator, other: str | None = None) -> str:
    """Draw a room other than `other`."""
    place = f"{pick(rng, _BUILDINGS)} {whole(rng, 1, 90)}"
    return draw_place(rng, other) if place == other else place
