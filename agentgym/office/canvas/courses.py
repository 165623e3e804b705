"""Canvas: courses, enrollments and announcements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.office.canvas.records import SITE, STUDENT, TEACHER, CanvasPart, When, moment
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
        syllabus_body: str | None = None,
        **extra: Any,
    ) -> int:
        """Add a course with members and return its id; `extra` fields appear in tool results."""
        with self.store.change():
            course = self.add(
                "courses",
                name=name,
                course_code=course_code,
                syllabus_body=syllabus_body,
                extra=extra,
            )
            if teacher is not None:
                self.enroll(course, teacher, TEACHER)
            for student in students:
                self.enroll(course, student)
        return course

    def enroll(
        self, course_id: int, user_id: int, role: str = STUDENT, state: str = "active"
    ) -> None:
        """Enroll a user, or change the state of the user's enrollment in this role."""
        enrollment: Row = {"course_id": course_id, "user_id": user_id, "type": role}
        existing = self.store.find("enrollments", **enrollment)
        if existing:
            self.store.update("enrollments", existing[0]["id"], enrollment_state=state)
        else:
            self.add("enrollments", **enrollment, enrollment_state=state)

    @tool
    def canvas_list_courses(self, include_ended: bool = False) -> list[Row]:
        """List your courses.

        Args:
            include_ended: Include ended courses.
        """
        me = self.me()["id"]
        states = ["active", "completed"] if include_ended else ["active"]
        return self.show_courses(self.store.rows(_COURSES_OF_USER, me, states))

    @tool
    def canvas_get_course(self, course_id: int) -> Row:
        """Get a course.

        Args:
            course_id: Course.
        """
        course = self.course(course_id)
        [shown] = self.show_courses([course])
        if course["syllabus_body"] is not None:
            shown["syllabus_body"] = course["syllabus_body"]
        return shown

    @tool
    def canvas_get_syllabus(self, course_id: int) -> Row:
        """Get the syllabus of a course.

        Args:
            course_id: Course.
        """
        return {"syllabus_body": self.course(course_id)["syllabus_body"] or ""}


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
    ) -> int:
        """Add an announcement, made now and by the first teacher by default; return its id."""
        if author is None:
            sql = "SELECT user_id FROM enrollments WHERE course_id = ? AND type = ? ORDER BY id"
            author = self.store.value(sql, course_id, TEACHER)
        return self.add(
            "topics",
            course_id=course_id,
            title=title,
            message=message,
            user_id=author,
            posted_at=moment(posted_at) or self.now(),
        )

    @tool
    def canvas_list_announcements(self, course_id: int) -> list[Row]:
        """List the announcements of a course, newest first.

        Args:
            course_id: Course.
        """
        topics = self.list_of_course("topics", course_id, "posted_at DESC, id DESC")
        names = dict(self.store.tuples(_NAMES, [topic["user_id"] for topic in topics]))
        for topic in topics:
            author = topic.pop("user_id")
            topic["author"] = {"id": author, "display_name": names.get(author, "")}
            url = f"{SITE}/courses/{course_id}/discussion_topics/{topic['id']}"
            topic |= {"url": url, "html_url": url}
        return topics
