"""Read final exams from LOCA-bench's states, and check the agent's schedule."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from agentgym.envs.loca.checks import as_text
from agentgym.envs.loca.published.files import as_finite
from agentgym.envs.loca.published.rules import first_sheet
from agentgym.envs.loca.records import Fields, Rows
from agentgym.envs.loca.writing.exam_notices import Said
from agentgym.office.files.workspace import Workspace

# The patterns limit the length of a line, so that a search takes linear time.
_WELCOME = re.compile(r"Credits: (\d+)\n.*Exam Type: (Open|Closed)-Book")
_ANNOUNCED = re.compile(
    r"the final exam for .{1,200} will be held on:\n\n.{0,20}Date: (.{1,200})\n"
    r".{0,20}Time: (\S{1,20}) - .{1,200}\n.{0,20}Duration: (\d{1,9}) minutes\n"
    r".{0,20}Location: (.{1,200})\n"
)
_MAILED = re.compile(
    r"Course Name: (.{1,200})\nExam Type: (Open|Closed)-book\n\n.{0,200}\n"
    r"Exam Date: (.{1,200})\nExam Time: (.{1,200})\nDuration: (.{1,200})\n\n"
    r".{0,200}Exam Location\n(.{1,200})\n"
)
_NOT_WORD = re.compile(r"\W")
_CODE, _CREDIT = "Course Code", "Course Credit"
_DATE, _TIME = "Final Date (MM/DD/YYYY)", "Start Time (HH:MM)"


def read_exam_post(text: str) -> list[Said]:
    """Return the statements about a course and the exam in a LOCA-bench announcement."""
    if welcome := _WELCOME.search(text):
        books = "welcome_open" if welcome[2] == "Open" else "welcome_closed"
        return [["credits", {"number": int(welcome[1])}], [books, {}]]
    if "This course does not have a final exam." in text:
        return [["none", {}]]
    if "The final exam schedule for " in text:
        return [["when_open", {}]]
    exam = _ANNOUNCED.search(text)
    if not exam:
        return []
    day = datetime.strptime(exam[1], "%B %d, %Y").date().isoformat()
    return _facts(day, exam[2], exam[3], exam[4])


def read_exam_mail(text: str, sender: str) -> list[Said]:
    """Return the statements about exams in a LOCA-bench email; the sender identifies the course."""
    exam = _MAILED.search(text)
    if not exam:
        return []
    books = "books_open" if exam[2] == "Open" else "books_closed"
    about: list[Said] = [["about", {"course": mailed_course(exam[1], sender)}], [books, {}]]
    if exam[3] == "TBD":
        return [*about, ["when_open", {}]]
    return [*about, *_facts(exam[3], exam[4], exam[5].removesuffix(" minutes"), exam[6])]


def mailed_course(name: str, teacher: str) -> str:
    """Return the key of a course in emails: the name up to the first hyphen, and the teacher."""
    return f"{name.partition('-')[0]} <{teacher}>"


def _facts(day: str, time: str, minutes: str, place: str) -> list[Said]:
    return [
        ["date", {"date": day}],
        ["start", {"time": time}],
        ["duration", {"duration": int(minutes)}],
        ["place", {"place": place}],
    ]


def schedule_failures(files: Workspace, path: str, expected: Rows) -> Iterator[str]:
    """Compare workbook rows by course; strings match if one contains the other."""
    rows = first_sheet(files, path)
    moments = list(map(_moment, rows))
    if moments != sorted(moments):
        yield "the exams are not sorted by date and time"
    codes = [as_text(row.get(_CODE)) for row in rows]
    if len(rows) != len(expected) or set(codes) != {exam[_CODE] for exam in expected}:
        yield f"{path} has the courses {codes}"
        return
    for exam in expected:
        found = rows[codes.index(exam[_CODE])]
        for name, wanted in exam.items():
            cell = found.get(name)
            if not _same_fact(name, cell, wanted):
                yield f"{path}: {name} of {exam[_CODE]} is {cell!r}, expected {wanted!r}"


def _moment(row: Fields) -> datetime:
    day, time = as_text(row.get(_DATE)), as_text(row.get(_TIME))
    if not day or not time or "TBD" in (day.upper(), time.upper()):
        return datetime.max
    return datetime.strptime(f"{day} {time}", "%m/%d/%Y %H:%M")


def _same_fact(name: str, cell: Any, wanted: Any) -> bool:
    texts = [_NOT_WORD.sub("", as_text(value)).lower() or "tbd" for value in (cell, wanted)]
    if name == _CREDIT:
        with contextlib.suppress(ValueError):
            return as_finite(texts[0]) == as_finite(texts[1])
    found, expected = texts[0].replace("professor", ""), texts[1]
    return found in expected or expected in found
