"""Canvas: accounts with their courses and users, and reports on them, for administrators."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from agentgym.office.canvas.fields import Text, line
from agentgym.office.canvas.people import People, show_profile, show_user
from agentgym.office.canvas.records import (
    CanvasPart,
    Records,
    show_account,
    show_courses,
)
from agentgym.office.canvas.schema import STUDENT, TEACHER
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

_BELOW = """
WITH RECURSIVE below(id) AS (VALUES (?) UNION SELECT a.id FROM accounts a
  JOIN below b ON a.parent_account_id = b.id)
"""
"""An account with all below it; the parameter is the account."""

_COURSES = f"""{_BELOW}
SELECT c.*, a.name AS account_name,
  coalesce((SELECT u.sortable_name FROM enrollments e JOIN users u ON u.id = e.user_id
  WHERE e.course_id = c.id AND e.type = '{TEACHER}' ORDER BY e.id), '') AS teacher,
  EXISTS (SELECT 1 FROM enrollments e WHERE e.course_id = c.id) AS enrolled
FROM courses c JOIN accounts a ON a.id = c.account_id WHERE c.account_id IN below ORDER BY c.id
"""
"""The courses of an account and of those below it."""

_USERS = f"""{_BELOW}
SELECT * FROM users WHERE account_id IN below
OR id IN (SELECT e.user_id FROM enrollments e JOIN courses c ON c.id = e.course_id
  WHERE c.account_id IN below) ORDER BY id
"""
"""The users of these accounts and of their courses."""

_TABLES = {
    "users": f"""
        SELECT id AS canvas_user_id, sis_user_id AS user_id, login_id, name, email
        FROM ({_USERS})""",
    "courses": f"""
        SELECT id AS canvas_course_id, sis_course_id AS course_id, course_code, name,
          workflow_state FROM ({_COURSES})""",
    "enrollments": f"""
        SELECT course_id, user_id, type, enrollment_state FROM enrollments
        WHERE course_id IN (SELECT id FROM ({_COURSES})) ORDER BY id""",
    "grades": f"""
        SELECT u.name AS student, u.id AS student_id, c.name AS course, c.id AS course_id,
          round(100 * sum(s.score) / nullif(
            sum(CASE WHEN s.score IS NOT NULL THEN a.points_possible END), 0), 2) AS current_score
        FROM enrollments e JOIN users u ON u.id = e.user_id JOIN courses c ON c.id = e.course_id
        LEFT JOIN assignments a ON a.course_id = c.id AND a.published
        LEFT JOIN submissions s ON s.assignment_id = a.id AND s.user_id = u.id
        WHERE e.type = '{STUDENT}' AND c.id IN (SELECT id FROM ({_COURSES}))
        GROUP BY e.id ORDER BY e.id""",
    "access": f"""
        SELECT id AS user_id, name AS user_name, last_login AS last_access_at FROM ({_USERS})""",
    "unpublished": f"""
        SELECT id AS course_id, course_code, name FROM ({_COURSES})
        WHERE workflow_state = 'unpublished'""",
}
"""The tables that reports are made of; their columns have the names of Canvas's own reports."""

REPORTS = {
    "provisioning_csv": ("users", "courses", "enrollments"),
    "grade_export_csv": ("grades",),
    "last_user_access_csv": ("access",),
    "unpublished_courses_csv": ("unpublished",),
}
"""The reports on an account, each with its tables; the first is the default."""

_MIN_TERM = 2
"""Characters of a search term; Canvas's API refuses shorter ones."""


class NewUser(TypedDict, total=False):  # noqa: D101 (its docstring would be a part of the prompt)
    name: Required[Annotated[str, Field(description="Full name")]]
    short_name: Annotated[str, Field(description="Name in discussions")]
    sortable_name: Annotated[str, Field(description="Name in lists")]
    time_zone: Annotated[str, Field(description="Time zone")]


