"""Canvas: announcements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.office.canvas.records import SITE, CanvasPart, When, fields_of, moment
from agentgym.office.canvas.schema import TEACHER
from agentgym.office.store import Row
from agentgym.text.tools import tool

# Users' names by a JSON list of ids.
_NAMES = "SELECT id, name FROM users WHERE id IN (SELECT value FROM json_each(?))"


class Announcements(CanvasPart):
    """Announcements, which Canvas stores as discussion topics."""

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
        """Add an announcement, by default by the first teacher, visible to students from
        `posted_at`, and return its id.
        """
        if author is None:
            sql = "SELECT user_id FROM enrollments WHERE course_id = ? AND type = ? ORDER BY id"
            author = self._store.value(sql, course_id, TEACHER)
        return self._records.add(
            "topics",
            course_id=course_id,
            title=title,
            message=message,
            user_id=author,
            posted_at=moment(posted_at) or self._records.now(),
            extra=extra,
        )

    @tool
    def canvas_list_announcements(self, course_id: int) -> list[Row]:
        """List the announcements of a course, newest first.

        Args:
            course_id: Course.
        """
        rows = self._records.list_of_course("topics", course_id, "posted_at DESC, id DESC")
        now = self._records.now()
        posted = [row for row in rows if row["posted_at"] <= now]
        if len(posted) < len(rows) and self._records.teaches(course_id):
            return self._show(rows)
        return self._show(posted)

    def _show(self, topics: Sequence[Row]) -> list[Row]:
        names = dict(self._store.tuples(_NAMES, [topic["user_id"] for topic in topics]))
        return [_show_topic(topic, names.get(topic["user_id"], "")) for topic in topics]


def _show_topic(row: Row, author: str) -> Row:
    url = f"{SITE}/courses/{row['course_id']}/discussion_topics/{row['id']}"
    return {
        **fields_of(row, "user_id"),
        "author": {"id": row["user_id"], "display_name": author},
        "url": url,
        "html_url": url,
    }
