"""Canvas: quizzes and rubrics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agentgym.envs.loca.servers.canvas.content import CanvasContent
from agentgym.envs.loca.servers.canvas.material import quiz_fields, read_answers
from agentgym.envs.loca.servers.canvas.records import Text, given, line, points, prose, shown
from agentgym.envs.loca.servers.context import iso
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool


class CanvasQuizzes(CanvasContent):
    """Quizzes and rubrics."""

    @tool
    def canvas_list_quizzes(self, course_id: int) -> list[Row]:
        """The quizzes of a course."""
        return [self._show_quiz(row) for row in self._parts("quizzes", course_id)]

    @tool
    def canvas_get_quiz(self, course_id: int, quiz_id: int) -> Row:
        """A quiz without its questions."""
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
        """Create a quiz in a course that you teach; students see it once it is published.

        Types are assignment, practice_quiz, graded_survey and survey; the time limit is in minutes.
        """
        self._course(course_id, "edit")
        fields: Row = {
            "description": description,
            "quiz_type": quiz_type,
            "time_limit": time_limit,
            "due_at": due_at,
            "published": published,
        }
        return self._show_quiz(self._fresh("quizzes", self.add_quiz(course_id, title, **fields)))

    @tool
    def canvas_start_quiz_attempt(self, course_id: int, quiz_id: int) -> Row:
        """Begin an attempt at a quiz; it ends when the time limit is over."""
        quiz, me, now = self._quiz(course_id, quiz_id, "learn"), self._me()["id"], self._now()
        self._check_open(quiz)
        if quiz["access_code"]:
            raise ToolError(f"permission denied: quiz {quiz_id} asks for an access code, which cannot be given here")
        held = self.store.find("quiz_submissions", "attempt", quiz_id=quiz_id, user_id=me)
        if held and (held[-1]["end_at"] is None or held[-1]["end_at"] > now):
            raise ToolError(f"conflict: attempt {held[-1]['attempt']} is going on until {held[-1]['end_at'] or 'it is handed in'}")
        if len(held) == quiz["allowed_attempts"]:
            raise ToolError(f"limit exceeded: quiz {quiz_id} allows {len(held)} attempts, and all were made")
        begun = self.context.clock.tick()
        limit = quiz["time_limit"]
        fields = {"started_at": iso(begun), "end_at": None if limit is None else iso(begun + timedelta(minutes=limit))}
        token = self.context.new_id("quiz_attempt", 64)
        made = self._add("quiz_submissions", quiz_id=quiz_id, user_id=me, attempt=len(held) + 1, validation_token=token, **fields)
        return {"quiz_submissions": [self.store.get("quiz_submissions", made) | {"workflow_state": "untaken", "score": None}]}

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
        """Change a quiz of a course that you teach; an empty date takes the date away.

        Types are assignment, practice_quiz, graded_survey and survey; the time limit is in minutes; -1 attempts are as many as one
        likes; scoring policies are keep_highest, keep_latest and keep_average.
        """
        self._quiz(course_id, quiz_id)
        fields = quiz_fields(title, description, quiz_type, time_limit, due_at, allowed_attempts, scoring_policy, access_code)
        self.store.update("quizzes", quiz_id, **given(**fields, published=published, shuffle_answers=shuffle_answers))
        return self.canvas_get_quiz(course_id, quiz_id)

    @tool
    def canvas_publish_quiz(self, course_id: int, quiz_id: int) -> Row:
        """Let students see a quiz of a course that you teach."""
        return self.canvas_update_quiz(course_id, quiz_id, published=True)

    @tool
    def canvas_delete_quiz(self, course_id: int, quiz_id: int) -> Row:
        """Delete a quiz of a course that you teach, with its questions, its attempts and its places in modules."""
        quiz = self._quiz(course_id, quiz_id)
        with self.store.change():
            for item in self.store.find("module_items", type="Quiz", content_id=quiz_id):
                self._remove("module_items", item["id"], module_id=item["module_id"])
            self.store.delete("quizzes", id=quiz_id)
        return self._show_quiz(quiz) | {"workflow_state": "deleted"}

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

        Types are multiple_choice_question, true_false_question, short_answer_question,
        essay_question and so on; it is worth 1 point
        by default. An answer is an object with answer_text, answer_weight (100 if it is right) and answer_comments.
        """
        self._quiz(course_id, quiz_id)
        fields: Row = {"question_name": question_name, "question_type": question_type, "points_possible": points_possible}
        made = self.add_question(quiz_id, question_text, **fields, answers=answers or [])
        self.context.clock.tick()
        return self.store.get("quiz_questions", made)

    @tool
    def canvas_get_quiz_questions(self, course_id: int, quiz_id: int) -> list[Row]:
        """The questions of a quiz of a course that you teach, with their answers."""
        self._quiz(course_id, quiz_id)
        return self.store.find("quiz_questions", "position", quiz_id=quiz_id)

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
        """Change a question of a quiz of a course that you teach; answers take the place of all there are."""
        self._question(course_id, quiz_id, question_id)
        changes = given(
            question_name=line("question_name", question_name),
            question_text=line("question_text", question_text, 64_000),
            points_possible=points("points_possible", points_possible),
            answers=None if answers is None else read_answers(answers),
        )
        self.store.update("quiz_questions", question_id, **changes)
        self._recount(quiz_id)
        return self.store.get("quiz_questions", question_id)

    @tool
    def canvas_delete_quiz_question(self, course_id: int, quiz_id: int, question_id: int) -> Row:
        """Delete a question of a quiz of a course that you teach."""
        question = self._question(course_id, quiz_id, question_id)
        with self.store.change():
            self._remove("quiz_questions", question_id, quiz_id=quiz_id)
            self._recount(quiz_id)
        return question | {"workflow_state": "deleted"}

    @tool
    def canvas_list_rubrics(self, course_id: int) -> list[Row]:
        """The rubrics of a course that you teach."""
        self._course(course_id, "edit")
        return [_show_rubric(row) for row in self._parts("rubrics", course_id)]

    @tool
    def canvas_get_rubric(self, course_id: int, rubric_id: int) -> Row:
        """A rubric of a course that you teach."""
        return _show_rubric(self._part("rubrics", course_id, rubric_id, "edit"))

    @tool
    def canvas_create_rubric(
        self,
        course_id: int,
        title: str,
        description: Text = None,
        free_form_criterion_comments: bool = False,
        hide_score_total: bool = False,
        criteria: list[dict[str, Any]] | None = None,
    ) -> Row:
        """Create a rubric in a course that you teach.

        A criterion is an object with description, points, long_description and ratings; a rating has description and points.
        """
        self._course(course_id, "edit")
        data = [_criterion(number, each) for number, each in enumerate(criteria or [], start=1)]
        made = self._add(
            "rubrics",
            course_id=course_id,
            title=line("title", title),
            description=prose("description", description),
            free_form_criterion_comments=free_form_criterion_comments,
            hide_score_total=hide_score_total,
            data=data,
            points_possible=points("the sum of points", float(sum(each["points"] for each in data))),
            created_at=self._now(),
        )
        return _show_rubric(self._fresh("rubrics", made))

    def _quiz(self, course_id: int, quiz_id: int, right: str = "edit") -> Row:
        return self._part("quizzes", course_id, quiz_id, right, "quiz")

    def _question(self, course_id: int, quiz_id: int, question_id: int) -> Row:
        self._quiz(course_id, quiz_id)
        return self._get("quiz_questions", question_id, quiz_id=quiz_id)

    def _show_quiz(self, quiz: Row) -> Row:
        hidden = () if self._may(quiz["course_id"], "edit") else ("access_code",)
        return shown(quiz, *hidden) | {"has_access_code": quiz["access_code"] is not None}

    def _remove(self, table: str, id: int, **owner: int) -> None:
        """Delete a record that has a position; those after it move up."""
        place = self.store.get(table, id)["position"]
        self.store.delete(table, id=id)
        for each in self.store.find(table, "position", **owner):
            if each["position"] > place:
                self.store.update(table, each["id"], position=each["position"] - 1)


