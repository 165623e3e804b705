"""The mail server: listing, searching and reading mails."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym.envs.loca.servers.email.mailboxes import Mailboxes
from agentgym.envs.loca.servers.email.rfc5322 import content_type, headers_of
from agentgym.envs.loca.servers.server import page_of
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

_DOWNLOADS = "attachments"
"""The directory in the workspace that attachments are downloaded into."""

_MAX_TERMS = 50
"""Words of a query: SQLite compares each with every mail of the folder."""

_TERM = re.compile(r'(?:(from|to|subject|body):\s*)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_FIELDS = {"subject": slice(0, 1), "from": slice(1, 2), "to": slice(2, 4), "body": slice(4, 5)}
"""The lines of a message's words that each field of a query is searched in."""


class Reading:
    """Listings, searches and single mails of who is logged in.

    Args:
        mailboxes: The mailboxes that all parts share.
    """

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._mailboxes = mailboxes

    @tool
    def get_emails(self, folder: str = "INBOX", page: int = 1, page_size: int = 20) -> Row:
        """List the emails of a folder, newest first, at most 100 on a page."""
        me = self._mailboxes.me()["id"]
        name = self._mailboxes.folder(me, folder)
        sql = "SELECT count(*) FROM mails WHERE user = ? AND folder = ?"
        total = self._mailboxes.store.value(sql, me, name)
        places = page_of(range(total), page, page_size)
        ids = self._mailboxes.ids(name, len(places), places[0] if places else 0)
        return {"folder": name, **self._page(ids, total, page, page_size)}

    @tool
    def get_drafts(self, page: int = 1, page_size: int = 20) -> Row:
        """List the drafts, newest first, at most 100 on a page."""
        return self.get_emails("Drafts", page, page_size)

    @tool
    def search_emails(
        self, query: str, folder: str = "INBOX", page: int = 1, page_size: int = 20
    ) -> Row:
        """Search subject, sender, recipients and text of the emails of a folder, newest first, at most 100 on a page.

        An email is found if it contains all words of the query, upper or lower case, also inside of other words. Words in
        quotation marks are one phrase. A word after from:, to:, subject: or body: is searched there only.
        """
        name = self._mailboxes.folder(self._mailboxes.me()["id"], folder)
        ids = self._search(query, name)
        shown = page_of(ids, page, page_size)
        return {"folder": name, **self._page(shown, len(ids), page, page_size)}

    @tool
    def read_email(self, email_id: str) -> Row:
        """Read an email; it counts as read then."""
        row = self._mailboxes.mine(email_id)
        self._mailboxes.store.update("mails", row["id"], is_read=True)
        mail = self._mailboxes.to_mail(row)
        return {
            **_summary({**row, "is_read": True}),
            "cc": mail.cc,
            "bcc": mail.bcc,
            "message_id": mail.message_id,
            "in_reply_to": mail.in_reply_to or None,
            "body": mail.text,
            "html_body": mail.html,
            "attachments": [
                {"filename": name, "content_type": content_type(name), "size": len(data)}
                for name, data in mail.attachments.items()
            ],
        }

    @tool
    def get_email_headers(self, email_id: str) -> Row:
        """The headers of the message that an email is."""
        mail = self._mailboxes.to_mail(self._mailboxes.mine(email_id))
        return {"id": email_id, "headers": headers_of(mail)}

    @tool
    def download_attachment(self, email_id: str, attachment_filename: str) -> Row:
        """Write an attachment to a file in the directory `attachments` of the workspace; no file there is replaced."""
        attachments = self._mailboxes.to_mail(self._mailboxes.mine(email_id)).attachments
        if attachment_filename not in attachments:
            names = ", ".join(attachments) or "none"
            raise ToolError(
                f"not found: email {email_id} has no attachment {echo(attachment_filename)}; "
                f"attachments: {names}"
            )
        data = attachments[attachment_filename]
        path = self._download(attachment_filename, data)
        return {"filename": attachment_filename, "size": len(data), "path": path}

    def _search(self, query: str, folder: str) -> list[int]:
        """Return the ids of the mails in a folder that match a query, newest first."""
        terms = [
            (field.lower(), (phrase or word).casefold())
            for field, phrase, word in _TERM.findall(query)
            if phrase or word
        ]
        if not terms:
            raise ToolError(
                f"invalid argument: query must name at least one word, got {echo(query)}"
            )
        if len(terms) > _MAX_TERMS:
            raise ToolError(
                f"limit exceeded: a query has at most {_MAX_TERMS} words, got {len(terms)}"
            )
        sql = "SELECT mails.id, words FROM mails JOIN messages ON messages.id = message"
        sql += " WHERE user = ? AND folder = ?" + " AND instr(words, ?)" * len(terms)
        rows = self._mailboxes.store.rows(
            f"{sql} ORDER BY at DESC, mails.id DESC",
            self._mailboxes.me()["id"],
            folder,
            *(term for _, term in terms),
        )
        return [row["id"] for row in rows if _fields_contain(row["words"], terms)]

    def _page(self, ids: Sequence[int], total: int, page: int, page_size: int) -> Row:
        """Return a page of a listing."""
        return {
            "total": total,
            "page": page,
            "page_size": page_size,
            "total_pages": -(-total // page_size),
            "emails": [_summary(row) for row in self._mailboxes.by_id(ids)],
        }

    def _download(self, name: str, data: bytes) -> str:
        """Write an attachment under a free name, unless it was written before; the path."""
        files = self._mailboxes.context.files
        stem, dot, suffix = name.rpartition(".")
        path, count = f"{_DOWNLOADS}/{name}", 1
        while files.exists(path):
            if files.is_file(path) and files.read(path) == data:
                return files.resolve(path)
            count += 1
            numbered = f"{stem} ({count}).{suffix}" if dot and stem else f"{name} ({count})"
            path = f"{_DOWNLOADS}/{numbered}"
        return files.write(path, data)


def _fields_contain(words: str, terms: Sequence[tuple[str, str]]) -> bool:
    """Return whether the fields that terms of a query name contain them."""
    # Its first four lines are subject, sender and recipients; the text has as many as it likes.
    lines = words.split("\n", 4)
    return all(
        not field or any(term in line for line in lines[_FIELDS[field]]) for field, term in terms
    )


def _summary(row: Row) -> Row:
    """Return a mail as listings show it."""
    return {
        "id": str(row["id"]),
        "folder": row["folder"],
        "subject": row["subject"],
        "from": row["sender"],
        "to": row["to"],
        "date": row["date"],
        "is_read": row["is_read"],
        "is_important": row["is_important"],
        "has_attachments": row["files"] > 0,
    }
