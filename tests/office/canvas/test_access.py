"""Canvas: conversations, privacy, and random work against a model."""

from __future__ import annotations

import copy
import json
import pickle
import re

import numpy as np
import pytest

from agentgym.office.canvas.server import Canvas
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
from tests.office.test_laws import digest, draw_call, run

__all__ = ["canvas"]  # a fixture


def test_conversations(canvas: Canvas) -> None:
    as_user(canvas, SAM)
    made = canvas.conversations.canvas_create_conversation(
        [str(SUE), f"course_{ALGEBRA}"], "hello", "Hi"
    )
    assert ids(made["participants"]) == [TARA, TIM, SAM, SUE]
    assert (made["workflow_state"], made["private"]) == ("read", False)
    refused(
        lambda: canvas.conversations.canvas_create_conversation([str(OSCAR)], "x"),
        "^permission denied: you share no course with user 6",
    )
    refused(
        lambda: canvas.conversations.canvas_create_conversation([f"course_{BIOLOGY}"], "x"),
        "^permission denied",
    )
    for wrong in ("", "sue", "-1", "course_", "course_x", "٣", "1" * 30):
        refused(
            lambda w=wrong: canvas.conversations.canvas_create_conversation([w], "x"),
            "^invalid argument: a recipient must look like",
        )
    for nobody in ([], [str(SAM)]):
        refused(
            lambda n=nobody: canvas.conversations.canvas_create_conversation(n, "x"),
            "^invalid argument: recipients must name a user",
        )
    as_user(canvas, SUE)
    listed = canvas.conversations.canvas_list_conversations()[0]
    assert [
        listed[key] for key in ("subject", "workflow_state", "last_message", "message_count")
    ] == ["Hi", "unread", "hello", 1]
    refused(
        lambda: canvas.conversations.canvas_get_conversation(2),
        "^not found: you have no conversation with id 2",
    )
    assert canvas.conversations.canvas_get_conversation(1)["messages"][0]["body"] == "hello"
    assert canvas.conversations.canvas_list_conversations()[0]["workflow_state"] == "read"
    refused(lambda: as_user(canvas, ADMIN).conversations.canvas_get_conversation(1), "^not found")


def test_notifications_show_the_ten_newest(canvas: Canvas) -> None:
    for day in range(1, 13):
        canvas.discussions.add_announcement(
            ALGEBRA, f"Day {day}", "x", posted_at=f"2025-01-{day:02}"
        )
    canvas.discussions.add_announcement(BIOLOGY, "Frogs", "x")
    as_user(canvas, TARA).conversations.canvas_create_conversation([str(SAM)], "see me")
    canvas.assignments.canvas_submit_grade(ALGEBRA, 1, SAM, 40)
    shown = as_user(canvas, SAM).dashboard.canvas_list_notifications()
    assert [(row["type"], row["title"]) for row in shown[:3]] == [
        ("Submission", "Homework"), ("Conversation", "(No Subject)"), ("Announcement", "Day 12"),
    ]  # fmt: skip
    assert ids(shown) == list(range(1, 11))
    assert "Frogs" in json.dumps(as_user(canvas, SUE).dashboard.canvas_list_notifications())


def busy(canvas: Canvas) -> Canvas:
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
    as_user(canvas, TIM).assignments.canvas_submit_grade(ALGEBRA, 1, SUE, 33, "private-5 comment")
    as_user(canvas, OSCAR).conversations.canvas_create_conversation([str(SUE)], "private-5 letter")
    return canvas


@pytest.mark.parametrize("user", [SAM, SUE, OSCAR])
def test_users_cannot_read_private_data_of_others(canvas: Canvas, user: int) -> None:
    rng = np.random.default_rng(user)
    as_user(busy(canvas), user)
    reads = [name for name in tools_of(canvas) if re.match("canvas_(get|list|mark|start)", name)]
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


@pytest.mark.parametrize("user", [ADMIN, TARA, SAM])
def test_failed_calls_change_nothing(canvas: Canvas, user: int) -> None:
    rng = np.random.default_rng(user)
    as_user(busy(canvas), user)
    done = 0
    for _ in range(1_200):
        tool, arguments = draw_call(canvas, rng)
        if tool in ("canvas_login", "canvas_logout"):
            continue
        arguments |= {
            key: int(rng.integers(1, 3))
            for key in arguments
            if key.endswith("_id") and rng.random() < 0.8
        }
        before = digest(canvas)
        result = run(canvas, tool, copy.deepcopy(arguments))
        done += not result.startswith("error:")
        if result.startswith("error:"):
            assert digest(canvas) == before, (tool, arguments)
            assert re.match(
                r"error: (not found|invalid argument|permission denied|conflict|limit exceeded|canvas_\w+): ",
                result,
            ), result
    assert done > 200
    check(canvas)


