"""The mail server: thirty tools over the mailboxes of who is logged in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentgym.envs.loca.servers.context import iso
from agentgym.envs.loca.servers.email.actions import MailActions, summary
from agentgym.envs.loca.servers.email.boxes import SYSTEM_FOLDERS, columns_of
from agentgym.envs.loca.servers.email.files import read_export, read_mbox, write_export, write_mbox
from agentgym.envs.loca.servers.email.messages import Mail, addresses, content_type, headers_of, moment, spell
from agentgym.envs.loca.servers.server import page_of
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

_LISTED_USERS = 100
_STATUSES = {
    "read": {"is_read": True},
    "unread": {"is_read": False},
    "important": {"is_important": True},
    "not_important": {"is_important": False},
}


class Email(MailActions):
    """Mail between the users of one server; what goes to other domains leaves the office."""

    @tool
    def login(self, email: str, password: str) -> Row:
        """Log in to a mailbox."""
        user = self.store.row("SELECT * FROM users WHERE email = ? AND password = ? AND password <> ''", email, password)
        if user is None:
            raise ToolError("permission denied: no user has this e-mail address and password")
        self.session["user"] = user["id"]
        return {"status": "logged in", "user": _person(user)}

    @tool
    def logout(self) -> Row:
        """Log out."""
        user = self._me()
        del self.session["user"]
        return {"status": "logged out", "user": _person(user)}

    @tool
    def get_current_user(self) -> Row:
        """Who is logged in."""
        return _person(self._me())

    @tool
    def list_users(self) -> Row:
        """The users of this mail server, the first hundred in order of their addresses."""
        self._me()
        rows = self.store.rows("SELECT email, name FROM users ORDER BY email LIMIT ?", _LISTED_USERS)
        total = self.store.value("SELECT count(*) FROM users")
        return {"total": total, "truncated": total > len(rows), "users": rows}

    @tool
    def create_user(self, email: str, name: str, password: str) -> Row:
        """Give somebody a mailbox on this server."""
        if not 1 <= len(password) <= 200:
            raise ToolError(f"invalid argument: a password has 1 to 200 characters, got {len(password)}")
        self.add_user(email, password, name)
        return {"status": "created", "user": {"email": email, "name": name}}

    @tool
    def check_connection(self) -> Row:
        """Whether the server answers, what its time is and who is logged in."""
        email = self._me()["email"] if "user" in self.session else None
        return {"status": "connected", "time": iso(self.context.clock.now()), "logged_in_as": email}

    @tool
    def get_folders(self) -> Row:
        """The folders of the mailbox with how many emails they hold."""
        return {"folders": [self._counts(name) for name in self._folders(self._me()["id"])]}

    @tool
    def create_folder(self, folder_name: str) -> Row:
        """Make a folder."""
        me = self._me()["id"]
        if folder_name.casefold() in map(str.casefold, self._folders(me)):
            raise ToolError(f"conflict: there is a folder {echo(folder_name)} already")
        return {"status": "created", "folder": self._made_folder(me, folder_name)}

    @tool
    def delete_folder(self, folder_name: str) -> Row:
        """Remove a folder that is empty."""
        me = self._me()["id"]
        name = self._folder(me, folder_name)
        if name in SYSTEM_FOLDERS:
            raise ToolError(f"permission denied: the folder {name} cannot be removed")
        held = self._counts(name)["total"]
        if held:
            raise ToolError(f"conflict: the folder {echo(name)} holds {held} emails; move or delete them first")
        self.store.delete("folders", user=me, name=name)
        return {"status": "deleted", "folder": name}

    @tool
    def get_emails(self, folder: str = "INBOX", page: int = 1, page_size: int = 20) -> Row:
        """List the emails of a folder, newest first, at most 100 on a page."""
        return self._listing(folder, page, page_size)

    @tool
    def read_email(self, email_id: str) -> Row:
        """Read an email; it counts as read then."""
        row = self._mine(email_id)
        self.store.update("mails", row["id"], is_read=True)
        mail = self._record(row)
        return {
            **summary({**row, "is_read": True}),
            "cc": mail.cc,
            "bcc": mail.bcc,
            "message_id": mail.message_id,
            "in_reply_to": mail.in_reply_to or None,
            "body": mail.text,
            "html_body": mail.html,
            "attachments": [
                {"filename": name, "content_type": content_type(name), "size": len(data)} for name, data in mail.attachments.items()
            ],
        }

    @tool
    def search_emails(self, query: str, folder: str = "INBOX", page: int = 1, page_size: int = 20) -> Row:
        """Search subject, sender, recipients and text of the emails of a folder, newest first, at most 100 on a page.

        An email is found if it contains all words of the query, upper or lower case, also inside of other words. Words in
        quotation marks are one phrase. A word after from:, to:, subject: or body: is searched there only.
        """
        name = self._folder(self._me()["id"], folder)
        found = self._search(query, name)
        return {"folder": name, **self._page(page_of(found, page, page_size), len(found), page, page_size)}

    @tool
    def send_email(
        self,
        to: str,
        subject: str,
        body: str,
        html_body: str | None = None,
        cc: str | None = None,
        bcc: str | None = None,
        attachments: list[str] | None = None,
    ) -> Row:
        """Send an email to addresses with commas between, with files of the workspace (paths) attached as they are now."""
        return self._send(
            replace(self._written(to, subject, body, html_body, cc, bcc), attachments=self._attached(attachments or []))
        )

    @tool
    def reply_email(
        self,
        email_id: str,
        body: str,
        html_body: str | None = None,
        cc: str | None = None,
        bcc: str | None = None,
        reply_all: bool = False,
    ) -> Row:
        """Answer an email; with reply_all, all who got it get a copy of the answer."""
        old = self._original(email_id)
        me = self._me()["email"].casefold()
        to = old.to if addresses(old.sender)[0][1].casefold() == me else old.sender
        copies = cc or ""
        if reply_all:
            known = {me, *(address.casefold() for _, address in addresses(to))}
            others = [entry for entry in addresses(f"{old.to}, {old.cc}".strip(", ")) if entry[1].casefold() not in known]
            copies = ", ".join([*filter(None, [copies]), *(spell(*entry) for entry in others)])
        mail = self._written(to, _prefixed("Re: ", old.subject), body, html_body, copies, bcc)
        return self._send(replace(mail, in_reply_to=old.message_id, references=f"{old.references} {old.message_id}"))

    @tool
    def forward_email(
        self,
        email_id: str,
        to: str,
        body: str | None = None,
        html_body: str | None = None,
        cc: str | None = None,
        bcc: str | None = None,
    ) -> Row:
        """Send an email on to others, with its attachments; the body comes before it."""
        old = self._original(email_id)
        head = f"From: {old.sender}\nDate: {moment(old.date)}\nSubject: {old.subject}\nTo: {old.to}"
        text = f"{body}\n\n" if body else ""
        text += f"---------- Forwarded message ----------\n{head}\n\n{old.text}"
        mail = self._written(to, _prefixed("Fwd: ", old.subject), text, html_body, cc, bcc)
        return self._send(replace(mail, attachments=old.attachments))

    @tool
    def delete_email(self, email_id: str) -> Row:
        """Move an email to the folder Trash; one that is there is removed for good."""
        return {"id": email_id, "status": self._delete([email_id])[0]}

    @tool
    def move_email(self, email_id: str, target_folder: str) -> Row:
        """Move an email to another folder."""
        return {"id": email_id, "folder": self._move([email_id], target_folder)}

    @tool
    def mark_emails(self, email_ids: list[str], status: str) -> Row:
        """Mark emails as read, unread, important or not_important."""
        if status not in _STATUSES:
            raise ToolError(f"invalid argument: status must be one of {', '.join(_STATUSES)}, got {echo(status)}")
        for row in self._chosen(email_ids):
            self.store.update("mails", row["id"], **_STATUSES[status])
        return {"marked": len(set(email_ids)), "status": status}

    @tool
    def move_emails(self, email_ids: list[str], target_folder: str) -> Row:
        """Move emails to another folder, all of them or, on an error, none."""
        folder = self._move(email_ids, target_folder)
        return {"moved": len(set(email_ids)), "folder": folder}

    @tool
    def delete_emails(self, email_ids: list[str]) -> Row:
        """Move emails to the folder Trash, all of them or, on an error, none; those that are there are removed for good."""
        done = self._delete(email_ids)
        return {"moved_to_trash": done.count("moved to Trash"), "removed": done.count("removed")}

    @tool
    def save_draft(
        self,
        subject: str,
        body: str,
        html_body: str | None = None,
        to: str | None = None,
        cc: str | None = None,
        bcc: str | None = None,
    ) -> Row:
        """Keep an email that is not sent yet."""
        mail = self._sound(self._written(to, subject, body, html_body, cc, bcc))
        dated = self._identified(replace(mail, date=self.context.clock.tick()))
        me = self._me()["id"]
        return {"id": str(self._put(dated, "draft", me, [(me, "Drafts")])[0]), "status": "saved", "date": moment(dated.date)}

    @tool
    def get_drafts(self, page: int = 1, page_size: int = 20) -> Row:
        """List the drafts, newest first, at most 100 on a page."""
        return self._listing("Drafts", page, page_size)

    @tool
    def update_draft(
        self,
        draft_id: str,
        subject: str | None = None,
        body: str | None = None,
        html_body: str | None = None,
        to: str | None = None,
        cc: str | None = None,
        bcc: str | None = None,
    ) -> Row:
        """Change what is given of a draft; the rest stays."""
        row = self._my_draft(draft_id)
        given = {"subject": subject, "body": body, "html": html_body, "to": to, "cc": cc, "bcc": bcc}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        mail = self._sound(replace(self._record(row), **changes))
        dated = replace(mail, date=self.context.clock.tick())
        self.store.update("messages", row["message"], **columns_of(dated))
        self.store.update("mails", row["id"], at=int(dated.date.timestamp()))
        return {"id": draft_id, "status": "saved", "date": moment(dated.date)}

    @tool
    def delete_draft(self, draft_id: str) -> Row:
        """Remove a draft for good."""
        self._purge(self._my_draft(draft_id))
        return {"id": draft_id, "status": "removed"}

    @tool
    def get_mailbox_stats(self, folder_name: str | None = None) -> Row:
        """How many emails a folder (all folders by default) holds: in all, unread, important, with attachments."""
        me = self._me()["id"]
        if folder_name is not None:
            return self._counts(self._folder(me, folder_name))
        folders = [self._counts(name) for name in self._folders(me)]
        return {**{key: sum(counts[key] for counts in folders) for key in folders[0] if key != "folder"}, "folders": folders}

    @tool
    def get_unread_count(self, folder_name: str | None = None) -> Row:
        """How many emails of a folder (of all folders by default) are unread."""
        return {"folder": folder_name, "unread": self.get_mailbox_stats(folder_name)["unread"]}

    @tool
    def get_email_headers(self, email_id: str) -> Row:
        """The headers of the message that an email is."""
        return {"id": email_id, "headers": headers_of(self._record(self._mine(email_id)))}

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
        me = self._me()["id"]
        if max_emails is not None and max_emails < 1:
            raise ToolError(f"invalid argument: max_emails must be at least 1, got {max_emails}")
        names = self._folders(me) if export_all_folders else [self._folder(me, folder or "INBOX")]
        mails = [self._record(row) for name in names for row in self._rows(self._ids(name)[:max_emails])]
        data = write_mbox(mails) if export_path.lower().endswith(".mbox") else write_export(mails)
        return {"exported": len(mails), "folders": names, "path": self.context.files.write(export_path, data)}

    @tool
    def import_emails(self, import_path: str, target_folder: str | None = None, preserve_folders: bool = True) -> Row:
        """Take emails from a file in the workspace into the mailbox; nothing is sent.

        Args:
            import_path: A file as export_emails writes it, or a message in a file whose name ends with .eml.
            target_folder: Where they come, which is made if need be.
            preserve_folders: Whether, without a target folder, each comes into the folder that it was in; INBOX otherwise.
        """
        me = self._me()
        data = self.context.files.read(import_path)
        blank = Mail(spell(me["name"], me["email"]), "", "", "", self.context.clock.now())
        mails = read_mbox(data, blank) if import_path.lower().endswith((".mbox", ".eml")) else read_export(data)
        folders: dict[str, int] = {}
        with self.store.change():
            for mail in reversed(mails):
                name = self._made_folder(me["id"], target_folder or (preserve_folders and mail.folder) or "INBOX")
                sound = self._identified(self._sound(mail))
                self._put(sound, "import", self._user_id(addresses(sound.sender)[0][1]), [(me["id"], name)])
                folders[name] = folders.get(name, 0) + 1
        return {"imported": len(mails), "folders": folders}

    @tool
    def download_attachment(self, email_id: str, attachment_filename: str) -> Row:
        """Write an attachment to a file in the directory `attachments` of the workspace; no file there is replaced."""
        mail = self._record(self._mine(email_id))
        if attachment_filename not in mail.attachments:
            held = ", ".join(mail.attachments) or "none"
            raise ToolError(f"not found: email {email_id} has no attachment {echo(attachment_filename)}; attachments: {held}")
        data = mail.attachments[attachment_filename]
        return {"filename": attachment_filename, "size": len(data), "path": self._download(attachment_filename, data)}


def _person(user: Row) -> Row:
    return {"email": user["email"], "name": user["name"]}


def _prefixed(prefix: str, subject: str) -> str:
    """A subject with `Re:` or `Fwd:` before it, once."""
    return subject if subject.casefold().startswith(prefix.strip().casefold()) else f"{prefix}{subject}"
