"""Canvas: courses and who is enrolled in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentgym.envs.loca.servers.canvas.fields import (
    Text,
    When,
    choice,
    line,
    moment,
    prose,
    public_fields,
    updates,
)
from agentgym.envs.loca.servers.canvas.records import Records
from agentgym.envs.loca.servers.canvas.schema import ROLES, STATES, STUDENT, TEACHER
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, tool

_TEACHERS = """
SELECT e.course_id, u.id, u.name AS display_name FROM enrollments e JOIN users u ON u.id = e.user_id
WHERE e.type = ? AND e.enrollment_state = 'active'
  AND e.course_id IN (SELECT value FROM json_each(?)) ORDER BY e.id
"""
"""The teachers of courses whose ids are in a JSON list."""

_STUDENT_COUNTS = """
SELECT course_id, count(*) AS students FROM enrollments
WHERE type = ? AND enrollment_state = 'active'
  AND course_id IN (SELECT value FROM json_each(?)) GROUP BY course_id
"""
"""The numbers of students of such courses."""

_ENROLLMENTS = """
SELECT course_id, type AS role, user_id, enrollment_state FROM enrollments
WHERE user_id = ? AND course_id IN (SELECT value FROM json_each(?)) ORDER BY id
"""
"""The enrollments of a user in such courses."""

_COURSES_OF_USER = """
SELECT * FROM courses WHERE id IN (SELECT course_id FROM enrollments
WHERE user_id = ? AND enrollment_state IN (SELECT value FROM json_each(?))) ORDER BY id
"""
"""The courses of a user who has one of some states in them."""


class Courses:
    """Courses and enrollments.

    Args:
        records: The records that all parts share.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    def add_course(
        self,
        name: str,
        course_code: str,
        teacher: int | None = None,
        *,
        students: Sequence[int] = (),
        published: bool = True,
        start_at: When = None,
        end_at: When = None,
        syllabus_body: Text = None,
        is_public: bool = False,
        time_zone: str = "UTC",
        sis_course_id: Text = None,
        account_id: int = 1,
        **extra: Any,
    ) -> int:
        """Add a course with its teacher and students; the id. `extra` are more fields to show."""
        with self._records.store.change():
            course = self._records.add(
                "courses",
                name=line("name", name),
                course_code=line("course_code", course_code),
                account_id=account_id,
                workflow_state="available" if published else "unpublished",
                start_at=moment("start_at", start_at) or None,
                end_at=moment("end_at", end_at) or None,
                syllabus_body=prose("syllabus_body", syllabus_body),
                is_public=is_public,
                time_zone=line("time_zone", time_zone),
                sis_course_id=sis_course_id,
                created_at=self._records.now(),
                extra=extra,
            )
            if teacher is not None:
                self.enroll(course, teacher, TEACHER)
            for student in students:
                self.enroll(course, student, STUDENT)
        return course

    def enroll(
        self, course_id: int, user_id: int, role: str = STUDENT, state: str = "active"
    ) -> int:
        """Enroll a user, or change the state of an existing enrollment; its id."""
        choice("role", role, ROLES), choice("enrollment_state", state, STATES)
        enrollment: Row = {"course_id": course_id, "user_id": user_id, "type": role}
        existing = self._records.store.find("enrollments", **enrollment)
        if existing:
            self._records.store.update("enrollments", existing[0]["id"], enrollment_state=state)
            return int(existing[0]["id"])
        now = self._records.now()
        return self._records.add(
            "enrollments", **enrollment, enrollment_state=state, created_at=now
        )

    @tool
    def canvas_list_courses(self, include_ended: bool = False) -> list[Row]:
        """Your courses; those that are over only if asked."""
        me, now = self._records.me(), self._records.now()
        states = ["active", "completed"] if include_ended else ["active"]
        courses = self._records.store.rows(_COURSES_OF_USER, me["id"], json.dumps(states))
        if not include_ended:
            courses = [course for course in courses if not _has_ended(course, now)]
        visible = []
        for course in courses:
            published = course["workflow_state"] != "unpublished"
            if published or self._records.may(course["id"], "edit"):
                visible.append(course)
        return self._show_courses(visible)

    @tool
    def canvas_get_course(self, course_id: int) -> Row:
        """A course with its syllabus."""
        course = self._records.course(course_id)
        return self._show_courses([course])[0] | {"syllabus_body": course["syllabus_body"]}

    @tool
    def canvas_create_course(
        self,
        account_id: int,
        name: str,
        course_code: Text = None,
        start_at: Text = None,
        end_at: Text = None,
        syllabus_body: Text = None,
        is_public: bool = False,
        time_zone: Text = None,
    ) -> Row:
        """Create a course, which is not published; a teacher who creates one teaches it."""
        me = self._records.me()
        if not me["admin"] and not self._records.store.find(
            "enrollments", user_id=me["id"], type=TEACHER, enrollment_state="active"
        ):
            raise ToolError(
                "permission denied: only administrators and teachers may create courses"
            )
        self._records.get("accounts", account_id)
        course_id = self.add_course(
            name,
            name if course_code is None else course_code,
            None if me["admin"] else me["id"],
            published=False,
            start_at=start_at,
            end_at=end_at,
            syllabus_body=syllabus_body,
            is_public=is_public,
            time_zone=time_zone or "UTC",
            account_id=account_id,
        )
        self._records.stamp("courses", course_id)
        return self.canvas_get_course(course_id)

    @tool
    def canvas_update_course(
        self,
        course_id: int,
        name: Text = None,
        course_code: Text = None,
        start_at: Text = None,
        end_at: Text = None,
        syllabus_body: Text = None,
    ) -> Row:
        """Change a course that you teach; an empty date takes the date away."""
        self._records.course(course_id, "edit")
        changes = updates(
            name=line("name", name),
            course_code=line("course_code", course_code),
            start_at=moment("start_at", start_at),
            end_at=moment("end_at", end_at),
            syllabus_body=prose("syllabus_body", syllabus_body),
        )
        self._records.store.update("courses", course_id, **changes)
        return self.canvas_get_course(course_id)

    @tool
    def canvas_get_syllabus(self, course_id: int) -> Row:
        """The syllabus of a course."""
        course = self._records.course(course_id)
        return {
            "course_id": course_id,
            "name": course["name"],
            "syllabus_body": course["syllabus_body"],
        }

    @tool
    def canvas_enroll_user(
        self, course_id: int, user_id: int, role: str = STUDENT, enrollment_state: str = "active"
    ) -> Row:
        """Enroll a user in a course that you teach; one who has that role already gets the state.

        Roles are StudentEnrollment, TeacherEnrollment, TaEnrollment, DesignerEnrollment and ObserverEnrollment;
        states are active, invited, inactive and completed.
        """
        self._records.course(course_id, "teach")
        self._records.get("users", user_id)
        choice("role", role, ROLES), choice("enrollment_state", enrollment_state, STATES)
        self._records.context.clock.tick()
        enrollment_id = self.enroll(course_id, user_id, role, enrollment_state)
        row = self._records.store.get("enrollments", enrollment_id)
        return row | {"role": row["type"]}

    def _show_courses(self, courses: Sequence[Row]) -> list[Row]:
        """Return courses as the service shows them, with one query for each kind of addition."""
        store = self._records.store
        ids = json.dumps([course["id"] for course in courses])
        counts = {
            row["course_id"]: row["students"] for row in store.rows(_STUDENT_COUNTS, STUDENT, ids)
        }
        teachers: dict[int, list[Row]] = {}
        for row in store.rows(_TEACHERS, TEACHER, ids):
            teachers.setdefault(row.pop("course_id"), []).append(row)
        enrollments: dict[int, list[Row]] = {}
        for row in store.rows(_ENROLLMENTS, self._records.session["user"], ids):
            short = row["role"].removesuffix("Enrollment").lower()
            enrollments.setdefault(row.pop("course_id"), []).append({"type": short, **row})
        return [
            public_fields(course, "syllabus_body")
            | {
                "teachers": teachers.get(course["id"], []),
                "total_students": counts.get(course["id"], 0),
                "enrollments": enrollments.get(course["id"], []),
            }
            for course in courses
        ]


def _has_ended(course: Row, now: str) -> bool:
    if course["workflow_state"] == "completed":
        return True
    return course["end_at"] is not None and course["end_at"] < now
