"""Mail server: managing folders, and moving, deleting and marking emails."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym.office.email.mailboxes import EmailPart
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

_STATUSES = {
    "read": {"is_read": True},
    "unread": {"is_read": False},
    "important": {"is_important": True},
    "not_important": {"is_important": False},
}

_FOLDER_NAME = r"[^\x00-\x1f\x7f]{1,100}"

_COUNTS = """
SELECT count(*) AS total, coalesce(sum(NOT is_read), 0) AS unread FROM mails
WHERE user = ? AND folder = ?
"""


class Filing(EmailPart):
    """Tools that manage folders, and move, delete and mark emails."""

    @tool
    def get_folders(self) -> str:
        """List the folders with the number of emails in each."""
        me = self.my_id()
        lines = ["Folders of the mailbox:"]
        for k, name in enumerate(self.folders(me), 1):
            [counts] = self.store.rows(_COUNTS, me, name)
            lines.append(f"{k}. {name} ({counts['total']} total, {counts['unread']} unread)")
        return "\n".join([*lines, ""])

    @tool
    def create_folder(self, folder_name: str) -> str:
        """Create a folder.

        Args:
            folder_name: Name of the new folder.
        """
        me = self.my_id()
        if folder_name.casefold() in map(str.casefold, self.folders(me)):
            raise ToolError(f"conflict: folder {echo(folder_name)} already exists")
        if not re.fullmatch(_FOLDER_NAME, folder_name) or folder_name != folder_name.strip():
            raise ToolError(
                "invalid argument: a folder name must be one line of 1 to 100 characters, got "
                f"{echo(folder_name)}"
            )
        self.store.insert("folders", user=me, name=folder_name)
        return f'Folder "{folder_name}" created'

    @tool
    def mark_emails(self, email_ids: list[str], status: str) -> Row:
        """Mark emails; on an error, none is marked.

        Args:
            email_ids: Email IDs.
            status: read, unread, important or not_important.
        """
        if status not in _STATUSES:
            raise ToolError(
                f"invalid argument: status must be one of {', '.join(_STATUSES)}, got "
                f"{echo(status)}"
            )
        return self._updated("updated_emails", self._rows(email_ids), _STATUSES[status])

    @tool
    def move_email(self, email_id: str, target_folder: str) -> Row:
        """Move an email to another folder.

        Args:
            email_id: Email ID.
            target_folder: Name of the target folder.
        """
        moved: Row = self.move_emails([email_id], target_folder)["moved_emails"][0]
        return moved

    @tool
    def move_emails(self, email_ids: list[str], target_folder: str) -> Row:
        """Move emails to another folder; on an error, none is moved.

        Args:
            email_ids: Email IDs.
            target_folder: Name of the target folder.
        """
        folder = self.folder(self.my_id(), target_folder)
        rows = self._rows(email_ids)
        for row in rows:
            if row["origin"] == "draft" and folder not in ("Drafts", "Trash"):
                raise ToolError(
                    f"conflict: email {row['id']} is a draft; it can be moved to Drafts and Trash "
                    "only"
                )
            if row["origin"] != "draft" and folder == "Drafts":
                raise ToolError(
                    f"conflict: email {row['id']} is not a draft and cannot be moved to Drafts"
                )
        return self._updated("moved_emails", rows, {"folder": folder})

    @tool
    def delete_email(self, email_id: str) -> str:
        """Move an email to Trash; an email in Trash is deleted permanently.

        Args:
            email_id: Email ID.
        """
        removed = self._delete([email_id])
        how = "permanently" if removed else "(moved to Trash)"
        return f"Email {email_id} deleted {how}"

    @tool
    def delete_emails(self, email_ids: list[str]) -> str:
        """Move emails to Trash; emails in Trash are deleted permanently. On an error, none is moved.

        Args:
            email_ids: Email IDs.
        """
        removed = self._delete(email_ids)
        text = f"Deleted {len(set(email_ids))} emails"
        if removed:
            return f"{text} ({removed} of them permanently)"
        return f"{text} (moved to Trash)"

    def _delete(self, email_ids: Sequence[str]) -> int:
        rows = self._rows(email_ids)
        for row in rows:
            if row["folder"] == "Trash":
                self.purge(row)
            else:
                self.store.update("mails", row["id"], folder="Trash")
        return sum(row["folder"] == "Trash" for row in rows)

    def _updated(self, key: str, rows: Sequence[Row], changes: Row) -> Row:
        updated = []
        for row in rows:
            self.store.update("mails", row["id"], **changes)
            updated.append(self.show_mail({**row, **changes}))
        return {key: updated, "count": len(rows)}

    def _rows(self, email_ids: Sequence[str]) -> list[Row]:
        self.me()
        return [self.mine(email_id) for email_id in dict.fromkeys(email_ids)]