class NewLogin(TypedDict, total=False):  # noqa: D101
    unique_id: Required[Annotated[str, Field(description="Login id")]]
    password: Annotated[str, Field(description="Password; a random one by default")]
    sis_user_id: Annotated[str, Field(description="Id in the student information system")]
    send_confirmation: Annotated[bool, Field(description="Ignored: no mails are sent")]


class Accounts(CanvasPart):
    """Accounts and reports.

    Args:
        records: The records that all parts share.
        people: The part that adds users.
    """

    def __init__(self, records: Records, people: People) -> None:
        super().__init__(records)
        self._people = people

    def add_account(self, name: str, parent_account_id: int = 1) -> int:
        """Add an account below another; the id. Account 1 is the root."""
        return self._records.add(
            "accounts", name=line("name", name), parent_account_id=parent_account_id
        )

    @tool
    def canvas_get_account(self, account_id: int) -> Row:
        """Get an account; this and the other tools of accounts are for administrators.

        Args:
            account_id: Account.
        """
        if not self._records.me()["admin"]:
            raise ToolError("permission denied: only an administrator of the account may do that")
        return show_account(self._records.get("accounts", account_id))

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
        """List the courses of an account and of those below it.

        Args:
            account_id: Account.
            with_enrollments: With enrollments, or without.
            published: Published, or not.
            completed: Over, or not.
            sort: Sort key.
            order: Direction.
            search_term: At least two characters of name or code.
        """
        self.canvas_get_account(account_id)
        rows = self._store.rows(_COURSES, account_id)
        wanted = (with_enrollments, published, completed)
        courses = [
            row
            for row in _search(rows, search_term, ("name", "course_code"))
            if all(
                each in (None, state) for each, state in zip(wanted, self._states(row), strict=True)
            )
        ]
        column = "name" if sort == "course_name" else sort
        courses.sort(key=lambda row: (row[column] or "").lower(), reverse=order == "desc")
        for row in courses:
            del row["enrolled"], row["teacher"]
        return show_courses(self._records, courses)

    @tool
    def canvas_list_account_users(
        self,
        account_id: int,
        sort: Literal["username", "email", "sis_id", "last_login"] = "username",
        order: Literal["asc", "desc"] = "asc",
        search_term: Text = None,
    ) -> list[Row]:
        """List the users of an account and of those below it.

        Args:
            account_id: Account.
            sort: Sort key.
            order: Direction.
            search_term: At least two characters of name, login id or email address.
        """
        self.canvas_get_account(account_id)
        users = _search(
            self._store.rows(_USERS, account_id), search_term, ("name", "login_id", "email")
        )
        column = {"username": "sortable_name", "sis_id": "sis_user_id"}.get(sort, sort)
        users.sort(key=lambda row: (row[column] or "").lower(), reverse=order == "desc")
        return [show_user(row) | {"last_login": row["last_login"]} for row in users]

    @tool
    def canvas_create_user(self, account_id: int, user: NewUser, pseudonym: NewLogin) -> Row:
        """Create a user who can log in.

        Args:
            account_id: Account.
            user: The user.
            pseudonym: The login.
        """
        self.canvas_get_account(account_id)
        password = pseudonym.get("password") or self._records.context.new_id("password", 12)
        for name, value in (*user.items(), ("sis_user_id", pseudonym.get("sis_user_id"))):
            line(name, value)  # type: ignore[arg-type]
        user_id = self._people.add_user(
            user["name"],
            pseudonym["unique_id"],
            password,
            short_name=user.get("short_name"),
            sortable_name=user.get("sortable_name"),
            time_zone=user.get("time_zone"),
            sis_user_id=pseudonym.get("sis_user_id"),
            account_id=account_id,
        )
        return show_profile(self._records.stamp("users", user_id))

    @tool
    def canvas_list_sub_accounts(self, account_id: int) -> list[Row]:
        """List the accounts right below an account.

        Args:
            account_id: Account.
        """
        self.canvas_get_account(account_id)
        return [
            show_account(row) for row in self._store.find("accounts", parent_account_id=account_id)
        ]

    @tool
    def canvas_get_account_reports(self, account_id: int) -> list[Row]:
        """List the reports that can be made on an account.

        Args:
            account_id: Account.
        """
        self.canvas_get_account(account_id)
        return [
            {
                "report": name,
                "title": name.removesuffix("_csv").replace("_", " ").capitalize(),
                "parameters": list(tables),
            }
            for name, tables in REPORTS.items()
        ]

    @tool
    def canvas_create_account_report(
        self, account_id: int, report: str, parameters: dict[str, Any] | None = None
    ) -> Row:
        """Make a report on an account: a CSV file in the workspace, under canvas_reports.

        Args:
            account_id: Account.
            report: Name of the report.
            parameters: Which of its tables to make, such as {"users": true}; the first by default.
        """
        self.canvas_get_account(account_id)
        if report not in REPORTS:
            raise ToolError(
                f"not found: there is no report {echo(report)}; there are {', '.join(REPORTS)}"
            )
        parameters = parameters or {}
        table = _chosen_table(REPORTS[report], parameters)
        report_id = self._records.add(
            "reports",
            account_id=account_id,
            report=report,
            parameters=parameters,
            user_id=self._records.me()["id"],
            file_url="",
            created_at=self._records.now(),
        )
        path = self._records.context.files.write(
            f"canvas_reports/{report_id}_{table}.csv", self._csv(_TABLES[table], account_id)
        )
        self._store.update("reports", report_id, file_url=path)
        return _show_report(self._records.stamp("reports", report_id))

    def _states(self, course: Row) -> tuple[bool, bool, bool]:
        """Return whether somebody is enrolled in a course, it is published, and it is over."""
        published = course["workflow_state"] != "unpublished"
        return bool(course["enrolled"]), published, self._records.has_ended(course)

    def _csv(self, sql: str, account_id: int) -> str:
        """Return the rows of a SELECT on an account as CSV with a line of names."""
        # The outer join gives one row of nulls, and so the names, where the SELECT gives none.
        rows = self._store.rows(
            f"SELECT report.* FROM (SELECT 1) LEFT JOIN ({sql}) AS report", account_id
        )
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if any(value is not None for value in row.values()))
        return text.getvalue()


