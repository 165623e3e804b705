"""What the tools of the mail server share: listings, searches and what is done to several mails at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentgym.envs.loca.servers.email.boxes import Mailboxes
from agentgym.envs.loca.servers.email.messages import Mail, file_name, moment, spell
from agentgym.envs.loca.servers.server import page_of
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo

DOWNLOADS = "attachments"
"""The directory in the workspace that attachments are downloaded into."""

_MAX_TERMS = 50
_FIELDS = {"subject": slice(0, 1), "from": slice(1, 2), "to": slice(2, 4), "body": slice(4, 5)}
_TERM = re.compile(r'(?:(from|to|subject|body):\s*)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)


class MailActions(Mailboxes):
    """Actions of who is logged in."""

    def _ids(self, folder: str, limit: int = -1, skipped: int = 0) -> list[int]:
        """The mails of a folder, newest first."""
        sql = "SELECT id FROM mails WHERE user = ? AND folder = ? ORDER BY at DESC, id DESC LIMIT ? OFFSET ?"
        return [row["id"] for row in self.store.rows(sql, self._me()["id"], folder, limit, skipped)]

    def _search(self, query: str, folder: str) -> list[int]:
        """The mails of a folder that all terms of a query are in, newest first."""
        terms = [(name.lower(), (phrase or word).casefold()) for name, phrase, word in _TERM.findall(query) if phrase or word]
        if not terms:
            raise ToolError(f"invalid argument: query must name at least one word, got {echo(query)}")
        if len(terms) > _MAX_TERMS:
            raise ToolError(f"limit exceeded: a query has at most {_MAX_TERMS} words, got {len(terms)}")
        sql = "SELECT mails.id, words FROM mails JOIN messages ON messages.id = message WHERE user = ? AND folder = ?"
        sql += " AND instr(words, ?)" * len(terms) + " ORDER BY at DESC, mails.id DESC"
        rows = self.store.rows(sql, self._me()["id"], folder, *(term for _, term in terms))
        # The first four lines of the words are subject, sender and recipients.
        parts = [(row["id"], row["words"].split("\n", 4)) for row in rows]
        return [
            found
            for found, part in parts
            if all(not name or any(term in text for text in part[_FIELDS[name]]) for name, term in terms)
        ]

    def _listing(self, name: str, page: int, page_size: int) -> Row:
        """A page of a folder."""
        folder = self._folder(self._me()["id"], name)
        total = self.store.value("SELECT count(*) FROM mails WHERE user = ? AND folder = ?", self._me()["id"], folder)
        places = page_of(range(total), page, page_size)
        ids = self._ids(folder, len(places), places[0] if places else 0)
        return {"folder": folder, **self._page(ids, total, page, page_size)}

    def _page(self, ids: Sequence[int], total: int, page: int, page_size: int) -> Row:
        """A page of a listing, as the tools give it."""
        shown = [summary(row) for row in self._rows(ids)]
        return {"total": total, "page": page, "page_size": page_size, "total_pages": -(-total // page_size), "emails": shown}

    def _counts(self, folder: str) -> Row:
        """How many mails a folder holds."""
        sql = """SELECT ? AS folder, count(*) AS total, coalesce(sum(NOT is_read), 0) AS unread,
            coalesce(sum(is_important), 0) AS important, coalesce(sum(files > 0), 0) AS with_attachments
            FROM mails JOIN messages ON messages.id = message WHERE user = ? AND folder = ?"""
        return self.store.rows(sql, folder, self._me()["id"], folder)[0]

    def _written(self, to: str | None, subject: str, body: str, html: str | None, cc: str | None, bcc: str | None) -> Mail:
        """A mail by who is logged in, of now."""
        me = self._me()
        return Mail(
            spell(me["name"], me["email"]), to or "", subject, body, self.context.clock.now(), html or None, cc or "", bcc or ""
        )

    def _send(self, mail: Mail) -> Row:
        """Send a mail: a copy into Sent and one into the INBOX of each recipient here, or an error and nothing."""
        sound, me = self._sound(mail), self._me()["id"]
        boxes = self._boxes(sound, me)
        if not (sound.to or sound.cc or sound.bcc):
            raise ToolError("invalid argument: to must name at least one e-mail address")
        dated = self._identified(replace(sound, date=self.context.clock.tick()))
        with self.store.change():
            ids = self._put(dated, "sent", me, boxes)
        return {"id": str(ids[0]), "status": "sent", "message_id": dated.message_id, "date": moment(dated.date)}

    def _attached(self, paths: Sequence[str]) -> dict[str, bytes]:
        """The files of the workspace at some paths, by the names that they have as attachments."""
        files: dict[str, bytes] = {}
        for path in paths:
            if not self.context.files.is_file(path):
                raise ToolError(f"not found: there is no file {echo(path)} in the workspace")
            name = file_name(path)
            if name in files:
                raise ToolError(f"invalid argument: two attachments are called {echo(name)}")
            files[name] = self.context.files.read(path)
        return files

    def _original(self, email_id: str) -> Mail:
        """A mail that is answered or sent on."""
        row = self._mine(email_id)
        if row["origin"] == "draft":
            raise ToolError(f"conflict: email {email_id} is a draft, which is not sent yet")
        return self._record(row)

    def _chosen(self, email_ids: Sequence[str]) -> list[Row]:
        """Some mails, each once."""
        self._me()
        return [self._mine(email_id) for email_id in dict.fromkeys(email_ids)]

    def _delete(self, email_ids: Sequence[str]) -> list[str]:
        """Move mails to Trash, or remove those that are there; what was done with each."""
        done = []
        with self.store.change():
            for row in self._chosen(email_ids):
                if row["folder"] == "Trash":
                    self._purge(row)
                else:
                    self.store.update("mails", row["id"], folder="Trash")
                done.append("removed" if row["folder"] == "Trash" else "moved to Trash")
        return done

    def _move(self, email_ids: Sequence[str], folder: str) -> str:
        """Move mails; drafts stay drafts, and nothing else becomes one."""
        name = self._folder(self._me()["id"], folder)
        rows = self._chosen(email_ids)
        for row in rows:
            if row["origin"] == "draft" and name not in ("Drafts", "Trash"):
                raise ToolError(f"conflict: email {row['id']} is a draft; it can be moved to Drafts and Trash only")
            if row["origin"] != "draft" and name == "Drafts":
                raise ToolError(f"conflict: email {row['id']} is no draft, so it cannot be moved to Drafts")
        for row in rows:
            self.store.update("mails", row["id"], folder=name)
        return name

    def _my_draft(self, draft_id: str) -> Row:
        row = self._mine(draft_id)
        if row["folder"] != "Drafts":
            raise ToolError(f"not found: there is no draft with id {echo(draft_id)}")
        return row

    def _download(self, name: str, data: bytes) -> str:
        """Write an attachment under a name that is free, or find it where it was written before; the path."""
        files = self.context.files
        stem, dot, suffix = name.rpartition(".")
        for count in range(1, len(files.names(DOWNLOADS)) + 2 if files.is_dir(DOWNLOADS) else 2):
            numbered = name if count == 1 else f"{stem} ({count}).{suffix}" if dot and stem else f"{name} ({count})"
            path = f"{DOWNLOADS}/{numbered}"
            if files.is_file(path) and files.read(path) == data:
                return files.resolve(path)
            if not files.exists(path):
                break
        return files.write(path, data)


def summary(row: Row) -> Row:
    """A mail as listings show it."""
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
