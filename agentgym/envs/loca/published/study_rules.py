"""LOCA-bench's own success rules for the tasks of students and teachers; see `rules`."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from agentgym.envs.loca.published.files import finite_or
from agentgym.envs.loca.records import Rows
from agentgym.office.calendar import Calendar, Event
from agentgym.office.email.server import Email
from agentgym.office.files.workspace import Workspace

_REMINDER, _TAG = "nlp-course-emergency", re.compile("<[^<]+?>")
_BEFORE, _LATE = timedelta(hours=3), timedelta(minutes=5)
# Columns that the rule requires but does not compare.
_UNREAD = ("description", "scoring_policy")
_SECTION, _PUNCTUATION = re.compile(r"-\d+$"), re.compile(r"\W")


def reminder_failures(email: Email, students: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Require one email about the course in each student's INBOX, and allow emails to other people.

    `students` maps email addresses to (name, id) pairs, for students who need a reminder.
    """
    if not students:
        yield "the rule always fails without a student to remind"
    for address, words in students.items():
        right = 0
        for mail in email.messages(address, "INBOX"):
            fields = "\n".join((mail.subject, mail.sender, mail.to, mail.body))
            if _REMINDER not in fields.lower():
                continue
            text = mail.body or _TAG.sub("", mail.html or "")
            if all(word in text for word in words):
                right += 1
            else:
                yield f"a mail to {address} lacks the name or the id"
        if right != 1:
            yield f"{address} has {right} right mails, expected 1"


def deadline_failures(
    calendar: Calendar, deadlines: Mapping[tuple[str, str], datetime]
) -> Iterator[str]:
    """Require an event 3 hours (±5 minutes) before each deadline, and allow other events.

    `deadlines` maps the short and full name of each conference to the deadline.
    """
    events = calendar.events()
    for names, deadline in deadlines.items():
        if not any(_reminds(event, names, deadline) for event in events):
            yield f"there is no reminder of {names[0]} at {deadline - _BEFORE}"


def _reminds(event: Event, names: Sequence[str], deadline: datetime) -> bool:
    title = event.summary.lower()
    named = any(re.search(rf"\b{re.escape(name.lower())}\b", title) for name in names)
    if not named or "camera" not in title or "ready" not in title:
        return False
    begin = event.start
    return isinstance(begin, datetime) and abs(begin - deadline + _BEFORE) <= _LATE


def listing_failures(
    files: Workspace, path: str, columns: Collection[str], expected: Rows
) -> Iterator[str]:
    """Check the rows of a CSV file, in order, ignoring case and punctuation in titles."""
    reader = csv.DictReader(io.StringIO(files.read_text(path)))
    rows = list(reader)
    if set(reader.fieldnames or ()) != set(columns) or any(None in row for row in rows):
        yield f"{path} has other columns than {list(columns)}"
        return
    if len(rows) != len(expected):
        yield f"{path} has {len(rows)} rows, expected {len(expected)}"
        return
    for number, (row, wanted) in enumerate(zip(rows, expected, strict=True), 1):
        for name in columns:
            cell = (row[name] or "").strip()
            if name not in _UNREAD and not _same_cell(name, cell, wanted[name]):
                yield f"{path}: row {number}: {name} is {row[name]!r}, expected {wanted[name]!r}"


def _same_cell(name: str, cell: str, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return math.isclose(finite_or(cell, math.nan), wanted, abs_tol=1e-9)
    if name == "course_code":
        return cell == str(wanted)
    if name == "deadline":
        return _moment(cell) == _moment(wanted)
    if name == "course_name":
        cell, wanted = _SECTION.sub("", cell), _SECTION.sub("", wanted)
    return _PUNCTUATION.sub("", cell).lower() == _PUNCTUATION.sub("", wanted).lower()


def _moment(text: str) -> datetime | str:
    if "T" in text and "Z" in text:
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(microsecond=0)
    return text
