"""The records of Canvas: tables, checks of what goes into them, and who may see or change what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from agentgym.envs.loca.servers.context import iso
from agentgym.envs.loca.servers.server import Server
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo

Text: TypeAlias = str | None
When: TypeAlias = str | datetime | None

SCHEMA = """
CREATE TABLE accounts (id INTEGER PRIMARY KEY, name TEXT NOT NULL, parent_account_id INTEGER REFERENCES accounts(id),
  default_time_zone TEXT NOT NULL DEFAULT 'UTC', workflow_state TEXT NOT NULL DEFAULT 'active');
INSERT INTO accounts (id, name) VALUES (1, 'University');
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, sortable_name TEXT NOT NULL, short_name TEXT NOT NULL,
  login_id TEXT NOT NULL UNIQUE COLLATE NOCASE, password TEXT NOT NULL, email TEXT, sis_user_id TEXT, title TEXT, bio TEXT,
  time_zone TEXT, admin BOOL NOT NULL, account_id INTEGER NOT NULL REFERENCES accounts(id), created_at TEXT NOT NULL,
  last_login TEXT);
CREATE TABLE courses (id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES accounts(id), name TEXT NOT NULL,
  course_code TEXT NOT NULL, sis_course_id TEXT, workflow_state TEXT NOT NULL, start_at TEXT, end_at TEXT,
  is_public BOOL NOT NULL, time_zone TEXT, syllabus_body TEXT, created_at TEXT NOT NULL, extra JSON NOT NULL);
CREATE TABLE enrollments (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id),
  user_id INTEGER NOT NULL REFERENCES users(id), type TEXT NOT NULL, enrollment_state TEXT NOT NULL, created_at TEXT NOT NULL,
  UNIQUE (course_id, type, user_id));
CREATE INDEX enrollments_user ON enrollments(user_id, course_id);
CREATE INDEX enrollments_course ON enrollments(course_id, type, enrollment_state, user_id);
CREATE TABLE assignments (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id), name TEXT NOT NULL,
  description TEXT, points_possible REAL, due_at TEXT, unlock_at TEXT, lock_at TEXT, submission_types JSON NOT NULL,
  published BOOL NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL, extra JSON NOT NULL);
CREATE INDEX assignments_course ON assignments(course_id);
CREATE TABLE submissions (id INTEGER PRIMARY KEY, assignment_id INTEGER NOT NULL REFERENCES assignments(id),
  user_id INTEGER NOT NULL REFERENCES users(id), submission_type TEXT, body TEXT, url TEXT, file_ids JSON NOT NULL,
  attempt INTEGER NOT NULL, submitted_at TEXT, score REAL, grade TEXT, grader_id INTEGER REFERENCES users(id), graded_at TEXT,
  graded_attempt INTEGER, UNIQUE (assignment_id, user_id));
CREATE INDEX submissions_user ON submissions(user_id);
CREATE TABLE submission_comments (id INTEGER PRIMARY KEY, submission_id INTEGER NOT NULL REFERENCES submissions(id),
  author_id INTEGER NOT NULL REFERENCES users(id), comment TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE folders (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id), name TEXT NOT NULL,
  full_name TEXT NOT NULL, parent_folder_id INTEGER REFERENCES folders(id), created_at TEXT NOT NULL,
  UNIQUE (course_id, full_name));
CREATE TABLE files (id INTEGER PRIMARY KEY, course_id INTEGER REFERENCES courses(id), folder_id INTEGER REFERENCES folders(id),
  user_id INTEGER REFERENCES users(id), display_name TEXT NOT NULL, content_type TEXT NOT NULL, size INTEGER NOT NULL, url TEXT,
  created_at TEXT NOT NULL);
CREATE TABLE pages (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id), url TEXT, title TEXT NOT NULL,
  body TEXT NOT NULL, published BOOL NOT NULL, front_page BOOL NOT NULL, created_at TEXT NOT NULL, UNIQUE (course_id, url));
CREATE TABLE events (id INTEGER PRIMARY KEY, course_id INTEGER REFERENCES courses(id), user_id INTEGER REFERENCES users(id),
  title TEXT NOT NULL, description TEXT, location_name TEXT, start_at TEXT NOT NULL, end_at TEXT NOT NULL,
  created_at TEXT NOT NULL);
CREATE TABLE modules (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id), name TEXT NOT NULL,
  position INTEGER NOT NULL, unlock_at TEXT, require_sequential_progress BOOL NOT NULL, prerequisite_module_ids JSON NOT NULL,
  published BOOL NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE module_items (id INTEGER PRIMARY KEY, module_id INTEGER NOT NULL REFERENCES modules(id), position INTEGER NOT NULL,
  title TEXT NOT NULL, indent INTEGER NOT NULL, type TEXT NOT NULL, content_id INTEGER, page_url TEXT, external_url TEXT,
  html_url TEXT, published BOOL NOT NULL, created_at TEXT NOT NULL);
