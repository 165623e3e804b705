"""Canvas: courses, enrollments and announcements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.office.canvas.records import (
    SITE,
    STUDENT,
    TEACHER,
    CanvasPart,
    When,
    fields_of,
    moment,
    show_courses,
)
from agentgym.office.store import Row
from agentgym.text.tools import tool

_COURSES_OF_USER = """
SELECT * FROM courses WHERE id IN (SELECT course_id FROM enrollments
WHERE user_id = ? AND enrollment_state IN (SELECT value FROM json_each(?))) ORDER BY id
"""

_NAMES = "SELECT id, name FROM users WHERE id IN (SELECT value FROM json_each(?))"


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
        """Add a course with members and return its id; `extra` fields appear in tool results."""
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
        """Enroll a user, or change the enrollment's state; return the enrollment's id."""
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


class Announcements(CanvasPart):
    """Announcements, which Canvas stores as discussion topics."""

    def add_announcement(
        self,
        course_id: int,
        title: str,
        message: str,
        *,
        posted_at: When = None,
        author: int | None = None,
        **extra: Any,
    ) -> int:
        """Add an announcement, visible from `posted_at`; `author` defaults to the first teacher."""
        if author is None:
            sql = "SELECT user_id FROM enrollments WHERE course_id = ? AND type = ? ORDER BY id"
            author = self._store.value(sql, course_id, TEACHER)
        return self._records.add(
            "topics",
            course_id=course_id,
            title=title,
            message=message,
            user_id=author,
            posted_at=moment(posted_at) or self._records.now(),
            extra=extra,
        )

    @tool
    def canvas_list_announcements(self, course_id: int) -> list[Row]:
        """List the announcements of a course, newest first.

        Args:
            course_id: Course.
        """
        rows = self._records.list_of_course("topics", course_id, "posted_at DESC, id DESC")
        now = self._records.now()
        posted = [row for row in rows if row["posted_at"] <= now]
        # Teachers also see the announcements that are scheduled for later.
        if len(posted) < len(rows) and self._records.teaches(course_id):
            return self._show(rows)
        return self._show(posted)

    def _show(self, topics: Sequence[Row]) -> list[Row]:
        names = dict(self._store.tuples(_NAMES, [topic["user_id"] for topic in topics]))
        return [_show_topic(topic, names.get(topic["user_id"], "")) for topic in topics]


def _show_topic(row: Row, author: str) -> Row:
    url = f"{SITE}/courses/{row['course_id']}/discussion_topics/{row['id']}"
    return {
        **fields_of(row, "user_id"),
        "author": {"id": row["user_id"], "display_name": author},
        "url": url,
        "html_url": url,
    }
