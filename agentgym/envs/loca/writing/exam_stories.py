"""Draw the history of an exam: a first notice, and later ones that change parts of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from agentgym.envs.loca.draws import pick, shuffled
from agentgym.envs.loca.writing.exam_notices import (
    OPEN,
    Exam,
    Setting,
    Wording,
    draw_place,
    fillers_book,
)
from agentgym.envs.loca.writing.phrase_book import shift_day

Notice = list[str]
"""The sentences of a notice."""
# Maximum shift of an exam in days.
_SHIFT = 30
# Probability that a notice mentions an obvious fact.
_ASIDES = 0.15


class Timetable:
    """Free hours after `now`; each hour has one exam."""

    def __init__(self, rng: np.random.Generator, now: datetime, days: int) -> None:
        midnight, starts = now.replace(hour=0), [*range(7, 12), *range(13, 19)]
        hours = [midnight + timedelta(days=d, hours=h) for d in range(days) for h in starts]
        self.now = now
        self.free = dict.fromkeys(shuffled(rng, [hour for hour in hours if hour > now]))

    def take(self) -> datetime:
        """Remove and return a free hour."""
        return self.free.popitem()[0]

    def move(self, begin: datetime, order: Sequence[int]) -> int | None:
        """Take the same hour on another day, and return the first free shift of `order` in days."""
        for days in order:
            if (hour := begin + timedelta(days=days)) in self.free:
                del self.free[hour]
                return days
        return None


class ExamStory(Wording):
    """Draw successive notices about an exam.

    The exam is over with the probability `past`, and a fact about it is unknown with the
    probability `unknown`, unless the exam is `sure`.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        setting: Setting,
        timetable: Timetable,
        *,
        indirect: float,
        past: float,
        unknown: float,
        sure: bool,
    ) -> None:
        super().__init__(rng, setting, indirect)
        self._timetable = timetable
        self._past, self._unknown = (0.0, 0.0) if sure else (past, unknown)
        self._sure = sure

    def first(self, exam: Exam) -> tuple[Exam, Notice]:
        """Draw time and place of an exam with known proctor and books, and its first notice."""
        exam = self._arranged(exam)
        return exam, ["opening", *self.all_of(exam), *self._persons(exam), *self._books(exam)]

    def change(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        """Draw a change of an exam and the notices about it."""
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
            back = (begin - self._timetable.now).days + int(self._rng.integers(1, 9))
            begin -= timedelta(days=back)
        same = self._setting.midterm_place
        place = same if same and self._rng.random() < self._indirect / 2 else draw_place(self._rng)
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
            return [self.say("proctor", person=exam.proctor)]
        return [self.say("proctor_self")] if self._rng.random() < _ASIDES else []

    def _books(self, exam: Exam) -> Notice:
        if exam.books is None:
            return []
        return [self.say("books_open" if exam.books == OPEN else "books_closed")]

    def _restate(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        exam = self._arranged(exam)
        return exam, [["restated", *self.all_of(exam)]]

    def _relocate(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        exam = replace(exam, place=draw_place(self._rng, exam.place))
        return exam, [["again", *self.where(exam), "keep"]]

    def _move(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        order = (self._rng.permutation(2 * _SHIFT + 1) - _SHIFT).tolist()
        days = self._timetable.move(self._begin(exam), order)
        if days is None or exam.day is None:
            return exam, []
        notice = ["again", self.say("later" if days > 0 else "earlier", days=abs(days))]
        return replace(exam, day=shift_day(exam.day, days)), [notice]

    def _lengthen(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        more = pick(self._rng, [15, 30])
        exam = replace(exam, minutes=(exam.minutes or 0) + more)
        return exam, [["again", self.say("longer", duration=more), "keep"]]

    def _call_off(self, exam: Exam) -> tuple[Exam, list[Notice]]:
        notices = [["again", self.say("off")]]
        if self._rng.random() < 0.5:
            return replace(exam, held=False), notices
        return exam, [*notices, ["again", self.say("on")]]


def told(rng: np.random.Generator, notice: Notice) -> str:
    """Return a notice as text with fillers, remarks and paragraphs."""
    fillers = fillers_book()
    texts = [fillers.write(part, rng) if part in fillers.kinds else part for part in notice]
    remarks = shuffled(rng, fillers.kinds["remark"])
    for remark in remarks[: 1 + int(rng.integers(2))]:
        texts.insert(1 + int(rng.integers(len(texts))), remark.write(rng, {}))
    half = 1 + (len(texts) - 1) // 2
    return " ".join(texts[:half]) + "\n\n" + " ".join(texts[half:])
