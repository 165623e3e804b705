"""Canvas: assignments and submissions."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.office.canvas.records import (
    CONSTANTS,
    MAX_ID,
    SITE,
    STUDENT,
    CanvasPart,
    When,
    moment,
    whole,
)
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

_UPCOMING = """
SELECT * FROM assignments WHERE due_at >= :now AND course_id IN (
  SELECT course_id FROM enrollments
  WHERE user_id = :user AND enrollment_state = 'active' AND type = 'StudentEnrollment')
ORDER BY due_at, id LIMIT :limit
"""

_WORK_COUNTS = """
WITH shown AS (SELECT value AS id FROM json_each(?)),
  placed AS (SELECT id, row_number() OVER (PARTITION BY course_id ORDER BY id) AS position
    FROM assignments WHERE course_id IN
      (SELECT course_id FROM assignments WHERE id IN (SELECT id FROM shown)))
SELECT p.id, p.position, count(s.id) AS submitted
FROM placed p LEFT JOIN submissions s ON s.assignment_id = p.id
WHERE p.id IN (SELECT id FROM shown) GROUP BY p.id
"""

_NO_SUBMISSION: Row = {
    "submission_type": None,
    "body": None,
    "url": None,
    "submitted_at": None,
    "score": None,
    "grade": None,
    "grader_id": None,
    "graded_at": None,
    "attempt": 0,
}


class Assignments(CanvasPart):
    """Assignments and submissions; grading is disabled."""

    def add_assignment(
        self,
        course_id: int,
        name: str,
        *,
        description: str | None = None,
        points_possible: float | None = None,
        due_at: When = None,
    ) -> int:
        """Add an assignment and return its id."""
        now = self.now()
        return self.add(
            "assignments",
            course_id=course_id,
            name=name,
            description=description,
            points_possible=points_possible,
            due_at=moment(due_at),
            created_at=now,
            updated_at=now,
        )

    def add_submission(
        self,
        assignment_id: int,
        user_id: int,
        *,
        submitted_at: When = None,
        body: str | None = None,
    ) -> int:
        """Add a submission, made now by default, and return its id."""
        return self.add(
            "submissions",
            assignment_id=assignment_id,
            user_id=user_id,
            body=body,
            submitted_at=moment(submitted_at) or self.now(),
        )

    @tool
    def canvas_list_assignments(self, course_id: int) -> list[Row]:
        """List the assignments of a course.

        Args:
            course_id: Course.
        """
        return self._show(self.list_of_course("assignments", course_id))

    @tool
    def canvas_get_assignment(self, course_id: int, assignment_id: int) -> Row:
        """Get an assignment.

        Args:
            course_id: Course.
            assignment_id: Assignment.
        """
        return self._show([self.of_course("assignments", course_id, assignment_id)])[0]

    @tool
    def canvas_get_submission(
        self, course_id: int, assignment_id: int, user_id: int | None = None
    ) -> Row:
        """Get the submission and the grade of a student for an assignment.

        Args:
            course_id: Course.
            assignment_id: Assignment.
            user_id: Student, if you teach the course; you by default.
        """
        assignment = self.of_course("assignments", course_id, assignment_id)
        me = self.me()["id"]
        student = me if user_id is None else user_id
        if student != me and not self.teaches(course_id):
            raise ToolError(f"permission denied: this user may not grade in course {course_id}")
        enrollment: Row = {"course_id": course_id, "user_id": student, "type": STUDENT}
        if not 0 < student <= MAX_ID or not self.store.find("enrollments", **enrollment):
            raise ToolError(f"not found: course {course_id} has no student with id {echo(student)}")
        return self._show_submission(assignment, student)

    @tool
    def canvas_get_upcoming_assignments(self, limit: int = 10) -> list[Row]:
        """List the next due assignments of your courses as a student, each with its course.

        Args:
            limit: Maximum number of assignments, 1 to 100.
        """
        me = self.me()["id"]
        if not 1 <= limit <= 100:
            raise ToolError(f"invalid argument: limit must be between 1 and 100, got {echo(limit)}")
        rows = self.store.rows(_UPCOMING, user=me, now=self.now(), limit=limit)
        course_ids = {row["course_id"] for row in rows}
        courses = self.show_courses([self.store.get("courses", key) for key in course_ids])
        shown = {course["id"]: course for course in courses}
        upcoming = []
        for assignment in self._show(rows):
            upcoming.append({"assignment": assignment, "course": shown[assignment["course_id"]]})
        return upcoming

    def _show(self, assignments: Sequence[Row]) -> list[Row]:
        rows = self.store.rows(_WORK_COUNTS, [assignment["id"] for assignment in assignments])
        counts = {row["id"]: row for row in rows}
        taught = set(filter(self.teaches, {row["course_id"] for row in assignments}))
        shown = []
        for row in assignments:
            shown.append(_show_assignment(row, counts[row["id"]], row["course_id"] in taught))
        return shown

    def _show_submission(self, assignment: Row, user_id: int) -> Row:
        due = assignment["due_at"]
        key: Row = {"assignment_id": assignment["id"], "user_id": user_id}
        rows = self.store.find("submissions", **key)
        submission: Row = {"id": None, **key, **_NO_SUBMISSION}
        state, late = "unsubmitted", False
        if rows:
            submission = rows[0]
            state, late = "submitted", bool(due and submission["submitted_at"] > due)
        url = f"{SITE}/courses/{assignment['course_id']}/assignments/{assignment['id']}"
        return {
            **submission,
            "entered_grade": None,
            "published_grade": None,
            "entered_score": None,
            "published_score": None,
            "workflow_state": state,
            "grade_matches_current_submission": True,
            "grading_period_id": None,
            "late": late,
            "missing": not rows and due is not None and self.now() > due,
            "preview_url": f"{url}/submissions/{user_id}?preview=1",
        }


def _show_assignment(row: Row, counts: Row, is_teacher: bool) -> Row:
    url = f"{SITE}/courses/{row['course_id']}/assignments/{row['id']}"
    submitted = counts["submitted"]
    ungraded = 0
    if is_teacher:
        ungraded = submitted
    return {
        **row,
        "description": row["description"] or "",
        "points_possible": whole(row["points_possible"]),
        "position": counts["position"],
        "has_submitted_submissions": submitted > 0,
        "needs_grading_count": ungraded,
        "unpublishable": not submitted,
        "locked_for_user": False,
        "html_url": url,
        "submissions_download_url": f"{url}/submissions?zip=1",
        **CONSTANTS["assignment"],
    }
