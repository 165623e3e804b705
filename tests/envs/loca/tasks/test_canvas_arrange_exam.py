from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, time, timedelta
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.tasks.canvas_arrange_exam import (
    BOOKS,
    CODE,
    COLUMNS,
    DATE,
    DURATION,
    FILE,
    LOGIN,
    NAME,
    PLACE,
    PROCTOR,
    PROCTOR_EMAIL,
    SOURCE,
    START,
    TBD,
    TIME,
)  # fmt: skip
from agentgym.envs.loca.writing.exam_stories import Timetable
from agentgym.office.canvas.server import Canvas
from agentgym.office.email.server import Email
from agentgym.office.spreadsheet.workbooks import read_workbook, write_workbook
from tests.envs.loca.exam_reader import Reader, is_exempt
from tests.envs.loca.office import Change, Rows, each_cell, final_state_tests, fresh, one_cell

TASK = "CanvasArrangeExam"
OPTIONS = {"length": 16_000, "seed": 3}


def rows_of(world: Any) -> Rows:
    return next(iter(read_workbook(world.office.context.files.read(FILE)).values()))


def rewrite(change: Callable[[Rows], Rows], title: str = "Sheet1") -> Change:
    return lambda world: world.office.context.files.write(
        FILE, write_workbook({title: change(rows_of(world))})
    )


def cell(column: str, change: Callable[[Any], Any], row: int = 1) -> Change:
    return rewrite(one_cell(row, COLUMNS.index(column), change))


def each(column: str, change: Callable[[Any], Any]) -> Change:
    return rewrite(each_cell(COLUMNS.index(column), change))


def excel_date(text: str) -> Any:
    return text if text == TBD else datetime.strptime(text, "%m/%d/%Y")


def excel_time(text: str) -> Any:
    return text if text == TBD else time.fromisoformat(text)


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "the section is left on the code": (cell(CODE, lambda code: f"{code}-1"), "is missing"),
    "the section is left on the name": (cell(NAME, lambda name: f"{name}-1"), NAME),
    "a name cut at its hyphen": (each(NAME, lambda name: name.partition("-")[0][:4]), NAME),
    "one letter for a proctor": (cell(PROCTOR, lambda name: name[0]), PROCTOR),
    "a day late": (
        cell(DATE, lambda text: text[:3] + f"{int(text[3:5]) % 28 + 1:02}" + text[5:]),
        DATE,
    ),
    "day and month swapped": (
        each(DATE, lambda text: text if text == TBD else f"{text[3:5]}/{text[:2]}{text[5:]}"),
        DATE,
    ),
    "an hour late": (cell(TIME, lambda text: f"{int(text[:2]) + 1:02}{text[2:]}"), TIME),
    "another duration": (cell(DURATION, lambda value: 45), DURATION),
    "books swapped": (
        cell(BOOKS, lambda text: "Open-book" if text.startswith("C") else "Closed-book"),
        BOOKS,
    ),
    "another source": (cell(SOURCE, lambda text: "Message"), SOURCE),
}
EQUIVALENTS: dict[str, Change] = {
    "titles of the proctors": each(PROCTOR, lambda name: f"Prof. Dr. {name}"),
    "dates of Excel": each(DATE, excel_date),
    "times of Excel": each(TIME, excel_time),
    "dates without zeros": each(
        DATE, lambda text: "/".join(part.lstrip("0") for part in text.split("/"))
    ),
    "times with seconds": each(TIME, lambda text: text if text == TBD else f"{text}:00"),
    "numbers as text": each(DURATION, str),
    "another case": each(BOOKS, str.lower),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, **OPTIONS
)


def letters_by_course(world: Any, courses: list[dict[str, Any]]) -> dict[str, list[str]]:
    names = {course["name"].rpartition("-")[0]: course["course_code"] for course in courses}
    letters: dict[str, list[str]] = {course["course_code"]: [] for course in courses}
    for mail in world.office.get(Email).messages(LOGIN):
        code = re.search(r"[A-Z]+[0-9]+-[0-9]+", mail.body)
        named = [name for name in names if name in mail.body]
        if code or named:
            letters[code[0] if code else names[max(named, key=len)]].append(mail.body)
    return letters


def truth_by_reading(world: Any) -> dict[str, tuple[Any, ...]]:
    store = world.office.get(Canvas).store
    courses = json.loads(world.office.call("canvas_list_courses", {}))
    letters = letters_by_course(world, courses)
    due: dict[str, tuple[Any, ...]] = {}
    for course in courses:
        code, _, section = course["course_code"].rpartition("-")
        mails = letters[course["course_code"]]
        posts = [p["message"] for p in store.find("topics", "posted_at", course_id=course["id"])]
        welcome, *others = posts
        exam = Reader(int(section), [*others, *mails]).exam
        if any(map(is_exempt, mails)) or not exam.get("held", True) or "day" not in exam:
            continue
        day, time = exam["day"], exam["time"]
        if day and f"{day} {time}" <= "2025-01-15 09:00":
            continue
        open_book = re.search("open-book|may use books|allowed|welcome in it", welcome.lower())
        due[code] = (
            f"{day[5:7]}/{day[8:]}/{day[:4]}" if day else TBD,
            time or TBD,
            exam["minutes"] or TBD,
            exam["place"] or TBD,
            exam.get("proctor", (course["teacher_name"], course["teacher_email"])),
            exam.get("books") or ("Open-book" if open_book else "Closed-book"),
        )
    return due


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_by_another_reader(seed: int) -> None:
    world = fresh(TASK, 64_000, seed)
    expected = {
        row[CODE]: (
            row[DATE],
            row[TIME],
            row[DURATION],
            row[PLACE],
            (row[PROCTOR], row[PROCTOR_EMAIL]),
            row[BOOKS],
        )
        for row in world.truth["exams"]
    }
    assert truth_by_reading(world) == expected
    assert [row[DATE] == TBD for row in world.truth["exams"]] == sorted(
        row[DATE] == TBD for row in world.truth["exams"]
    )


def test_rates_of_more_than_all_courses_are_an_error() -> None:
    with pytest.raises(ValueError, match="must not exceed 1"):
        fresh(TASK, email_rate=0.6, no_exam_rate=0.6)


def test_no_exam_that_is_drawn_as_one_ahead_has_begun() -> None:
    table = Timetable(np.random.default_rng(0), START, 3)
    assert min(table.free) > START
    begin = table.take()
    assert begin not in table.free
    days = table.move(begin, [0, *range(-3, 4)])
    assert days is not None
    assert begin + timedelta(days=days) not in table.free
