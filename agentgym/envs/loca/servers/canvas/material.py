"""Filling Canvas: quizzes, pages, files, events and modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.envs.loca.servers.canvas.filling import CanvasFilling
from agentgym.envs.loca.servers.canvas.records import Text, When, choice, given, line, moment, points, prose, whole
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo

QUIZ_TYPES = ("assignment", "practice_quiz", "graded_survey", "survey")
QUESTION_TYPES = tuple(
    f"{kind}_question"
    for kind in (
        "calculated",
        "essay",
        "file_upload",
        "fill_in_multiple_blanks",
        "matching",
        "multiple_answers",
        "multiple_choice",
        "multiple_dropdowns",
        "numerical",
        "short_answer",
        "text_only",
        "true_false",
    )
)
SCORING = ("keep_highest", "keep_latest", "keep_average")
ANSWER_FIELDS = ("text", "weight", "comments", "exact", "margin", "start", "end", "left", "right", "blank_id")


class CanvasMaterial(CanvasFilling):
    """Methods that add the material of courses, as those of the class above add people and work."""

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
        """Add a quiz. Its count and points are those given until it gets questions; `extra` are fields that it shows besides.

        The time limit is in minutes; -1 attempts are as many as one likes.
        """
        fields = quiz_fields(title, description, quiz_type, time_limit, due_at, allowed_attempts, scoring_policy, access_code)
        return self._add(
            "quizzes",
            **given(**fields),
            course_id=course_id,
            published=published,
            shuffle_answers=shuffle_answers,
            unlock_at=moment("unlock_at", unlock_at) or None,
            lock_at=moment("lock_at", lock_at) or None,
            created_at=self._now(),
            question_count=question_count,
            points_possible=points("points_possible", points_possible),
            extra=extra,
        )

    def add_question(
        self,
        quiz_id: int,
        question_text: str,
        *,
        question_name: Text = None,
        question_type: Text = None,
        points_possible: float | None = None,
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Add a question to a quiz, whose count and points follow."""
        choice("question_type", question_type, QUESTION_TYPES)
        with self.store.change():
            made = self._add(
                "quiz_questions",
                quiz_id=quiz_id,
                question_text=line("question_text", question_text, 64_000),
                position=1 + self.store.value("SELECT coalesce(max(position), 0) FROM quiz_questions WHERE quiz_id = ?", quiz_id),
                question_name=line("question_name", question_name) or "Question",
                question_type=question_type or ("multiple_choice_question" if answers else "essay_question"),
                points_possible=1.0 if points_possible is None else points("points_possible", points_possible),
                answers=read_answers(answers),
            )
            self._recount(quiz_id)
        return made

    def _recount(self, quiz_id: int) -> Row:
        questions = self.store.find("quiz_questions", "position", quiz_id=quiz_id)
        total = float(sum(each["points_possible"] for each in questions))
        self.store.update("quizzes", quiz_id, question_count=len(questions), points_possible=total)
        return self.store.get("quizzes", quiz_id)

    def add_page(self, course_id: int, title: str, body: str, *, published: bool = True, front_page: bool = False) -> int:
        """Add a page; its url is the title in small letters with hyphens."""
        slug = re.sub(r"[^\w]+", "-", title.lower()).strip("-") or "page"
        record = {"url": slug, "title": line("title", title), "body": prose("body", body), "front_page": front_page}
        return self._add("pages", course_id=course_id, published=published, created_at=self._now(), **record)

    def add_folder(self, course_id: int, name: str, parent: int | None = None) -> int:
        """Add a folder of a course, below another one or at the top."""
        above = "course files" if parent is None else self._get("folders", parent, course_id=course_id)["full_name"]
        record = {"name": line("name", name), "full_name": f"{above}/{name}", "parent_folder_id": parent}
        return self._add("folders", course_id=course_id, created_at=self._now(), **record)

    def add_file(
        self,
        name: str,
        size: int,
        *,
        course_id: int | None = None,
        folder: int | None = None,
        owner: int | None = None,
        content_type: str = "application/octet-stream",
    ) -> int:
        """Add a file of a course, or of a user who can then hand it in; its bytes are not kept."""
        record = {"course_id": course_id, "folder_id": folder, "user_id": owner, "display_name": line("name", name), "size": size}
        return self._add("files", content_type=content_type, created_at=self._now(), **record)

    def add_event(
        self,
        title: str,
        start_at: When,
        end_at: When = None,
        *,
        course_id: int | None = None,
        user_id: int | None = None,
        description: Text = None,
        location_name: Text = None,
    ) -> int:
        """Add an event to the calendar of a course or of a user; it ends when it starts unless it is said otherwise."""
        start, end = moment("start_at", start_at), moment("end_at", end_at)
        record = {"course_id": course_id, "user_id": user_id, "description": description, "location_name": location_name}
        return self._add(
            "events", title=line("title", title), start_at=start, end_at=end or start, created_at=self._now(), **record
        )

    def add_module(
        self,
        course_id: int,
        name: str,
        *,
        position: int | None = None,
        unlock_at: When = None,
        published: bool = True,
        require_sequential_progress: bool = False,
        prerequisite_module_ids: Sequence[int] = (),
    ) -> int:
        """Add a module, last unless a position is given; those from there on move down."""
        for each in prerequisite_module_ids:
            self._get("modules", each, course_id=course_id)
        with self.store.change():
            return self._add(
                "modules",
                course_id=course_id,
                name=line("name", name),
                published=published,
                created_at=self._now(),
                unlock_at=moment("unlock_at", unlock_at) or None,
                require_sequential_progress=require_sequential_progress,
                prerequisite_module_ids=list(dict.fromkeys(prerequisite_module_ids)),
                position=self._place("modules", position, course_id=course_id),
            )

    def add_module_item(
        self,
        module_id: int,
        title: str,
        type: str,
        *,
        content_id: int | None = None,
        page_url: Text = None,
        external_url: Text = None,
        html_url: Text = None,
        position: int | None = None,
        indent: int = 0,
        published: bool = True,
    ) -> int:
        """Add an item to a module, last unless a position is given; those from there on move down."""
        with self.store.change():
            return self._add(
                "module_items",
                module_id=module_id,
                title=line("title", title),
                type=type,
                content_id=content_id,
                page_url=page_url,
                external_url=external_url,
                html_url=line("html_url", html_url, 2_000),
                published=published,
                indent=whole("indent", indent, 0, 5),
                position=self._place("module_items", position, module_id=module_id),
                created_at=self._now(),
            )

    def _place(self, table: str, position: int | None, **owner: int) -> int:
        """A position that is free, because those from there on have moved down."""
        held = self.store.find(table, "position", **owner)
        place = len(held) + 1 if position is None else position
        whole("position", place, 1, len(held) + 1)
        for each in held[place - 1 :]:
            self.store.update(table, each["id"], position=each["position"] + 1)
        return place


