"""Mail server: export of mails as JSON files."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from agentgym.office.email.mailboxes import EmailPart, Mailboxes, show_mail
from agentgym.office.email.messages import addresses
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, tool


class Exports(EmailPart):
    """Export of the user's mails."""

    @tool
    def export_emails(
        self,
        folder: str | None = None,
        export_path: str = "emails_export.json",
        max_emails: int | None = None,
        export_all_folders: bool = False,
    ) -> str:
        """Export emails to a JSON file in the workspace.

        Args:
            folder: Folder name; all folders if omitted.
            export_path: Path of the file.
            max_emails: Maximum emails of each folder, newest first; all if omitted.
            export_all_folders: Export all folders, ignoring folder.
        """
        boxes, me = self._mailboxes, self._mailboxes.me()["id"]
        if max_emails is not None and max_emails < 1:
            raise ToolError(f"invalid argument: max_emails must be at least 1, got {max_emails}")
        folders = boxes.folders(me)
        if folder is not None and not export_all_folders:
            folders = [boxes.folder(me, folder)]
        rows = [row for name in folders for row in boxes.by_id(boxes.ids(name)[:max_emails])]
        path = boxes.context.files.write(export_path, write_export(boxes, rows))
        return f"Exported {len(rows)} emails to {path}"


def write_export(boxes: Mailboxes, rows: Iterable[Row]) -> str:
    """Return rows of `Mailboxes.rows` as JSON with attachments."""
    return json.dumps([_entry(boxes, row) for row in rows], ensure_ascii=False, indent=2)


def _entry(boxes: Mailboxes, row: Row) -> Row:
    mail = boxes.to_mail(row)
    name, address = addresses(mail.sender)[0]
    return {
        **show_mail(boxes, row),
        "from": address,
        "from_name": name,
        "attachments": [
            {"filename": file, "content_base64": base64.b64encode(data).decode()}
            for file, data in mail.attachments.items()
        ],
        "body": mail.body,
        "html_body": mail.html,
        "message_id": mail.message_id,
        "in_reply_to": mail.in_reply_to,
        "references": mail.references,
    }
