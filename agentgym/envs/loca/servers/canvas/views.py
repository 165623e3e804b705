"""Canvas: records in the form of the published server, with the fields of Canvas's API that are the
same for all records here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.envs.loca.servers.canvas.records import Records
from agentgym.envs.loca.servers.canvas.schema import TEACHER
from agentgym.envs.loca.servers.store import Row

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

_ACCOUNT: Row = {
    "default_storage_quota_mb": 500,
    "default_user_storage_quota_mb": 50,
    "default_group_storage_quota_mb": 50,
    "integration_id": None,
    "sis_import_id": None,
}
"""Settings that are the same for all accounts, as Canvas sets them in a new one."""

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


def fields_of(row: Mapping[str, Any], *hidden: str) -> Row:
    """Return the columns of a record that are shown, with the fields that the task added to it."""
    fields = {key: value for key, value in row.items() if key not in ("extra", *hidden)}
    return fields | (row.get("extra") or {})


def whole(number: float | None) -> float | int:
    """Return a number of points without a fraction that is zero; nothing is 0."""
    value = number or 0
    return int(value) if value == int(value) else value


def show_courses(records: Records, courses: Sequence[Row]) -> list[Row]:
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


def show_assignments(records: Records, assignments: Sequence[Row]) -> list[Row]:
    """Return assignments, each with its place and its numbers of submissions, by one query; those
    to grade are told to those who grade.
    """
    ids = [assignment["id"] for assignment in assignments]
    counts = {row["id"]: row for row in records.store.rows(_WORK_COUNTS, ids)}
    now = records.now()
    courses = {row["course_id"] for row in assignments}
    graded = {course for course in courses if records.may(course, "grade")}
    return [
        _show_assignment(row, counts[row["id"]], now, row["course_id"] in graded)
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


def show_account(account: Row) -> Row:
    """Return an account."""
    uuid = _uuid("account", account)
    return {
        **account,
        "root_account_id": ROOT_ACCOUNT,
        "uuid": uuid,
        "lti_guid": f"{uuid[:32]}:canvas-lms",
        "sis_account_id": f"ACCOUNT-{account['id']}",
        **_ACCOUNT,
    }


def show_file(file: Row) -> Row:
    """Return a file."""
    return {"content-type": file["content_type"], **fields_of(file, "content_type")}


def _uuid(kind: str, record: Row) -> str:
    """Return the 40 hexadecimal digits by which Canvas names a record to other services."""
    return hashlib.sha1(f"{kind} {record['id']}".encode()).hexdigest()
