"""Mails in the form in which tool results and exported files show them."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.envs.loca.servers.email.mailboxes import Mailboxes
from agentgym.envs.loca.servers.email.messages import addresses, text_of
from agentgym.envs.loca.servers.email.rfc5322 import content_type
from agentgym.envs.loca.servers.store import Row


def show_mails(boxes: Mailboxes, email_ids: Sequence[int]) -> list[Row]:
    """Return whole mails by their ids, in that order."""
    return [show_mail(boxes, row) for row in boxes.by_id(email_ids)]


def show_mail(boxes: Mailboxes, row: Row) -> Row:
    """Return a row of `Mailboxes.rows` as a mail with its text and the list of its attachments."""
    name, address = addresses(row["sender"])[0]
    is_mine = row["own"] and row["origin"] == "sent"
    return {
        "id": str(row["id"]),
        "from": address,
        **({"from_name": name} if name and not is_mine else {}),
        **_show_text(row),
        "date": row["date"],
        "attachments": _attachments(boxes, row),
        "has_attachments": row["files"] > 0,
        "read": row["is_read"],
        "important": row["is_important"],
        "folder": row["folder"],
    }


def _attachments(boxes: Mailboxes, row: Row) -> list[Row]:
    """Return name, media type and size of each attachment, without its content."""
    sql = "SELECT filename, size FROM attachments WHERE message = ? ORDER BY id"
    files = boxes.store.rows(sql, row["message"]) if row["files"] else []
    return [{**file, "content_type": content_type(file["filename"])} for file in files]


def show_draft(row: Row) -> Row:
    """Return a row of `Mailboxes.rows` as a draft."""
    times = {"created_at": row["created"], "updated_at": row["date"]}
    return {"id": str(row["id"]), **_show_text(row), **times}


def _show_text(row: Row) -> Row:
    """Return recipients, subject and text; the hidden recipients only to who wrote the mail."""
    return {
        "to": row["to"],
        "cc": row["cc"],
        "bcc": row["bcc"] if row["own"] else "",
        "subject": row["subject"],
        "body": text_of(row["body"], row["html"]),
        "html_body": row["html"] or "",
    }
