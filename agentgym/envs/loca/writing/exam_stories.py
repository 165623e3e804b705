"""Draw an exam's first notice and later changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np

from agentgym.envs.loca.draws import pick, shuffled, whole
from agentgym.envs.loca.writing.exam_notices import (
    OPEN,
    Exam,
    Setting,
    draw_place,
    facts_book,
    fillers_book,
    shift_time,
)
from agentgym.envs.loca.writing.phrase_book import shift_day

Notice = list[str]
# Probability that a notice states a fact indirectly: relative to the midterm, as a correction, or
# for all sections except one.
INDIRECT_RATE = 0.5
# Maximum distance in days between an exam and the date that a notice refers to.
_FAR = 60
# Maximum number of days by which an exam is moved.
_SHIFT = 30
# Probability that a notice states an obvious fact.
_ASIDES = 0.15


class Timetable:
    """Free hours after `now`, each for at most one exam."""

    def __init__(self, rng: np.random.Generator, now: datetime, days: int) -> None:
        self.now = now
        midnight, hours = now.replace(hour=0), []
        for day, hour in itertools.product(range(days), [*range(7, 12), *range(13, 19)]):
            begin = midnight + timedelta(days=day, hours=hour)
            if begin > now:
                hours.append(begin)
        self.free = dict.fromkeys(shuffled(rng, hours))

    def take(self) -> datetime:
        """Remove and return a free hour."""
        return self.free.popitem()[0]

    def move(self, begin: datetime, order: Sequence[int]) -> int | None:
        """Reserve the same hour on another day; try the day offsets in `order`, and return the offset."""
        for days in order:
            if (hour := begin + timedelta(days=days)) in self.free:
                del self.free[hour]
                return days
        return None


class ExamStory:
    """Generator for successive notices about an exam.

    If `sure` is set, the exam is in the future and all facts are known.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        setting: Setting,
        timetable: Timetable,
        *,
        past: float,
        unknown: float,
        sure: bool,
    ) -> None:
        self._rng = rng
        self._setting = setting
        self._timetable = timetable
        self._past, self._unknown = (0.0, 0.0) if sure else (past, unknown)
        self._sure = sure

    def first(self, exam: Exam) -> tuple[Exam, Notice]:
        """Draw the remaining facts of an exam, and the first notice."""
        exam = self._arranged(exam)
        return exam, ["opening", *self._all_of(exam), *self._persons(exam), *self._books(exam)]

    def change(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        """Draw a change to an exam, and the notices about the change."""
        changes: list[Callable[[Exam], tuple[Exam, list[Notice]]]] = [self._restate, self._relocate]
        if exam.day and exam.time and self._begin(exam) > self._timetable.now:
            changes.append(self._move)
        if exam.minutes:
            changes.append(self._lengthen)
        if not self._sure:
            changes.append(self._call_off)
        return pick(self._rng, changes)(exam)

    def _begin(self, exam: Exam) -> datetime:
        begin = datetime.fromisoformat(f"{exam.day}T{exam.time}")
        return begin.replace(tzinfo=self._timetable.now.tzinfo)

    def _arranged(self, exam: Exam) -> Exam:
        begin = self._timetable.take()
        if self._rng.random() < self._past:
            back = (begin - self._timetable.now).days + whole(self._rng, 1, 9)
            begin -= timedelta(days=back)
        place = self._setting.midterm_place
        if not place or self._rng.random() >= INDIRECT_RATE / 2:
            place = draw_place(self._rng)
        exam = replace(
            exam,
            day=f"{begin:%Y-%m-%d}",
            time=f"{begin:%H:%M}",
            minutes=pick(self._rng, [90, 120, 150, 180]),
            place=place,
        )
        if self._rng.random() >= self._unknown:
            return exam
        unknown: tuple[str, ...] = pick(self._rng, (("place",), ("minutes",), ("day", "time")))
        facts: dict[str, Any] = dict.fromkeys(unknown)
        return replace(exam, **facts)

    def _persons(self, exam: Exam) -> Notice:
        if exam.proctor:
            return [self._say("proctor", person=exam.proctor)]
        return [self._say("proctor_self")] if self._rng.random() < _ASIDES else []

    def _books(self, exam: Exam) -> Notice:
        if exam.books is None:
            return []
        if exam.books == OPEN:
            return [self._say("books_open")]
        return [self._say("books_closed")]

    def _restate(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        exam = self._arranged(exam)
        return exam, [["restated", *self._all_of(exam)]]

    def _relocate(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        exam = replace(exam, place=draw_place(self._rng, exam.place))
        return exam, [["again", *self._where(exam), "keep"]]

    def _move(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        order = (self._rng.permutation(2 * _SHIFT + 1) - _SHIFT).tolist()
        days = self._timetable.move(self._begin(exam), order)
        if days is None or exam.day is None:
            return exam, []
        notice = ["again", self._say("later" if days > 0 else "earlier", days=abs(days))]
        return replace(exam, day=shift_day(exam.day, days)), [notice]

    def _lengthen(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        more = pick(self._rng, [15, 30])
        exam = replace(exam, minutes=(exam.minutes or 0) + more)
        return exam, [["again", self._say("longer", duration=more), "keep"]]

    def _call_off(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        notices = [["again", self._say("off")]]
        if self._rng.random() < 0.5:
            return replace(exam, held=False), notices
        return exam, [*notices, ["again", self._say("on")]]

    def _say(self, kind: str, **values: Any) -> str:
        return facts_book().write(kind, self._rng, **values)

    def _all_of(self, exam: Exam) -> list[str]:
        return [*self._when(exam), *self._where(exam)]

    def _when(self, exam: Exam) -> list[str]:
        if exam.day is None or exam.time is None:
            return [self._say("when_open"), *self._how_long(exam)]
        if exam.minutes is not None and self._by_way():
            finish = shift_time(exam.time, exam.minutes)
            if self._rng.integers(2):
                return [self._day(exam.day), self._say("span", time=exam.time, end_time=finish)]
            return [self._day(exam.day), self._say("end", end_time=finish, duration=exam.minutes)]
        return [self._day(exam.day), self._hour(exam.time), *self._how_long(exam)]

    def _day(self, day: str) -> str:
        if not self._by_way():
            return self._say("date", date=day)
        other = shift_day(day, pick(self._rng, [-7, -3, -2, -1, 1, 2, 3, 7]))
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("date_corrected", {"date": day, "old_date": other}),
            ("sections", self._sections(day, other)),
        ]
        for anchor in ("midterm", "project"):
            other_day = getattr(self._setting, anchor)
            days = _days_between(other_day, day) if other_day else 0
            if not 0 < abs(days) < _FAR or (days < 0 and anchor == "midterm"):
                continue
            begin = "after" if days > 0 else "before"
            kinds += [(f"{begin}_{anchor}", {"days": abs(days)})] * 2
        kind, values = pick(self._rng, kinds)
        return self._say(kind, **values)

    def _sections(self, day: str, other: str) -> dict[str, Any]:
        if self._rng.integers(2):
            number = self._setting.section
            return {"section_number": number, "section_date": day, "all_date": other}
        number = self._setting.section + whole(self._rng, 1, 9)
        return {"section_number": number, "section_date": other, "all_date": day}

    def _hour(self, time: str) -> str:
        if not self._by_way():
            return self._say("start", time=time)
        if self._rng.integers(2):
            gap = pick(self._rng, [15, 30])
            return self._say("doors", doors_time=shift_time(time, -gap), gap_duration=gap)
        shift = pick(self._rng, [-120, -60, 60, 120])
        return self._say("start_corrected", time=time, old_time=shift_time(time, shift))

    def _how_long(self, exam: Exam) -> list[str]:
        if exam.minutes is None:
            return [self._say("duration_open")]
        if not self._by_way():
            return [self._say("duration", duration=exam.minutes)]
        others = {60, 90, 120, 150, 180} - {exam.minutes}
        other = int(self._rng.choice(sorted(others)))
        return [self._say("duration_corrected", duration=exam.minutes, old_duration=other)]

    def _where(self, exam: Exam) -> list[str]:
        if exam.place is None:
            return [self._say("place_open")]
        if exam.place == self._setting.midterm_place:
            return [self._say("place_midterm")]
        if not self._by_way():
            return [self._say("place", place=exam.place)]
        other = draw_place(self._rng, exam.place)
        return [self._say("place_corrected", place=exam.place, old_place=other)]

    def _by_way(self) -> bool:
        return bool(self._rng.random() < INDIRECT_RATE)


def _days_between(first: str, second: str) -> int:
    return (date.fromisoformat(second) - date.fromisoformat(first)).days


def told(rng: np.random.Generator, notice: Notice) -> str:
    """Return a notice as a string, with filler phrases and remarks."""
    fillers = fillers_book()
    texts = list(notice)
    for place, part in enumerate(notice):
        if part in fillers.kinds:
            texts[place] = fillers.write(part, rng)
    remarks = shuffled(rng, fillers.kinds["remark"])
    for remark in remarks[: 1 + whole(rng, 2)]:
        texts.insert(1 + whole(rng, len(texts)), remark.write(rng, {}))
    half = 1 + (len(texts) - 1) // 2
    return " ".join(texts[:half]) + "\n\n" + " ".join(texts[half:])
