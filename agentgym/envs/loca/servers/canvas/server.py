"""Canvas, a learning platform: courses, work and grades of each user as that user may see them. Its REST API is the model."""

from __future__ import annotations

import csv
import io
from typing import Any, Literal

from agentgym.envs.loca.servers.canvas.quizzes import CanvasQuizzes
from agentgym.envs.loca.servers.canvas.records import STUDENT, TEACHER, Text, line, shown
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

BELOW = """
WITH RECURSIVE below(id) AS (VALUES (?1) UNION SELECT a.id FROM accounts a JOIN below b ON a.parent_account_id = b.id)
"""
"""An account with all below it; `?1` is the account."""

COURSES = f"""{BELOW}
SELECT c.*, a.name AS account_name, coalesce((SELECT u.sortable_name FROM enrollments e JOIN users u ON u.id = e.user_id
  WHERE e.course_id = c.id AND e.type = '{TEACHER}' ORDER BY e.id), '') AS teacher,
  EXISTS (SELECT 1 FROM enrollments e WHERE e.course_id = c.id) AS enrolled
FROM courses c JOIN accounts a ON a.id = c.account_id WHERE c.account_id IN below ORDER BY c.id
"""

USERS = f"""{BELOW}
SELECT * FROM users WHERE account_id IN below
OR id IN (SELECT e.user_id FROM enrollments e JOIN courses c ON c.id = e.course_id WHERE c.account_id IN below) ORDER BY id
"""

STREAM = """
WITH mine AS (SELECT e.course_id FROM enrollments e JOIN courses c ON c.id = e.course_id
  WHERE e.user_id = ?1 AND e.enrollment_state = 'active' AND c.workflow_state != 'unpublished')
SELECT CASE WHEN is_announcement THEN 'Announcement' ELSE 'DiscussionTopic' END AS type, id AS source_id, title, message, course_id,
  posted_at AS created_at FROM topics WHERE course_id IN mine AND posted_at <= ?2
UNION ALL SELECT 'Submission', s.assignment_id, a.name, 'graded: ' || s.grade, a.course_id, s.graded_at FROM submissions s
  JOIN assignments a ON a.id = s.assignment_id WHERE s.user_id = ?1 AND s.grade IS NOT NULL AND a.published AND a.course_id IN mine
UNION ALL SELECT 'Conversation', c.id, c.subject, m.body, NULL, m.created_at FROM messages m
  JOIN conversations c ON c.id = m.conversation_id
  JOIN participants p ON p.conversation_id = c.id AND p.user_id = ?1 WHERE m.author_id != ?1
ORDER BY created_at DESC, type, source_id DESC LIMIT ?3
"""

STREAM_PAGE = 10

_REPORTED = {
    "users": f"SELECT id AS canvas_user_id, sis_user_id AS user_id, login_id, name, email FROM ({USERS})",
    "courses": f"SELECT id AS canvas_course_id, sis_course_id AS course_id, course_code, name, workflow_state FROM ({COURSES})",
    "enrollments": f"""
        SELECT course_id, user_id, type, enrollment_state FROM enrollments
        WHERE course_id IN (SELECT id FROM ({COURSES})) ORDER BY id""",
    "grades": f"""
        SELECT u.name AS student, u.id AS student_id, c.name AS course, c.id AS course_id, round(100 * sum(s.score)
          / nullif(sum(CASE WHEN s.score IS NOT NULL THEN a.points_possible END), 0), 2) AS current_score
        FROM enrollments e JOIN users u ON u.id = e.user_id JOIN courses c ON c.id = e.course_id
        LEFT JOIN assignments a ON a.course_id = c.id AND a.published
        LEFT JOIN submissions s ON s.assignment_id = a.id AND s.user_id = u.id
        WHERE e.type = '{STUDENT}' AND c.id IN (SELECT id FROM ({COURSES})) GROUP BY e.id ORDER BY e.id""",
    "access": f"SELECT id AS user_id, name AS user_name, last_login AS last_access_at FROM ({USERS})",
    "unpublished": f"SELECT id AS course_id, course_code, name FROM ({COURSES}) WHERE workflow_state = 'unpublished'",
}

REPORTS = {
    "provisioning_csv": ("users", "courses", "enrollments"),
    "grade_export_csv": ("grades",),
    "last_user_access_csv": ("access",),
    "unpublished_courses_csv": ("unpublished",),
}
"""The reports on an account, each with its tables."""


