"""Canvas: quizzes and their questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentgym.office.canvas.records import SITE, CanvasPart, When, fields_of, moment, whole
from agentgym.office.store import Row
from agentgym.text.tools import tool

# For these question types, students see the answers as options.
_CHOICES = (
    "multiple_answers_question", "multiple_choice_question", "multiple_dropdowns_question",
    "true_false_question",
)  # fmt: skip
_OPTION_FIELDS = ("text", "answer_text", "blank_id")  # an answer without the solution
_OPTIONAL = ("shuffle_answers", "unlock_at", "lock_at")


class Quizzes(CanvasPart):
    """Quizzes and their questions."""

    def add_quiz(
        self,
        course_id: int,
        title: str,
        *,
        description: str | None = None,
        quiz_type: str = "assignment",
        time_limit: int | None = None,
        due_at: When = None,
        unlock_at: When = None,
        lock_at: When = None,
        published: bool = True,
        shuffle_answers: bool = False,
        allowed_attempts: int = 1,
        scoring_policy: str = "keep_highest",
        points_possible: float | None = None,
        question_count: int = 0,
        **extra: Any,
    ) -> int:
        """Add a quiz and return its id. `time_limit` is in minutes; -1 attempts means no limit."""
        return self._records.add(
            "quizzes",
            course_id=course_id,
            title=title,
            description=description,
            quiz_type=quiz_type,
            time_limit=time_limit,
            allowed_attempts=allowed_attempts,
            scoring_policy=scoring_policy,
            due_at=moment(due_at),
            published=published,
            shuffle_answers=shuffle_answers,
            unlock_at=moment(unlock_at),
            lock_at=moment(lock_at),
            created_at=self._records.now(),
            question_count=question_count,
            points_possible=points_possible,
            extra=extra,
        )

    def add_questions(self, quiz_id: int, questions: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add questions, update the quiz's totals, and return the question ids.

        A question has `question_text` and optionally `question_name`, `question_type`,
        `points_possible` and `answers`.
        """
        sql = "SELECT coalesce(max(position), 0) FROM quiz_questions WHERE quiz_id = ?"
        with self._store.change():
            first = 1 + self._store.value(sql, quiz_id)
            ids = []
            for position, fields in enumerate(questions, first):
                answered = "multiple_choice" if fields.get("answers") else "essay"
                question = {
                    "question_name": "Question",
                    "question_type": f"{answered}_question",
                    "points_possible": 1.0,
                    "answers": [],
                    **fields,
                }
                key = {"quiz_id": quiz_id, "position": position}
                ids.append(self._records.add("quiz_questions", **key, **question))
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
        return self._show_quiz(self._quiz(course_id, quiz_id))

    @tool
    def canvas_get_quiz_questions(self, course_id: int, quiz_id: int) -> list[Row]:
        """Get the questions of a quiz; only teachers see the correct answers.

        Args:
            course_id: Course.
            quiz_id: Quiz.
        """
        return self._questions(self._quiz(course_id, quiz_id))

    def _quiz(self, course_id: int, quiz_id: int) -> Row:
        return self._records.of_course("quizzes", course_id, quiz_id, kind="quiz")

    def _show_quiz(self, quiz: Row) -> Row:
        given = {name: quiz[name] for name in _OPTIONAL if quiz[name]}
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
        rows = self._store.find("quiz_questions", "position", quiz_id=quiz["id"])
        questions = list(map(_show_question, rows))
        if not rows or self._records.teaches(quiz["course_id"]):
            return questions
        if self._records.now() < (quiz["unlock_at"] or ""):
            return []
        return list(map(_without_key, questions))

    def _update_totals(self, quiz_id: int) -> None:
        sql = "SELECT points_possible FROM quiz_questions WHERE quiz_id = ? ORDER BY position"
        points = [row["points_possible"] for row in self._store.rows(sql, quiz_id)]
        self._store.update(
            "quizzes", quiz_id, question_count=len(points), points_possible=float(sum(points))
        )


def _show_question(row: Row) -> Row:
    return {**fields_of(row, "position"), "points_possible": whole(row["points_possible"])}


def _without_key(question: Row) -> Row:
    shown = []
    if question["question_type"] in _CHOICES:
        for answer in question["answers"]:
            shown.append({key: answer[key] for key in answer if key in _OPTION_FIELDS})
    return {**question, "answers": shown}
