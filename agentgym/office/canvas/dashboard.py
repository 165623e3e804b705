"""Canvas: a user's courses, calendar, due work and news."""

from __future__ import annotations

from agentgym.office.canvas.courses import Courses
from agentgym.office.canvas.fields import (
    Text,
    When,
    integer,
    line,
    moment,
)
from agentgym.office.canvas.people import show_profile
from agentgym.office.canvas.records import (
    CanvasPart,
    CanvasRecords,
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

# A user's events and due assignments in a period.
_EVENTS = f"""
SELECT id, title, description, location_name, start_at, end_at, 'event' AS type,
  coalesce('course_' || course_id, 'user_' || user_id) AS context_code FROM events
WHERE (user_id = :user OR course_id IN ({_MY_COURSES})) AND end_at >= :start AND start_at <= :end
UNION ALL SELECT 'assignment_' || id, name, description, NULL, due_at, due_at, 'assignment',
  'course_' || course_id FROM assignments
WHERE published AND course_id IN ({_MY_COURSES}) AND due_at BETWEEN :start AND :end
ORDER BY start_at, context_code, title, id
"""

# A student's assignments due after a time.
_UPCOMING = f"""
SELECT * FROM assignments WHERE published AND due_at >= :now
AND course_id IN ({_MY_COURSES} AND type = 'StudentEnrollment')
ORDER BY due_at, id LIMIT :limit
"""

# A user's announcements, topics, grades and messages, newest first.
_NEWS = """
WITH mine AS (SELECT e.course_id FROM enrollments e JOIN courses c ON c.id = e.course_id
  WHERE e.user_id = :user AND e.enrollment_state = 'active' AND c.workflow_state != 'unpublished')
SELECT CASE WHEN is_announcement THEN 'Announcement' ELSE 'DiscussionTopic' END AS type,
  id AS source_id, title, message, course_id,
  posted_at AS created_at FROM topics WHERE course_id IN mine AND posted_at <= :now
UNION ALL SELECT 'Submission', s.assignment_id, a.name, 'graded: ' || s.grade, a.course_id,
  s.graded_at FROM submissions s
  JOIN assignments a ON a.id = s.assignment_id WHERE s.user_id = :user AND s.grade IS NOT NULL
    AND a.published AND a.course_id IN mine
UNION ALL SELECT 'Conversation', c.id, c.subject, m.body, NULL, m.created_at FROM messages m
  JOIN conversations c ON c.id = m.conversation_id
  JOIN participants p ON p.conversation_id = c.id AND p.user_id = :user WHERE m.author_id != :user
ORDER BY created_at DESC, type, source_id DESC LIMIT :limit
"""

_NEWS_LIMIT = 10  # promised by the tool's description

_DASHBOARD_ASSIGNMENTS = 5  # as on the published server's dashboard

_END_OF_TIME = "9999-12-31T23:59:59Z"  # sorts after any time in the tables


class Dashboard(CanvasPart):
    """The user's course cards, calendar, upcoming work and notifications."""

    def __init__(self, records: CanvasRecords, courses: Courses) -> None:
        super().__init__(records)
        self._courses = courses

    def add_event(
        self,
        title: str,
        start_at: When,
        end_at: When = None,
        *,
        course_id: int | None = None,
        user_id: int | None = None,
        description: Text = None,
        location_name: Text = None,
    ) -> int:
        """Add an event to a course's or user's calendar and return its id."""
        start, end = moment("start_at", start_at), moment("end_at", end_at)
        return self._records.add(
            "events",
            course_id=course_id,
            user_id=user_id,
            title=line("title", title),
            description=description,
            location_name=location_name,
            start_at=start,
            end_at=end or start,
            created_at=self._records.now(),
        )

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

    @tool
    def canvas_get_dashboard(self) -> Row:
        """Get your profile, your courses and what is due next."""
        return {
            "user": show_profile(self._records.me()),
            "courses": self._courses.canvas_list_courses(),
            "upcoming_assignments": self.canvas_get_upcoming_assignments(_DASHBOARD_ASSIGNMENTS),
        }

    @tool
    def canvas_get_dashboard_cards(self) -> list[Row]:
        """List the dashboard cards of your current courses."""
        enrollments = self._store.find("enrollments", "id DESC", user_id=self._records.me()["id"])
        roles = {row["course_id"]: row["type"] for row in enrollments}
        cards = []
        for course in self._courses.canvas_list_courses():
            role = roles[course["id"]]
            card = {
                "id": course["id"],
                "shortName": course["name"],
                "originalName": course["name"],
                "courseCode": course["course_code"],
                "assetString": f"course_{course['id']}",
                "href": f"/courses/{course['id']}",
                "subtitle": f"enrolled as: {role.removesuffix('Enrollment')}",
                "enrollmentType": role,
                **dict.fromkeys(("term", "image", "color", "position", "observee")),
            }
            cards.append(card)
        return cards

    @tool
    def canvas_list_notifications(self) -> list[Row]:
        """List the ten newest announcements, topics, grades and messages to you."""
        me, now = self._records.me()["id"], self._records.now()
        rows = self._store.rows(_NEWS, user=me, now=now, limit=_NEWS_LIMIT)
        return [{"id": number, **row} for number, row in enumerate(rows, start=1)]
