"""Mail server: export and import of mails as JSON files."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterable
from typing import Any, NotRequired

from pydantic import AwareDatetime, Base64Bytes, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agentgym.office.email.mailboxes import EmailPart, Mailboxes, show_mail
from agentgym.office.email.messages import Mail, addresses, format_address
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, tool

MAX_IMPORTED = 5_000  # keeps an import within seconds


class _File(TypedDict):
    filename: str
    content_base64: Base64Bytes


# The tools' form of a mail plus attachment contents and thread headers.
_Entry = TypedDict(
    "_Entry",
    {
        "from": str,
        "from_name": NotRequired[str],
        "to": str,
        "cc": NotRequired[str | None],
        "bcc": NotRequired[str | None],
        "subject": str,
        "body": str,
        "html_body": NotRequired[str | None],
        "date": AwareDatetime,
        "attachments": NotRequired[list[_File]],
        "read": NotRequired[bool],
        "important": NotRequired[bool],
        "folder": NotRequired[str],
        "message_id": NotRequired[str],
        "in_reply_to": NotRequired[str],
        "references": NotRequired[str],
    },
)

# Keys for mail attributes with a default.
_OPTIONAL = ("cc", "bcc", "read", "important", "folder", "message_id", "in_reply_to", "references")


class Exports(EmailPart):
    """Export and import of the user's mails."""

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

    @tool
    def import_emails(
        self, import_path: str, target_folder: str | None = None, preserve_folders: bool = True
    ) -> str:
        """Import emails from a file in the workspace; nothing is sent.

        Args:
            import_path: File written by export_emails.
            target_folder: Folder they go to, created if missing.
            preserve_folders: Without a target folder, keep the folder of each email; otherwise INBOX.
        """
        boxes, me = self._mailboxes, self._mailboxes.me()
        mails = read_export(boxes.context.files.read(import_path))
        for mail in reversed(mails):
            folder = boxes.ensure_folder(
                me["id"], target_folder or (preserve_folders and mail.folder) or "INBOX"
            )
            stored = boxes.check(mail)
            author = boxes.user_id(addresses(stored.sender)[0][1])
            boxes.put(stored, "import", author, [(me["id"], folder)])
        return f"Imported {len(mails)} emails from {import_path}"


def write_export(boxes: Mailboxes, rows: Iterable[Row]) -> str:
    """Return rows of `Mailboxes.rows` as JSON with attachments."""
    return json.dumps([_entry(boxes, row) for row in rows], ensure_ascii=False, indent=2)


def read_export(data: bytes) -> list[Mail]:
    """Read mails that `write_export` wrote; raise `ToolError` for another format."""
    try:
        entries = _adapter().validate_json(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"]))[:100] or "the file"
        raise ToolError(
            f"invalid argument: the file is not a JSON export of emails: {where}: {problem['msg']}"
        ) from None
    if len(entries) > MAX_IMPORTED:
        raise ToolError(
            f"limit exceeded: a file of emails contains at most {MAX_IMPORTED}, got {len(entries)}; "
            "import them in parts"
        )
    return [_to_mail(entry) for entry in entries]


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


def _to_mail(entry: Row) -> Mail:
    options = {key: entry[key] for key in _OPTIONAL if entry.get(key) is not None}
    files = {file["filename"]: file["content_base64"] for file in entry.get("attachments", ())}
    sender = format_address(entry.get("from_name", ""), entry["from"])
    return Mail(
        sender,
        entry["to"],
        entry["subject"],
        entry["body"],
        entry["date"],
        entry.get("html_body"),
        attachments=files,
        **options,
    )


@functools.cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(list[_Entry])