def check(canvas: Canvas) -> None:
    assert canvas.store.rows("PRAGMA foreign_key_check") == []
    rows = canvas.store.find("quiz_questions", "quiz_id, position")
    for quiz in {row["quiz_id"] for row in rows}:
        positions = [row["position"] for row in rows if row["quiz_id"] == quiz]
        assert positions == list(range(1, len(positions) + 1))
    for quiz in {row["quiz_id"] for row in canvas.store.find("quiz_questions")}:
        worth = [
            row["points_possible"] for row in canvas.store.find("quiz_questions", quiz_id=quiz)
        ]
        held = canvas.store.get("quizzes", quiz)
        assert (held["question_count"], held["points_possible"]) == (len(worth), sum(worth))


def term(canvas: Canvas, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    points = {1: 50.0, 2: 150.0}
    scores: dict[tuple[int, int], float] = {}
    attempts = {(SUE, 1): 1}
    shown = []
    for step in range(150):
        student, work = int(rng.choice([SAM, SUE])), int(rng.choice(list(points)))
        kind = rng.integers(5)
        if kind == 0:
            as_user(canvas, TARA)
            worth = float(rng.integers(1, 200))
            points[
                canvas.assignments.canvas_create_assignment(
                    ALGEBRA,
                    f"W{step}",
                    points_possible=worth,
                    submission_types=["online_url"],
                    published=True,
                )["id"]
            ] = worth
        elif kind == 1 and work > 1:
            as_user(canvas, student)
            attempts[student, work] = attempts.get((student, work), 0) + 1
            assert (
                canvas.assignments.canvas_submit_assignment(
                    ALGEBRA, work, "online_url", url=f"http://a/{step}"
                )["attempt"]
                == attempts[student, work]
            )
        elif kind == 2:
            scores[student, work] = float(rng.integers(0, 60))
            as_user(canvas, TIM).assignments.canvas_submit_grade(
                ALGEBRA, work, student, scores[student, work]
            )
        elif kind == 3 and (student, work) in scores:
            del scores[student, work]
            as_user(canvas, TIM).assignments.canvas_submit_grade(ALGEBRA, work, student, "")
        else:
            grades = as_user(canvas, student).assignments.canvas_get_course_grades(ALGEBRA)[0][
                "grades"
            ]
            got = sum(score for (who, _), score in scores.items() if who == student)
            of = sum(points[each] for who, each in scores if who == student)
            graded = any(who == student for who, _ in scores)
            assert grades["current_score"] == (round(100 * got / of, 2) if graded else None)
            assert grades["final_score"] == round(100 * got / sum(points.values()), 2)
            shown.append(json.dumps(grades))
    held = {
        (row["user_id"], row["assignment_id"]): row["attempt"]
        for row in canvas.store.find("submissions")
        if row["attempt"]
    }
    assert held == attempts
    return shown


@pytest.mark.parametrize("seed", range(3))
def test_random_work_matches_a_model_and_is_deterministic(canvas: Canvas, seed: int) -> None:
    twin = pickle.loads(pickle.dumps(canvas))
    assert term(canvas, seed) == term(twin, seed)
    check(canvas)
    assert digest(canvas) == digest(twin)
    assert canvas.context.clock.now() == twin.context.clock.now()


def test_filling_and_reading_scale_linearly() -> None:
    def fill(canvas: Canvas, courses: int) -> None:
        people = [canvas.people.add_user(f"U {k}", f"u{k}@u.edu", "pw") for k in range(2 * courses)]
        for k in range(courses):
            course = canvas.courses.add_course(
                f"C {k}", f"C-{k}", people[k % 7], students=people[20:30]
            )
            for week in range(5):
                canvas.discussions.add_announcement(course, f"A {week}", "text")
                canvas.assignments.add_assignment(course, f"W {week}", due_at="2025-02-01")
            canvas.quizzes.add_quiz(course, "Q", due_at="2025-02-01")

    def read(canvas: Canvas, courses: int) -> None:
        canvas.people.login_as("u25@u.edu")
        assert len(canvas.courses.canvas_list_courses()) == courses
        assert len(canvas.discussions.canvas_list_announcements(7)) == 5
        assert len(canvas.dashboard.canvas_get_upcoming_assignments(100)) == 100

    small, large = Canvas(), Canvas()
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