def _read_parts(what: str, given_parts: object, *fields: str) -> Row:
    """An object with a description, points and some other texts, checked."""
    if not isinstance(given_parts, dict) or not set(given_parts) <= {"description", "points", *fields}:
        raise ToolError(f"invalid argument: {what} has {', '.join(('description', 'points', *fields))}, got {echo(given_parts)}")
    description, worth = given_parts.get("description"), given_parts.get("points", 0)
    if not isinstance(description, str) or isinstance(worth, bool) or not isinstance(worth, (int, float)):
        raise ToolError(f"invalid argument: {what} needs a description and a number of points, got {echo(given_parts)}")
    return {"description": line("description", description), "points": points("points", worth)}


def _criterion(number: int, criterion: dict[str, Any]) -> Row:
    read = _read_parts("a criterion", criterion, "long_description", "ratings")
    long, ratings = criterion.get("long_description"), criterion.get("ratings", [])
    if not isinstance(long, str | None) or not isinstance(ratings, list):
        raise ToolError(f"invalid argument: long_description is a text and ratings are a list, got {echo(criterion)}")
    rated: Sequence[Row] = [{"id": f"{number}_{k}"} | _read_parts("a rating", each) for k, each in enumerate(ratings, start=1)]
    return {"id": f"_{number}", **read, "long_description": long, "ratings": list(rated)}


def _show_rubric(rubric: Row) -> Row:
    return shown(rubric, "course_id") | {"context_id": rubric["course_id"], "context_type": "Course"}
