"""DirectCanvas: calendar, discussions, quizzes, conversations and privacy."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from agentgym.text.tools import tools_of
from tests.helpers import calls_of
from tests.office.canvas.test_server import (
    ADMIN,
    ALGEBRA,
    BIOLOGY,
    DRAFT,
    LOGINS,
    OSCAR,
    SAM,
    SUE,
    TARA,
    TIM,
    as_user,
    canvas,
    ids,
    refused,
)
from tests.office.direct import DirectCanvas
from tests.office.test_laws import run

__all__ = ["canvas"]  # a fixture


def test_calendar_and_dashboard(canvas: DirectCanvas) -> None:
    canvas.dashboard.add_event(
        "Exam",
        "2025-01-18T10:00:00Z",
        "2025-01-18T12:00:00Z",
        course_id=ALGEBRA,
        location_name="Hall 1",
    )
    canvas.dashboard.add_event("Dentist", "2025-01-19T10:00:00Z", user_id=SUE)
    as_user(canvas, SAM)
    assert [row["id"] for row in canvas.list_calendar_events()] == [1, "assignment_1"]
    assert [row["id"] for row in canvas.list_calendar_events("2025-01-01", "2025-01-18")] == [
        "assignment_2",
        1,
    ]
    assert canvas.list_calendar_events("2025-01-18T12:00:01Z", "2025-01-20T23:58:59Z") == []
    board = canvas.get_dashboard()
    assert (board["user"]["id"], ids(board["courses"])) == (SAM, [ALGEBRA])
    due = [
        (each["assignment"]["id"], each["course"]["id"]) for each in board["upcoming_assignments"]
    ]
    assert due == [(1, ALGEBRA)]
    [card] = canvas.get_dashboard_cards()
    assert (card["assetString"], card["subtitle"]) == ("course_1", "enrolled as: Student")
    assert [
        row["title"] for row in as_user(canvas, SUE).list_calendar_events(end_date="2025-01-19")
    ] == ["Exam", "Dentist"]


def test_discussions_and_announcements(canvas: DirectCanvas) -> None:
    canvas.discussions.add_announcement(
        ALGEBRA, "Welcome", "4 credits", posted_at="2025-01-02", exam_type="Open-book"
    )
    canvas.discussions.add_announcement(ALGEBRA, "Exam", "in Hall 1", posted_at="2025-01-03")
    canvas.discussions.add_announcement(ALGEBRA, "Next year", "soon", posted_at="2026-01-01")
    canvas.discussions.add_topic(ALGEBRA, "Talk", "say it", author=TIM)
    canvas.discussions.add_topic(ALGEBRA, "Closed", "no", locked=True)
    as_user(canvas, SAM)
    listed = canvas.list_announcements(ALGEBRA)
    assert [(row["title"], row.get("exam_type")) for row in listed] == [
        ("Exam", None), ("Welcome", "Open-book"),
    ]  # fmt: skip
    assert [row["author"] for row in listed] == [{"id": TARA, "display_name": "Tara Doe"}] * 2
    assert ids(canvas.list_discussion_topics(ALGEBRA)) == [5, 4]
    refused(
        lambda: canvas.get_discussion_topic(ALGEBRA, 3), "^not found: there is no topic with id 3"
    )
    assert canvas.post_to_discussion(ALGEBRA, 4, "me first")["created_at"] == "2025-01-15T09:00:01Z"
    refused(
        lambda: canvas.post_to_discussion(ALGEBRA, 5, "x"), "^permission denied: topic 5 is locked"
    )
    refused(lambda: canvas.post_to_discussion(ALGEBRA, 4, " "), "^invalid argument: message")
    said = as_user(canvas, SUE).get_discussion_topic(ALGEBRA, 4)["entries"]
    assert [(entry["user_name"], entry["message"]) for entry in said] == [("Sam Doe", "me first")]
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


def test_conversations(canvas: DirectCanvas) -> None:
    as_user(canvas, SAM)
    made = canvas.create_conversation([str(SUE), f"course_{ALGEBRA}"], "hello", "Hi")
    assert ids(made["participants"]) == [TARA, TIM, SAM, SUE]
    assert (made["workflow_state"], made["private"]) == ("read", False)
    refused(
        lambda: canvas.create_conversation([str(OSCAR)], "x"),
        "^permission denied: you share no course with user 6",
    )
    refused(lambda: canvas.create_conversation([f"course_{BIOLOGY}"], "x"), "^permission denied")
    for wrong in ("", "sue", "-1", "course_", "course_x", "٣", "1" * 30):
        refused(
            lambda w=wrong: canvas.create_conversation([w], "x"),
            "^invalid argument: a recipient must look like",
        )
    for nobody in ([], [str(SAM)]):
        refused(
            lambda n=nobody: canvas.create_conversation(n, "x"),
            "^invalid argument: recipients must name a user",
        )
    as_user(canvas, SUE)
    listed = canvas.list_conversations()[0]
    assert [
        listed[key] for key in ("subject", "workflow_state", "last_message", "message_count")
    ] == ["Hi", "unread", "hello", 1]
    refused(lambda: canvas.get_conversation(2), "^not found: you have no conversation with id 2")
    assert canvas.get_conversation(1)["messages"][0]["body"] == "hello"
    assert canvas.list_conversations()[0]["workflow_state"] == "read"
    refused(lambda: as_user(canvas, ADMIN).get_conversation(1), "^not found")


def test_notifications_show_the_ten_newest(canvas: DirectCanvas) -> None:
    for day in range(1, 13):
        canvas.discussions.add_announcement(
            ALGEBRA, f"Day {day}", "x", posted_at=f"2025-01-{day:02}"
        )
    canvas.discussions.add_announcement(BIOLOGY, "Frogs", "x")
    as_user(canvas, TARA).create_conversation([str(SAM)], "see me")
    graded = canvas.assignments.add_submission(1, SAM, score=40)
    canvas.store.update("submissions", graded, graded_at="2025-01-15T10:00:00Z")
    shown = as_user(canvas, SAM).list_notifications()
    assert [(row["type"], row["title"]) for row in shown[:3]] == [
        ("Submission", "Homework"), ("Conversation", "(No Subject)"), ("Announcement", "Day 12"),
    ]  # fmt: skip
    assert ids(shown) == list(range(1, 11))
    assert "Frogs" in json.dumps(as_user(canvas, SUE).list_notifications())


def busy(canvas: DirectCanvas) -> DirectCanvas:
    """Fill the school; private records contain `private-` and the owner."""
    quiz = canvas.quizzes.add_quiz(ALGEBRA, "Quiz")
    canvas.quizzes.add_question(quiz, "2 + 2?", answers=[{"text": "4", "weight": 100}])
    canvas.quizzes.add_quiz(DRAFT, "private-2 quiz")
    canvas.discussions.add_topic(ALGEBRA, "Topic", "x")
    canvas.discussions.add_announcement(DRAFT, "private-2 news", "x")
    for user in LOGINS:
        canvas.dashboard.add_event(f"private-{user}", "2025-01-20", user_id=user)
    canvas.assignments.add_submission(2, SAM, body="private-4")
    canvas.store.update("submissions", 1, body="private-5")
    as_user(canvas, OSCAR).create_conversation([str(SUE)], "private-5 letter")
    return canvas


@pytest.mark.parametrize("user", [SAM, SUE, OSCAR])
def test_users_cannot_read_private_data_of_others(canvas: DirectCanvas, user: int) -> None:
    rng = np.random.default_rng(user)
    as_user(busy(canvas), user)
    reads = [name for name in tools_of(canvas) if re.match("canvas_(get|list)", name)]
    seen = ""
    for name in reads:
        parameters = tools_of(canvas)[name].schema.parameters
        for _ in range(25):
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
    assert owners == ({user, SUE} if user == OSCAR else {user})
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
