"""Canvas: a user's calendar and due work."""

from __future__ import annotations

from agentgym.office.canvas.fields import (
    integer,
)
from agentgym.office.canvas.records import (
    CanvasPart,
    show_assignments,
    show_courses,
)
from agentgym.office.store import Row
from agentgym.text.tools import tool

# A user's published courses.
_MY_COURSES = """
SELECT course_id FROM enrollments WHERE user_id = :user AND enrollment_state = 'active'
AND course_id IN (SELECT id FROM courses WHERE workflow_state != 'unpublished')
"""

# A student's assignments due after a time.
_UPCOMING = f"""
SELECT * FROM assignments WHERE published AND due_at >= :now
AND course_id IN ({_MY_COURSES} AND type = 'StudentEnrollment')
ORDER BY due_at, id LIMIT :limit
"""


class Dashboard(CanvasPart):
    """The user's calendar and upcoming work."""

    @tool
    def canvas_get_upcoming_assignments(self, limit: int = 10) -> list[Row]:
        """List the next due assignments of your courses as a student, each with its course.

        Args:
            limit: Maximum number of assignments, 1 to 100.
        """
        me = self._records.me()["id"]
        integer("limit", limit, 1, 100)
        rows = self._store.rows(_UPCOMING, user=me, now=self._records.now(), limit=limit)
        courses = [self._store.get("courses", key) for key in {row["course_id"] for row in rows}]
        shown = {course["id"]: course for course in show_courses(self._records, courses)}
        upcoming = []
        for assignment in show_assignments(self._records, rows):
            course = shown[assignment["course_id"]]
            upcoming.append({"assignment": assignment, "course": course})
        return upcoming
