"""Canvas: the records, as the user who is logged in may reach them, and in the form of the
published server, with the fields of Canvas's API that are the same for all records here.

All parts of the server share one object of the class `CanvasRecords`.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.office.canvas.schema import MAX_ID, RIGHTS, TEACHER
from agentgym.office.context import OfficeContext, iso
from agentgym.office.server import Server
from agentgym.office.store import Row, Store
from agentgym.text.tools import ToolError, echo

SITE = "https://canvas.example.edu"
"""Address of Canvas; `example.edu` is reserved for examples."""

ROOT_ACCOUNT = 1
"""Id of the account above all others."""

_MAX_NAME = 255
"""Characters of the name of an assignment, which its record tells."""

_COURSE: Row = {
    "conclude_at": None,
    "integration_id": None,
    "grading_standard_id": None,
    "license": None,
    "enrollment_term_id": 1,
    "root_account_id": ROOT_ACCOUNT,
    "default_view": "modules",
    "storage_quota_mb": 500,
    "is_public_to_auth_users": False,
    "public_syllabus": False,
    "public_syllabus_to_auth": False,
    "apply_assignment_group_weights": False,
    "hide_final_grades": False,
    "allow_student_forum_attachments": False,
    "allow_wiki_comments": False,
    "open_enrollment": False,
    "self_enrollment": False,
    "restrict_enrollments_to_course_dates": False,
}
"""Settings that are the same for all courses, as Canvas sets them in a new one."""

_ASSIGNMENT: Row = {
    "grading_type": "points",
    "assignment_group_id": 1,
    "grading_standard_id": None,
    "group_category_id": None,
    "integration_id": None,
    "integration_data": {},
    "max_name_length": _MAX_NAME,
    "anonymous_instructor_annotations": False,
    "anonymous_peer_reviews": False,
    "automatic_peer_reviews": False,
    "due_date_required": False,
    "grade_group_students_individually": False,
    "has_overrides": False,
    "in_closed_grading_period": False,
    "intra_group_peer_reviews": False,
    "is_quiz_assignment": False,
    "moderated_grading": False,
    "muted": False,
    "omit_from_final_grade": False,
    "only_visible_to_overrides": False,
    "peer_reviews": False,
    "post_to_sis": False,
}
"""Settings that are the same for all assignments, as Canvas sets them in a new one."""

_TEACHERS = """
SELECT e.course_id, u.name FROM enrollments e JOIN users u ON u.id = e.user_id
WHERE e.type = ? AND e.enrollment_state = 'active'
  AND e.course_id IN (SELECT value FROM json_each(?)) ORDER BY e.id
"""
"""The teachers of courses whose ids are in a JSON list."""

_WORK_COUNTS = """
WITH shown AS (SELECT value AS id FROM json_each(?)),
  placed AS (SELECT id, row_number() OVER (PARTITION BY course_id ORDER BY id) AS position
    FROM assignments WHERE course_id IN
      (SELECT course_id FROM assignments WHERE id IN (SELECT id FROM shown)))
