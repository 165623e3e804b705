"""Canvas: calendar, discussions and quizzes, with hand-computed facts."""

from __future__ import annotations

import json

from agentgym.office.canvas.server import Canvas
from tests.office.canvas.test_server import (
    ALGEBRA,
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

__all__ = ["canvas"]  # a fixture


def test_calendar_and_dashboard(canvas: Canvas) -> None:
    canvas.dashboard.add_event(
        "Exam",
        "2025-01-18T10:00:00Z",
        "2025-01-18T12:00:00Z",
        course_id=ALGEBRA,
        location_name="Hall 1",
    )
    canvas.dashboard.add_event("Dentist", "2025-01-19T10:00:00Z", user_id=SUE)
    as_user(canvas, SAM)
    assert [row["id"] for row in canvas.dashboard.canvas_list_calendar_events()] == [
        1,
        "assignment_1",
    ]
    assert [
        row["id"]
        for row in canvas.dashboard.canvas_list_calendar_events("2025-01-01", "2025-01-18")
    ] == ["assignment_2", 1]
    assert (
        canvas.dashboard.canvas_list_calendar_events("2025-01-18T12:00:01Z", "2025-01-20T23:58:59Z")
        == []
    )
    board = canvas.dashboard.canvas_get_dashboard()
    assert (board["user"]["id"], ids(board["courses"])) == (SAM, [ALGEBRA])
    due = [
        (each["assignment"]["id"], each["course"]["id"]) for each in board["upcoming_assignments"]
    ]
    assert due == [(1, ALGEBRA)]
    [card] = canvas.dashboard.canvas_get_dashboard_cards()
    assert (card["assetString"], card["subtitle"]) == ("course_1", "enrolled as: Student")
    assert [
        row["title"]
        for row in as_user(canvas, SUE).dashboard.canvas_list_calendar_events(end_date="2025-01-19")
    ] == [
        "Exam",
        "Dentist",
    ]


def test_discussions_and_announcements(canvas: Canvas) -> None:
    canvas.discussions.add_announcement(
        ALGEBRA, "Welcome", "4 credits", posted_at="2025-01-02", exam_type="Open-book"
    )
    canvas.discussions.add_announcement(ALGEBRA, "Exam", "in Hall 1", posted_at="2025-01-03")
    canvas.discussions.add_announcement(ALGEBRA, "Next year", "soon", posted_at="2026-01-01")
    canvas.discussions.add_topic(ALGEBRA, "Talk", "say it", author=TIM)
    canvas.discussions.add_topic(ALGEBRA, "Closed", "no", locked=True)
    as_user(canvas, SAM)
    listed = canvas.discussions.canvas_list_announcements(ALGEBRA)
    assert [(row["title"], row.get("exam_type")) for row in listed] == [
        ("Exam", None), ("Welcome", "Open-book"),
    ]  # fmt: skip
    assert [row["author"] for row in listed] == [{"id": TARA, "display_name": "Tara Doe"}] * 2
    assert ids(canvas.discussions.canvas_list_discussion_topics(ALGEBRA)) == [5, 4]
    refused(
        lambda: canvas.discussions.canvas_get_discussion_topic(ALGEBRA, 3),
        "^not found: there is no topic with id 3",
    )
    assert (
        canvas.discussions.canvas_post_to_discussion(ALGEBRA, 4, "me first")["created_at"]
        == "2025-01-15T09:00:01Z"
    )
    refused(
        lambda: canvas.discussions.canvas_post_to_discussion(ALGEBRA, 5, "x"),
        "^permission denied: topic 5 is locked",
    )
    refused(
        lambda: canvas.discussions.canvas_post_to_discussion(ALGEBRA, 4, " "),
        "^invalid argument: message",
    )
    said = as_user(canvas, SUE).discussions.canvas_get_discussion_topic(ALGEBRA, 4)["entries"]
    assert [(entry["user_name"], entry["message"]) for entry in said] == [("Sam Doe", "me first")]
    assert ids(as_user(canvas, TARA).discussions.canvas_list_announcements(ALGEBRA)) == [3, 2, 1]
    refused(
        lambda: as_user(canvas, OSCAR).discussions.canvas_list_announcements(ALGEBRA),
        "^permission denied",
    )


def test_quizzes(canvas: Canvas) -> None:
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
    canvas.quizzes.add_quiz(ALGEBRA, "Locked", access_code="sesame", due_at="2025-01-22T23:59:00Z")
    as_user(canvas, SAM)
    assert [
        (row["id"], row["question_count"], row["points_possible"])
        for row in canvas.quizzes.canvas_list_quizzes(ALGEBRA)
    ] == [
        (1, 3, 80),
        (3, 0, 0),
    ]
    assert canvas.quizzes.canvas_get_quiz(ALGEBRA, 1)["credits"] == 4
    assert "sesame" not in json.dumps(canvas.quizzes.canvas_get_quiz(ALGEBRA, 3))
    refused(
        lambda: canvas.quizzes.canvas_get_quiz(ALGEBRA, 2), "^not found: there is no quiz with id 2"
    )
    assert canvas.quizzes.canvas_get_quiz(ALGEBRA, 3)["has_access_code"]
    assert canvas.quizzes.canvas_get_quiz_questions(ALGEBRA, 1) == []
    refused(
        lambda: canvas.quizzes.canvas_start_quiz_attempt(ALGEBRA, 3),
        "^permission denied: quiz 3 asks for an access code",
    )
    attempt = canvas.quizzes.canvas_start_quiz_attempt(ALGEBRA, 1)
    assert (attempt["attempt"], attempt["started_at"], attempt["end_at"]) == (
        1,
        "2025-01-15T09:00:01Z",
        "2025-01-15T09:45:01Z",
    )
    refused(
        lambda: canvas.quizzes.canvas_start_quiz_attempt(ALGEBRA, 1),
        "^conflict: attempt 1 is in progress until 2025-01-15T09:45:01Z",
    )
    for _ in range(45 * 60):
        canvas.context.clock.tick()
    assert canvas.quizzes.canvas_start_quiz_attempt(ALGEBRA, 1)["attempt"] == 2
    for _ in range(45 * 60):
        canvas.context.clock.tick()
    refused(
        lambda: canvas.quizzes.canvas_start_quiz_attempt(ALGEBRA, 1),
        "^limit exceeded: quiz 1 allows 2 attempts",
    )
    as_user(canvas, TARA)
    refused(
        lambda: canvas.quizzes.canvas_start_quiz_attempt(ALGEBRA, 1),
        "^permission denied: this user may not learn",
    )
    assert canvas.quizzes.canvas_get_quiz(ALGEBRA, 3)["access_code"] == "sesame"
    assert canvas.quizzes.canvas_publish_quiz(ALGEBRA, 2)["published"]
    made = canvas.quizzes.canvas_create_quiz(ALGEBRA, "Pop", time_limit=5)
    assert (made["id"], made["published"], made["allowed_attempts"], made["scoring_policy"]) == (
        4,
        False,
        1,
        "keep_highest",
    )
    changed = canvas.quizzes.canvas_update_quiz(
        ALGEBRA,
        4,
        allowed_attempts=-1,
        scoring_policy="keep_latest",
        shuffle_answers=True,
        due_at="2025-02-01",
    )
    assert (changed["allowed_attempts"], changed["scoring_policy"], changed["shuffle_answers"], changed["due_at"]) == (
        -1, "keep_latest", True, "2025-02-01T00:00:00Z",
    )  # fmt: skip
    for field in (
        {"allowed_attempts": 0},
        {"time_limit": 0},
        {"quiz_type": "x"},
        {"scoring_policy": "x"},
        {"title": ""},
    ):
        refused(
            lambda f=field: canvas.quizzes.canvas_update_quiz(ALGEBRA, 4, **f),
            f"^invalid argument: {next(iter(field))}",
        )


def test_quiz_points_follow_its_questions(canvas: Canvas) -> None:
    quiz = canvas.quizzes.add_quiz(ALGEBRA, "Quiz", question_count=9, points_possible=9)
    as_user(canvas, TARA)
    answers = [{"answer_text": "4", "answer_weight": 100}, {"text": "5", "weight": 0}]
    one = canvas.quizzes.canvas_add_quiz_question(
        ALGEBRA, quiz, question_text="2 + 2?", points_possible=2.5, answers=answers
    )
    assert one["answers"] == answers
    assert one["question_type"] == "multiple_choice_question"
    two = canvas.quizzes.canvas_add_quiz_question(
        ALGEBRA, quiz, question_text="Why?", question_name="Deep"
    )
    assert (two["question_type"], two["points_possible"]) == ("essay_question", 1)
    shown = canvas.quizzes.canvas_get_quiz(ALGEBRA, quiz)
    assert (shown["question_count"], shown["points_possible"]) == (2, 3.5)
    canvas.quizzes.canvas_update_quiz_question(
        ALGEBRA, quiz, two["id"], points_possible=4.0, answers=[]
    )
    assert canvas.quizzes.canvas_get_quiz(ALGEBRA, quiz)["points_possible"] == 6.5
    deleted = canvas.quizzes.canvas_delete_quiz_question(ALGEBRA, quiz, one["id"])
    assert deleted == f"Question {one['id']} deleted"
    assert ids(canvas.quizzes.canvas_get_quiz_questions(ALGEBRA, quiz)) == [two["id"]]
    for wrong in ([{}], [{"": None}], [{"text": [1]}], [{"text": "a", "colour": "b"}]):
        refused(
            lambda w=wrong: canvas.quizzes.canvas_update_quiz_question(
                ALGEBRA, quiz, two["id"], answers=w
            ),
            "^invalid argument: an answer may have",
        )
    refused(
        lambda: canvas.quizzes.canvas_add_quiz_question(
            ALGEBRA, quiz, question_text="x", question_type="x"
        ),
        "^invalid argument: question_type",
    )
    as_user(canvas, SAM).quizzes.canvas_start_quiz_attempt(ALGEBRA, quiz)
    refused(lambda: canvas.quizzes.canvas_delete_quiz(ALGEBRA, quiz), "^permission denied")
    deleted = as_user(canvas, TARA).quizzes.canvas_delete_quiz(ALGEBRA, quiz)
    assert deleted == f"Quiz {quiz} deleted"
    assert (
        canvas.quizzes.canvas_list_quizzes(ALGEBRA)
        == canvas.store.find("quiz_questions")
        == canvas.store.find("quiz_submissions")
        == []
    )


def test_students_do_not_see_correct_answers(canvas: Canvas) -> None:
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
    shown = canvas.quizzes.canvas_get_quiz_questions(ALGEBRA, quiz)
    assert [each["answers"] for each in shown] == [[{"answer_text": "4"}, {"text": "5"}], []]
    assert canvas.quizzes.canvas_get_quiz(ALGEBRA, quiz)["questions"] == shown
    listed = canvas.quizzes.canvas_list_quizzes(ALGEBRA)
    assert [each.get("questions") for each in listed] == [shown, None]
    as_user(canvas, TARA)
    assert canvas.quizzes.canvas_get_quiz(ALGEBRA, later)["questions"][0]["answers"] == choices
