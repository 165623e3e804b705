"""The mailboxes behind the mail server, and how a task fills and reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from agentgym.envs.loca.servers.email.messages import MAX_NAME, Mail, addresses, checked, moment
from agentgym.envs.loca.servers.server import Server
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo

SYSTEM_FOLDERS = ("INBOX", "Sent", "Drafts", "Trash")
MAX_RECIPIENTS = 500
MAX_FOLDERS = 200
MAX_STORED_BYTES = 256 * 2**20
"""Bytes of attachments in all mailboxes together; a mail to several of them counts once."""

SCHEMA = """
CREATE TABLE users (
    id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE COLLATE NOCASE, name TEXT NOT NULL, password TEXT NOT NULL
);
CREATE TABLE folders (user INTEGER NOT NULL REFERENCES users(id), name TEXT NOT NULL COLLATE NOCASE, PRIMARY KEY (user, name));
CREATE TABLE messages (
    id INTEGER PRIMARY KEY, author INTEGER REFERENCES users(id), origin TEXT NOT NULL,
    message_id TEXT NOT NULL, date TEXT NOT NULL, sender TEXT NOT NULL, "to" TEXT NOT NULL, cc TEXT NOT NULL, bcc TEXT NOT NULL,
    subject TEXT NOT NULL, in_reply_to TEXT NOT NULL, "references" TEXT NOT NULL, files INTEGER NOT NULL,
    words TEXT NOT NULL, body TEXT NOT NULL, html TEXT
);
CREATE TABLE attachments (
    id INTEGER PRIMARY KEY, message INTEGER NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
    filename TEXT NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (message, filename)
);
CREATE TABLE mails (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user INTEGER NOT NULL, folder TEXT NOT NULL COLLATE NOCASE,
    message INTEGER NOT NULL REFERENCES messages(id), at INTEGER NOT NULL, is_read BOOL, is_important BOOL, own BOOL,
    FOREIGN KEY (user, folder) REFERENCES folders(user, name)
);
CREATE INDEX mails_in_folder ON mails (user, folder, at, id);
CREATE INDEX mails_of_message ON mails (message);
"""

_MAIL = """SELECT mails.id, folder, is_read, is_important, own, message, author, origin, message_id, date, sender, "to", cc, bcc,
subject, in_reply_to, "references", files, body, html FROM mails JOIN messages ON messages.id = message"""


class Mailboxes(Server):
    """Users, folders and mails, of which a message in several mailboxes is kept once."""

    name: ClassVar[str] = "email"
    schema: ClassVar[str] = SCHEMA

    def add_user(self, email: str, password: str = "", name: str = "") -> None:
        """Give somebody a mailbox."""
        self.add_users([(email, password, name)])

    def add_users(self, users: Iterable[tuple[str, str, str]]) -> None:
        """Give mailboxes to many, each as e-mail address, password and name; with an empty password nobody can log in.

        Raises:
            ToolError: It is no address, or there is such a user.
        """
        with self.store.change():
            for email, password, name in users:
                if len(addresses(email)) != 1 or addresses(email)[0][1] != email:
                    raise ToolError(f"invalid argument: email must be one e-mail address, got {echo(email)}")
                if not re.fullmatch(rf"[^\x00-\x1f\x7f]{{0,{MAX_NAME}}}", name):
                    raise ToolError(f"invalid argument: name must be one line of at most {MAX_NAME} characters, got {echo(name)}")
                if self._user_id(email) is not None:
                    raise ToolError(f"conflict: there is a user {echo(email)} already")
                user = self.store.insert("users", email=email, name=name, password=password)
                for folder in SYSTEM_FOLDERS:
                    self.store.insert("folders", user=user, name=folder)

    def login_as(self, email: str) -> None:
        """Log a user in without the password, as a task does it before the episode."""
        self.session["user"] = self._user(email)

    def deliver(self, mails: Mail | Iterable[Mail], user: str | None = None, folder: str = "INBOX") -> None:
        """Put mails into mailboxes without sending them.

        Args:
            mails: One or many; their dates may be any.
            user: The only mailbox that they come into; those of all recipients, and the Sent folder of the sender, by default.
            folder: The folder there, which is made if need be.
        """
        with self.store.change():
            boxes = None
            if user is not None:
                boxes = [(self._user(user), self._made_folder(self._user(user), folder))]
            for mail in [mails] if isinstance(mails, Mail) else mails:
                sound = self._identified(self._sound(mail))
                author = self._user_id(addresses(sound.sender)[0][1])
                self._put(sound, "filled", author, boxes or self._boxes(sound, author))

    def messages(self, user: str, folder: str | None = None) -> list[Mail]:
        """The mails of a mailbox, or of a folder in it, oldest first."""
        where = "user = ?" if folder is None else "user = ? AND folder = ?"
        rows = self.store.rows(
            f"{_MAIL} WHERE {where} ORDER BY at, mails.id", self._user(user), *([] if folder is None else [folder])
        )
        return [self._record(row) for row in rows]

    def sent(self, user: str | None = None) -> list[Mail]:
        """What a user (all users by default) really sent with the tools, in order, whatever became of the copies since."""
        author = None if user is None else self._user(user)
        sql = "SELECT *, '' AS folder, 1 AS own, 0 AS is_read, 0 AS is_important, id AS message FROM messages WHERE origin = 'sent'"
        rows = self.store.rows(f"{sql} AND (? IS NULL OR author = ?) ORDER BY id", author, author)
        return [self._record(row) for row in rows]

    def users(self) -> list[Row]:
        """All users with `email`, `name` and `password`, in the order in which they were added."""
        return self.store.rows("SELECT email, name, password FROM users ORDER BY id")

    def folders(self, user: str) -> list[str]:
        """The names of the folders of a user, those that everybody has first."""
        return self._folders(self._user(user))

    def _user_id(self, email: str) -> int | None:
        found: int | None = self.store.value("SELECT id FROM users WHERE email = ?", email)
        return found

    def _user(self, email: str) -> int:
        found = self._user_id(email)
        if found is None:
            raise ToolError(f"not found: there is no user {echo(email)}")
        return found

    def _me(self) -> Row:
        if "user" not in self.session:
            raise ToolError("not logged in: call login with your e-mail address and password first")
        return self.store.get("users", self.session["user"])

    def _folders(self, user: int) -> list[str]:
        names = [row["name"] for row in self.store.find("folders", order="name", user=user)]
        return [*SYSTEM_FOLDERS, *(name for name in names if name not in SYSTEM_FOLDERS)]

    def _folder(self, user: int, name: str) -> str:
        """The name of a folder as it was made; INBOX may be written in any case, and so may the others."""
        found: str | None = self.store.value("SELECT name FROM folders WHERE user = ? AND name = ?", user, name)
        if found is None:
            raise ToolError(f"not found: there is no folder {echo(name)}; folders: {echo(self._folders(user))}")
        return found

    def _made_folder(self, user: int, name: str) -> str:
        """A folder, which is made when there is none."""
        if self.store.value("SELECT 1 FROM folders WHERE user = ? AND name = ?", user, name) is None:
            if not re.fullmatch(r"[^\x00-\x1f\x7f]{1,100}", name) or name != name.strip():
                raise ToolError(f"invalid argument: the name of a folder is 1 to 100 characters in one line, got {echo(name)}")
            if self.store.value("SELECT count(*) FROM folders WHERE user = ?", user) >= MAX_FOLDERS:
                raise ToolError(f"limit exceeded: a mailbox has at most {MAX_FOLDERS} folders")
            self.store.insert("folders", user=user, name=name)
        return self._folder(user, name)

    def _boxes(self, mail: Mail, author: int | None) -> list[tuple[int, str]]:
        """Where a mail comes: the Sent folder of who sends it and the INBOX of each recipient who has a mailbox here.

        Raises:
            ToolError: An address of a domain that has mailboxes here has none.
        """
        boxes = [] if author is None else [(author, "Sent")]
        people = mail.recipients
        if len(people) > MAX_RECIPIENTS:
            raise ToolError(f"limit exceeded: a mail has at most {MAX_RECIPIENTS} recipients, got {len(people)}")
        for address in people:
            user = self._user_id(address)
            domain = address.partition("@")[2]
            if user is not None:
                boxes.append((user, "INBOX"))
            elif self.store.value("SELECT 1 FROM users WHERE substr(email, instr(email, '@') + 1) = ? COLLATE NOCASE", domain):
                raise ToolError(f"not found: {domain} has no mailbox {echo(address)}; nothing was sent")
        return boxes

    def _sound(self, mail: Mail) -> Mail:
        """A mail that can be kept and that there is room for."""
        sound = checked(mail)
        size = sum(map(len, sound.attachments.values()))
        if size and size + self.store.value("SELECT coalesce(sum(size), 0) FROM attachments") > MAX_STORED_BYTES:
            raise ToolError(f"limit exceeded: the mailboxes are full; they hold {MAX_STORED_BYTES} bytes of attachments")
        return sound

    def _identified(self, mail: Mail) -> Mail:
        """A mail with a Message-ID."""
        if mail.message_id:
            return mail
        domain = addresses(mail.sender)[0][1].partition("@")[2]
        return replace(mail, message_id=f"<{self.context.new_id('mail', 24)}@{domain}>")

    def _put(self, mail: Mail, origin: str, author: int | None, boxes: Sequence[tuple[int, str]]) -> list[int]:
        """Keep a sound mail and put it into folders, whose users are given; its ids there. What comes into Drafts is a draft."""
        if any(folder == "Drafts" for _, folder in boxes):
            origin = "draft"
        message = self.store.insert("messages", author=author, origin=origin, **columns_of(mail))
        for filename, data in mail.attachments.items():
            self.store.insert("attachments", message=message, filename=filename, size=len(data), data=data)
        at = int(mail.date.timestamp())
        return [
            self.store.insert(
                "mails", user=user, folder=folder, message=message, at=at,
                is_read=mail.read or folder in ("Sent", "Drafts"), is_important=mail.important,
                own=origin in ("draft", "import") or (user == author and folder != "INBOX"),
            )
            for user, folder in boxes
        ]  # fmt: skip

    def _rows(self, ids: Sequence[int]) -> list[Row]:
        """Mails with their messages, in the order of the ids."""
        marks = ", ".join("?" * len(ids))
        found = {row["id"]: row for row in self.store.rows(f"{_MAIL} WHERE mails.id IN ({marks})", *ids)}
        return [found[email] for email in ids]

    def _mine(self, email_id: str) -> Row:
        """One mail of who is logged in.

        Raises:
            ToolError: There is none with that id in this mailbox.
        """
        me = self._me()["id"]
        number = int(email_id) if re.fullmatch("[1-9][0-9]{0,17}", email_id) else 0
        found = self.store.row(f"{_MAIL} WHERE mails.id = ? AND user = ?", number, me)
        if found is None:
            raise ToolError(f"not found: there is no email with id {echo(email_id)} in your mailbox")
        return found

    def _record(self, row: Row) -> Mail:
        """A row as a mail, with its attachments; the hidden recipients are seen by who wrote it."""
        files = self.store.find("attachments", message=row["message"]) if row["files"] else []
        same = ("sender", "to", "cc", "subject", "body", "html", "message_id", "in_reply_to", "references", "folder", "origin")
        return Mail(
            **{name: row[name] for name in same},
            date=datetime.fromisoformat(row["date"]),
            bcc=row["bcc"] if row["own"] else "",
            attachments={file["filename"]: file["data"] for file in files},
            read=bool(row["is_read"]),
            important=bool(row["is_important"]),
            id=str(row["id"]),
        )

    def _purge(self, row: Row) -> None:
        """Remove a mail for good; the server remembers what was sent."""
        self.store.delete("mails", id=row["id"])
        if row["origin"] != "sent" and not self.store.value("SELECT 1 FROM mails WHERE message = ?", row["message"]):
            self.store.delete("messages", id=row["message"])


def columns_of(mail: Mail) -> Row:
    """The columns of a message."""
    same = ("sender", "to", "cc", "bcc", "subject", "body", "html", "message_id", "in_reply_to", "references")
    words = "\n".join((mail.subject, mail.sender, mail.to, mail.cc, mail.text)).casefold()
    return {
        **{name: getattr(mail, name) for name in same},
        "date": moment(mail.date),
        "files": len(mail.attachments),
        "words": words,
    }
