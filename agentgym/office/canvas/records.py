"""Canvas: records and access rights, shared by all parts of the server."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from agentgym.office.context import iso
from agentgym.office.server_state import ServerState
from agentgym.office.store import Row, Store, missing_record
from agentgym.text.tools import ToolError

When: TypeAlias = str | datetime | None
"""A time for a task author: ISO 8601, or a datetime."""

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

STUDENT, TEACHER, TA = "StudentEnrollment", "TeacherEnrollment", "TaEnrollment"

MAX_ID = 2**63 - 1  # SQLite's largest integer

SITE = "https://canvas.example.edu"  # `example.edu` is reserved for examples

_DEFAULTS: dict[str, Row] = json.loads(
    Path(__file__).with_name("defaults.json").read_text(encoding="utf-8")
)

_TEACHERS = """
SELECT e.course_id, u.name FROM enrollments e JOIN users u ON u.id = e.user_id
WHERE e.type = ? AND e.enrollment_state = 'active'
  AND e.course_id IN (SELECT value FROM json_each(?)) ORDER BY e.id
"""

_WORK_COUNTS = """
WITH shown AS (SELECT value AS id FROM json_each(?)),
  placed AS (SELECT id, row_number() OVER (PARTITION BY course_id ORDER BY id) AS position
    FROM assignments WHERE course_id IN
      (SELECT course_id FROM assignments WHERE id IN (SELECT id FROM shown)))
SELECT p.id, p.position, count(s.id) AS submitted, sum(s.graded_attempt IS NOT s.attempt) AS ungraded
FROM placed p LEFT JOIN submissions s ON s.assignment_id = p.id AND s.attempt > 0
WHERE p.id IN (SELECT id FROM shown) GROUP BY p.id
"""

# Selects users who share courses with a user; `known` is 1 if either teaches a shared course.
_ACQUAINTANCES = """
SELECT u.*, known FROM users u JOIN (
  SELECT e.user_id,
    max(e.type IN ('TeacherEnrollment', 'TaEnrollment')
      OR mine.type IN ('TeacherEnrollment', 'TaEnrollment')) AS known
  FROM enrollments mine JOIN enrollments e ON e.course_id = mine.course_id
    AND e.enrollment_state = 'active'
  WHERE mine.user_id = ? AND mine.enrollment_state = 'active' GROUP BY e.user_id
) ON user_id = u.id
"""


class CanvasRecords(ServerState):
    """Canvas records, and the access rights of the logged-in user."""

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

    def my_enrollments(self, course_id: int, *states: str) -> set[str]:
        """Return the types of the user's enrollments in a course, only for the given states."""
        mine = self.store.find("enrollments", user_id=self.session["user"], course_id=course_id)
        return {row["type"] for row in mine if row["enrollment_state"] in states}

    def teaches(self, course_id: int) -> bool:
        """Return whether the user is a teacher of a course, or an administrator."""
        if self.me()["admin"]:
            return True
        return not self.my_enrollments(course_id, "active").isdisjoint((TEACHER, TA))

    def course(self, course_id: int, right: str = "read") -> Row:
        """Return a course, or raise `ToolError` if the user lacks the given right."""
        self.me()
        course = self.get("courses", course_id)
        is_open = (
            right == "read"
            and course["workflow_state"] != "unpublished"
            and (course["is_public"] or self.my_enrollments(course_id, "active", "completed"))
        )
        if not is_open and not self.teaches(course_id):
            raise ToolError(f"permission denied: this user may not {right} in course {course_id}")
        return course

    def has_ended(self, course: Row) -> bool:
        """Return whether a course has ended."""
        now = self.now()
        return course["workflow_state"] == "completed" or (course["end_at"] or now) < now

    def acquaintances(self) -> list[tuple[Row, bool]]:
        """Return (user, flag) pairs; the flag is true if the user's addresses are visible."""
        me = self.me()
        if me["admin"]:
            return [(user, True) for user in self.store.find("users")]
        users = {user["id"]: user for user in self.store.rows(_ACQUAINTANCES, me["id"])}
        users[me["id"]] = me
        pairs = []
        for _, user in sorted(users.items()):
            known = bool(user.pop("known", True))
            pairs.append((user, known))
        return pairs

    def of_course(self, table: str, course_id: int, id: int, kind: str | None = None) -> Row:
        """Return a course's record; only teachers can see unpublished records."""
        self.course(course_id)
        row = self.get(table, id, kind, course_id=course_id)
        if not row.get("published", True) and not self.teaches(course_id):
            raise missing_record(table, id, kind)
        return row

    def list_of_course(self, table: str, course_id: int, order: str = "id") -> list[Row]:
        """Return the course's records that the user may see."""
        self.course(course_id)
        rows = self.store.find(table, order, course_id=course_id)
        published = [row for row in rows if row.get("published", True)]
        if len(published) == len(rows) or self.teaches(course_id):
            return rows
        return published


