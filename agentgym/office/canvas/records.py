"""Canvas: records and access rights, shared by all parts of the server."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from agentgym.office.context import iso
from agentgym.office.server_state import ServerState
from agentgym.office.store import Row, missing_record
from agentgym.text.tools import ToolError

When: TypeAlias = str | datetime | None
"""A time for a task author: ISO 8601, or a datetime."""

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

STUDENT, TEACHER, TA = "StudentEnrollment", "TeacherEnrollment", "TaEnrollment"

MAX_ID = 2**63 - 1  # SQLite's largest integer

SITE = "https://canvas.example.edu"  # `example.edu` is reserved for examples

# Fields with the same value in all courses or assignments.
CONSTANTS: dict[str, Row] = json.loads(
    Path(__file__).with_name("defaults.json").read_text(encoding="utf-8")
)

_TEACHERS = """
SELECT e.course_id, u.name FROM enrollments e JOIN users u ON u.id = e.user_id
WHERE e.type = ? AND e.enrollment_state = 'active'
  AND e.course_id IN (SELECT value FROM json_each(?)) ORDER BY e.id
"""


class CanvasPart(ServerState):
    """Base class for parts of the server: records, and the rights of the logged-in user."""

    def add(self, table: str, **record: Any) -> int:
        """Add a record and return its id."""
        try:
            return self.store.insert(table, **record)
        except sqlite3.IntegrityError as error:
            raise ToolError(f"conflict: {table} cannot contain this record ({error})") from None

    def get(self, table: str, id: int, kind: str | None = None, **equal: Any) -> Row:
        """Return a record, regardless of the user's rights."""
        # SQLite raises OverflowError for larger integers.
        rows = self.store.find(table, id=id, **equal) if 0 < id <= MAX_ID else []
        if not rows:
            raise missing_record(table, id, kind)
        return rows[0]

    def me(self) -> Row:
        """Return the logged-in user."""
        if "user" not in self.session:
            raise ToolError("not logged in: call canvas_login with a login_id and a password first")
        return self.store.get("users", self.session["user"])

    def my_roles(self, course_id: int, *states: str) -> set[str]:
        """Return the types of the user's enrollments in a course, only for the given states."""
        mine = self.store.find("enrollments", user_id=self.session["user"], course_id=course_id)
        return {row["type"] for row in mine if row["enrollment_state"] in states}

    def teaches(self, course_id: int) -> bool:
        """Return whether the user is a teacher of a course."""
        return not self.my_roles(course_id, "active").isdisjoint((TEACHER, TA))

    def course(self, course_id: int) -> Row:
        """Return a course, or raise `ToolError` if the user may not read it."""
        self.me()
        course = self.get("courses", course_id)
        if not self.my_roles(course_id, "active", "completed"):
            raise ToolError(f"permission denied: this user may not read in course {course_id}")
        return course

    def of_course(self, table: str, course_id: int, id: int, kind: str | None = None) -> Row:
        """Return a course's record, or raise `ToolError` if the user may not read it."""
        self.course(course_id)
        return self.get(table, id, kind, course_id=course_id)

    def list_of_course(self, table: str, course_id: int, order: str = "id") -> list[Row]:
        """Return the records of a course, or raise `ToolError` if the user may not read them."""
        self.course(course_id)
        return self.store.find(table, order, course_id=course_id)

    def show_courses(self, courses: Sequence[Row]) -> list[Row]:
        """Return courses in the API's format, with teacher names."""
        teachers: dict[int, list[str]] = {}
        for row in self.store.rows(_TEACHERS, TEACHER, [course["id"] for course in courses]):
            teachers.setdefault(row["course_id"], []).append(row["name"])
        return [_show_course(course, teachers.get(course["id"], [])) for course in courses]


def _show_course(course: Row, teachers: Sequence[str]) -> Row:
    uuid = hashlib.sha1(f"course {course['id']}".encode()).hexdigest()
    shown = {**course, **course["extra"]}
    del shown["extra"], shown["syllabus_body"]
    if teachers:
        shown["teacher_name"] = ", ".join(teachers)
    return {
        **shown,
        **CONSTANTS["course"],
        "uuid": uuid,
        "calendar": {"ics": f"{SITE}/feeds/calendars/course_{uuid}.ics"},
    }


def moment(value: When) -> str | None:
    """Convert a time to the stored format; the default time zone is UTC."""
    if not value:
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return iso(value)


def whole(number: float | None) -> float | int:
    """Convert whole floats to int, and None to 0."""
    value = number or 0
    if value == int(value):
        return int(value)
    return value
