"""Canvas: privacy, and scaling to large schools. Other tests are in `recorded/canvas.txt`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from agentgym.office.canvas.server import Canvas
from agentgym.text.tools import tools_of
from tests.helpers import calls_of
from tests.office.test_laws import call, run
from tests.office.test_sessions import prepared

# The users and courses from recorded/canvas.txt.
SAM, SUE, OSCAR = 4, 5, 6
ALGEBRA, CHAOS = 1, 3


def busy() -> Canvas:
    """Return a school with many records; private records contain `private-` and the owner."""
    canvas: Any = prepared("canvas")
    quiz = canvas.quizzes.add_quiz(ALGEBRA, "Quiz")
    question = {"question_text": "2 + 2?", "answers": [{"text": "4", "weight": 100}]}
    canvas.quizzes.add_questions(quiz, [question])
    canvas.quizzes.add_quiz(CHAOS, "private-2 quiz")
    canvas.discussions.add_announcement(CHAOS, "private-2 news", "x")
    canvas.assignments.add_submission(2, SAM, body="private-4")
    canvas.store.update("submissions", 1, body="private-5")
    school: Canvas = canvas
    return school


@pytest.mark.parametrize(("user", "login"), [(SAM, "sam"), (SUE, "sue"), (OSCAR, "oscar")])
def test_users_cannot_read_private_data_of_others(user: int, login: str) -> None:
    rng = np.random.default_rng(user)
    canvas = busy()
    canvas.people.login_as(f"{login}@u.edu")
    seen = ""
    for name, bound in tools_of(canvas).items():
        if not re.match("canvas_(get|list)", name):
            continue
        parameters = bound.schema.parameters
        keys = [key for key in parameters["properties"] if key.endswith("_id") or key == "page_url"]
        for _ in range(200):
            arguments = {
                key: int(rng.integers(1, 8)) if key.endswith("_id") else "page"
                for key in keys
                if key in parameters.get("required", ()) or rng.random() < 0.5
            }
            seen += run(canvas, name, arguments)
    owners = {int(owner) for owner in re.findall(r"private-(\d)", seen)}
    assert owners == {user} - {OSCAR}
    assert not re.search("-pw|sesame", seen)


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
        assert len(call(canvas, "canvas_list_courses")) == courses
        assert len(call(canvas, "canvas_list_announcements", course_id=7)) == 5
        assert len(call(canvas, "canvas_get_upcoming_assignments", limit=100)) == 100

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