def quiz_fields(
    title: str | None,
    description: str | None,
    quiz_type: str | None,
    time_limit: int | None,
    due_at: When,
    allowed_attempts: int | None,
    scoring_policy: str | None,
    access_code: str | None,
) -> Row:
    """Fields of a quiz that an author may set, checked."""
    if allowed_attempts not in (-1, None):
        whole("allowed_attempts", allowed_attempts, 1)
    return {
        "title": line("title", title),
        "description": prose("description", description),
        "quiz_type": choice("quiz_type", quiz_type, QUIZ_TYPES),
        "time_limit": whole("time_limit", time_limit, 1),
        "due_at": moment("due_at", due_at),
        "allowed_attempts": allowed_attempts,
        "scoring_policy": choice("scoring_policy", scoring_policy, SCORING),
        "access_code": line("access_code", access_code),
    }


def read_answers(answers: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Answers of a question as they are kept; `answer_text` and `text` mean the same."""
    read = []
    for number, answer in enumerate(answers, start=1):
        fields = {key.removeprefix("answer_").removeprefix("match_"): value for key, value in answer.items()}
        known = all(key in ANSWER_FIELDS and isinstance(value, (str, int, float)) for key, value in fields.items())
        if not fields or not known:
            raise ToolError(
                f"invalid argument: an answer has text or numbers for {', '.join(ANSWER_FIELDS)}, got {echo(dict(answer))}"
            )
        read.append({"id": number, **fields})
    return read
