"""Canvas: announcements, discussion topics and conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.office.canvas.fields import MAX_TEXT, When, line, moment, prose
from agentgym.office.canvas.records import SITE, CanvasPart, fields_of
from agentgym.office.canvas.schema import MAX_ID, TEACHER
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

# Entries with their authors' names.
_ENTRIES = """
SELECT e.id, e.user_id, u.name AS user_name, e.message, e.created_at FROM entries e
JOIN users u ON u.id = e.user_id WHERE e.topic_id = ? ORDER BY e.id
"""

# Users' names by a JSON list of ids.
_NAMES = "SELECT id, name FROM users WHERE id IN (SELECT value FROM json_each(?))"

# A conversation's users with their read state.
_MEMBERS = """
SELECT user_id, workflow_state FROM participants
WHERE conversation_id = ? ORDER BY user_id
"""

_PAIR = 2  # participants in a private conversation

_MAX_ID_DIGITS = len(str(MAX_ID)) - 1  # numbers with this many digits fit into 64 bits


class Discussions(CanvasPart):
    """Announcements and topics, which Canvas stores in one table."""

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
        """Add an announcement, visible to students from `posted_at`."""
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
        """Add a topic, by default by the first teacher, and return its id."""
        if author is None:
            sql = "SELECT user_id FROM enrollments WHERE course_id = ? AND type = ? ORDER BY id"
            author = self._store.value(sql, course_id, TEACHER)
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
        [shown] = self._show([self._topic(course_id, topic_id)])
        return shown | {"entries": self._store.rows(_ENTRIES, topic_id)}

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
        entry = self._store.get("entries", entry_id)
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
            return self._show(rows)
        return self._show(posted)

    def _topic(self, course_id: int, topic_id: int) -> Row:
        row = self._records.of_course("topics", course_id, topic_id)
        if row["posted_at"] > self._records.now() and not self._records.may(course_id, "edit"):
            raise ToolError(f"not found: there is no topic with id {topic_id}")
        return row

    def _show(self, topics: Sequence[Row]) -> list[Row]:
        names = dict(self._store.tuples(_NAMES, [topic["user_id"] for topic in topics]))
        return [_show_topic(topic, names.get(topic["user_id"], "")) for topic in topics]


class Conversations(CanvasPart):
    """The user's conversations."""

    @tool
    def canvas_list_conversations(self) -> list[Row]:
        """List your conversations with their messages, newest first."""
        rows = self._store.find("participants", "conversation_id", user_id=self._records.me()["id"])
        conversations = [self._show_conversation(row["conversation_id"]) for row in rows]
        conversations.sort(key=lambda shown: (shown["last_message_at"], shown["id"]), reverse=True)
        return conversations

    @tool
    def canvas_get_conversation(self, conversation_id: int) -> Row:
        """Get a conversation and mark it as read.

        Args:
            conversation_id: Conversation.
        """
        key = {"conversation_id": conversation_id, "user_id": self._records.me()["id"]}
        if not 0 < conversation_id <= MAX_ID or not self._store.find("participants", "1", **key):
            raise ToolError(f"not found: you have no conversation with id {echo(conversation_id)}")
        # The table has no id to update by.
        self._store.delete("participants", **key)
        self._store.insert("participants", **key, workflow_state="read")
        return self._show_conversation(conversation_id)

    @tool
    def canvas_create_conversation(
        self, recipients: list[str], body: str, subject: str = "(No Subject)"
    ) -> Row:
        """Write to users in courses with you.

        Args:
            recipients: User ids, such as "7", or "course_3" for all in a course.
            body: Text.
            subject: Subject.
        """
        me = self._records.me()["id"]
        line("body", body, MAX_TEXT)
        title = line("subject", subject or "(No Subject)")
        # `course_…` includes the sender.
        users = [user for user in self._recipients(recipients) if user != me]
        if not users:
            raise ToolError("invalid argument: recipients must name a user other than yourself")
        add, now = self._records.add, self._records.tick()
        new_id = add("conversations", subject=title, created_at=now)
        for member in (me, *users):
            state = "read" if member == me else "unread"
            add("participants", conversation_id=new_id, user_id=member, workflow_state=state)
        add("messages", conversation_id=new_id, author_id=me, body=body, created_at=now)
        return self._show_conversation(new_id)

    def _recipients(self, recipients: list[str]) -> list[int]:
        """Resolve recipients to distinct user ids; each must share a course with the user."""
        acquaintances = {user["id"] for user, _ in self._records.acquaintances()}
        users: list[int] = []
        for recipient in recipients:
            digits = recipient.removeprefix("course_")
            if not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_ID_DIGITS:
                raise ToolError(
                    'invalid argument: a recipient must look like "7" or "course_3", got '
                    f"{echo(recipient)}"
                )
            if digits == recipient:
                users.append(int(digits))
            else:
                members = self._records.list_of_course(
                    "enrollments", int(digits), enrollment_state="active"
                )
                users += [row["user_id"] for row in members]
        for user in users:
            if user not in acquaintances:
                raise ToolError(f"permission denied: you share no course with user {user}")
        return list(dict.fromkeys(users))

    def _show_conversation(self, id: int) -> Row:
        states = dict(self._store.tuples(_MEMBERS, id))
        messages = self._store.find("messages", "id DESC", conversation_id=id)
        return {
            "id": id,
            "subject": self._store.get("conversations", id)["subject"],
            "workflow_state": states[self._records.session["user"]],
            "private": len(states) == _PAIR,
            "last_message": messages[0]["body"],
            "last_message_at": messages[0]["created_at"],
            "message_count": len(messages),
            "participants": [{"id": user} for user in states],
            "messages": [fields_of(message, "conversation_id") for message in messages],
        }


def _show_topic(row: Row, author: str) -> Row:
    url = f"{SITE}/courses/{row['course_id']}/discussion_topics/{row['id']}"
    hidden = ["user_id", "is_announcement"]
    if row["is_announcement"]:
        hidden.append("locked")
    return {
        **fields_of(row, *hidden),
        "author": {"id": row["user_id"], "display_name": author},
        "url": url,
        "html_url": url,
    }
