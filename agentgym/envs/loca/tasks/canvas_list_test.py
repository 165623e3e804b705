"""List a student's remaining quizzes and assignments in many courses (LOCA-bench, table 7)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agentgym.envs.loca.checks import CsvTable, exact, file_state, number, write_csv
from agentgym.envs.loca.draws import people, pick, shuffled, text_of
from agentgym.envs.loca.fragments import fields_of, settle_file
from agentgym.envs.loca.plan import Plan, PlanStep, read
from agentgym.envs.loca.published.courses import load_courses
from agentgym.envs.loca.published.files import as_finite, as_moment, as_name, read_json, read_table
from agentgym.envs.loca.published.states import PublishedConfig, load_workspace
from agentgym.envs.loca.published.study_rules import listing_failures
from agentgym.envs.loca.records import Record
from agentgym.envs.loca.task import OfficeTask
from agentgym.envs.loca.writing.coursework import (
    ASSIGNMENTS,
    Course,
    Post,
    describe_assignment,
    describe_quiz,
    describe_submission,
    draw_changes,
    draw_courses,
    draw_policy,
    draw_questions,
    is_voluntary,
    merged,
    read_posts,
    with_news,
)
from agentgym.envs.loca.writing.news import ANCHORS, course_news, idle_values
from agentgym.office.canvas.server import Canvas
from agentgym.office.context import START, iso
from agentgym.office.memory import KnowledgeGraph
from agentgym.world.config import Share

ME = "Ryan Brown"
LOGIN = "ryan.brown93@mcp.com"
QUIZ_FILE = "quiz_info.csv"
ASSIGNMENT_FILE = "assignment_info.csv"
QUIZ = (
    "course_code", "course_name", "credits", "quiz_title", "number_of_questions", "time_limit",
    "allowed_attempts", "scoring_policy", "points_possible", "deadline",
)  # fmt: skip
ASSIGNMENT = (
    "course_code", "assignment_title", "description", "deadline", "course_name", "points_possible",
)  # fmt: skip
EXAMPLE = {
    "course_code": "CS401-0",
    "course_name": "Example Course",
    "deadline": "2024-06-30T23:59:00Z",
    "credits": 3,
    "quiz_title": "CS401-0 Unit Quiz 1",
    "number_of_questions": 5,
    "time_limit": 45,
    "allowed_attempts": 2,
    "scoring_policy": "keep_highest",
    "assignment_title": "CS401-0 Homework 1",
    "description": "Hand in part 1.",
    "points_possible": 100,
}
QUIZ_ORDER = itemgetter("deadline", "course_code", "quiz_title")
ASSIGNMENT_ORDER = itemgetter("deadline", "course_code", "assignment_title")
NUMBERS = {"credits", "number_of_questions", "time_limit", "allowed_attempts", "points_possible"}


def _table(path: str, columns: Sequence[str], title: str) -> CsvTable:
    cells = {column: number() if column in NUMBERS else exact for column in columns}
    return CsvTable(path, columns, cells, ("course_code", title), ordered=True)


TABLES = {
    "quizzes": _table(QUIZ_FILE, QUIZ, "quiz_title"),
    "assignments": _table(ASSIGNMENT_FILE, ASSIGNMENT, "assignment_title"),
}
# Probabilities that a deadline has passed, and that a quiz or assignment is voluntary or dropped.
_PAST_RATE, _VOLUNTARY_RATE, _DROP_RATE = 0.15, 0.2, 0.35
_SCORE = re.compile(r"entrance assessment of (\S+): (\d+) points")
# Formats of memory entries and announcements in LOCA-bench's states.
_RESULT = re.compile(
    r"Score for the .{1,200}?: (\d{1,9})\. The exemption requirement is \d{1,9}, which has "
    r"(?:not )?been met\. [^.]{0,200}?([A-Z]{1,20}\d{1,9}-\d{1,9})\."
)
_REQUIRED = re.compile(r"Minimum Required Score: (\d+)")


@dataclass(frozen=True)
class _Person:
    name: str
    observations: list[str]


@dataclass(frozen=True, kw_only=True)
class CanvasListTestConfig(PublishedConfig):
    """The size is the number of courses.

    Attributes:
        quiz_rate: The probability that a course has a quiz; a second quiz is half as likely.
        assignment_rate: The probability that a course has an assignment; a second assignment is
            half as likely.
        submission_rate: The probability that an assignment is already submitted.
        exemption_rate: The probability that an entrance assessment can exempt the student from a
            course.
    """

    quiz_rate: Share = 0.8
    assignment_rate: Share = 0.7
    submission_rate: Share = 0.3
    exemption_rate: Share = 0.4


class CanvasListTest(OfficeTask[CanvasListTestConfig]):
    """List a student's remaining quizzes and assignments from Canvas and personal notes."""

    Config = CanvasListTestConfig
    servers = ("filesystem", "python_execute", "memory", "canvas", "claim_done")
    outputs = (QUIZ_FILE, ASSIGNMENT_FILE)
    tokens_per_unit = 2010.0
    text = text_of("prompts", "CanvasListTest")

    def draw(self, size: int) -> None:
        canvas = self.office.get(Canvas)
        canvas.people.add_user(ME, LOGIN, "brown-2025")
        self._names = people(self.rng, 6)
        *teachers, classmate = [
            canvas.people.add_user(name, f"t{k}@mcp.com", f"pw-{k}")
            for k, name in enumerate(self._names)
        ]
        self.truth = {"quizzes": [], "assignments": []}
        notes = [f"I am a student and log in to Canvas as {LOGIN} with the password brown-2025."]
        open_course = self.whole(size)  # this course always has unfinished work
        for k, drawn in enumerate(draw_courses(self.rng, size)):
            name = drawn.name
            code = f"{drawn.code}-{k + 1}"
            teacher = pick(self.rng, teachers)
            course = {"course_code": code, "course_name": name, "credits": self.whole(2, 6)}
            course_id = canvas.courses.add_course(
                name, code, teacher, students=[1, classmate], credits=course["credits"]
            )
            sure = k == open_course
            quizzes = list(self._quizzes(canvas, course_id, drawn, course, sure))
            assignments = list(self._assignments(canvas, course_id, drawn, course, sure))
            titles = [title for title, _ in (*quizzes, *assignments)]
            posts, closed = self._posts(code, titles, notes, sure)
            for j, post in enumerate(posts):
                moment = START - timedelta(days=3 * (len(posts) - j))
                canvas.discussions.add_announcement(
                    course_id, post.title, post.text, posted_at=moment, author=teacher
                )
            for kind, items in (("quizzes", quizzes), ("assignments", assignments)):
                for title, row in items:
                    if row and title not in closed:
                        self.truth[kind].append(row)
        # A classmate submits everything, so submission counts reveal nothing.
        for assignment in canvas.store.find("assignments"):
            text = describe_submission(self.rng, 1)
            canvas.assignments.add_submission(assignment["id"], classmate, body=text)
        canvas.people.login_as(LOGIN)
        notes = [notes[0], *shuffled(self.rng, notes[1:])]
        self.office.get(KnowledgeGraph).set_person(ME, notes)
        self.truth["quizzes"].sort(key=QUIZ_ORDER)
        self.truth["assignments"].sort(key=ASSIGNMENT_ORDER)
        self._write_examples()

    def _write_examples(self) -> None:
        self.files.write(QUIZ_FILE, write_csv(QUIZ, [EXAMPLE]))
        self.files.write(ASSIGNMENT_FILE, write_csv(ASSIGNMENT, [EXAMPLE]))
        self.truth["files"] = file_state(self.files)

    def _load(self, state: Path) -> None:
        memory = self.office.get(KnowledgeGraph).path
        load_workspace(state, self.files, [memory])
        read_json(state / "agent_workspace" / memory, TypeAdapter(_Person))
        delay = load_courses(state, self.office.get(Canvas), LOGIN, self.start)
        self.truth = {"published": True}
        for name, table in TABLES.items():
            columns: dict[str, Callable[[Any], Any]] = dict.fromkeys(table.columns, as_name)
            columns |= dict.fromkeys(NUMBERS & set(table.columns), as_finite)
            columns["deadline"] = as_moment
            path = state / "groundtruth_workspace" / table.path
            self.truth[name] = []
            for row in read_table(path, columns, table.key):
                deadline = iso(row["deadline"] + delay)
                self.truth[name].append({**row, "deadline": deadline})
        self._write_examples()

    def _posts(
        self, code: str, titles: Sequence[str], notes: list[str], sure: bool
    ) -> tuple[list[Post], set[str]]:
        threads, closed = draw_changes(self.rng, [] if sure else titles, _DROP_RATE)
        score = self.whole(70, 100)
        has_policy = self.happens(self.config.exemption_rate)
        if has_policy:
            posts, need, limit = draw_policy(self.rng, code)
            threads.append(posts)
            # Half of the scores are at the threshold or one point below.
            score = pick(self.rng, [limit, limit - 1, score, score])
            if sure:
                score = min(score, need - 1)
            if score >= need:
                closed = set(titles)
        if has_policy or self.happens(0.5):
            notes.append(f"My entrance assessment of {code}: {score} points.")
        return with_news(self.rng, merged(self.rng, threads), self._news()), closed

    def _news(self) -> Iterator[Post]:
        news = course_news()
        topics = [topic for topic in news.topics if topic not in ANCHORS]
        values = idle_values(self.rng, START, self._names)
        while True:
            for k in self.rng.permutation(len(topics)):
                yield Post(*news.draw(self.rng, values, topics[int(k)])[1:])

    def _due(self, sure: bool) -> tuple[str, bool]:
        past = not sure and self.happens(_PAST_RATE)
        days = -self.whole(1, 9) if past else self.whole(3, 15)
        return iso((START + timedelta(days=days)).replace(hour=23, minute=59, second=0)), not past

    def _count(self, rate: float, sure: bool) -> int:
        if sure:
            return 1
        # Always draw two numbers, so that later draws do not depend on the outcome.
        first = self.rng.random() < rate
        second = self.rng.random() < rate / 2
        return int(first) * (1 + int(second))

    def _quizzes(
        self, canvas: Canvas, course_id: int, drawn: Course, course: Record, sure: bool
    ) -> Iterator[tuple[str, Record | None]]:
        for k in range(self._count(self.config.quiz_rate, sure)):
            due, ahead = self._due(sure)
            kind = pick(self.rng, ["Midterm", "Chapter", "Unit"])
            count = self.whole(2, 4)
            attempts = self.whole(1, 4)
            fields: Record = {
                "time_limit": pick(self.rng, [30, 45, 60, 90]),
                "allowed_attempts": attempts,
                "points_possible": 10 * count,
                "scoring_policy": pick(self.rng, ["keep_highest", "keep_latest"]),
            }
            title = f"{course['course_code']} {kind} Quiz {k + 1}"
            voluntary = self._voluntary(sure)
            about = describe_quiz(self.rng, drawn, k + 1, voluntary)
            quiz = canvas.quizzes.add_quiz(
                course_id, title, description=about, due_at=due, **fields
            )
            canvas.quizzes.add_questions(quiz, draw_questions(self.rng, drawn.code, count))
            row = {"quiz_title": title, "number_of_questions": count, "deadline": due}
            yield title, {**course, **row, **fields} if ahead and not voluntary else None

    def _voluntary(self, sure: bool) -> bool:
        return not sure and self.happens(_VOLUNTARY_RATE)

    def _assignments(
        self, canvas: Canvas, course_id: int, drawn: Course, course: Record, sure: bool
    ) -> Iterator[tuple[str, Record | None]]:
        for k in range(self._count(self.config.assignment_rate, sure)):
            due, ahead = self._due(sure)
            kind = pick(self.rng, ASSIGNMENTS)
            voluntary = self._voluntary(sure)
            title = f"{course['course_code']} {kind} {k + 1}"
            about = describe_assignment(self.rng, drawn, kind, k + 1, voluntary)
            points = pick(self.rng, [50, 100, 150])
            assignment = canvas.assignments.add_assignment(
                course_id, title, description=about, points_possible=points, due_at=due
            )
            submitted = not sure and self.happens(self.config.submission_rate)
            if submitted:
                moment = START - timedelta(days=self.whole(1, 6))
                text = describe_submission(self.rng, k + 1)
                canvas.assignments.add_submission(assignment, 1, submitted_at=moment, body=text)
            row = {
                **fields_of(course, "course_code", "course_name"),
                "assignment_title": title,
                "description": about,
                "deadline": due,
                "points_possible": points,
            }
            yield title, row if ahead and not voluntary and not submitted else None

    def plan(self) -> Plan:
        scores = yield read("Read the memory.", _read_scores, "read_graph")
        courses = yield read("List the courses.", _read_courses, "canvas_list_courses")
        parts = yield [step for course in courses for step in _read_parts(course)]
        quizzes: list[Record] = []
        ahead: list[Record] = []
        for k, course in enumerate(courses):
            rules, open_quizzes, open_assignments = parts[3 * k : 3 * k + 3]
            need = rules["exempt_from"]
            dropped = rules["dropped"]
            if need is None or scores.get(course["course_code"], -1) < need:  # not exempt
                for quiz in open_quizzes:
                    if quiz["quiz_title"] not in dropped:
                        quizzes.append({**course, **quiz})
                for each in open_assignments:
                    if each["assignment_title"] not in dropped:
                        ahead.append({**course, **each})
        states = yield list(map(_read_state, ahead))
        assignments = []
        for each, state in zip(ahead, states, strict=True):
            if state == "unsubmitted":
                assignments.append(each)
        quizzes.sort(key=QUIZ_ORDER)
        assignments.sort(key=ASSIGNMENT_ORDER)
        steps = yield from settle_file(TABLES["quizzes"], quizzes)
        more = yield from settle_file(TABLES["assignments"], assignments)
        yield [*steps, *more]

    def task_failures(self) -> Iterator[str]:
        for kind, table in TABLES.items():
            yield from table.failures(self.files, self.truth[kind])

    def published_failures(self) -> Iterator[str]:
        for kind, table in TABLES.items():
            yield from listing_failures(self.files, table.path, table.columns, self.truth[kind])


