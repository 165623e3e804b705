"""Canvas: quizzes, questions and attempts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from agentgym.office.canvas.fields import (
    MAX_TEXT,
    Text,
    When,
    choice,
    integer,
    line,
    moment,
    points,
    prose,
    updates,
)
from agentgym.office.canvas.questions import (
    QUESTION_TYPES,
    parse_answers,
    show_question,
    without_key,
)
from agentgym.office.canvas.records import SITE, CanvasPart, fields_of, whole
from agentgym.office.context import iso
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, tool

_QUIZ_TYPES = ("assignment", "practice_quiz", "graded_survey", "survey")  # values of Canvas's API
_SCORING_POLICIES = ("keep_highest", "keep_latest", "keep_average")
# Shown only if set.
_OPTIONAL = ("shuffle_answers", "access_code", "unlock_at", "lock_at")

_UNLIMITED = -1  # Canvas's value for unlimited attempts


class Quizzes(CanvasPart):
    """Quizzes, questions and attempts."""

    def add_quiz(
        self,
        course_id: int,
        title: str,
        *,
        description: Text = None,
        quiz_type: str = "assignment",
        time_limit: int | None = None,
        due_at: When = None,
        unlock_at: When = None,
        lock_at: When = None,
        published: bool = True,
        shuffle_answers: bool = False,
        allowed_attempts: int = 1,
        scoring_policy: str = "keep_highest",
        access_code: Text = None,
        points_possible: float | None = None,
        question_count: int = 0,
        **extra: Any,
    ) -> int:
        """Add a quiz and return its id. The time limit is in minutes; -1 attempts are unlimited."""
        return self._records.add(
            "quizzes",
            **_quiz_fields(
                title, description, quiz_type, time_limit, due_at, allowed_attempts,
                scoring_policy, access_code,
            ),
            course_id=course_id,
            published=published,
            shuffle_answers=shuffle_answers,
            unlock_at=moment("unlock_at", unlock_at) or None,
            lock_at=moment("lock_at", lock_at) or None,
            created_at=self._records.now(),
            question_count=question_count,
            points_possible=points("points_possible", points_possible),
            extra=extra,
        )  # fmt: skip

    def add_question(self, quiz_id: int, question_text: str, **fields: Any) -> int:
        """Add a question like `add_questions` and return its id."""
        return self.add_questions(quiz_id, [{"question_text": question_text, **fields}])[0]

    def add_questions(self, quiz_id: int, questions: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add questions, update the quiz's totals and return their ids.

        Each has `question_text` and optionally `question_name`, `question_type`, `points_possible`
        and `answers`.
        """
        sql = "SELECT coalesce(max(position), 0) FROM quiz_questions WHERE quiz_id = ?"
        with self._store.change():
            first = 1 + self._store.value(sql, quiz_id)
            ids = []
            for position, fields in enumerate(questions, first):
                question = _question_fields(**fields)
                new_id = self._records.add(
                    "quiz_questions", quiz_id=quiz_id, position=position, **question
                )
                ids.append(new_id)
            self._update_totals(quiz_id)
        return ids

    @tool
    def canvas_list_quizzes(self, course_id: int) -> list[Row]:
        """List the quizzes of a course with their questions; only teachers see the correct answers.

        Args:
            course_id: Course.
        """
        return [self._show_quiz(row) for row in self._records.list_of_course("quizzes", course_id)]

    @tool
    def canvas_get_quiz(self, course_id: int, quiz_id: int) -> Row:
        """Get a quiz with its questions; only teachers see the correct answers.

        Args:
            course_id: Course.
            quiz_id: Quiz.
        """
        return self._show_quiz(self._quiz(course_id, quiz_id, "read"))

    @tool
    def canvas_create_quiz(
        self,
        course_id: int,
        title: str,
        description: Text = None,
        quiz_type: str = "assignment",
        time_limit: int | None = None,
        due_at: Text = None,
        published: bool = False,
    ) -> Row:
        """Create a quiz in a course that you teach.

        Args:
            course_id: Course.
            title: Title.
            description: Description, HTML allowed.
            quiz_type: assignment, practice_quiz, graded_survey or survey.
            time_limit: Minutes.
            due_at: Due date, ISO 8601.
            published: Visible to students.
        """
        self._records.course(course_id, "edit")
        quiz_id = self.add_quiz(
            course_id,
            title,
            description=description,
            quiz_type=quiz_type,
            time_limit=time_limit,
            due_at=due_at,
            published=published,
        )
        return self._show_quiz(self._records.stamp("quizzes", quiz_id))

    @tool
    def canvas_start_quiz_attempt(self, course_id: int, quiz_id: int) -> Row:
        """Start an attempt at a quiz; it ends with the time limit.

        Args:
            course_id: Course.
            quiz_id: Quiz.
        """
        quiz, me = self._quiz(course_id, quiz_id, "learn"), self._records.me()["id"]
        self._records.check_open(quiz)
        if quiz["access_code"]:
            raise ToolError(
                f"permission denied: quiz {quiz_id} asks for an access code, which cannot be given here"
            )
        key = {"quiz_id": quiz_id, "user_id": me}
        attempts = self._store.find("quiz_submissions", "attempt", **key)
        if attempts:
            last, end = attempts[-1]["attempt"], attempts[-1]["end_at"]
            if end is None or end > self._records.now():
                raise ToolError(
                    f"conflict: attempt {last} is in progress until {end or 'it is handed in'}"
                )
        if len(attempts) == quiz["allowed_attempts"]:
            raise ToolError(
                f"limit exceeded: quiz {quiz_id} allows {len(attempts)} attempts, and all were made"
            )
        start, limit = self._records.context.clock.tick(), quiz["time_limit"]
        attempt_id = self._records.add(
            "quiz_submissions",
            **key,
            attempt=len(attempts) + 1,
            started_at=iso(start),
            end_at=None if limit is None else iso(start + timedelta(minutes=limit)),
        )
        return self._store.get("quiz_submissions", attempt_id) | {"workflow_state": "untaken"}

    @tool
    def canvas_update_quiz(
        self,
        course_id: int,
        quiz_id: int,
        title: Text = None,
        description: Text = None,
        quiz_type: Text = None,
        time_limit: int | None = None,
        due_at: Text = None,
        published: bool | None = None,
        shuffle_answers: bool | None = None,
        allowed_attempts: int | None = None,
        scoring_policy: Text = None,
        access_code: Text = None,
    ) -> Row:
        """Change a quiz of a course that you teach.

        Args:
            course_id: Course.
            quiz_id: Quiz.
            title: Title.
            description: Description, HTML allowed.
            quiz_type: assignment, practice_quiz, graded_survey or survey.
            time_limit: Minutes.
            due_at: Due date, ISO 8601; "" removes it.
            published: Visible to students.
            shuffle_answers: Shuffle the answers.
            allowed_attempts: Attempts; -1 for any number.
            scoring_policy: keep_highest, keep_latest or keep_average.
            access_code: Code asked for at the start.
        """
        self._quiz(course_id, quiz_id)
        self._store.update(
            "quizzes",
            quiz_id,
            **_quiz_fields(
                title, description, quiz_type, time_limit, due_at, allowed_attempts,
                scoring_policy, access_code,
            ),
            **updates(published=published, shuffle_answers=shuffle_answers),
        )  # fmt: skip
        return self.canvas_get_quiz(course_id, quiz_id)

    @tool
    def canvas_publish_quiz(self, course_id: int, quiz_id: int) -> Row:
        """Publish a quiz of a course that you teach.

        Args:
            course_id: Course.
            quiz_id: Quiz.
        """
        return self.canvas_update_quiz(course_id, quiz_id, published=True)

    @tool
    def canvas_delete_quiz(self, course_id: int, quiz_id: int) -> str:
        """Delete a quiz of a course that you teach, with its questions and attempts.

        Args:
            course_id: Course.
            quiz_id: Quiz.
        """
        self._quiz(course_id, quiz_id)
        self._store.delete("quizzes", id=quiz_id)
        return f"Quiz {quiz_id} deleted"

    @tool
    def canvas_add_quiz_question(
        self,
        course_id: int,
        quiz_id: int,
        *,
        question_name: Text = None,
        question_text: str,
        question_type: Text = None,
        points_possible: float | None = None,
        answers: list[dict[str, Any]] | None = None,
    ) -> Row:
        """Add a question to a quiz of a course that you teach.

        Args:
            course_id: Course.
            quiz_id: Quiz.
            question_name: Name.
            question_text: Text.
            question_type: multiple_choice_question, true_false_question, short_answer_question, essay_question ….
            points_possible: Points; 1 by default.
            answers: Objects with answer_text and answer_weight (100 if right).
        """
        self._quiz(course_id, quiz_id)
        question_id = self.add_question(
            quiz_id,
            question_text,
            question_name=question_name,
            question_type=question_type,
            points_possible=points_possible,
            answers=answers or [],
        )
        self._records.context.clock.tick()
        return show_question(self._store.get("quiz_questions", question_id))

    @tool
    def canvas_get_quiz_questions(self, course_id: int, quiz_id: int) -> list[Row]:
        """Get the questions of a quiz; only teachers see the correct answers.

        Args:
            course_id: Course.
            quiz_id: Quiz.
        """
        return self._questions(self._quiz(course_id, quiz_id, "read"))

    @tool
    def canvas_update_quiz_question(
        self,
        course_id: int,
        quiz_id: int,
        question_id: int,
        question_name: Text = None,
        question_text: Text = None,
        points_possible: float | None = None,
        answers: list[dict[str, Any]] | None = None,
    ) -> Row:
        """Change a question of a quiz of a course that you teach.

        Args:
            course_id: Course.
            quiz_id: Quiz.
            question_id: Question.
            question_name: Name.
            question_text: Text.
            points_possible: Points.
            answers: All answers, as for adding a question.
        """
        self._question(course_id, quiz_id, question_id)
        changes = updates(
            question_name=line("question_name", question_name),
            question_text=line("question_text", question_text, MAX_TEXT),
            points_possible=points("points_possible", points_possible),
            answers=None if answers is None else parse_answers(answers),
        )
        self._store.update("quiz_questions", question_id, **changes)
        self._update_totals(quiz_id)
        return show_question(self._store.get("quiz_questions", question_id))

    @tool
    def canvas_delete_quiz_question(self, course_id: int, quiz_id: int, question_id: int) -> str:
        """Delete a question of a quiz of a course that you teach.

        Args:
            course_id: Course.
            quiz_id: Quiz.
            question_id: Question.
        """
        self._question(course_id, quiz_id, question_id)
        self._records.delete_at_position("quiz_questions", question_id, quiz_id=quiz_id)
        self._update_totals(quiz_id)
        return f"Question {question_id} deleted"

    def _quiz(self, course_id: int, quiz_id: int, right: str = "edit") -> Row:
        return self._records.of_course("quizzes", course_id, quiz_id, right, "quiz")

    def _question(self, course_id: int, quiz_id: int, question_id: int) -> Row:
        self._quiz(course_id, quiz_id)
        return self._records.get("quiz_questions", question_id, quiz_id=quiz_id)

    def _show_quiz(self, quiz: Row) -> Row:
        given = {name: quiz[name] for name in _OPTIONAL if quiz[name]}
        if quiz["access_code"] and not self._records.may(quiz["course_id"], "edit"):
            del given["access_code"]  # students must not read it
            given["has_access_code"] = True
        shown = {
            **fields_of(quiz, "created_at", *_OPTIONAL),
            **given,
            "description": quiz["description"] or "",
            "points_possible": whole(quiz["points_possible"]),
            "html_url": f"{SITE}/courses/{quiz['course_id']}/quizzes/{quiz['id']}",
        }
        questions = self._questions(quiz)
        if questions:
            shown["questions"] = questions
        return shown

    def _questions(self, quiz: Row) -> list[Row]:
        """Hide the key from students, and questions before the quiz opens or under a code."""
        rows = self._store.find("quiz_questions", "position", quiz_id=quiz["id"])
        if not rows or self._records.may(quiz["course_id"], "edit"):
            return [show_question(row) for row in rows]
        if quiz["access_code"] or self._records.now() < (quiz["unlock_at"] or ""):
            return []
        return [without_key(show_question(row)) for row in rows]

    def _update_totals(self, quiz_id: int) -> None:
        sql = "SELECT points_possible FROM quiz_questions WHERE quiz_id = ? ORDER BY position"
        points = [row["points_possible"] for row in self._store.rows(sql, quiz_id)]
        self._store.update(
            "quizzes", quiz_id, question_count=len(points), points_possible=float(sum(points))
        )