CREATE INDEX items_module ON module_items(module_id);
CREATE TABLE item_completions (item_id INTEGER NOT NULL REFERENCES module_items(id) ON DELETE CASCADE,
  user_id INTEGER NOT NULL REFERENCES users(id), PRIMARY KEY (item_id, user_id));
CREATE TABLE topics (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id), title TEXT NOT NULL,
  message TEXT NOT NULL, user_id INTEGER REFERENCES users(id), posted_at TEXT NOT NULL, is_announcement BOOL NOT NULL,
  locked BOOL NOT NULL, extra JSON NOT NULL);
CREATE INDEX topics_course ON topics(course_id);
CREATE TABLE entries (id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL REFERENCES topics(id),
  user_id INTEGER NOT NULL REFERENCES users(id), message TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE INDEX entries_topic ON entries(topic_id);
CREATE TABLE quizzes (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id), title TEXT NOT NULL,
  description TEXT, quiz_type TEXT NOT NULL, time_limit INTEGER, shuffle_answers BOOL NOT NULL, allowed_attempts INTEGER NOT NULL,
  scoring_policy TEXT NOT NULL, access_code TEXT, points_possible REAL, question_count INTEGER NOT NULL, due_at TEXT,
  unlock_at TEXT, lock_at TEXT, published BOOL NOT NULL, created_at TEXT NOT NULL, extra JSON NOT NULL);
CREATE INDEX quizzes_course ON quizzes(course_id);
CREATE TABLE quiz_questions (id INTEGER PRIMARY KEY, quiz_id INTEGER NOT NULL REFERENCES quizzes(id) ON DELETE CASCADE,
  position INTEGER NOT NULL, question_name TEXT NOT NULL, question_type TEXT NOT NULL, question_text TEXT NOT NULL,
  points_possible REAL, answers JSON NOT NULL);
CREATE INDEX questions_quiz ON quiz_questions(quiz_id);
CREATE TABLE quiz_submissions (id INTEGER PRIMARY KEY, quiz_id INTEGER NOT NULL REFERENCES quizzes(id) ON DELETE CASCADE,
  user_id INTEGER NOT NULL REFERENCES users(id), attempt INTEGER NOT NULL, started_at TEXT NOT NULL, end_at TEXT,
  validation_token TEXT NOT NULL, UNIQUE (quiz_id, user_id, attempt));