def _chosen_table(tables: Sequence[str], parameters: dict[str, Any]) -> str:
    """Return the table of a report that the parameters ask for.

    Raises:
        ToolError: They name other tables, or several.
    """
    is_choice = all(isinstance(value, bool) for value in parameters.values())
    if not is_choice or not set(parameters) <= set(tables):
        raise ToolError(
            f"invalid argument: parameters are true or false for {', '.join(tables)}, got "
            f"{echo(parameters)}"
        )
    chosen = [table for table in tables if parameters.get(table)] or [tables[0]]
    if len(chosen) > 1:
        raise ToolError(f"invalid argument: a report has one table, got {', '.join(chosen)}")
    return chosen[0]


def _search(rows: list[Row], term: str | None, columns: Sequence[str]) -> list[Row]:
    """Return the rows that have a search term in one of some columns, in any case.

    Without a term all of them are returned.

    Raises:
        ToolError: The term is too short.
    """
    if term is None:
        return rows
    if len(term.strip()) < _MIN_TERM:
        raise ToolError(
            f"invalid argument: search_term must have at least {_MIN_TERM} characters, got "
            f"{echo(term)}"
        )
    low = term.strip().lower()
    return [row for row in rows if any(low in (row[column] or "").lower() for column in columns)]


def _show_report(report: Row) -> Row:
    """Return a report, which is complete at once."""
    return {
        **{name: report[name] for name in ("id", "report", "file_url", "created_at")},
        "status": "complete",
        "started_at": report["created_at"],
        "ended_at": report["created_at"],
    }