def _question_fields(
    question_text: str,
    question_name: Text = None,
    question_type: Text = None,
    points_possible: float | None = None,
    answers: Sequence[Mapping[str, Any]] = (),
) -> Row:
    choice("question_type", question_type, QUESTION_TYPES)
    return {
        "question_text": line("question_text", question_text, MAX_TEXT),
        "question_name": line("question_name", question_name) or "Question",
        "question_type": question_type
        or ("multiple_choice_question" if answers else "essay_question"),
        "points_possible": points(
            "points_possible", 1.0 if points_possible is None else points_possible
        ),
        "answers": parse_answers(answers),
    }


def _quiz_fields(
    title: str | None,
    description: str | None,
    quiz_type: str | None,
    time_limit: int | None,
    due_at: When,
    allowed_attempts: int | None,
    scoring_policy: str | None,
    access_code: str | None,
) -> Row:
    if allowed_attempts != _UNLIMITED:
        integer("allowed_attempts", allowed_attempts, 1)
    return updates(
        title=line("title", title),
        description=prose("description", description),
        quiz_type=choice("quiz_type", quiz_type, _QUIZ_TYPES),
        time_limit=integer("time_limit", time_limit, 1),
        due_at=moment("due_at", due_at),
        allowed_attempts=allowed_attempts,
        scoring_policy=choice("scoring_policy", scoring_policy, _SCORING_POLICIES),
        access_code=line("access_code", access_code),
    )
