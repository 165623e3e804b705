"""Draw an exam's first notice and later changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

from numpy.random import Generator

from agentgym.envs.loca.draws import pick, shuffled, whole
from agentgym.envs.loca.records import Record
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
# A changed exam, and the notices about the change.
Change: TypeAlias = tuple[Exam, list[Notice]]
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

    def __init__(self, rng: Generator, now: datetime, days: int) -> None:
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


@dataclass(frozen=True, slots=True)
class ExamStory:
    """Generator for successive notices about an exam.

    If `sure` is set, the exam is in the future and all facts are known.
    """

    rng: Generator
    setting: Setting
    timetable: Timetable
    past: float
    unknown: float
    sure: bool

    def first(self, exam: Exam) -> tuple[Exam, Notice]:
        """Draw the remaining facts of an exam, and the first notice."""
        exam = self._arranged(exam)
        return exam, ["opening", *self._all_of(exam), *self._persons(exam), *self._books(exam)]

    def change(self, exam: Exam) -> Change:
        """Draw a change to an exam, and the notices about the change."""
        changes: list[Callable[[Exam], Change]] = [self._restate, self._relocate]
        if exam.day and exam.time and self._begin(exam) > self.timetable.now:
            changes.append(self._move)
        if exam.minutes:
            changes.append(self._lengthen)
        if not self.sure:
            changes.append(self._call_off)
        return pick(self.rng, changes)(exam)

    def _begin(self, exam: Exam) -> datetime:
        begin = datetime.fromisoformat(f"{exam.day}T{exam.time}")
        return begin.replace(tzinfo=self.timetable.now.tzinfo)

    def _arranged(self, exam: Exam) -> Exam:
        begin = self.timetable.take()
        if self.rng.random() < self.past and not self.sure:
            back = (begin - self.timetable.now).days + whole(self.rng, 1, 9)
            begin -= timedelta(days=back)
        place = self.setting.midterm_place
        if not place or self.rng.random() >= INDIRECT_RATE / 2:
            place = draw_place(self.rng)
        exam = replace(
            exam,
            day=f"{begin:%Y-%m-%d}",
            time=f"{begin:%H:%M}",
            minutes=pick(self.rng, [90, 120, 150, 180]),
            place=place,
        )
        if self.rng.random() >= self.unknown or self.sure:
            return exam
        unknown: tuple[str, ...] = pick(self.rng, (("place",), ("minutes",), ("day", "time")))
        facts: Record = dict.fromkeys(unknown)
        return replace(exam, **facts)

    def _persons(self, exam: Exam) -> Notice:
        if exam.proctor:
            return [self._say("proctor", person=exam.proctor)]
        return [self._say("proctor_self")] if self.rng.random() < _ASIDES else []

    def _books(self, exam: Exam) -> Notice:
        if exam.books is None:
            return []
        if exam.books == OPEN:
            return [self._say("books_open")]
        return [self._say("books_closed")]

    def _restate(self, exam: Exam) -> Change:
        exam = self._arranged(exam)
        return exam, [["restated", *self._all_of(exam)]]

    def _relocate(self, exam: Exam) -> Change:
        exam = replace(exam, place=draw_place(self.rng, exam.place))
        return exam, [["again", self._where(exam), "keep"]]

    def _move(self, exam: Exam) -> Change:
        order = (self.rng.permutation(2 * _SHIFT + 1) - _SHIFT).tolist()
        days = self.timetable.move(self._begin(exam), order)
        if days is None or exam.day is None:
            return exam, []
        notice = ["again", self._say("later" if days > 0 else "earlier", days=abs(days))]
        return replace(exam, day=shift_day(exam.day, days)), [notice]

    def _lengthen(self, exam: Exam) -> Change:
        more = pick(self.rng, [15, 30])
        exam = replace(exam, minutes=(exam.minutes or 0) + more)
        return exam, [["again", self._say("longer", duration=more), "keep"]]

    def _call_off(self, exam: Exam) -> Change:
        notices = [["again", self._say("off")]]
        if self.rng.random() < 0.5:
            return replace(exam, held=False), notices
        return exam, [*notices, ["again", self._say("on")]]

    def _say(self, kind: str, **values: Any) -> str:
        return facts_book().write(kind, self.rng, **values)

    def _all_of(self, exam: Exam) -> list[str]:
        return [*self._when(exam), self._where(exam)]

    def _when(self, exam: Exam) -> list[str]:
        if exam.day is None or exam.time is None:
            return [self._say("when_open"), self._how_long(exam)]
        if exam.minutes is not None and self._by_way():
            finish = shift_time(exam.time, exam.minutes)
            if self.rng.integers(2):
                return [self._day(exam.day), self._say("span", time=exam.time, end_time=finish)]
            return [self._day(exam.day), self._say("end", end_time=finish, duration=exam.minutes)]
        return [self._day(exam.day), self._hour(exam.time), self._how_long(exam)]

    def _day(self, day: str) -> str:
        if not self._by_way():
            return self._say("date", date=day)
        other = shift_day(day, pick(self.rng, [-7, -3, -2, -1, 1, 2, 3, 7]))
        kinds: list[tuple[str, Record]] = [
            ("date_corrected", {"date": day, "old_date": other}),
            ("sections", self._sections(day, other)),
        ]
        for anchor in ("midterm", "project"):
            other_day = getattr(self.setting, anchor)
            if not other_day:
                continue
            days = (date.fromisoformat(day) - date.fromisoformat(other_day)).days
            if not 0 < abs(days) < _FAR or (days < 0 and anchor == "midterm"):
                continue
            begin = "after" if days > 0 else "before"
            kinds += [(f"{begin}_{anchor}", {"days": abs(days)})] * 2
        kind, values = pick(self.rng, kinds)
        return self._say(kind, **values)

    def _sections(self, day: str, other: str) -> Record:
        if self.rng.integers(2):
            number = self.setting.section
            return {"section_number": number, "section_date": day, "all_date": other}
        number = self.setting.section + whole(self.rng, 1, 9)
        return {"section_number": number, "section_date": other, "all_date": day}

    def _hour(self, time: str) -> str:
        if not self._by_way():
            return self._say("start", time=time)
        if self.rng.integers(2):
            gap = pick(self.rng, [15, 30])
            return self._say("doors", doors_time=shift_time(time, -gap), gap_duration=gap)
        shift = pick(self.rng, [-120, -60, 60, 120])
        return self._say("start_corrected", time=time, old_time=shift_time(time, shift))

    def _how_long(self, exam: Exam) -> str:
        others = {60, 90, 120, 150, 180} - {exam.minutes}
        return self._fact("duration", exam.minutes, lambda: int(self.rng.choice(sorted(others))))

    def _where(self, exam: Exam) -> str:
        if exam.place and exam.place == self.setting.midterm_place:
            return self._say("place_midterm")
        return self._fact("place", exam.place, lambda: draw_place(self.rng, exam.place))

    def _fact(self, kind: str, value: Any, draw_other: Callable[[], Any]) -> str:
        if value is None:
            return self._say(f"{kind}_open")
        if not self._by_way():
            return self._say(kind, **{kind: value})
        return self._say(f"{kind}_corrected", **{kind: value, f"old_{kind}": draw_other()})

    def _by_way(self) -> bool:
        return bool(self.rng.random() < INDIRECT_RATE)


def told(rng: Generator, notice: Notice) -> str:
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
