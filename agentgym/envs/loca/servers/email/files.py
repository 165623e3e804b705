"""Files that mails are exported to: JSON, and mbox with RFC 5322 messages."""

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

from agentgym.envs.loca.servers.email.messages import Mail, addresses, moment, parse, render
from agentgym.tools import ToolError

MAX_IMPORTED = 5_000
"""Mails that a file may hold."""


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
"""What each key of an entry is called in a mail."""


def write_export(mails: Sequence[Mail]) -> str:
    """Mails as JSON, attachments included."""
    return json.dumps({"emails": [_entry(mail) for mail in mails]}, ensure_ascii=False, indent=1)


def read_export(data: bytes) -> list[Mail]:
    """The mails in what `write_export` made.

    Raises:
        ToolError: It is something else.
    """
    try:
        entries = _adapter().validate_json(data)["emails"]
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"]))[:100] or "the file"
        raise ToolError(f"invalid argument: it is no export of emails as JSON: {where}: {problem['msg']}") from None
    _check_count(len(entries))
    mails = []
    for entry in entries:
        held: dict[str, Any] = {ours: entry[theirs] for theirs, ours in _KEYS.items()}
        mails.append(Mail(**held, attachments={file["filename"]: file["content_base64"] for file in entry["attachments"]}))
    return mails


def write_mbox(mails: Sequence[Mail]) -> bytes:
    """Mails as an mbox file (RFC 4155), in which lines that begin with From are quoted."""
    parts = []
    for mail in mails:
        head = f"From {addresses(mail.sender)[0][1]} {mail.date.astimezone(UTC):%a %b %d %H:%M:%S %Y}\n"
        message = re.sub(rb"(?m)^(>*From )", rb">\1", render(mail).replace(b"\r\n", b"\n"))
        parts.append(head.encode() + message + b"\n\n")
    return b"".join(parts)


def read_mbox(data: bytes, blank: Mail) -> list[Mail]:
    """The mails in an mbox file, or the one that the data are; what one lacks is taken from another mail."""
    flat = data.replace(b"\r\n", b"\n")
    if not flat.startswith(b"From "):
        return [parse(flat, blank)]
    parts = re.split(rb"(?:\A|\n\n)From [^\n]*\n", flat.removesuffix(b"\n\n"))[1:]
    _check_count(len(parts))
    return [parse(re.sub(rb"(?m)^>(>*From )", rb"\1", part), blank) for part in parts]


def _check_count(count: int) -> None:
    if count > MAX_IMPORTED:
        raise ToolError(f"limit exceeded: a file of emails holds at most {MAX_IMPORTED}, got {count}; import them in parts")


def _entry(mail: Mail) -> dict[str, Any]:
    held = {theirs: getattr(mail, ours) for theirs, ours in _KEYS.items()}
    files = [{"filename": name, "content_base64": base64.b64encode(data).decode()} for name, data in mail.attachments.items()]
    return {**held, "date": moment(mail.date), "attachments": files}


@functools.cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(_Export)