SELECT p.id, p.position, count(s.id) AS submitted, sum(s.graded_attempt IS NOT s.attempt) AS ungraded
FROM placed p LEFT JOIN submissions s ON s.assignment_id = p.id AND s.attempt > 0
WHERE p.id IN (SELECT id FROM shown) GROUP BY p.id
"""
"""The places of such assignments in their courses, and the numbers of submissions."""

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
"""The users who are in a course with a user; `known` where one of them teaches the other."""


class CanvasRecords:
    """CanvasRecords of Canvas, the user who is logged in, and what that user may do.

    It keeps no state: the server replaces its own at the beginning of an episode and when a
    snapshot is restored, so everything is looked up there.

    Args:
        server: The server that has the records.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def store(self) -> Store:
        """The tables of the episode."""
        return self._server.store

    @property
    def context(self) -> OfficeContext:
        """Clock, identifiers and files of the office."""
        return self._server.context

    @property
    def session(self) -> dict[str, Any]:
        """The state of the connection: `user` is the id of the user who is logged in."""
        return self._server.session

    def now(self) -> str:
        """Return the time as the tables hold it."""
        return iso(self.context.clock.now())

    def tick(self) -> str:
        """Return the time of something that happens now, as the tables hold it."""
        return iso(self.context.clock.tick())

    def add(self, table: str, **record: Any) -> int:
        """Add a record and return its id.

        Raises:
            ToolError: A constraint of the table forbids it.
        """
        try:
            return self.store.insert(table, **record)
        except sqlite3.IntegrityError as error:
            raise ToolError(f"conflict: {table} takes no such record ({error})") from None

    def stamp(self, table: str, id: int) -> Row:
        """Give a record that a user has just created the time of its creation, and return it."""
        self.store.update(table, id, created_at=self.tick())
        return self.store.get(table, id)

    def get(self, table: str, id: int, kind: str | None = None, **equal: Any) -> Row:
        """Return a record by its id, whoever is logged in.

        Raises:
            ToolError: There is none, or none whose columns have the given values.
        """
        rows = self.store.find(table, id=id, **equal) if 0 < id <= MAX_ID else []
        if not rows:
            raise ToolError(
                f"not found: there is no {kind or table[:-1].replace('_', ' ')} with id {echo(id)}"
            )
        return rows[0]

    def me(self) -> Row:
        """Return the user who is logged in.

        Raises:
            ToolError: Nobody is.
        """
        if "user" not in self.session:
            raise ToolError("not logged in: call canvas_login with a login_id and a password first")
        user, store = self.session["user"], self.store
        return dict(store.derive(("user", user), ("users",), lambda: store.get("users", user)))

    def my_enrollments(self, course_id: int, *states: str) -> set[str]:
        """Return the types of the user's enrollments in a course that have one of some states."""
        user, store = self.session["user"], self.store
        sql = "SELECT type, enrollment_state FROM enrollments WHERE user_id = ? AND course_id = ?"
        rows: list[Row] = store.derive(
            ("enrollments", user, course_id),
            ("enrollments",),
            lambda: store.rows(sql, user, course_id),
        )
        return {row["type"] for row in rows if row["enrollment_state"] in states}

    def may(self, course_id: int, right: str) -> bool:
        """Return whether the user has a right of `RIGHTS` in a course.

        An administrator has all of them but that of learning.
        """
        if right != "learn" and self.me()["admin"]:
            return True
        return not self.my_enrollments(course_id, "active").isdisjoint(RIGHTS[right])

    def course(self, course_id: int, right: str = "read") -> Row:
        """Return a course that the user may `read`, or has another right in.

        Raises:
            ToolError: There is no such course, or the user may not do that.
        """
        self.me()
        key = ("course", course_id)
        course = dict(self.store.derive(key, ("courses",), lambda: self.get("courses", course_id)))
        is_open = (
            right == "read"
            and course["workflow_state"] != "unpublished"
            and (course["is_public"] or self.my_enrollments(course_id, "active", "completed"))
        )
        if not is_open and not self.may(course_id, "edit" if right == "read" else right):
            raise ToolError(f"permission denied: this user may not {right} in course {course_id}")
        return course

    def has_ended(self, course: Row) -> bool:
        """Return whether a course is over."""
        now = self.now()
        return course["workflow_state"] == "completed" or (course["end_at"] or now) < now

    def acquaintances(self) -> list[tuple[Row, bool]]:
        """Return the users whom the one who is logged in may know of, each with whether one of them
        teaches the other.
        """
        me = self.me()
        if me["admin"]:
            return [(user, True) for user in self.store.find("users")]
        users = {user["id"]: user for user in self.store.rows(_ACQUAINTANCES, me["id"])}
        users[me["id"]] = me
        return [(user, bool(user.pop("known", True))) for _, user in sorted(users.items())]

    def of_course(
        self, table: str, course_id: int, id: int, right: str = "read", kind: str | None = None
    ) -> Row:
        """Return a record of a course by its id.

        Raises:
            ToolError: The user has no such right in the course, or the course has no such record;
                for who cannot edit the course, it has none that is not published.
        """
        self.course(course_id, right)
        row = self.get(table, id, kind, course_id=course_id)
        if not row.get("published", True) and not self.may(course_id, "edit"):
            raise ToolError(f"not found: there is no {kind or table[:-1]} with id {id}")
        return row

    def list_of_course(
        self, table: str, course_id: int, order: str = "id", **equal: Any
    ) -> list[Row]:
        """Return the records of a course that the user may see."""
        self.course(course_id)
        rows = self.store.find(table, order, course_id=course_id, **equal)
        published = [row for row in rows if row.get("published", True)]
        if len(published) == len(rows) or self.may(course_id, "edit"):
            return rows
        return published

    def check_open(self, work: Row) -> None:
        """Refuse what is handed in or begun before a work opens or after it is locked."""
        now = self.now()
        if now < (work["unlock_at"] or ""):
            raise ToolError(f"permission denied: it opens at {work['unlock_at']}")
        if work["lock_at"] and now > work["lock_at"]:
            raise ToolError(f"permission denied: it was locked at {work['lock_at']}")

    def delete_at_position(self, table: str, id: int, **owner: int) -> None:
        """Delete a record that has a position; those after it move up."""
        position = self.store.get(table, id)["position"]
        self.store.delete(table, id=id)
        for row in self.store.find(table, "position", **owner):
            if row["position"] > position:
                self.store.update(table, row["id"], position=row["position"] - 1)


