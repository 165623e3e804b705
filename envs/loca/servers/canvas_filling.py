"""Filling Canvas: what a task, or a tool on behalf of a user, puts into it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.envs.loca.servers.canvas_records import (
    ROLES,
    STATES,
    STUDENT,
    TEACHER,
    CanvasRecords,
    Text,
    When,
    choice,
    given,
    line,
    moment,
    points,
    prose,
    whole,
)
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo

SUBMISSION_TYPES = ("online_text_entry", "online_url", "online_upload", "on_paper", "none", "not_graded", "external_tool")
QUIZ_TYPES = ("assignment", "practice_quiz", "graded_survey", "survey")
QUESTION_TYPES = tuple(
    f"{kind}_question"
    for kind in (
        "calculated", "essay", "file_upload", "fill_in_multiple_blanks", "matching", "multiple_answers", "multiple_choice",
        "multiple_dropdowns", "numerical", "short_answer", "text_only", "true_false",
    )
)  # fmt: skip
SCORING = ("keep_highest", "keep_latest", "keep_average")
ANSWER_FIELDS = ("text", "weight", "comments", "exact", "margin", "start", "end", "left", "right", "blank_id")


class CanvasFilling(CanvasRecords):
    """Methods that add records and give their ids, which count from 1 in each table. Moments are ISO 8601 texts or datetimes."""

    def _add(self, table: str, **record: Any) -> int:
        try:
            return self.store.insert(table, **record)
        except sqlite3.IntegrityError as error:
            raise ToolError(f"conflict: {table} takes no such record ({error})") from None

    def login_as(self, login_id: str) -> None:
        """Log a user in without asking for the password.

        Raises:
            ToolError: There is no such user.
        """
        found = self.store.value("SELECT id FROM users WHERE login_id = ?", login_id)
        if found is None:
            raise ToolError(f"not found: there is no user with login id {echo(login_id)}")
        self.session["user"] = found

    def add_account(self, name: str, parent_account_id: int = 1) -> int:
        """Add an account below another; account 1 is the root."""
        return self._add("accounts", name=line("name", name), parent_account_id=parent_account_id)

    def add_user(
        self, name: str, login_id: str, password: str, *, email: Text = None, admin: bool = False, sis_user_id: Text = None,
        short_name: Text = None, sortable_name: Text = None, title: Text = None, bio: Text = None, time_zone: Text = None,
        account_id: int = 1,
    ) -> int:  # fmt: skip
        """Add a user; an administrator has all rights in all accounts. The e-mail address is the login id by default."""
        line("name", name), line("unique_id", login_id), line("password", password)
        if self.store.value("SELECT 1 FROM users WHERE login_id = ?", login_id):
            raise ToolError(f"conflict: there is a user with login id {echo(login_id)} already")
        return self._add(
            "users", name=name, sortable_name=sortable_name or sortable(name), short_name=short_name or name, login_id=login_id,
            password=password, email=email or login_id, sis_user_id=sis_user_id, title=title, bio=bio, time_zone=time_zone,
            admin=admin, account_id=account_id, created_at=self._now(),
        )  # fmt: skip

    def add_course(
        self, name: str, course_code: str, teacher: int | None = None, *, students: Sequence[int] = (), published: bool = True,
        start_at: When = None, end_at: When = None, syllabus_body: Text = None, is_public: bool = False, time_zone: str = "UTC",
        sis_course_id: Text = None, account_id: int = 1, **extra: Any,
    ) -> int:  # fmt: skip
        """Add a course with its teacher and students; `extra` are fields that it shows besides."""
        with self.store.change():
            course = self._add(
                "courses", name=line("name", name), course_code=line("course_code", course_code), account_id=account_id,
                workflow_state="available" if published else "unpublished", start_at=moment("start_at", start_at) or None,
                end_at=moment("end_at", end_at) or None, syllabus_body=prose("syllabus_body", syllabus_body), is_public=is_public,
                time_zone=line("time_zone", time_zone), sis_course_id=sis_course_id, created_at=self._now(), extra=extra,
            )  # fmt: skip
            if teacher is not None:
                self.enroll(course, teacher, TEACHER)
            now = self._now()
            for student in dict.fromkeys(students):
                self._add("enrollments", course_id=course, user_id=student, type=STUDENT, enrollment_state="active", created_at=now)
        return course

    def enroll(self, course_id: int, user_id: int, role: str = STUDENT, state: str = "active") -> int:
        """Enroll a user, or change the state of the enrollment that is there."""
        choice("role", role, ROLES), choice("enrollment_state", state, STATES)
        held = self.store.find("enrollments", course_id=course_id, user_id=user_id, type=role)
        if held:
            self.store.update("enrollments", held[0]["id"], enrollment_state=state)
            return int(held[0]["id"])
        record = {"course_id": course_id, "user_id": user_id, "type": role, "enrollment_state": state}
        return self._add("enrollments", **record, created_at=self._now())

    def add_assignment(
        self, course_id: int, name: str, *, description: Text = None, points_possible: float | None = None, due_at: When = None,
        unlock_at: When = None, lock_at: When = None, submission_types: Sequence[str] = ("online_text_entry",),
        published: bool = True, **extra: Any,
    ) -> int:  # fmt: skip
        """Add an assignment; `extra` are fields that it shows besides."""
        for kind in submission_types:
            choice("submission_types", kind, SUBMISSION_TYPES)
        return self._add(
            "assignments", course_id=course_id, name=line("name", name), description=prose("description", description),
            points_possible=points("points_possible", points_possible), due_at=moment("due_at", due_at) or None,
            unlock_at=moment("unlock_at", unlock_at) or None, lock_at=moment("lock_at", lock_at) or None,
            submission_types=list(dict.fromkeys(submission_types)), published=published, created_at=self._now(),
            updated_at=self._now(), extra=extra,
        )  # fmt: skip

    def add_submission(
        self, assignment_id: int, user_id: int, *, submitted_at: When = None, submission_type: str = "online_text_entry",
        body: Text = None, url: Text = None, file_ids: Sequence[int] = (), score: float | None = None,
    ) -> int:  # fmt: skip
        """Add what a student handed in, at the clock's time unless another is given; with a score it is graded."""
        graded = {} if score is None else {"score": points("score", score), "grade": f"{score:.10g}", "graded_attempt": 1}
        return self._add(
            "submissions", assignment_id=assignment_id, user_id=user_id, submission_type=submission_type, body=body, url=url,
            file_ids=list(file_ids), attempt=1, submitted_at=moment("submitted_at", submitted_at) or self._now(),
            graded_at=None if score is None else self._now(), **graded,
        )  # fmt: skip

    def add_announcement(
        self, course_id: int, title: str, message: str, *, posted_at: When = None, author: int | None = None, **extra: Any
    ) -> int:
        """Add an announcement, by the first teacher unless another author is given; students do not see it before `posted_at`."""
        return self.add_topic(course_id, title, message, posted_at=posted_at, author=author, is_announcement=True, **extra)

    def add_topic(
        self, course_id: int, title: str, message: str, *, posted_at: When = None, author: int | None = None, locked: bool = False,
        is_announcement: bool = False, **extra: Any,
    ) -> int:  # fmt: skip
        """Add a topic of discussion, by the first teacher unless another author is given."""
        teacher = "SELECT user_id FROM enrollments WHERE course_id = ? AND type = ? ORDER BY id"
        return self._add(
            "topics", course_id=course_id, title=line("title", title), message=prose("message", message), locked=locked,
            user_id=self.store.value(teacher, course_id, TEACHER) if author is None else author,
            posted_at=moment("posted_at", posted_at) or self._now(), is_announcement=is_announcement, extra=extra,
        )  # fmt: skip

    def add_quiz(
        self, course_id: int, title: str, *, description: Text = None, quiz_type: str = "assignment",
        time_limit: int | None = None, due_at: When = None, unlock_at: When = None, lock_at: When = None, published: bool = True,
        shuffle_answers: bool = False, allowed_attempts: int = 1, scoring_policy: str = "keep_highest", access_code: Text = None,
        points_possible: float | None = None, question_count: int = 0, **extra: Any,
    ) -> int:  # fmt: skip
        """Add a quiz. Its count and points are those given until it gets questions; `extra` are fields that it shows besides.

        The time limit is in minutes; -1 attempts are as many as one likes.
        """
        fields = quiz_fields(title, description, quiz_type, time_limit, due_at, allowed_attempts, scoring_policy, access_code)
        return self._add(
            "quizzes", **given(**fields), course_id=course_id, published=published, shuffle_answers=shuffle_answers,
            unlock_at=moment("unlock_at", unlock_at) or None, lock_at=moment("lock_at", lock_at) or None, created_at=self._now(),
            question_count=question_count, points_possible=points("points_possible", points_possible), extra=extra,
        )  # fmt: skip

    def add_question(
        self, quiz_id: int, question_text: str, *, question_name: Text = None, question_type: Text = None,
        points_possible: float | None = None, answers: Sequence[Mapping[str, Any]] = (),
    ) -> int:  # fmt: skip
        """Add a question to a quiz, whose count and points follow."""
        choice("question_type", question_type, QUESTION_TYPES)
        with self.store.change():
            made = self._add(
                "quiz_questions", quiz_id=quiz_id, question_text=line("question_text", question_text, 64_000),
                position=1 + self.store.value("SELECT coalesce(max(position), 0) FROM quiz_questions WHERE quiz_id = ?", quiz_id),
                question_name=line("question_name", question_name) or "Question",
                question_type=question_type or ("multiple_choice_question" if answers else "essay_question"),
                points_possible=1.0 if points_possible is None else points("points_possible", points_possible),
                answers=read_answers(answers),
            )  # fmt: skip
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
        self, name: str, size: int, *, course_id: int | None = None, folder: int | None = None, owner: int | None = None,
        content_type: str = "application/octet-stream",
    ) -> int:  # fmt: skip
        """Add a file of a course, or of a user who can then hand it in; its bytes are not kept."""
        record = {"course_id": course_id, "folder_id": folder, "user_id": owner, "display_name": line("name", name), "size": size}
        return self._add("files", content_type=content_type, created_at=self._now(), **record)

    def add_event(
        self, title: str, start_at: When, end_at: When = None, *, course_id: int | None = None, user_id: int | None = None,
        description: Text = None, location_name: Text = None,
    ) -> int:  # fmt: skip
        """Add an event to the calendar of a course or of a user; it ends when it starts unless it is said otherwise."""
        start, end = moment("start_at", start_at), moment("end_at", end_at)
        record = {"course_id": course_id, "user_id": user_id, "description": description, "location_name": location_name}
        return self._add(
            "events", title=line("title", title), start_at=start, end_at=end or start, created_at=self._now(), **record
        )

    def add_module(
        self, course_id: int, name: str, *, position: int | None = None, unlock_at: When = None, published: bool = True,
        require_sequential_progress: bool = False, prerequisite_module_ids: Sequence[int] = (),
    ) -> int:  # fmt: skip
        """Add a module, last unless a position is given; those from there on move down."""
        for each in prerequisite_module_ids:
            self._get("modules", each, course_id=course_id)
        with self.store.change():
            return self._add(
                "modules", course_id=course_id, name=line("name", name), published=published, created_at=self._now(),
                unlock_at=moment("unlock_at", unlock_at) or None, require_sequential_progress=require_sequential_progress,
                prerequisite_module_ids=list(dict.fromkeys(prerequisite_module_ids)),
                position=self._place("modules", position, course_id=course_id),
            )  # fmt: skip

    def add_module_item(
        self, module_id: int, title: str, type: str, *, content_id: int | None = None, page_url: Text = None,
        external_url: Text = None, html_url: Text = None, position: int | None = None, indent: int = 0, published: bool = True,
    ) -> int:  # fmt: skip
        """Add an item to a module, last unless a position is given; those from there on move down."""
        with self.store.change():
            return self._add(
                "module_items", module_id=module_id, title=line("title", title), type=type, content_id=content_id,
                page_url=page_url, external_url=external_url, html_url=line("html_url", html_url, 2_000), published=published,
                indent=whole("indent", indent, 0, 5), position=self._place("module_items", position, module_id=module_id),
                created_at=self._now(),
            )  # fmt: skip

    def _place(self, table: str, position: int | None, **owner: int) -> int:
        """A position that is free, because those from there on have moved down."""
        held = self.store.find(table, "position", **owner)
        place = len(held) + 1 if position is None else position
        whole("position", place, 1, len(held) + 1)
        for each in held[place - 1 :]:
            self.store.update(table, each["id"], position=each["position"] + 1)
        return place


def sortable(name: str) -> str:
    """A name with the family name first: `Kelly, Rose Ann`."""
    first, _, last = name.strip().rpartition(" ")
    return f"{last}, {first}" if first else last


def quiz_fields(
    title: str | None, description: str | None, quiz_type: str | None, time_limit: int | None, due_at: When,
    allowed_attempts: int | None, scoring_policy: str | None, access_code: str | None,
) -> Row:  # fmt: skip
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
