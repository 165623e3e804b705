"""Canvas: announcements, topics of discussion and what is said on them."""

from __future__ import annotations

from typing import Any

from agentgym.envs.loca.servers.canvas.fields import (
    MAX_TEXT,
    When,
    line,
    moment,
    prose,
)
from agentgym.envs.loca.servers.canvas.records import Records
from agentgym.envs.loca.servers.canvas.schema import TEACHER
from agentgym.envs.loca.servers.canvas.views import SITE, fields_of
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
        """List the discussion topics of a course, newest first.

        Args:
            course_id: Course.
        """
        return self._topics(course_id, is_announcement=False)

    @tool
    def canvas_get_discussion_topic(self, course_id: int, topic_id: int) -> Row:
        """Get a topic or an announcement with its entries.

        Args:
            course_id: Course.
            topic_id: Topic.
        """
        topic = self._topic(course_id, topic_id)
        shown = _show_topic(topic, self._name(topic["user_id"]))
        return shown | {"entries": self._records.store.rows(_ENTRIES, topic_id)}

    @tool
    def canvas_post_to_discussion(self, course_id: int, topic_id: int, message: str) -> Row:
        """Add an entry to a topic.

        Args:
            course_id: Course.
            topic_id: Topic.
            message: Text.
        """
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
        entry = self._records.store.get("entries", entry_id)
        return entry | {"updated_at": entry["created_at"]}

    @tool
    def canvas_list_announcements(self, course_id: int) -> list[Row]:
        """List the announcements of a course, newest first.

        Args:
            course_id: Course.
        """
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
        return [_show_topic(row, names[row["user_id"]]) for row in posted]

    def _topic(self, course_id: int, topic_id: int) -> Row:
        row = self._records.of_course("topics", course_id, topic_id)
        if row["posted_at"] > self._records.now() and not self._records.may(course_id, "edit"):
            raise ToolError(f"not found: there is no topic with id {topic_id}")
        return row

    def _name(self, user_id: int | None) -> str | None:
        name: str | None = self._records.store.value("SELECT name FROM users WHERE id = ?", user_id)
        return name


def _show_topic(row: Row, author: str | None) -> Row:
    """Return a topic or an announcement; only a topic can be locked."""
    url = f"{SITE}/courses/{row['course_id']}/discussion_topics/{row['id']}"
    hidden = ("user_id", "is_announcement", *(["locked"] if row["is_announcement"] else []))
    return {
        **fields_of(row, *hidden),
        "author": {"id": row["user_id"], "display_name": author or ""},
        "url": url,
        "html_url": url,
    }
