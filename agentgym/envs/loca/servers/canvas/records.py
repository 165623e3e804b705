"""Canvas: the records, as the user who is logged in may reach them.

All parts of the server share one object of this kind.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from agentgym.envs.loca.servers.canvas.fields import integer
from agentgym.envs.loca.servers.canvas.schema import MAX_ID, RIGHTS
from agentgym.envs.loca.servers.context import OfficeContext, iso
from agentgym.envs.loca.servers.server import Server
from agentgym.envs.loca.servers.store import Row, Store
from agentgym.tools import ToolError, echo


class Records:
    """Records of Canvas, the user who is logged in, and what that user may do.

    It keeps no state: the server replaces its own at the beginning of an episode and when a
    snapshot is restored, so everything is looked up there.

    Args:
        server: The server that has the records.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def store(self) -> Store:
        """The tables of the episode."""
        return self._server.store

    @property
    def context(self) -> OfficeContext:
        """Clock, identifiers and files of the office."""
        return self._server.context

    @property
    def session(self) -> dict[str, Any]:
        """The state of the connection: `user` is the id of the user who is logged in."""
        return self._server.session

    def now(self) -> str:
        """Return the time as the tables hold it."""
        return iso(self.context.clock.now())

    def tick(self) -> str:
        """Return the time of something that happens now, as the tables hold it."""
        return iso(self.context.clock.tick())

    def add(self, table: str, **record: Any) -> int:
        """Add a record and return its id.

        Raises:
            ToolError: A constraint of the table forbids it.
        """
        try:
            return self.store.insert(table, **record)
        except sqlite3.IntegrityError as error:
            raise ToolError(f"conflict: {table} takes no such record ({error})") from None

    def stamp(self, table: str, id: int) -> Row:
        """Give a record that a user has just created the time of its creation, and return it."""
        self.store.update(table, id, created_at=self.tick())
        return self.store.get(table, id)

    def get(self, table: str, id: int, kind: str | None = None, **equal: Any) -> Row:
        """Return a record by its id, whoever is logged in.

        Raises:
            ToolError: There is none, or none whose columns have the given values.
        """
        rows = self.store.find(table, id=id, **equal) if 0 < id <= MAX_ID else []
        if not rows:
            kind = kind or table[:-1].replace("_", " ")
            raise ToolError(f"not found: there is no {kind} with id {echo(id)}")
        return rows[0]

    def me(self) -> Row:
        """Return the user who is logged in.

        Raises:
            ToolError: Nobody is.
        """
        if "user" not in self.session:
            raise ToolError("not logged in: call canvas_login with a login_id and a password first")
        user, store = self.session["user"], self.store
        return dict(store.derive(("user", user), ("users",), lambda: store.get("users", user)))

    def my_enrollments(self, course_id: int, *states: str) -> set[str]:
        """Return the types of the user's enrollments in a course that have one of some states."""
        user, store = self.session["user"], self.store
        sql = "SELECT type, enrollment_state FROM enrollments WHERE user_id = ? AND course_id = ?"
        rows: list[Row] = store.derive(
            ("enrollments", user, course_id),
            ("enrollments",),
            lambda: store.rows(sql, user, course_id),
        )
        return {row["type"] for row in rows if row["enrollment_state"] in states}

    def may(self, course_id: int, right: str) -> bool:
        """Return whether the user has a right of `RIGHTS` in a course.

        An administrator has all of them but that of learning.
        """
        if right != "learn" and self.me()["admin"]:
            return True
        return not self.my_enrollments(course_id, "active").isdisjoint(RIGHTS[right])

    def course(self, course_id: int, right: str = "read") -> Row:
        """Return a course that the user may `read`, or has another right in.

        Raises:
            ToolError: There is no such course, or the user may not do that.
        """
        self.me()
        key = ("course", course_id)
        course = dict(self.store.derive(key, ("courses",), lambda: self.get("courses", course_id)))
        if right == "read":
            is_open = course["is_public"] or self.my_enrollments(course_id, "active", "completed")
            published = course["workflow_state"] != "unpublished"
            allowed = (published and is_open) or self.may(course_id, "edit")
        else:
            allowed = self.may(course_id, right)
        if not allowed:
            raise ToolError(f"permission denied: this user may not {right} in course {course_id}")
        return course

    def of_course(
        self, table: str, course_id: int, id: int, right: str = "read", kind: str | None = None
    ) -> Row:
        """Return a record of a course by its id.

        Raises:
            ToolError: The user has no such right in the course, or the course has no such record;
                for who cannot edit the course, it has none that is not published.
        """
        self.course(course_id, right)
        row = self.get(table, id, kind, course_id=course_id)
        if not row.get("published", True) and not self.may(course_id, "edit"):
            raise ToolError(f"not found: there is no {kind or table[:-1]} with id {id}")
        return row

    def list_of_course(
        self, table: str, course_id: int, order: str = "id", **equal: Any
    ) -> list[Row]:
        """Return the records of a course that the user may see."""
        self.course(course_id)
        rows = self.store.find(table, order, course_id=course_id, **equal)
        published = [row for row in rows if row.get("published", True)]
        if len(published) == len(rows) or self.may(course_id, "edit"):
            return rows
        return published

    def check_open(self, work: Row) -> None:
        """Refuse what is handed in or begun before a work opens or after it is locked."""
        now = self.now()
        if now < (work["unlock_at"] or ""):
            raise ToolError(f"permission denied: it opens at {work['unlock_at']}")
        if work["lock_at"] and now > work["lock_at"]:
            raise ToolError(f"permission denied: it was locked at {work['lock_at']}")

    def open_position(self, table: str, position: int | None, **owner: int) -> int:
        """Return a free position among the records of an owner, the last by default.

        Positions count from 1 without gaps; the records from there on have moved down.

        Raises:
            ToolError: The position would leave a gap.
        """
        rows = self.store.find(table, "position", **owner)
        if position is None:
            return len(rows) + 1
        integer("position", position, 1, len(rows) + 1)
        for row in rows[position - 1 :]:
            self.store.update(table, row["id"], position=row["position"] + 1)
        return position

    def delete_at_position(self, table: str, id: int, **owner: int) -> None:
        """Delete a record that has a position; those after it move up."""
        position = self.store.get(table, id)["position"]
        self.store.delete(table, id=id)
        for row in self.store.find(table, "position", **owner):
            if row["position"] > position:
                self.store.update(table, row["id"], position=row["position"] - 1)
