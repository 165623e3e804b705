"""The mail server: files of mails, as JSON and as mbox with RFC 5322 messages, written and read."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from pydantic import AwareDatetime, Base64Bytes, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agentgym.envs.loca.servers.email.mailboxes import Mailboxes
from agentgym.envs.loca.servers.email.messages import Mail, addresses, format_address, iso_date
from agentgym.envs.loca.servers.email.rfc5322 import parse, render
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, tool

MAX_IMPORTED = 5_000
"""Mails that a file may hold, so that an import takes seconds at most."""


class _File(TypedDict):
    filename: str
    content_base64: Base64Bytes


_Entry = TypedDict(
    "_Entry",
    {
        "folder": str,
        "message_id": str,
        "in_reply_to": str,
        "references": str,
        "date": AwareDatetime,
        "from": str,
        "to": str,
        "cc": str,
        "bcc": str,
        "subject": str,
        "body": str,
        "html_body": str | None,
        "is_read": bool,
        "is_important": bool,
        "attachments": list[_File],
    },
)


class _Export(TypedDict):
    emails: list[_Entry]


_KEYS = {
    "folder": "folder", "message_id": "message_id", "in_reply_to": "in_reply_to", "references": "references", "date": "date",
    "from": "sender", "to": "to", "cc": "cc", "bcc": "bcc", "subject": "subject", "body": "body", "html_body": "html",
    "is_read": "read", "is_important": "important",
}  # fmt: skip
"""The attribute of a mail that each key of an entry stands for."""


class Exports:
    """Export and import of the mails of who is logged in.

    Args:
        mailboxes: The mailboxes that all parts share.
    """

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._mailboxes = mailboxes

    @tool
    def export_emails(
        self,
        folder: str | None = None,
        export_path: str = "emails_export.json",
        max_emails: int | None = None,
        export_all_folders: bool = False,
    ) -> Row:
        """Write the newest emails of a folder (INBOX by default), at most max_emails of each, to a file in the workspace.

        A path that ends with .mbox gives RFC 5322 messages in an mbox file, any other gives JSON.
        """
        boxes, me = self._mailboxes, self._mailboxes.me()["id"]
        if max_emails is not None and max_emails < 1:
            raise ToolError(f"invalid argument: max_emails must be at least 1, got {max_emails}")
        folders = boxes.folders(me) if export_all_folders else [boxes.folder(me, folder or "INBOX")]
        mails: list[Mail] = []
        for name in folders:
            mails += map(boxes.to_mail, boxes.by_id(boxes.ids(name)[:max_emails]))
        write = write_mbox if export_path.lower().endswith(".mbox") else write_export
        path = boxes.context.files.write(export_path, write(mails))
        return {"exported": len(mails), "folders": folders, "path": path}

    @tool
    def import_emails(
        self, import_path: str, target_folder: str | None = None, preserve_folders: bool = True
    ) -> Row:
        """Take emails from a file in the workspace into the mailbox; nothing is sent.

        Args:
            import_path: A file as export_emails writes it, or a message in a file whose name ends with .eml.
            target_folder: Where they come, which is made if need be.
            preserve_folders: Whether, without a target folder, each comes into the folder that it was in; INBOX otherwise.
        """
        boxes, me = self._mailboxes, self._mailboxes.me()
        data = boxes.context.files.read(import_path)
        if import_path.lower().endswith((".mbox", ".eml")):
            sender = format_address(me["name"], me["email"])
            mails = read_mbox(data, Mail(sender, "", "", "", boxes.context.clock.now()))
        else:
            mails = read_export(data)
        folders: dict[str, int] = {}
        with boxes.store.change():
            for mail in reversed(mails):
                folder = target_folder or (preserve_folders and mail.folder) or "INBOX"
                folder = boxes.ensure_folder(me["id"], folder)
                stored = boxes.with_message_id(boxes.check(mail))
                author = boxes.user_id(addresses(stored.sender)[0][1])
                boxes.put(stored, "import", author, [(me["id"], folder)])
                folders[folder] = folders.get(folder, 0) + 1
        return {"imported": len(mails), "folders": folders}


def write_export(mails: Sequence[Mail]) -> str:
    """Return mails as JSON, attachments included."""
    return json.dumps({"emails": [_entry(mail) for mail in mails]}, ensure_ascii=False, indent=1)


def read_export(data: bytes) -> list[Mail]:
    """Return the mails in a file that `write_export` wrote.

    Raises:
        ToolError: It is something else.
    """
    try:
        entries = _adapter().validate_json(data)["emails"]
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"]))[:100] or "the file"
        raise ToolError(
            f"invalid argument: it is no export of emails as JSON: {where}: {problem['msg']}"
        ) from None
    _check_count(len(entries))
    mails = []
    for entry in entries:
        fields: Row = {ours: entry[theirs] for theirs, ours in _KEYS.items()}
        files = {file["filename"]: file["content_base64"] for file in entry["attachments"]}
        mails.append(Mail(**fields, attachments=files))
    return mails


def write_mbox(mails: Sequence[Mail]) -> bytes:
    """Return mails as an mbox file (RFC 4155), in which lines that begin with From are quoted."""
    parts = []
    for mail in mails:
        date = f"{mail.date.astimezone(UTC):%a %b %d %H:%M:%S %Y}"
        head = f"From {addresses(mail.sender)[0][1]} {date}\n"
        message = re.sub(rb"(?m)^(>*From )", rb">\1", render(mail).replace(b"\r\n", b"\n"))
        parts.append(head.encode() + message + b"\n\n")
    return b"".join(parts)


def read_mbox(data: bytes, blank: Mail) -> list[Mail]:
    """Return the mails in an mbox file, or the single one that the data are.

    What one lacks is taken from another mail.
    """
    flat = data.replace(b"\r\n", b"\n")
    if not flat.startswith(b"From "):
        return [parse(flat, blank)]
    parts = re.split(rb"(?:\A|\n\n)From [^\n]*\n", flat.removesuffix(b"\n\n"))[1:]
    _check_count(len(parts))
    return [parse(re.sub(rb"(?m)^>(>*From )", rb"\1", part), blank) for part in parts]


def _check_count(count: int) -> None:
    if count > MAX_IMPORTED:
        raise ToolError(
            f"limit exceeded: a file of emails holds at most {MAX_IMPORTED}, got {count}; import them in parts"
        )


def _entry(mail: Mail) -> Row:
    fields = {theirs: getattr(mail, ours) for theirs, ours in _KEYS.items()}
    files = [
        {"filename": name, "content_base64": base64.b64encode(data).decode()}
        for name, data in mail.attachments.items()
    ]
    return {**fields, "date": iso_date(mail.date), "attachments": files}


@functools.cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(_Export)