class CanvasPart:
    """Base class for parts of the Canvas server."""

    def __init__(self, records: CanvasRecords) -> None:
        self._records = records

    @property
    def _store(self) -> Store:
        return self._records.store


def fields_of(row: Mapping[str, Any], *hidden: str) -> Row:
    """Merge a record's columns, except the `hidden` columns, with the extra fields."""
    fields = {key: value for key, value in row.items() if key not in ("extra", *hidden)}
    return fields | (row.get("extra") or {})


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


def show_courses(records: CanvasRecords, courses: Sequence[Row]) -> list[Row]:
    """Return courses in the API's format, with teacher names."""
    teachers: dict[int, list[str]] = {}
    for row in records.store.rows(_TEACHERS, TEACHER, [course["id"] for course in courses]):
        teachers.setdefault(row["course_id"], []).append(row["name"])
    return [_show_course(course, teachers.get(course["id"], [])) for course in courses]


def _show_course(course: Row, teachers: Sequence[str]) -> Row:
    uuid = hashlib.sha1(f"course {course['id']}".encode()).hexdigest()
    shown = fields_of(course, "syllabus_body", "created_at")
    if teachers:
        shown["teacher_name"] = ", ".join(teachers)
    return {
        **shown,
        **_DEFAULTS["course"],
        "uuid": uuid,
        "calendar": {"ics": f"{SITE}/feeds/calendars/course_{uuid}.ics"},
    }


def show_assignments(records: CanvasRecords, assignments: Sequence[Row]) -> list[Row]:
    """Return assignments in the API's format; only graders see counts of ungraded work."""
    rows = records.store.rows(_WORK_COUNTS, [assignment["id"] for assignment in assignments])
    counts = {row["id"]: row for row in rows}
    courses = {row["course_id"] for row in assignments}
    graded = set(filter(records.teaches, courses))
    now = records.now()
    shown = []
    for row in assignments:
        is_grader = row["course_id"] in graded
        shown.append(_show_assignment(row, counts[row["id"]], now, is_grader))
    return shown


def _show_assignment(row: Row, counts: Row, now: str, grades: bool) -> Row:
    url = f"{SITE}/courses/{row['course_id']}/assignments/{row['id']}"
    ungraded = 0
    if grades and counts["submitted"]:
        ungraded = counts["ungraded"]
    shown = {
        **fields_of(row),
        "description": row["description"] or "",
        "points_possible": whole(row["points_possible"]),
        "position": counts["position"],
        "has_submitted_submissions": counts["submitted"] > 0,
        "needs_grading_count": ungraded,
        "unpublishable": not counts["submitted"],
        "locked_for_user": (row["unlock_at"] or "") > now or (row["lock_at"] or now) < now,
        "html_url": url,
        "submissions_download_url": f"{url}/submissions?zip=1",
    }
    return shown | _DEFAULTS["assignment"] | shown  # the record overrides the defaults
