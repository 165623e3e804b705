"""Load the Canvas data of LOCA-bench's states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from pydantic import AwareDatetime, TypeAdapter

from agentgym.envs.loca.published.files import read_json
from agentgym.envs.loca.records import Record
from agentgym.office.canvas.server import Canvas
from agentgym.text.tools import ToolError

T = TypeVar("T")


@dataclass(frozen=True)
class _User:
    id: int
    name: str
    login_id: str
    password: str


@dataclass(frozen=True)
class _Course:
    id: int
    name: str
    course_code: str
    teacher_name: str | None = None
    teacher_email: str | None = None


@dataclass(frozen=True)
class _Enrollment:
    user_id: int
    course_id: int
    type: str
    enrollment_state: str


@dataclass(frozen=True)
class _Question:
    question_name: str
    question_text: str
    question_type: str
    points_possible: float
    answers: list[Any]


@dataclass(frozen=True)
class _Quiz:
    course_id: int
    title: str
    description: str
    time_limit: int
    allowed_attempts: int
    scoring_policy: str
    due_at: AwareDatetime
    credits: int
    questions: list[_Question]


@dataclass(frozen=True)
class _Assignment:
    id: int
    course_id: int
    name: str
    description: str
    points_possible: float
    due_at: AwareDatetime


@dataclass(frozen=True)
class _Submission:
    assignment_id: int
    user_id: int
    body: str


@dataclass(frozen=True)
class _Announcement:
    course_id: int
    title: str
    message: str
    posted_at: AwareDatetime


def load_courses(state: Path, canvas: Canvas, login: str, start: datetime) -> timedelta:
    """Load users, courses and coursework, log a user in, and return the shift of all deadlines.

    The shift moves the date of the newest announcement to the date of `start`. Announcements and
    submissions are an hour old at `start`.
    Raise ValueError if a file is missing or malformed.
    """
    folder = state / "local_db" / "canvas"
    try:
        delay = _load(folder, canvas, start)
        canvas.people.login_as(login)
    except ToolError as error:
        raise ValueError(f"{folder}: {error}") from None
    except KeyError as error:
        raise ValueError(f"{folder}: every id must belong to a record, got {error}") from None
    return delay


def _load(folder: Path, canvas: Canvas, start: datetime) -> timedelta:
    posts = _records(folder / "announcements.json", _Announcement)
    if not posts:
        raise ValueError(f"{folder / 'announcements.json'} must contain announcements")
    newest = max(post.posted_at for post in posts.values())
    delay = timedelta(days=(start.date() - newest.date()).days)
    past = start - timedelta(hours=1)
    quizzes = _records(folder / "quizzes.json", _Quiz).values()
    # LOCA-bench shows the credits with the quiz; agentgym shows the credits with the course.
    earned = {quiz.course_id: quiz.credits for quiz in quizzes}
    users = {}
    for user in _records(folder / "users.json", _User).values():
        users[user.id] = canvas.people.add_user(user.name, user.login_id, user.password)
    courses = {}
    for course in _records(folder / "courses.json", _Course).values():
        extra: Record = {}
        if course.id in earned:
            extra["credits"] = earned[course.id]
        if course.teacher_name and course.teacher_email:
            extra["teacher_name"] = course.teacher_name
            extra["teacher_email"] = course.teacher_email
        courses[course.id] = canvas.courses.add_course(course.name, course.course_code, **extra)
    for members in _records(folder / "enrollments.json", dict[str, _Enrollment]).values():
        for one in members.values():
            canvas.courses.enroll(
                courses[one.course_id], users[one.user_id], one.type, one.enrollment_state
            )
    for quiz in quizzes:
        new = canvas.quizzes.add_quiz(
            courses[quiz.course_id],
            quiz.title,
            description=quiz.description,
            time_limit=quiz.time_limit,
            allowed_attempts=quiz.allowed_attempts,
            scoring_policy=quiz.scoring_policy,
            due_at=quiz.due_at + delay,
        )
        canvas.quizzes.add_questions(new, map(vars, quiz.questions))
    _load_assignments(folder, canvas, courses, users, delay, past)
    for post in posts.values():
        canvas.discussions.add_announcement(
            courses[post.course_id], post.title, post.message, posted_at=past
        )
    return delay


def _load_assignments(
    folder: Path,
    canvas: Canvas,
    courses: Mapping[int, int],
    users: Mapping[int, int],
    delay: timedelta,
    past: datetime,
) -> None:
    numbers = {}
    for each in _records(folder / "assignments.json", _Assignment).values():
        numbers[each.id] = canvas.assignments.add_assignment(
            courses[each.course_id],
            each.name,
            description=each.description,
            points_possible=each.points_possible,
            due_at=each.due_at + delay,
        )
    for handed_in in _records(folder / "submissions.json", dict[str, _Submission]).values():
        for one in handed_in.values():
            canvas.assignments.add_submission(
                numbers[one.assignment_id], users[one.user_id], submitted_at=past, body=one.body
            )


def _records(path: Path, kind: type[T]) -> Mapping[str, T]:
    return read_json(path, TypeAdapter(dict[str, kind]))  # type: ignore[valid-type]