def _read_scores(text: str) -> dict[str, int]:
    scores = {code: int(score) for code, score in _SCORE.findall(text)}
    return scores | {code: int(score) for score, code in _RESULT.findall(text)}


def _read_courses(text: str) -> list[Record]:
    names = {"course_code": "course_code", "name": "course_name", "credits": "credits", "id": "id"}
    return [{new: course.get(old) for old, new in names.items()} for course in json.loads(text)]


def _read_parts(course: Record) -> Iterator[PlanStep]:
    tools = {
        "announcements": _read_rules,
        "quizzes": _read_quizzes,
        "assignments": _read_assignments,
    }
    for name, learn in tools.items():
        label = f"List the {name} of {course['course_code']}."
        yield read(label, learn, f"canvas_list_{name}", course_id=course["id"])


def _read_rules(text: str) -> Record:
    need, dropped = read_posts(post["message"] for post in json.loads(text))
    for points in _REQUIRED.findall(text):
        need = int(points)
    return {"exempt_from": need, "dropped": dropped}


def _read_quizzes(text: str) -> list[Record]:
    same = ("time_limit", "allowed_attempts", "scoring_policy", "points_possible")
    renamed = {"quiz_title": "title", "number_of_questions": "question_count", "deadline": "due_at"}
    return [fields_of(quiz, *same, **renamed) for quiz in _required(text)]


def _read_assignments(text: str) -> list[Record]:
    names = {
        "assignment_id": "id",
        "course_id": "course_id",
        "assignment_title": "name",
        "deadline": "due_at",
        "description": "description",
        "points_possible": "points_possible",
    }
    return [fields_of(each, **names) for each in _required(text)]


def _required(text: str) -> Iterator[Record]:
    for item in json.loads(text):
        if item["due_at"] > iso(START) and not is_voluntary(item["description"]):
            yield item


def _read_state(assignment: Record) -> PlanStep:
    return read(
        f"Look whether {assignment['assignment_title']} was handed in.",
        lambda text: json.loads(text)["workflow_state"],
        "canvas_get_submission",
        course_id=assignment["course_id"],
        assignment_id=assignment["assignment_id"],
    )
