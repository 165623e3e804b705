"""Canvas: conversations, the letters between users."""

from __future__ import annotations

from agentgym.envs.loca.servers.canvas.fields import MAX_TEXT, line
from agentgym.envs.loca.servers.canvas.people import People
from agentgym.envs.loca.servers.canvas.records import Records
from agentgym.envs.loca.servers.canvas.schema import MAX_ID
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

_MEMBERS = """
SELECT user_id AS id, workflow_state FROM participants
WHERE conversation_id = ? ORDER BY user_id
"""
"""The users of a conversation, and whether they have read it."""

_PAIR = 2
"""Participants of a conversation that is private."""

_MAX_ID_DIGITS = len(str(MAX_ID)) - 1
"""Digits of the ids that a recipient may have: any number of so many digits fits into 64 bits."""


class Conversations:
    """Conversations of the user who is logged in.

    Args:
        records: The records that all parts share.
        people: The part that lists the users to whom one may write.
    """

    def __init__(self, records: Records, people: People) -> None:
        self._records = records
        self._people = people

    @tool
    def canvas_list_conversations(self) -> list[Row]:
        """List your conversations with their messages, newest first."""
        me = self._records.me()["id"]
        rows = self._records.store.find("participants", "conversation_id", user_id=me)
        conversations = [self._show_conversation(row["conversation_id"]) for row in rows]
        conversations.sort(key=lambda shown: (shown["last_message_at"], shown["id"]), reverse=True)
        return conversations

    @tool
    def canvas_get_conversation(self, conversation_id: int) -> Row:
        """Get a conversation; it counts as read then.

        Args:
            conversation_id: Conversation.
        """
        store = self._records.store
        key = {"conversation_id": conversation_id, "user_id": self._records.me()["id"]}
        if not 0 < conversation_id <= MAX_ID or not store.find("participants", "1", **key):
            raise ToolError(f"not found: you have no conversation with id {echo(conversation_id)}")
        with store.change():
            store.delete("participants", **key)
            store.insert("participants", **key, workflow_state="read")
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
        users = [user for user in self._recipients(recipients) if user != me]
        if not users:
            raise ToolError("invalid argument: recipients must name a user other than yourself")
        add = self._records.add
        with self._records.store.change():
            now = self._records.tick()
            new_id = add("conversations", subject=title, created_at=now)
            for member in (me, *users):
                state = "read" if member == me else "unread"
                add("participants", conversation_id=new_id, user_id=member, workflow_state=state)
            add("messages", conversation_id=new_id, author_id=me, body=body, created_at=now)
        return self._show_conversation(new_id)

    def _recipients(self, recipients: list[str]) -> list[int]:
        """Return the ids of the users that recipients mean, each once.

        Raises:
            ToolError: A recipient is none, or somebody to whom the user may not write.
        """
        acquaintances = {user["id"] for user, _ in self._people.acquaintances()}
        users: dict[int, None] = {}
        for recipient in recipients:
            digits = recipient.removeprefix("course_")
            if not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_ID_DIGITS:
                raise ToolError(
                    'invalid argument: a recipient is like "7" or "course_3", got '
                    f"{echo(recipient)}"
                )
            if digits == recipient:
                users[int(digits)] = None
                continue
            self._records.course(int(digits))
            members = self._records.store.find(
                "enrollments", course_id=int(digits), enrollment_state="active"
            )
            users |= {row["user_id"]: None for row in members}
        for user in users:
            if user not in acquaintances:
                raise ToolError(f"permission denied: you are in no course with user {user}")
        return list(users)

    def _show_conversation(self, id: int) -> Row:
        store = self._records.store
        states = {row["id"]: row["workflow_state"] for row in store.rows(_MEMBERS, id)}
        messages = store.find("messages", "id DESC", conversation_id=id)
        for message in messages:
            del message["conversation_id"]
        return {
            "id": id,
            "subject": store.get("conversations", id)["subject"],
            "workflow_state": states[self._records.session["user"]],
            "private": len(states) == _PAIR,
            "last_message": messages[0]["body"],
            "last_message_at": messages[0]["created_at"],
            "message_count": len(messages),
            "participants": [{"id": user} for user in states],
            "messages": messages,
        }
