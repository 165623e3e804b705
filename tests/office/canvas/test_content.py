"""DirectCanvas: calendar, announcements, quizzes and privacy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from agentgym.text.tools import tools_of
from tests.helpers import calls_of
from tests.office.canvas.test_server import (
    ALGEBRA,
    DRAFT,
    OSCAR,
    SAM,
    SUE,
    TARA,
    as_user,
    canvas,
    ids,
    refused,
)
from tests.office.direct import DirectCanvas
from tests.office.test_laws import run

__all__ = ["canvas"]  # a fixture


def test_calendar_and_upcoming_assignments(canvas: DirectCanvas) -> None:
    as_user(canvas, SAM)
    assert [row["id"] for row in canvas.list_calendar_events()] == ["assignment_1"]
    assert [row["id"] for row in canvas.list_calendar_events("2025-01-01", "2025-01-18")] == [
        "assignment_2"
    ]
    assert canvas.list_calendar_events("2025-01-18T12:00:01Z", "2025-01-20T23:58:59Z") == []
    due = [
        (each["assignment"]["id"], each["course"]["id"])
        for each in canvas.get_upcoming_assignments()
    ]
    assert due == [(1, ALGEBRA)]


def test_announcements(canvas: DirectCanvas) -> None:
    canvas.discussions.add_announcement(
        ALGEBRA, "Welcome", "4 credits", posted_at="2025-01-02", exam_type="Open-book"
    )
    canvas.discussions.add_announcement(ALGEBRA, "Exam", "in Hall 1", posted_at="2025-01-03")
    canvas.discussions.add_announcement(ALGEBRA, "Next year", "soon", posted_at="2026-01-01")
    as_user(canvas, SAM)
    listed = canvas.list_announcements(ALGEBRA)
    assert [(row["title"], row.get("exam_type")) for row in listed] == [
        ("Exam", None), ("Welcome", "Open-book"),
    ]  # fmt: skip
    assert [row["author"] for row in listed] == [{"id": TARA, "display_name": "Tara Doe"}] * 2
    assert ids(as_user(canvas, TARA).list_announcements(ALGEBRA)) == [3, 2, 1]
    refused(lambda: as_user(canvas, OSCAR).list_announcements(ALGEBRA), "^permission denied")


def test_quizzes(canvas: DirectCanvas) -> None:
    canvas.quizzes.add_quiz(
        ALGEBRA,
        "Midterm",
        time_limit=45,
        allowed_attempts=2,
        question_count=3,
        points_possible=80,
        credits=4,
    )
    canvas.quizzes.add_quiz(ALGEBRA, "Secret", published=False)
    as_user(canvas, SAM)
    assert [
        (row["id"], row["question_count"], row["points_possible"])
        for row in canvas.list_quizzes(ALGEBRA)
    ] == [(1, 3, 80)]
    assert canvas.get_quiz(ALGEBRA, 1)["credits"] == 4
    refused(lambda: canvas.get_quiz(ALGEBRA, 2), "^not found: there is no quiz with id 2")
    assert canvas.get_quiz_questions(ALGEBRA, 1) == []
    assert as_user(canvas, TARA).get_quiz(ALGEBRA, 2)["title"] == "Secret"


def test_students_do_not_see_correct_answers(canvas: DirectCanvas) -> None:
    quiz = canvas.quizzes.add_quiz(ALGEBRA, "Quiz")
    later = canvas.quizzes.add_quiz(ALGEBRA, "Later", unlock_at="2025-02-01")
    choices = [
        {"answer_text": "4", "answer_weight": 100, "answer_comments": "Yes."},
        {"text": "5", "weight": 0},
    ]
    for number in (quiz, later):
        canvas.quizzes.add_question(number, "2 + 2?", answers=choices)
        canvas.quizzes.add_question(
            number, "Half of 9?", question_type="numerical_question", answers=[{"exact": 4.5}]
        )
    as_user(canvas, SAM)
    assert canvas.get_quiz(ALGEBRA, quiz)["points_possible"] == 2
    shown = canvas.get_quiz_questions(ALGEBRA, quiz)
    assert [each["answers"] for each in shown] == [[{"answer_text": "4"}, {"text": "5"}], []]
    assert canvas.get_quiz(ALGEBRA, quiz)["questions"] == shown
    listed = canvas.list_quizzes(ALGEBRA)
    assert [each.get("questions") for each in listed] == [shown, None]
    as_user(canvas, TARA)
    assert canvas.get_quiz(ALGEBRA, later)["questions"][0]["answers"] == choices


def busy(canvas: DirectCanvas) -> DirectCanvas:
    """Fill the school; private records contain `private-` and the owner."""
    quiz = canvas.quizzes.add_quiz(ALGEBRA, "Quiz")
    canvas.quizzes.add_question(quiz, "2 + 2?", answers=[{"text": "4", "weight": 100}])
    canvas.quizzes.add_quiz(DRAFT, "private-2 quiz")
    canvas.discussions.add_announcement(DRAFT, "private-2 news", "x")
    canvas.assignments.add_submission(2, SAM, body="private-4")
    canvas.store.update("submissions", 1, body="private-5")
    return canvas


@pytest.mark.parametrize("user", [SAM, SUE, OSCAR])
def test_users_cannot_read_private_data_of_others(canvas: DirectCanvas, user: int) -> None:
    rng = np.random.default_rng(user)
    as_user(busy(canvas), user)
    reads = [name for name in tools_of(canvas) if re.match("canvas_(get|list)", name)]
    seen = ""
    for name in reads:
        parameters = tools_of(canvas)[name].schema.parameters
        for _ in range(100):
            keys = [
                key
                for key in parameters["properties"]
                if key in parameters.get("required", ()) or rng.random() < 0.5
            ]
            values = {
                key: int(rng.integers(1, 8)) if key.endswith("_id") else "page" for key in keys
            }
            seen += run(
                canvas,
                name,
                {
                    key: value
                    for key, value in values.items()
                    if key.endswith("_id") or key == "page_url"
                },
            )
    owners = {int(owner) for owner in re.findall(r"private-(\d)", seen)}
    assert owners == {user} - {OSCAR}
    assert not re.search("-pw|sesame", seen)


def test_filling_and_reading_scale_linearly() -> None:
    def fill(canvas: DirectCanvas, courses: int) -> None:
        people = [canvas.people.add_user(f"U {k}", f"u{k}@u.edu", "pw") for k in range(2 * courses)]
        for k in range(courses):
            course = canvas.courses.add_course(
                f"C {k}", f"C-{k}", people[k % 7], students=people[20:30]
            )
            for week in range(5):
                canvas.discussions.add_announcement(course, f"A {week}", "text")
                canvas.assignments.add_assignment(course, f"W {week}", due_at="2025-02-01")
            canvas.quizzes.add_quiz(course, "Q", due_at="2025-02-01")

    def read(canvas: DirectCanvas, courses: int) -> None:
        canvas.people.login_as("u25@u.edu")
        assert len(canvas.list_courses()) == courses
        assert len(canvas.list_announcements(7)) == 5
        assert len(canvas.get_upcoming_assignments(100)) == 100

    small, large = DirectCanvas(), DirectCanvas()
    filled = [
        calls_of(fill, small, 50, database=small.store),
        calls_of(fill, large, 200, database=large.store),
    ]
    assert filled[1] < 4 * 1.25 * filled[0], filled
    seen = [
        calls_of(read, small, 50, database=small.store),
        calls_of(read, large, 200, database=large.store),
    ]
    assert seen[1] < 4 * 1.25 * seen[0], seen
