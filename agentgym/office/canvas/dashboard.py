"""Canvas: a user's calendar and due work."""

from __future__ import annotations

from agentgym.office.canvas.fields import (
    Text,
    integer,
    moment,
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

# A user's due assignments in a period.
_EVENTS = f"""
SELECT 'assignment_' || id AS id, name AS title, description, NULL AS location_name,
  due_at AS start_at, due_at AS end_at, 'assignment' AS type, 'course_' || course_id AS context_code
FROM assignments WHERE published AND course_id IN ({_MY_COURSES}) AND due_at BETWEEN :start AND :end
ORDER BY start_at, context_code, title, id
"""

# A student's assignments due after a time.
_UPCOMING = f"""
SELECT * FROM assignments WHERE published AND due_at >= :now
AND course_id IN ({_MY_COURSES} AND type = 'StudentEnrollment')
ORDER BY due_at, id LIMIT :limit
"""

_END_OF_TIME = "9999-12-31T23:59:59Z"  # sorts after any time in the tables


class Dashboard(CanvasPart):
    """The user's calendar and upcoming work."""

    @tool
    def canvas_list_calendar_events(
        self, start_date: Text = None, end_date: Text = None
    ) -> list[Row]:
        """List your events, your course events and due assignments, by time.

        Args:
            start_date: From this date or moment; today by default.
            end_date: To this moment, or the end of this date.
        """
        me = self._records.me()["id"]
        start = moment("start_date", start_date) or self._records.now()[:10]
        end = moment("end_date", end_date) or _END_OF_TIME
        if end_date is not None and len(end_date.strip()) == len("2025-01-15"):  # a whole day
            end = f"{end[:10]}T23:59:59Z"
        return self._store.rows(_EVENTS, user=me, start=start, end=end)

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
