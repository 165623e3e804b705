"""Canvas: quizzes and their questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentgym.office.canvas.records import SITE, CanvasPart, When, moment, whole
from agentgym.office.store import Row
from agentgym.text.tools import tool

# For these question types, students see the answers as options.
_CHOICES = (
    "multiple_answers_question", "multiple_choice_question", "multiple_dropdowns_question",
    "true_false_question",
)  # fmt: skip
_OPTION_FIELDS = ("text", "answer_text", "blank_id")  # an answer without the solution


class Quizzes(CanvasPart):
    """Quizzes and their questions."""

    def add_quiz(
        self,
        course_id: int,
        title: str,
        *,
        description: str | None = None,
        time_limit: int | None = None,
        due_at: When = None,
        allowed_attempts: int = 1,
        scoring_policy: str = "keep_highest",
        points_possible: float | None = None,
    ) -> int:
        """Add a quiz and return its id. `time_limit` is in minutes; -1 attempts means no limit."""
        return self.add(
            "quizzes",
            course_id=course_id,
            title=title,
            description=description,
            time_limit=time_limit,
            allowed_attempts=allowed_attempts,
            scoring_policy=scoring_policy,
            points_possible=points_possible,
            due_at=moment(due_at),
        )

    def add_questions(self, quiz_id: int, questions: Iterable[Mapping[str, Any]]) -> None:
        """Add questions, and update the quiz's number of questions and points.

        A question has `question_text` and optionally `question_name`, `question_type`,
        `points_possible` and `answers`.
        """
        with self.store.change():
            for fields in questions:
                answered = "multiple_choice" if fields.get("answers") else "essay"
                question = {
                    "question_name": "Question",
                    "question_type": f"{answered}_question",
                    "points_possible": 1.0,
                    "answers": [],
                    **fields,
                }
                self.add("quiz_questions", quiz_id=quiz_id, **question)
            rows = self.store.find("quiz_questions", quiz_id=quiz_id)
            points = float(sum(row["points_possible"] for row in rows))
            self.store.update("quizzes", quiz_id, question_count=len(rows), points_possible=points)

    @tool
    def canvas_list_quizzes(self, course_id: int) -> list[Row]:
        """List the quizzes of a course with their questions; only teachers see the correct answers.

        Args:
            course_id: Course.
        """
        return [self._show_quiz(row) for row in self.list_of_course("quizzes", course_id)]

    @tool
    def canvas_get_quiz(self, course_id: int, quiz_id: int) -> Row:
        """Get a quiz with its questions; only teachers see the correct answers.

        Args:
            course_id: Course.
            quiz_id: Quiz.
        """
        return self._show_quiz(self.of_course("quizzes", course_id, quiz_id, "quiz"))

    @tool
    def canvas_get_quiz_questions(self, course_id: int, quiz_id: int) -> list[Row]:
        """Get the questions of a quiz; only teachers see the correct answers.

        Args:
            course_id: Course.
            quiz_id: Quiz.
        """
        return self._questions(self.of_course("quizzes", course_id, quiz_id, "quiz"))

    def _show_quiz(self, quiz: Row) -> Row:
        shown = {
            **quiz,
            "description": quiz["description"] or "",
            "points_possible": whole(quiz["points_possible"]),
            "html_url": f"{SITE}/courses/{quiz['course_id']}/quizzes/{quiz['id']}",
        }
        questions = self._questions(quiz)
        if questions:
            shown["questions"] = questions
        return shown

    def _questions(self, quiz: Row) -> list[Row]:
        questions = self.store.find("quiz_questions", quiz_id=quiz["id"])
        has_key = self.teaches(quiz["course_id"])
        for question in questions:
            question["points_possible"] = whole(question["points_possible"])
            if not has_key:
                question["answers"] = _without_key(question)
        return questions


def _without_key(question: Row) -> list[Row]:
    if question["question_type"] not in _CHOICES:
        return []
    shown = []
    for answer in question["answers"]:
        shown.append({key: answer[key] for key in answer if key in _OPTION_FIELDS})
    return shown
