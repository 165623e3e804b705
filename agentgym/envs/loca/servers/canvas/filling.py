"""Filling Canvas: what a task, or a tool on behalf of a user, puts into it; here accounts, users, courses, work and topics."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from agentgym.envs.loca.servers.canvas.records import (
    ROLES,
    STATES,
    STUDENT,
    TEACHER,
    CanvasRecords,
    Text,
    When,
    choice,
    line,
    moment,
    points,
    prose,
)
from agentgym.tools import ToolError, echo

SUBMISSION_TYPES = ("online_text_entry", "online_url", "online_upload", "on_paper", "none", "not_graded", "external_tool")


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
        self,
        name: str,
        login_id: str,
        password: str,
        *,
        email: Text = None,
        admin: bool = False,
        sis_user_id: Text = None,
        short_name: Text = None,
        sortable_name: Text = None,
        title: Text = None,
        bio: Text = None,
        time_zone: Text = None,
        account_id: int = 1,
    ) -> int:
        """Add a user; an administrator has all rights in all accounts. The e-mail address is the login id by default."""
        line("name", name), line("unique_id", login_id), line("password", password)
        if self.store.value("SELECT 1 FROM users WHERE login_id = ?", login_id):
            raise ToolError(f"conflict: there is a user with login id {echo(login_id)} already")
        return self._add(
            "users",
            name=name,
            sortable_name=sortable_name or sortable(name),
            short_name=short_name or name,
            login_id=login_id,
            password=password,
            email=email or login_id,
            sis_user_id=sis_user_id,
            title=title,
            bio=bio,
            time_zone=time_zone,
            admin=admin,
            account_id=account_id,
            created_at=self._now(),
        )

    def add_course(
        self,
        name: str,
        course_code: str,
        teacher: int | None = None,
        *,
        students: Sequence[int] = (),
        published: bool = True,
        start_at: When = None,
        end_at: When = None,
        syllabus_body: Text = None,
        is_public: bool = False,
        time_zone: str = "UTC",
        sis_course_id: Text = None,
        account_id: int = 1,
        **extra: Any,
    ) -> int:
        """Add a course with its teacher and students; `extra` are fields that it shows besides."""
        with self.store.change():
            course = self._add(
                "courses",
                name=line("name", name),
                course_code=line("course_code", course_code),
                account_id=account_id,
                workflow_state="available" if published else "unpublished",
                start_at=moment("start_at", start_at) or None,
                end_at=moment("end_at", end_at) or None,
                syllabus_body=prose("syllabus_body", syllabus_body),
                is_public=is_public,
                time_zone=line("time_zone", time_zone),
                sis_course_id=sis_course_id,
                created_at=self._now(),
                extra=extra,
            )
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
        self,
        course_id: int,
        name: str,
        *,
        description: Text = None,
        points_possible: float | None = None,
        due_at: When = None,
        unlock_at: When = None,
        lock_at: When = None,
        submission_types: Sequence[str] = ("online_text_entry",),
        published: bool = True,
        **extra: Any,
    ) -> int:
        """Add an assignment; `extra` are fields that it shows besides."""
        for kind in submission_types:
            choice("submission_types", kind, SUBMISSION_TYPES)
        return self._add(
            "assignments",
            course_id=course_id,
            name=line("name", name),
            description=prose("description", description),
            points_possible=points("points_possible", points_possible),
            due_at=moment("due_at", due_at) or None,
            unlock_at=moment("unlock_at", unlock_at) or None,
            lock_at=moment("lock_at", lock_at) or None,
            submission_types=list(dict.fromkeys(submission_types)),
            published=published,
            created_at=self._now(),
            updated_at=self._now(),
            extra=extra,
        )

    def add_submission(
        self,
        assignment_id: int,
        user_id: int,
        *,
        submitted_at: When = None,
        submission_type: str = "online_text_entry",
        body: Text = None,
        url: Text = None,
        file_ids: Sequence[int] = (),
        score: float | None = None,
    ) -> int:
        """Add what a student handed in, at the clock's time unless another is given; with a score it is graded."""
        graded = {} if score is None else {"score": points("score", score), "grade": f"{score:.10g}", "graded_attempt": 1}
        return self._add(
            "submissions",
            assignment_id=assignment_id,
            user_id=user_id,
            submission_type=submission_type,
            body=body,
            url=url,
            file_ids=list(file_ids),
            attempt=1,
            submitted_at=moment("submitted_at", submitted_at) or self._now(),
            graded_at=None if score is None else self._now(),
            **graded,
        )

    def add_announcement(
        self, course_id: int, title: str, message: str, *, posted_at: When = None, author: int | None = None, **extra: Any
    ) -> int:
        """Add an announcement, by the first teacher unless another author is given; students do not see it before `posted_at`."""
        return self.add_topic(course_id, title, message, posted_at=posted_at, author=author, is_announcement=True, **extra)

    def add_topic(
        self,
        course_id: int,
        title: str,
        message: str,
        *,
        posted_at: When = None,
        author: int | None = None,
        locked: bool = False,
        is_announcement: bool = False,
        **extra: Any,
    ) -> int:
        """Add a topic of discussion, by the first teacher unless another author is given."""
        teacher = "SELECT user_id FROM enrollments WHERE course_id = ? AND type = ? ORDER BY id"
        return self._add(
            "topics",
            course_id=course_id,
            title=line("title", title),
            message=prose("message", message),
            locked=locked,
            user_id=self.store.value(teacher, course_id, TEACHER) if author is None else author,
            posted_at=moment("posted_at", posted_at) or self._now(),
            is_announcement=is_announcement,
            extra=extra,
        )


def sortable(name: str) -> str:
    """A name with the family name first: `Kelly, Rose Ann`."""
    first, _, last = name.strip().rpartition(" ")
    return f"{last}, {first}" if first else last
