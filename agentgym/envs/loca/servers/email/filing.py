"""The mail server: folders, and moving, deleting and marking mails."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.envs.loca.servers.email.mailboxes import SYSTEM_FOLDERS, Mailboxes
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

_STATUSES = {
    "read": {"is_read": True},
    "unread": {"is_read": False},
    "important": {"is_important": True},
    "not_important": {"is_important": False},
}
"""The columns that each status of `mark_emails` sets."""

_COUNTS = """
SELECT ? AS folder, count(*) AS total, coalesce(sum(NOT is_read), 0) AS unread,
coalesce(sum(is_important), 0) AS important, coalesce(sum(files > 0), 0) AS with_attachments
FROM mails JOIN messages ON messages.id = message WHERE user = ? AND folder = ?
"""
"""The numbers of mails in a folder."""


class Filing:
    """Folders of who is logged in, and where the mails are.

    Args:
        mailboxes: The mailboxes that all parts share.
    """

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._mailboxes = mailboxes

    @tool
    def get_folders(self) -> Row:
        """The folders of the mailbox with how many emails they hold."""
        me = self._mailboxes.me()["id"]
        return {"folders": [self._counts(me, name) for name in self._mailboxes.folders(me)]}

    @tool
    def create_folder(self, folder_name: str) -> Row:
        """Make a folder."""
        me = self._mailboxes.me()["id"]
        if folder_name.casefold() in map(str.casefold, self._mailboxes.folders(me)):
            raise ToolError(f"conflict: there is a folder {echo(folder_name)} already")
        return {"status": "created", "folder": self._mailboxes.ensure_folder(me, folder_name)}

    @tool
    def delete_folder(self, folder_name: str) -> Row:
        """Remove a folder that is empty."""
        me = self._mailboxes.me()["id"]
        name = self._mailboxes.folder(me, folder_name)
        if name in SYSTEM_FOLDERS:
            raise ToolError(f"permission denied: the folder {name} cannot be removed")
        total = self._counts(me, name)["total"]
        if total:
            raise ToolError(
                f"conflict: the folder {echo(name)} holds {total} emails; move or delete them first"
            )
        self._mailboxes.store.delete("folders", user=me, name=name)
        return {"status": "deleted", "folder": name}

    @tool
    def get_mailbox_stats(self, folder_name: str | None = None) -> Row:
        """How many emails a folder (all folders by default) holds: in all, unread, important, with attachments."""
        me = self._mailboxes.me()["id"]
        if folder_name is not None:
            return self._counts(me, self._mailboxes.folder(me, folder_name))
        folders = [self._counts(me, name) for name in self._mailboxes.folders(me)]
        totals = {key: sum(row[key] for row in folders) for key in folders[0] if key != "folder"}
        return {**totals, "folders": folders}

    @tool
    def get_unread_count(self, folder_name: str | None = None) -> Row:
        """How many emails of a folder (of all folders by default) are unread."""
        return {"folder": folder_name, "unread": self.get_mailbox_stats(folder_name)["unread"]}

    @tool
    def mark_emails(self, email_ids: list[str], status: str) -> Row:
        """Mark emails as read, unread, important or not_important."""
        if status not in _STATUSES:
            raise ToolError(
                f"invalid argument: status must be one of {', '.join(_STATUSES)}, got "
                f"{echo(status)}"
            )
        rows = self._rows(email_ids)
        for row in rows:
            self._mailboxes.store.update("mails", row["id"], **_STATUSES[status])
        return {"marked": len(rows), "status": status}

    @tool
    def move_email(self, email_id: str, target_folder: str) -> Row:
        """Move an email to another folder."""
        return {"id": email_id, "folder": self.move_emails([email_id], target_folder)["folder"]}

    @tool
    def move_emails(self, email_ids: list[str], target_folder: str) -> Row:
        """Move emails to another folder, all of them or, on an error, none."""
        folder = self._mailboxes.folder(self._mailboxes.me()["id"], target_folder)
        rows = self._rows(email_ids)
        for row in rows:
            if row["origin"] == "draft" and folder not in ("Drafts", "Trash"):
                raise ToolError(
                    f"conflict: email {row['id']} is a draft; it can be moved to Drafts and Trash "
                    "only"
                )
            if row["origin"] != "draft" and folder == "Drafts":
                raise ToolError(
                    f"conflict: email {row['id']} is no draft, so it cannot be moved to Drafts"
                )
        for row in rows:
            self._mailboxes.store.update("mails", row["id"], folder=folder)
        return {"moved": len(rows), "folder": folder}

    @tool
    def delete_email(self, email_id: str) -> Row:
        """Move an email to the folder Trash; one that is there is removed for good."""
        counts = self.delete_emails([email_id])
        return {"id": email_id, "status": "removed" if counts["removed"] else "moved to Trash"}

    @tool
    def delete_emails(self, email_ids: list[str]) -> Row:
        """Move emails to the folder Trash, all of them or, on an error, none; those that are there are removed for good."""
        rows = self._rows(email_ids)
        with self._mailboxes.store.change():
            for row in rows:
                if row["folder"] == "Trash":
                    self._mailboxes.purge(row)
                else:
                    self._mailboxes.store.update("mails", row["id"], folder="Trash")
        removed = sum(row["folder"] == "Trash" for row in rows)
        return {"moved_to_trash": len(rows) - removed, "removed": removed}

    def _counts(self, user: int, folder: str) -> Row:
        """Return the numbers of mails in a folder."""
        return self._mailboxes.store.rows(_COUNTS, folder, user, folder)[0]

    def _rows(self, email_ids: Sequence[str]) -> list[Row]:
        """Return mails of who is logged in, each once."""
        self._mailboxes.me()
        return [self._mailboxes.mine(email_id) for email_id in dict.fromkeys(email_ids)]