class Canvas(CanvasQuizzes):
    """Canvas. Before a tool other than the login can be used, a user must be logged in (`login_as`, or the tool)."""

    @tool
    def canvas_list_conversations(self) -> list[Row]:
        """Your conversations, that with the newest message first."""
        ids = [row["conversation_id"] for row in self.store.find("participants", "conversation_id", user_id=self._me()["id"])]
        found = [self._show_conversation(each) for each in ids]
        return sorted(found, key=lambda each: (each["last_message_at"], each["id"]), reverse=True)

    @tool
    def canvas_get_conversation(self, conversation_id: int) -> Row:
        """A conversation of yours with its messages, newest first; it counts as read then."""
        me = self._me()["id"]
        if not 0 < conversation_id < 2**63 or not self.store.find("participants", "1", conversation_id=conversation_id, user_id=me):
            raise ToolError(f"not found: you have no conversation with id {echo(conversation_id)}")
        with self.store.change():
            self.store.delete("participants", conversation_id=conversation_id, user_id=me)
            self.store.insert("participants", conversation_id=conversation_id, user_id=me, workflow_state="read")
        messages = self.store.find("messages", "id DESC", conversation_id=conversation_id)
        return self._show_conversation(conversation_id) | {"messages": [shown(row, "conversation_id") for row in messages]}

    @tool
    def canvas_create_conversation(self, recipients: list[str], body: str, subject: str = "(No Subject)") -> list[Row]:
        """Write to users who are in a course with you; each gets a conversation of their own.

        A recipient is the id of a user, such as "7", or "course_3" for all in a course.
        """
        me = self._me()
        text, title = line("body", body, 64_000), line("subject", subject or "(No Subject)")
        people = [user for user in self._recipients(recipients) if user != me["id"]]
        if not people:
            raise ToolError("invalid argument: recipients must name a user other than yourself")
        made = []
        with self.store.change():
            now = self._tick()
            for user in people:
                made.append(self._add("conversations", subject=title, created_at=now))
                for member, state in ((me["id"], "read"), (user, "unread")):
                    self._add("participants", conversation_id=made[-1], user_id=member, workflow_state=state)
                self._add("messages", conversation_id=made[-1], author_id=me["id"], body=text, created_at=now)
        return [self._show_conversation(each) for each in made]

    @tool
    def canvas_list_notifications(self) -> list[Row]:
        """The ten newest things that happened: announcements, topics of discussion, grades, messages to you."""
        rows = self.store.rows(STREAM, self._me()["id"], self._now(), STREAM_PAGE)
        return [{"id": number, **row} for number, row in enumerate(rows, start=1)]

    @tool
    def canvas_get_account(self, account_id: int) -> Row:
        """An account. Only for administrators, as is all that follows on accounts."""
        self._admin()
        return self._get("accounts", account_id)

    @tool
    def canvas_list_account_courses(
        self,
        account_id: int,
        with_enrollments: bool | None = None,
        published: bool | None = None,
        completed: bool | None = None,
        sort: Literal["course_name", "sis_course_id", "teacher", "account_name"] = "course_name",
        order: Literal["asc", "desc"] = "asc",
        search_term: Text = None,
    ) -> list[Row]:
        """The courses of an account and of those below it: only those with enrollments, published, over (or not so), as asked.

        The search term is looked for in name and code; it has at least two characters.
        """
        self.canvas_get_account(account_id)
        term, now = _term(search_term), self._now()
        keys = {"course_name": "name", "sis_course_id": "sis_course_id", "teacher": "teacher", "account_name": "account_name"}
        kept = [
            row
            for row in self.store.rows(COURSES, account_id)
            if with_enrollments in (None, bool(row["enrolled"]))
            and published in (None, row["workflow_state"] != "unpublished")
            and completed in (None, row["workflow_state"] == "completed" or (row["end_at"] or now) < now)
            and (term in row["name"].lower() or term in row["course_code"].lower())
        ]
        kept.sort(key=lambda row: (row[keys[sort]] or "").lower(), reverse=order == "desc")
        return [shown(row, "syllabus_body", "enrolled") for row in kept]

    @tool
    def canvas_list_account_users(
        self,
        account_id: int,
        sort: Literal["username", "email", "sis_id", "last_login"] = "username",
        order: Literal["asc", "desc"] = "asc",
        search_term: Text = None,
    ) -> list[Row]:
        """The users of an account and of those below it.

        The search term is looked for in name, login id and e-mail address; it has at least two characters.
        """
        self.canvas_get_account(account_id)
        term = _term(search_term)
        key = {"username": "sortable_name", "email": "email", "sis_id": "sis_user_id", "last_login": "last_login"}[sort]
        texts = ("name", "login_id", "email")
        kept = [row for row in self.store.rows(USERS, account_id) if any(term in (row[text] or "").lower() for text in texts)]
        kept.sort(key=lambda row: (row[key] or "").lower(), reverse=order == "desc")
        return [self._show_user(row) | {"last_login": row["last_login"]} for row in kept]

    @tool
    def canvas_create_user(self, account_id: int, user: dict[str, Any], pseudonym: dict[str, Any]) -> Row:
        """Create a user who can log in.

        `user` has name, and short_name, sortable_name, time_zone if you like;
        `pseudonym` has unique_id (the login id) and password, and sis_user_id if you like.
        """
        self.canvas_get_account(account_id)
        who = _texts("user", user, ["name"], ["short_name", "sortable_name", "time_zone"])
        login = _texts("pseudonym", pseudonym, ["unique_id", "password"], ["sis_user_id"])
        name, login_id, password = who.pop("name"), login.pop("unique_id"), login.pop("password")
        return self._show_user(self._fresh("users", self.add_user(name, login_id, password, **who, **login, account_id=account_id)))

    @tool
    def canvas_list_sub_accounts(self, account_id: int) -> list[Row]:
        """The accounts right below an account."""
        self.canvas_get_account(account_id)
        return self.store.find("accounts", parent_account_id=account_id)

    @tool
    def canvas_get_account_reports(self, account_id: int) -> list[Row]:
        """The reports that can be made on an account, and when each was made last."""
        self.canvas_get_account(account_id)
        made = {row["report"]: self._show_report(row) for row in self.store.find("reports", account_id=account_id)}
        return [{"report": name, "parameters": list(parts), "last_run": made.get(name)} for name, parts in REPORTS.items()]

    @tool
    def canvas_create_account_report(self, account_id: int, report: str, parameters: dict[str, Any] | None = None) -> Row:
        """Make a report on an account: a CSV file in the workspace, under canvas_reports.

        `parameters` say which of its tables to make, such as {"users": true}; the first by default.
        """
        self.canvas_get_account(account_id)
        if report not in REPORTS:
            raise ToolError(f"not found: there is no report {echo(report)}; there are {', '.join(REPORTS)}")
        tables, asked = REPORTS[report], parameters or {}
        if not set(asked) <= set(tables) or not all(isinstance(each, bool) for each in asked.values()):
            raise ToolError(f"invalid argument: parameters are true or false for {', '.join(tables)}, got {echo(asked)}")
        wanted = [name for name in tables if asked.get(name)] or [tables[0]]
        if len(wanted) > 1:
            raise ToolError(f"invalid argument: a report has one table, got {', '.join(wanted)}")
        text = self._table(_REPORTED[wanted[0]], account_id)
        with self.store.change():
            fields: Row = {"account_id": account_id, "report": report, "parameters": asked, "user_id": self._me()["id"]}
            made = self._add("reports", **fields, file_url="", created_at=self._now())
            self.store.update("reports", made, file_url=self.context.files.write(f"canvas_reports/{made}_{wanted[0]}.csv", text))
            return self._show_report(self._fresh("reports", made))

    @tool
    def canvas_get_syllabus(self, course_id: int) -> Row:
        """The syllabus of a course."""
        course = self._course(course_id)
        return {"course_id": course_id, "name": course["name"], "syllabus_body": course["syllabus_body"]}

    def _recipients(self, recipients: list[str]) -> list[int]:
        """The ids of users that recipients mean, each once, all of whom the user may write to."""
        known = {user["id"] for user in self.canvas_list_users()}
        people: dict[int, None] = {}
        for each in recipients:
            digits = each.removeprefix("course_")
            if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
                raise ToolError(f'invalid argument: a recipient is like "7" or "course_3", got {echo(each)}')
            if digits != each:
                self._course(int(digits))
                members = self.store.find("enrollments", course_id=int(digits), enrollment_state="active")
                people |= {row["user_id"]: None for row in members}
            else:
                people[int(digits)] = None
        if unknown := [user for user in people if user not in known]:
            raise ToolError(f"permission denied: you are in no course with user {unknown[0]}")
        return list(people)

    def _show_conversation(self, id: int) -> Row:
        sql = "SELECT u.id, u.name, p.workflow_state FROM participants p JOIN users u ON u.id = p.user_id "
        members = self.store.rows(f"{sql} WHERE p.conversation_id = ? ORDER BY u.id", id)
        messages = self.store.find("messages", conversation_id=id)
        mine = next(each["workflow_state"] for each in members if each["id"] == self.session["user"])
        people = [{"id": each["id"], "name": each["name"]} for each in members]
        last = {"last_message": messages[-1]["body"], "last_message_at": messages[-1]["created_at"], "message_count": len(messages)}
        return {**shown(self.store.get("conversations", id)), "workflow_state": mine, **last, "participants": people}

    def _show_report(self, row: Row) -> Row:
        return row | {"status": "complete", "progress": 100}

    def _table(self, sql: str, account_id: int) -> str:
        """What a SELECT on an account gives, as CSV with a line of names."""
        # The outer join gives one record of nulls, and so the names, where the SELECT gives none.
        rows = self.store.rows(f"SELECT made.* FROM (SELECT 1) LEFT JOIN ({sql}) AS made", account_id)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if any(value is not None for value in row.values()))
        return text.getvalue()


def _term(search_term: str | None) -> str:
    if search_term is not None and len(search_term.strip()) < 2:
        raise ToolError(f"invalid argument: search_term must have at least 2 characters, got {echo(search_term)}")
    return (search_term or "").strip().lower()


def _texts(what: str, fields: dict[str, Any], needed: list[str], also: list[str]) -> Row:
    """Fields of an object, all of which are texts."""
    if not set(needed) <= set(fields) or not set(fields) <= {*needed, *also}:
        raise ToolError(f"invalid argument: {what} needs {', '.join(needed)}; may have {', '.join(also)}; got {echo(list(fields))}")
    for key, value in fields.items():
        if not isinstance(value, str):
            raise ToolError(f"invalid argument: {what}.{key} must be a text")
        line(f"{what}.{key}", value)
    return dict(fields)
