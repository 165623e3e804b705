"""Canvas: courses and enrollments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.office.canvas.records import CanvasPart, When, moment, show_courses
from agentgym.office.canvas.schema import STUDENT, TEACHER
from agentgym.office.store import Row
from agentgym.text.tools import tool

# A user's courses by enrollment state.
_COURSES_OF_USER = """
SELECT * FROM courses WHERE id IN (SELECT course_id FROM enrollments
WHERE user_id = ? AND enrollment_state IN (SELECT value FROM json_each(?))) ORDER BY id
"""


class Courses(CanvasPart):
    """Courses and enrollments."""

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
        syllabus_body: str | None = None,
        **extra: Any,
    ) -> int:
        """Add a course with members and return its id; `extra` is shown too."""
        with self._store.change():
            course = self._records.add(
                "courses",
                name=name,
                course_code=course_code,
                account_id=1,
                workflow_state="available" if published else "unpublished",
                start_at=moment(start_at),
                end_at=moment(end_at),
                syllabus_body=syllabus_body,
                is_public=False,
                time_zone="UTC",
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
        """Enroll a user, or change the enrollment's state; return its id."""
        enrollment: Row = {"course_id": course_id, "user_id": user_id, "type": role}
        sql = "SELECT id FROM enrollments WHERE course_id = ? AND user_id = ? AND type = ?"
        existing: int | None = self._store.value(sql, *enrollment.values())
        now = self._records.now()
        if existing is not None:  # a user has one enrollment per role
            self._store.update("enrollments", existing, enrollment_state=state, updated_at=now)
            return existing
        return self._records.add(
            "enrollments", **enrollment, enrollment_state=state, created_at=now, updated_at=now
        )

    @tool
    def canvas_list_courses(self, include_ended: bool = False) -> list[Row]:
        """List your courses.

        Args:
            include_ended: Include ended courses.
        """
        me = self._records.me()["id"]
        states = ["active", "completed"] if include_ended else ["active"]
        courses = []
        for course in self._store.rows(_COURSES_OF_USER, me, states):
            is_hidden = course["workflow_state"] == "unpublished"
            if is_hidden and not self._records.teaches(course["id"]):
                continue
            if include_ended or not self._records.has_ended(course):
                courses.append(course)
        return show_courses(self._records, courses)

    @tool
    def canvas_get_course(self, course_id: int) -> Row:
        """Get a course.

        Args:
            course_id: Course.
        """
        course = self._records.course(course_id)
        [shown] = show_courses(self._records, [course])
        if course["syllabus_body"] is not None:
            shown["syllabus_body"] = course["syllabus_body"]
        return shown

    @tool
    def canvas_get_syllabus(self, course_id: int) -> Row:
        """Get the syllabus of a course.

        Args:
            course_id: Course.
        """
        return {"syllabus_body": self._records.course(course_id)["syllabus_body"] or ""}
