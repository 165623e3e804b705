"""Mailboxes and email formatting for all parts of the mail server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from agentgym.office.email.messages import Mail, addresses, normalize, text_of
from agentgym.office.files.media_types import BYTES, media_type
from agentgym.office.server_state import ServerState
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo

SYSTEM_FOLDERS = ("INBOX", "Sent", "Drafts", "Trash")  # in listing order

MAX_RECIPIENTS = 500  # as in Gmail

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

# Only the author sees bcc.
_MAILS = """
SELECT mails.id, folder, is_read, is_important, own, message, author, origin, message_id, created,
  date, sender, "to", cc, CASE WHEN own THEN bcc ELSE '' END AS bcc, subject, files,
  body, html
FROM mails JOIN messages ON messages.id = message
"""

# `Mail` attributes with a column of the same name.
_SAME = ("sender", "to", "cc", "bcc", "subject", "body", "html", "message_id")


class EmailPart(ServerState):
    """Base class for parts of the server: users, folders and emails.

    Mailboxes share one copy of each message.
    """

    def me(self) -> Row:
        """Return the logged-in user."""
        if "user" not in self.session:
            raise ToolError("not logged in: call login with your e-mail address and password first")
        return self.store.get("users", self.session["user"])

    def my_id(self) -> int:
        """Return the id of the logged-in user."""
        return int(self.me()["id"])

    def user_id(self, email: str) -> int | None:
        """Return the id of the user with a given address, or None."""
        user_id: int | None = self.store.value("SELECT id FROM users WHERE email = ?", email)
        return user_id

    def existing_user_id(self, email: str) -> int:
        """Return the id of the user with a given address, or raise `ToolError`."""
        user_id = self.user_id(email)
        if user_id is None:
            raise ToolError(f"not found: there is no user {echo(email)}")
        return user_id

    def folders(self, user: int) -> list[str]:
        """Return a user's folder names, system folders first."""
        names = [row["name"] for row in self.store.find("folders", order="name", user=user)]
        return list(dict.fromkeys((*SYSTEM_FOLDERS, *names)))

    def folder(self, user: int, name: str) -> str:
        """Return a folder's name in its original case."""
        stored: str | None = self.store.value(
            "SELECT name FROM folders WHERE user = ? AND name = ?", user, name
        )
        if stored is None:
            raise ToolError(
                f"not found: there is no folder {echo(name)}; folders: {echo(self.folders(user))}"
            )
        return stored

    def places(self, mail: Mail, author: int | None) -> list[tuple[int, str]]:
        """Return the (user, folder) pairs that receive an email."""
        places = [] if author is None else [(author, "Sent")]
        recipients = mail.recipients
        if len(recipients) > MAX_RECIPIENTS:
            raise ToolError(
                f"limit exceeded: an email may have at most {MAX_RECIPIENTS} recipients, got "
                f"{len(recipients)}"
            )
        for address in recipients:
            user = self.user_id(address)
            if user is not None:
                places.append((user, "INBOX"))
        return places

    def unknown_recipients(self, mail: Mail) -> list[str]:
        """Return the recipients that have a local address but no mailbox."""
        sql = """SELECT 1 FROM users
            WHERE substr(email, instr(email, '@') + 1) = ? COLLATE NOCASE"""
        unknown = []
        for address in mail.recipients:
            domain = address.partition("@")[2]
            if self.user_id(address) is None and self.store.value(sql, domain):
                unknown.append(address)
        return unknown

    def check(self, mail: Mail) -> Mail:
        """Normalize an email for storage, and add a Message-ID."""
        mail = normalize(mail)
        domain = addresses(mail.sender)[0][1].partition("@")[2]
        return replace(mail, message_id=f"<{self.context.new_id('mail', 24)}@{domain}>")

    def put(
        self, mail: Mail, origin: str, author: int | None, places: Sequence[tuple[int, str]]
    ) -> list[int]:
        """Store a checked email once, add it to each folder, and return the new ids."""
        date = mail.date.isoformat().replace("+00:00", "Z")
        searched = (mail.subject, mail.sender, mail.to, mail.cc, mail.text)
        message = self.store.insert(
            "messages",
            author=author,
            origin=origin,
            created=date,
            date=date,
            files=len(mail.attachments),
            words="\n".join(searched).casefold(),
            **{name: getattr(mail, name) for name in _SAME},
        )
        for filename, data in mail.attachments.items():
            file = {"filename": filename, "size": len(data), "data": data}
            self.store.insert("attachments", message=message, **file)
        ids = []
        for user, folder in places:
            mail_id = self.store.insert(
                "mails",
                user=user,
                folder=folder,
                message=message,
                at=int(mail.date.timestamp()),
                is_read=mail.read or folder in ("Sent", "Drafts"),
                is_important=mail.important,
                own=origin == "draft" or (user == author and folder != "INBOX"),
            )
            ids.append(mail_id)
        return ids

    def rows(self, condition: str, *values: Any) -> list[Row]:
        """Return the emails selected by the SQL clauses in `condition`."""
        return self.store.rows(f"{_MAILS} {condition}", *values)

    def by_id(self, ids: Sequence[int]) -> list[Row]:
        """Return emails with their messages, in the order of `ids`."""
        marks = ", ".join("?" * len(ids))
        rows = self.rows(f"WHERE mails.id IN ({marks})", *ids)
        by_id = {row["id"]: row for row in rows}
        return [by_id[email_id] for email_id in ids]

    def mine(self, email_id: str) -> Row:
        """Return an email of the logged-in user."""
        me = self.my_id()
        number = int(email_id) if re.fullmatch("[1-9][0-9]{0,17}", email_id) else 0
        rows = self.rows("WHERE mails.id = ? AND user = ?", number, me)
        if not rows:
            raise ToolError(
                f"not found: there is no email with id {echo(email_id)} in your mailbox"
            )
        return rows[0]

    def to_mail(self, row: Row) -> Mail:
        """Convert a row to an email."""
        files = self.store.find("attachments", message=row["message"]) if row["files"] else []
        return Mail(
            **{name: row[name] for name in (*_SAME, "folder", "origin")},
            date=datetime.fromisoformat(row["date"]),
            attachments={file["filename"]: file["data"] for file in files},
            read=bool(row["is_read"]),
            important=bool(row["is_important"]),
            id=str(row["id"]),
        )

    def purge(self, row: Row) -> None:
        """Delete an email permanently; `Email.sent` still returns emails sent with tools."""
        self.store.delete("mails", id=row["id"])
        if row["origin"] != "sent" and not self.store.find("mails", message=row["message"]):
            self.store.delete("messages", id=row["message"])

    def show_mails(self, email_ids: Sequence[int]) -> list[Row]:
        """Return emails by id, in the given order."""
        return list(map(self.show_mail, self.by_id(email_ids)))

    def show_mail(self, row: Row) -> Row:
        """Return an email with its full text as a tool result."""
        name, address = addresses(row["sender"])[0]
        is_mine = row["own"] and row["origin"] == "sent"
        given = {}
        if name and not is_mine:  # as published
            given["from_name"] = name
        return {
            "id": str(row["id"]),
            "from": address,
            **given,
            **_show_text(row),
            "date": row["date"],
            "attachments": self._attachments(row),
            "has_attachments": row["files"] > 0,
            "read": row["is_read"],
            "important": row["is_important"],
            "folder": row["folder"],
        }

    def _attachments(self, row: Row) -> list[Row]:
        if not row["files"]:
            return []
        sql = "SELECT filename, size FROM attachments WHERE message = ? ORDER BY id"
        files = self.store.rows(sql, row["message"])
        return [{**file, "content_type": content_type(file["filename"])} for file in files]


def content_type(name: str) -> str:
    """Return a file's media type; multi-part types become `application/octet-stream`."""
    kind = media_type(name)
    if kind.startswith(("message/", "multipart/")):
        return BYTES
    return kind


def show_draft(row: Row) -> Row:
    """Return a draft as a tool result."""
    return {
        "id": str(row["id"]),
        **_show_text(row),
        "created_at": row["created"],
        "updated_at": row["date"],
    }


def _show_text(row: Row) -> Row:
    return {
        "to": row["to"],
        "cc": row["cc"],
        "bcc": row["bcc"],
        "subject": row["subject"],
        "body": text_of(row["body"], row["html"]),
        "html_body": row["html"] or "",
    }
