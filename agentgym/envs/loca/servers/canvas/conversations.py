"""Canvas: conversations, the letters between two users."""

from __future__ import annotations

from agentgym.envs.loca.servers.canvas.fields import MAX_TEXT, line, public_fields
from agentgym.envs.loca.servers.canvas.people import People
from agentgym.envs.loca.servers.canvas.records import Records
from agentgym.envs.loca.servers.canvas.schema import MAX_ID
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

_MEMBERS = """
SELECT u.id, u.name, p.workflow_state FROM participants p JOIN users u ON u.id = p.user_id
WHERE p.conversation_id = ? ORDER BY u.id
"""
"""The two users of a conversation, and whether they have read it."""

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
        """Your conversations, that with the newest message first."""
        me = self._records.me()["id"]
        rows = self._records.store.find("participants", "conversation_id", user_id=me)
        conversations = [self._show_conversation(row["conversation_id"]) for row in rows]
        conversations.sort(key=lambda shown: (shown["last_message_at"], shown["id"]), reverse=True)
        return conversations

    @tool
    def canvas_get_conversation(self, conversation_id: int) -> Row:
        """A conversation of yours with its messages, newest first; it counts as read then."""
        store = self._records.store
        key = {"conversation_id": conversation_id, "user_id": self._records.me()["id"]}
        if not 0 < conversation_id <= MAX_ID or not store.find("participants", "1", **key):
            raise ToolError(f"not found: you have no conversation with id {echo(conversation_id)}")
        with store.change():
            store.delete("participants", **key)
            store.insert("participants", **key, workflow_state="read")
        rows = store.find("messages", "id DESC", conversation_id=conversation_id)
        messages = [public_fields(row, "conversation_id") for row in rows]
        return self._show_conversation(conversation_id) | {"messages": messages}

    @tool
    def canvas_create_conversation(
        self, recipients: list[str], body: str, subject: str = "(No Subject)"
    ) -> list[Row]:
        """Write to users who are in a course with you; each gets a conversation of their own.

        A recipient is the id of a user, such as "7", or "course_3" for all in a course.
        """
        me = self._records.me()["id"]
        line("body", body, MAX_TEXT)
        title = line("subject", subject or "(No Subject)")
        users = [user for user in self._recipients(recipients) if user != me]
        if not users:
            raise ToolError("invalid argument: recipients must name a user other than yourself")
        add, ids = self._records.add, []
        with self._records.store.change():
            now = self._records.tick()
            for user in users:
                new_id = add("conversations", subject=title, created_at=now)
                for member, state in ((me, "read"), (user, "unread")):
                    add(
                        "participants", conversation_id=new_id, user_id=member, workflow_state=state
                    )
                add("messages", conversation_id=new_id, author_id=me, body=body, created_at=now)
                ids.append(new_id)
        return [self._show_conversation(new_id) for new_id in ids]

    def _recipients(self, recipients: list[str]) -> list[int]:
        """Return the ids of the users that recipients mean, each once.

        Raises:
            ToolError: A recipient is none, or somebody to whom the user may not write.
        """
        acquaintances = {user["id"] for user in self._people.canvas_list_users()}
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
        members = store.rows(_MEMBERS, id)
        messages = store.find("messages", conversation_id=id)
        states = {member["id"]: member.pop("workflow_state") for member in members}
        return public_fields(store.get("conversations", id)) | {
            "workflow_state": states[self._records.session["user"]],
            "last_message": messages[-1]["body"],
            "last_message_at": messages[-1]["created_at"],
            "message_count": len(messages),
            "participants": members,
        }
