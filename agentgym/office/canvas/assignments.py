"""Canvas: assignments, submissions and grades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.office.canvas.records import (
    MAX_ID,
    SITE,
    STUDENT,
    CanvasPart,
    When,
    fields_of,
    moment,
    show_assignments,
    show_courses,
)
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

_MY_COURSES = """
SELECT course_id FROM enrollments WHERE user_id = :user AND enrollment_state = 'active'
AND course_id IN (SELECT id FROM courses WHERE workflow_state != 'unpublished')
"""

_UPCOMING = f"""
SELECT * FROM assignments WHERE published AND due_at >= :now
AND course_id IN ({_MY_COURSES} AND type = 'StudentEnrollment')
ORDER BY due_at, id LIMIT :limit
"""

_GRADING = ("score", "grade", "grader_id", "graded_at", "graded_attempt")

_NO_SUBMISSION: Row = {
    **dict.fromkeys(("submission_type", "body", "url", "submitted_at", *_GRADING)),
    "attempt": 0,
}


class Assignments(CanvasPart):
    """Assignments, submissions and grades."""

    def add_assignment(
        self,
        course_id: int,
        name: str,
        *,
        description: str | None = None,
        points_possible: float | None = None,
        due_at: When = None,
        unlock_at: When = None,
        lock_at: When = None,
        submission_types: Sequence[str] = ("online_text_entry",),
        published: bool = True,
        **extra: Any,
    ) -> int:
        """Add an assignment and return its id; `extra` fields appear in tool results."""
        return self._records.add(
            "assignments",
            course_id=course_id,
            name=name,
            description=description,
            points_possible=points_possible,
            due_at=moment(due_at),
            unlock_at=moment(unlock_at),
            lock_at=moment(lock_at),
            submission_types=list(submission_types),
            published=published,
            created_at=self._records.now(),
            updated_at=self._records.now(),
            extra=extra,
        )

    def add_submission(
        self,
        assignment_id: int,
        user_id: int,
        *,
        submitted_at: When = None,
        submission_type: str = "online_text_entry",
        body: str | None = None,
        url: str | None = None,
        score: float | None = None,
    ) -> int:
        """Add a submission, made now by default; a submission with a score counts as graded."""
        now = self._records.now()
        return self._records.add(
            "submissions",
            assignment_id=assignment_id,
            user_id=user_id,
            submission_type=submission_type,
            body=body,
            url=url,
            attempt=1,
            submitted_at=moment(submitted_at) or now,
            **_grading(score, now),
        )

    @tool
    def canvas_list_assignments(self, course_id: int) -> list[Row]:
        """List the assignments of a course.

        Args:
            course_id: Course.
        """
        return show_assignments(
            self._records, self._records.list_of_course("assignments", course_id)
        )

    @tool
    def canvas_get_assignment(self, course_id: int, assignment_id: int) -> Row:
        """Get an assignment.

        Args:
            course_id: Course.
            assignment_id: Assignment.
        """
        return self._show(self._records.of_course("assignments", course_id, assignment_id))

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
        assignment = self._records.of_course("assignments", course_id, assignment_id)
        me = self._records.me()["id"]
        student = me if user_id is None else user_id
        if student != me:
            self._records.course(course_id, "grade")
        self._check_student(course_id, student)
        return self._show_submission(assignment, student)

    @tool
    def canvas_get_upcoming_assignments(self, limit: int = 10) -> list[Row]:
        """List the next due assignments of your courses as a student, each with its course.

        Args:
            limit: Maximum number of assignments, 1 to 100.
        """
        me = self._records.me()["id"]
        if not 1 <= limit <= 100:
            raise ToolError(f"invalid argument: limit must be between 1 and 100, got {echo(limit)}")
        rows = self._store.rows(_UPCOMING, user=me, now=self._records.now(), limit=limit)
        course_ids = {row["course_id"] for row in rows}
        courses = [self._store.get("courses", key) for key in course_ids]
        shown = {course["id"]: course for course in show_courses(self._records, courses)}
        upcoming = []
        for assignment in show_assignments(self._records, rows):
            course = shown[assignment["course_id"]]
            upcoming.append({"assignment": assignment, "course": course})
        return upcoming

    def _show(self, assignment: Row) -> Row:
        return show_assignments(self._records, [assignment])[0]

    def _check_student(self, course_id: int, user_id: int) -> None:
        enrollment: Row = {"course_id": course_id, "user_id": user_id, "type": STUDENT}
        if not 0 < user_id <= MAX_ID or not self._store.find("enrollments", **enrollment):
            raise ToolError(f"not found: course {course_id} has no student with id {echo(user_id)}")

    def _show_submission(self, assignment: Row, user_id: int) -> Row:
        due = assignment["due_at"]
        key: Row = {"assignment_id": assignment["id"], "user_id": user_id}
        rows = self._store.find("submissions", **key)
        submission: Row = rows[0] if rows else {"id": None, **key, **_NO_SUBMISSION}
        submitted = submission["attempt"] > 0
        current = submission["graded_attempt"] == submission["attempt"]
        state = "unsubmitted"
        if current:  # even a missing submission can be graded
            state = "graded"
        elif submitted:
            state = "submitted"
        grade, score = submission["grade"], submission["score"]
        url = f"{SITE}/courses/{assignment['course_id']}/assignments/{assignment['id']}"
        return {
            **fields_of(submission, "graded_attempt"),
            **dict.fromkeys(("entered_grade", "published_grade"), grade),
            **dict.fromkeys(("entered_score", "published_score"), score),
            "workflow_state": state,
            "grade_matches_current_submission": grade is None or current,
            "grading_period_id": None,
            "late": bool(submitted and due and submission["submitted_at"] > due),
            "missing": not submitted and due is not None and self._records.now() > due,
            "preview_url": f"{url}/submissions/{user_id}?preview=1",
        }


def _grading(score: float | None, now: str) -> Row:
    if score is None:
        return dict.fromkeys(_GRADING)
    # Rounding to ten digits hides floating-point errors.
    return dict(zip(_GRADING, (score, f"{score:.10g}", None, now, 1), strict=True))