CREATE TABLE rubrics (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id), title TEXT NOT NULL,
  description TEXT, points_possible REAL, free_form_criterion_comments BOOL NOT NULL, hide_score_total BOOL NOT NULL,
  data JSON NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE conversations (id INTEGER PRIMARY KEY, subject TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE participants (conversation_id INTEGER NOT NULL REFERENCES conversations(id),
  user_id INTEGER NOT NULL REFERENCES users(id), workflow_state TEXT NOT NULL, PRIMARY KEY (conversation_id, user_id));
CREATE INDEX participants_user ON participants(user_id);
CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation_id INTEGER NOT NULL REFERENCES conversations(id),
  author_id INTEGER NOT NULL REFERENCES users(id), body TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE INDEX messages_conversation ON messages(conversation_id);
CREATE TABLE reports (id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES accounts(id), report TEXT NOT NULL,
  parameters JSON NOT NULL, user_id INTEGER NOT NULL REFERENCES users(id), file_url TEXT NOT NULL, created_at TEXT NOT NULL);
"""

STUDENT, TEACHER, TA, DESIGNER, OBSERVER = (f"{who}Enrollment" for who in ("Student", "Teacher", "Ta", "Designer", "Observer"))
ROLES = (STUDENT, TEACHER, TA, DESIGNER, OBSERVER)
RIGHTS = {"edit": (TEACHER, TA, DESIGNER), "grade": (TEACHER, TA), "teach": (TEACHER,), "learn": (STUDENT,)}
STATES = ("active", "invited", "inactive", "completed")

_MOST_POINTS = 1e9
_MOST_CHARS = 64_000
_MOST_ID = 2**63 - 1


def line(field: str, value: str | None, most: int = 255) -> str | None:
    """A text that is not blank, or None."""
    if value is not None and (not value.strip() or len(value) > most):
        raise ToolError(f"invalid argument: {field} must have 1 to {most} characters that are not all blank, got {echo(value)}")
    return value


def prose(field: str, value: str | None) -> str | None:
    """A text of any length up to a limit, or None."""
    if value is not None and len(value) > _MOST_CHARS:
        raise ToolError(f"limit exceeded: {field} has {len(value)} characters, at most {_MOST_CHARS} are allowed")
    return value


def moment(field: str, value: When) -> str | None:
    """A moment as it is kept, in UTC; "" stays and stands for none."""
    if value is None or value == "":
        return None if value is None else ""
    try:
        read = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        moved = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ToolError(f"invalid argument: {field} must be like 2025-01-15T09:00:00Z, got {echo(value)}") from None
    if moved.year < 1900:
        raise ToolError(f"invalid argument: {field} must be after 1900, got {echo(value)}")
    return iso(moved)


def points(field: str, value: float | None) -> float | None:
    """A number of points, or None."""
    if value is not None and not 0 <= value <= _MOST_POINTS:
        raise ToolError(f"invalid argument: {field} must be between 0 and {_MOST_POINTS:g}, got {echo(value)}")
    return value


def whole(field: str, value: int | None, low: int, high: int = 100_000) -> int | None:
    """A whole number in a range, or None."""
    if value is not None and not low <= value <= high:
        raise ToolError(f"invalid argument: {field} must be between {low} and {high}, got {echo(value)}")
    return value


def choice(field: str, value: str | None, choices: Sequence[str]) -> str | None:
    """One of some words, or None."""
    if value is not None and value not in choices:
        raise ToolError(f"invalid argument: {field} must be one of {', '.join(choices)}, got {echo(value)}")
    return value


def given(**fields: Any) -> dict[str, Any]:
    """The fields that an update names; an empty moment takes the moment away."""
    return {key: None if value == "" and key.endswith("_at") else value for key, value in fields.items() if value is not None}


def shown(row: Mapping[str, Any], *hidden: str) -> Row:
    """A record as the service shows it: what the task added to it is among its fields."""
    return {key: value for key, value in row.items() if key not in ("extra", *hidden)} | (row.get("extra") or {})


class CanvasRecords(Server):
    """Who is logged in, and what that user may reach."""

    name = "canvas"
    schema = SCHEMA

    def _now(self) -> str:
        return iso(self.context.clock.now())

    def _tick(self) -> str:
        return iso(self.context.clock.tick())

    def _fresh(self, table: str, id: int) -> Row:
        """A record that a user made just now, with the time at which that was."""
        self.store.update(table, id, created_at=self._tick())
        return self.store.get(table, id)

    def _me(self) -> Row:
        if "user" not in self.session:
            raise ToolError("not logged in: call canvas_login with a login_id and a password first")
        return self.store.get("users", self.session["user"])

    def _admin(self) -> Row:
        me = self._me()
        if not me["admin"]:
            raise ToolError("permission denied: only an administrator of the account may do that")
        return me

    def _get(self, table: str, id: int, kind: str | None = None, **equal: Any) -> Row:
        # SQLite has no integers beyond 64 bits, so there is no record with such an id.
        found = self.store.find(table, id=id, **equal) if 0 < id <= _MOST_ID else []
        if not found:
            raise ToolError(f"not found: there is no {kind or table[:-1].replace('_', ' ')} with id {echo(id)}")
        return found[0]

    def _types(self, course_id: int, *states: str) -> set[str]:
        """The types of the enrollments that the user has in a course in some states."""
        mine = self.store.find("enrollments", course_id=course_id, user_id=self.session["user"])
        return {each["type"] for each in mine if each["enrollment_state"] in states}

    def _may(self, course_id: int, right: str) -> bool:
        """Whether the user has a right of `RIGHTS` in a course; an administrator has all but that of learning."""
        return (right != "learn" and bool(self._me()["admin"])) or not self._types(course_id, "active").isdisjoint(RIGHTS[right])

    def _course(self, course_id: int, right: str = "read") -> Row:
        """A course that the user may `read`, or has another right in.

        Raises:
            ToolError: There is no such course, or the user may not do that.
        """
        self._me()
        course = self._get("courses", course_id)
        if right == "read":
            open_to_me = course["is_public"] or self._types(course_id, "active", "completed")
            allowed = (course["workflow_state"] != "unpublished" and open_to_me) or self._may(course_id, "edit")
        else:
            allowed = self._may(course_id, right)
        if not allowed:
            raise ToolError(f"permission denied: this user may not {right} in course {course_id}")
        return course

    def _part(self, table: str, course_id: int, id: int, right: str = "read", kind: str | None = None) -> Row:
        """A record of a course; who cannot edit the course does not find what is not published."""
        self._course(course_id, right)
        row = self._get(table, id, kind, course_id=course_id)
        if not row.get("published", True) and not self._may(course_id, "edit"):
            raise ToolError(f"not found: there is no {kind or table[:-1]} with id {id}")
        return row

    def _parts(self, table: str, course_id: int, order: str = "id", **equal: Any) -> list[Row]:
        """The records of a course that the user may see."""
        self._course(course_id)
        rows = self.store.find(table, order, course_id=course_id, **equal)
        hides = any(not row.get("published", True) for row in rows) and not self._may(course_id, "edit")
        return [row for row in rows if not hides or row["published"]]
