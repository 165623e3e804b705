"""DirectCanvas: users, courses, assignments and grades, with hand-computed facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from agentgym.text.tools import ToolError
from tests.office.direct import DirectCanvas

ADMIN, TARA, TIM, SAM, SUE, OSCAR = range(1, 7)
LOGINS = dict(zip(range(1, 7), ("admin", "tara", "tim", "sam", "sue", "oscar"), strict=True))
ALGEBRA, BIOLOGY, DRAFT = 1, 2, 3


@pytest.fixture
def canvas() -> DirectCanvas:
    """Tara and her assistant Tim teach Algebra to Sam and Sue; Oscar teaches Biology to Sue."""
    made = DirectCanvas()
    for login in LOGINS.values():
        made.people.add_user(
            f"{login.title()} Doe", f"{login}@u.edu", f"{login}-pw", admin=login == "admin"
        )
    made.courses.add_course(
        "Algebra",
        "MATH101-1",
        TARA,
        students=[SAM, SUE],
        syllabus_body="x + y",
        credits=4,
        teacher_email="tara@u.edu",
    )
    made.courses.enroll(ALGEBRA, TIM, "TaEnrollment")
    made.courses.add_course(
        "Biology",
        "BIO7-2",
        OSCAR,
        students=[SUE],
        start_at="2024-09-01",
        end_at=datetime(2025, 1, 1, tzinfo=UTC),
    )
    made.courses.add_course("Chaos", "CH1-3", TARA, students=[SAM], published=False)
    made.assignments.add_assignment(
        ALGEBRA,
        "Homework",
        points_possible=50,
        due_at="2025-01-20T23:59:00Z",
        submission_types=["online_text_entry"],
    )
    made.assignments.add_assignment(
        ALGEBRA,
        "Essay",
        points_possible=150,
        due_at="2025-01-10T10:00:00+02:00",
        submission_types=["online_url", "online_upload"],
    )
    made.assignments.add_assignment(ALGEBRA, "Hidden", points_possible=100, published=False)
    made.assignments.add_submission(
        1, SUE, body="secret of sue", submitted_at="2025-01-14T00:00:00Z"
    )
    return made


def as_user(canvas: DirectCanvas, user: int) -> DirectCanvas:
    canvas.people.login_as(f"{LOGINS[user]}@u.edu")
    return canvas


def refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ToolError, match=text):
        call()


def ids(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] for row in rows]


def test_login(canvas: DirectCanvas) -> None:
    assert canvas.health_check() == {
        "status": "ok",
        "timestamp": "2025-01-15T09:00:00Z",
        "user": None,
    }
    refused(canvas.list_courses, "^not logged in: call canvas_login")
    for login, password in (("sam@u.edu", "sue-pw"), ("nobody", "sam-pw"), ("", "")):
        refused(
            lambda a=login, b=password: canvas.login(a, b),
            "^permission denied: the login id or the password is wrong",
        )
    assert canvas.login("SAM@u.edu", "sam-pw")["id"] == SAM
    assert canvas.store.get("users", SAM)["last_login"] == "2025-01-15T09:00:01Z"
    assert "sam-pw" not in json.dumps(canvas.get_user_profile())
    refused(lambda: canvas.login("sue@u.edu", "sam-pw"), "^permission denied")
    assert canvas.get_current_user()["name"] == "Sam Doe"
    assert canvas.logout()["logged_in"] is False
    assert canvas.get_current_user()["logged_in"] is False
    refused(canvas.logout, "^not logged in")
    with pytest.raises(ToolError, match="not found: there is no user with login id"):
        canvas.people.login_as("nobody")


def test_profiles(canvas: DirectCanvas) -> None:
    shown = as_user(canvas, SAM).get_user_profile()
    assert [shown[key] for key in ("name", "sortable_name", "short_name", "time_zone")] == [
        "Sam Doe", "Doe, Sam", "Sam Doe", "UTC",
    ]  # fmt: skip
    assert as_user(canvas, SUE).get_user_profile()["name"] == "Sue Doe"


def test_addresses_are_shown_between_teachers_and_students(canvas: DirectCanvas) -> None:
    def listed(user: int) -> list[dict[str, Any]]:
        users = as_user(canvas, user).list_users()
        assert users["count"] == len(users["users"])
        return list(users["users"])

    seen = {user["id"]: user.get("email") for user in listed(SAM)}
    assert seen == {TARA: "tara@u.edu", TIM: "tim@u.edu", SAM: "sam@u.edu", SUE: None}
    assert ids(listed(OSCAR)) == [SUE, OSCAR]
    assert all("email" in user for user in listed(TARA))
    assert ids(listed(ADMIN)) == [1, 2, 3, 4, 5, 6]


def test_courses(canvas: DirectCanvas) -> None:
    as_user(canvas, SUE)
    assert ids(canvas.list_courses()) == [ALGEBRA]
    assert ids(canvas.list_courses(include_ended=True)) == [ALGEBRA, BIOLOGY]
    shown = canvas.list_courses()[0]
    expected = {
        "id": 1, "account_id": 1, "name": "Algebra", "course_code": "MATH101-1", "sis_course_id": None,
        "workflow_state": "available", "start_at": None, "end_at": None, "is_public": False, "time_zone": "UTC",
        "credits": 4, "teacher_email": "tara@u.edu", "teacher_name": "Tara Doe",
    }  # fmt: skip
    assert shown == shown | expected
    assert "syllabus_body" not in shown
    assert canvas.get_course(ALGEBRA)["syllabus_body"] == "x + y"
    assert canvas.get_syllabus(ALGEBRA) == {"syllabus_body": "x + y"}
    assert as_user(canvas, SAM).list_courses()[0]["id"] == ALGEBRA
    for course in (BIOLOGY, DRAFT):
        refused(
            lambda c=course: canvas.get_course(c),
            f"^permission denied: this user may not read in course {course}",
        )
    refused(lambda: canvas.get_course(2**64), "^not found: there is no course with id")
    assert ids(as_user(canvas, TARA).list_courses()) == [ALGEBRA, DRAFT]


def test_assignments(canvas: DirectCanvas) -> None:
    as_user(canvas, SAM)
    assert ids(canvas.list_assignments(ALGEBRA)) == [1, 2]
    assert canvas.get_assignment(ALGEBRA, 2)["due_at"] == "2025-01-10T08:00:00Z"
    refused(
        lambda: canvas.get_assignment(ALGEBRA, 3), "^not found: there is no assignment with id 3"
    )
    upcoming = canvas.get_upcoming_assignments()
    assert [(row["assignment"]["name"], row["course"]["id"]) for row in upcoming] == [
        ("Homework", ALGEBRA)
    ]
    refused(
        lambda: canvas.get_upcoming_assignments(0),
        "^invalid argument: limit must be between 1 and 100",
    )
    as_user(canvas, TIM)
    assert ids(canvas.list_assignments(ALGEBRA)) == [1, 2, 3]
    assert canvas.get_upcoming_assignments() == []
    refused(lambda: canvas.get_assignment(BIOLOGY, 1), "^permission denied")


def test_submissions_and_grading(canvas: DirectCanvas) -> None:
    as_user(canvas, SAM)
    empty = canvas.get_submission(ALGEBRA, 2)
    assert (empty["workflow_state"], empty["missing"], empty["late"], empty["id"]) == (
        "unsubmitted",
        True,
        False,
        None,
    )
    assert canvas.get_submission(ALGEBRA, 1)["missing"] is False
    refused(
        lambda: canvas.get_submission(ALGEBRA, 1, SUE),
        "^permission denied: this user may not grade",
    )
    row = canvas.assignments.add_submission(2, SAM, url="https://a.b/a")
    done = canvas.get_submission(ALGEBRA, 2)
    assert (done["attempt"], done["late"], done["workflow_state"]) == (1, True, "submitted")
    canvas.store.update("submissions", row, score=100, grade="100", graded_attempt=1)
    assert canvas.get_submission(ALGEBRA, 2)["workflow_state"] == "graded"
    canvas.store.update("submissions", row, attempt=2)
    assert canvas.get_submission(ALGEBRA, 2)["grade_matches_current_submission"] is False
    work = as_user(canvas, TIM).get_assignment(ALGEBRA, 2)
    assert (work["needs_grading_count"], work["has_submitted_submissions"]) == (1, True)
    canvas.store.update("submissions", row, graded_attempt=2)
    work = canvas.get_assignment(ALGEBRA, 2)
    assert (work["needs_grading_count"], work["unpublishable"]) == (0, False)
    refused(
        lambda: canvas.get_submission(ALGEBRA, 2, TARA),
        "^not found: course 1 has no student with id 2",
    )
