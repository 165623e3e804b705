"""Canvas: announcements, topics of discussion and what is said on them."""

from __future__ import annotations

from typing import Any

from agentgym.envs.loca.servers.canvas.fields import (
    MAX_TEXT,
    When,
    line,
    moment,
    prose,
    public_fields,
)
from agentgym.envs.loca.servers.canvas.records import Records
from agentgym.envs.loca.servers.canvas.schema import TEACHER
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, tool

_ENTRIES = """
SELECT e.id, e.user_id, u.name AS user_name, e.message, e.created_at FROM entries e
JOIN users u ON u.id = e.user_id WHERE e.topic_id = ? ORDER BY e.id
"""
"""The entries on a topic with the names of their authors."""


class Discussions:
    """Announcements and topics of discussion, which Canvas keeps in one table.

    Args:
        records: The records that all parts share.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    def add_announcement(
        self,
        course_id: int,
        title: str,
        message: str,
        *,
        posted_at: When = None,
        author: int | None = None,
        **extra: Any,
    ) -> int:
        """Add an announcement, as `add_topic` does; students do not see it before `posted_at`."""
        return self.add_topic(
            course_id,
            title,
            message,
            posted_at=posted_at,
            author=author,
            is_announcement=True,
            **extra,
        )

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
        """Add a topic of discussion, by the first teacher unless another author is given; the id.

        `extra` are fields that it shows besides.
        """
        if author is None:
            sql = "SELECT user_id FROM enrollments WHERE course_id = ? AND type = ? ORDER BY id"
            author = self._records.store.value(sql, course_id, TEACHER)
        return self._records.add(
            "topics",
            course_id=course_id,
            title=line("title", title),
            message=prose("message", message),
            locked=locked,
            user_id=author,
            posted_at=moment("posted_at", posted_at) or self._records.now(),
            is_announcement=is_announcement,
            extra=extra,
        )

    @tool
    def canvas_list_discussion_topics(self, course_id: int) -> list[Row]:
        """The topics of discussion of a course, newest first."""
        return self._topics(course_id, is_announcement=False)

    @tool
    def canvas_get_discussion_topic(self, course_id: int, topic_id: int) -> Row:
        """A topic of discussion, or an announcement, with what was said on it."""
        topic = self._topic(course_id, topic_id)
        return topic | {"entries": self._records.store.rows(_ENTRIES, topic_id)}

    @tool
    def canvas_post_to_discussion(self, course_id: int, topic_id: int, message: str) -> Row:
        """Say something on a topic of discussion."""
        topic = self._topic(course_id, topic_id)
        me = self._records.me()
        if topic["locked"] and not self._records.may(course_id, "edit"):
            raise ToolError(f"permission denied: topic {topic_id} is locked")
        if not me["admin"] and not self._records.my_enrollments(course_id, "active"):
            raise ToolError(f"permission denied: only members of course {course_id} may post")
        entry_id = self._records.add(
            "entries",
            topic_id=topic_id,
            user_id=me["id"],
            message=line("message", message, MAX_TEXT),
            created_at=self._records.tick(),
        )
        return self._records.store.get("entries", entry_id) | {"user_name": me["name"]}

    @tool
    def canvas_list_announcements(self, course_id: int) -> list[Row]:
        """The announcements of a course, newest first."""
        return self._topics(course_id, is_announcement=True)

    def _topics(self, course_id: int, is_announcement: bool) -> list[Row]:
        rows = self._records.list_of_course(
            "topics", course_id, "posted_at DESC, id DESC", is_announcement=is_announcement
        )
        now = self._records.now()
        posted = [row for row in rows if row["posted_at"] <= now]
        if len(posted) < len(rows) and self._records.may(course_id, "edit"):
            posted = rows
        names = {user_id: self._name(user_id) for user_id in {row["user_id"] for row in posted}}
        return [public_fields(row) | {"user_name": names[row["user_id"]]} for row in posted]

    def _topic(self, course_id: int, topic_id: int) -> Row:
        row = self._records.of_course("topics", course_id, topic_id)
        if row["posted_at"] > self._records.now() and not self._records.may(course_id, "edit"):
            raise ToolError(f"not found: there is no topic with id {topic_id}")
        return public_fields(row) | {"user_name": self._name(row["user_id"])}

    def _name(self, user_id: int | None) -> str | None:
        name: str | None = self._records.store.value("SELECT name FROM users WHERE id = ?", user_id)
        return name