class CanvasPart:
    """A part of the server: some of its tools, and methods that add records.

    Args:
        records: The records that all parts share.
    """

    def __init__(self, records: CanvasRecords) -> None:
        self._records = records

    @property
    def _store(self) -> Store:
        return self._records.store


def fields_of(row: Mapping[str, Any], *hidden: str) -> Row:
    """Return the columns of a record that are shown, with the fields that the task added to it."""
    fields = {key: value for key, value in row.items() if key not in ("extra", *hidden)}
    return fields | (row.get("extra") or {})


def whole(number: float | None) -> float | int:
    """Return a number of points without a fraction that is zero; nothing is 0."""
    value = number or 0
    return int(value) if value == int(value) else value


def show_courses(records: CanvasRecords, courses: Sequence[Row]) -> list[Row]:
    """Return courses, each with the names of its teachers, by one query for all."""
    teachers: dict[int, list[str]] = {}
    for row in records.store.rows(_TEACHERS, TEACHER, [course["id"] for course in courses]):
        teachers.setdefault(row["course_id"], []).append(row["name"])
    return [_show_course(course, teachers.get(course["id"], [])) for course in courses]


def _show_course(course: Row, teachers: Sequence[str]) -> Row:
    uuid = _uuid("course", course)
    return {
        **fields_of(course, "syllabus_body", "created_at"),
        **({"teacher_name": ", ".join(teachers)} if teachers else {}),
        **_COURSE,
        "uuid": uuid,
        "calendar": {"ics": f"{SITE}/feeds/calendars/course_{uuid}.ics"},
    }


def show_assignments(records: CanvasRecords, assignments: Sequence[Row]) -> list[Row]:
    """Return assignments, each with its place and its numbers of submissions, by one query; those
    to grade are told to those who grade.
    """
    rows = records.store.rows(_WORK_COUNTS, [assignment["id"] for assignment in assignments])
    counts = {row["id"]: row for row in rows}
    courses = {row["course_id"] for row in assignments}
    graded = {course for course in courses if records.may(course, "grade")}
    return [
        _show_assignment(row, counts[row["id"]], records.now(), row["course_id"] in graded)
        for row in assignments
    ]


def _show_assignment(row: Row, counts: Row, now: str, grades: bool) -> Row:
    url = f"{SITE}/courses/{row['course_id']}/assignments/{row['id']}"
    shown = {
        **fields_of(row),
        "description": row["description"] or "",
        "points_possible": whole(row["points_possible"]),
        "position": counts["position"],
        "has_submitted_submissions": counts["submitted"] > 0,
        "needs_grading_count": counts["ungraded"] if grades and counts["submitted"] else 0,
        "unpublishable": not counts["submitted"],
        "locked_for_user": (row["unlock_at"] or "") > now or (row["lock_at"] or now) < now,
        "html_url": url,
        "submissions_download_url": f"{url}/submissions?zip=1",
    }
    return shown | _ASSIGNMENT | shown  # its own fields come first, and count


def _uuid(kind: str, record: Row) -> str:
    """Return the 40 hexadecimal digits by which Canvas names a record to other services."""
    return hashlib.sha1(f"{kind} {record['id']}".encode()).hexdigest()
