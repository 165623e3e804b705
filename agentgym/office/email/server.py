"""Mail server: users and mailboxes, which tasks fill and read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from agentgym.office.context import OfficeContext, iso
from agentgym.office.disabled import with_disabled_tools
from agentgym.office.email.filing import Filing
from agentgym.office.email.mailboxes import SCHEMA, SYSTEM_FOLDERS, EmailPart
from agentgym.office.email.messages import MAX_NAME, Mail, addresses
from agentgym.office.email.reading import Reading
from agentgym.office.email.writing import Writing
from agentgym.office.server import Server
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool


@with_disabled_tools(Path(__file__).with_name("disabled_tools.json"))
class Email(Server):
    """Mail server of an office; emails to other domains are not delivered."""

    name = "email"
    schema = SCHEMA
    tool_order = tuple(
        """
        login logout get_current_user list_users create_user check_connection get_folders
        create_folder delete_folder get_emails read_email search_emails send_email reply_email
        forward_email delete_email move_email mark_emails move_emails delete_emails save_draft
        get_drafts update_draft delete_draft get_mailbox_stats get_unread_count
        get_email_headers export_emails import_emails download_attachment
        """.split()
    )

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self._mailboxes = EmailPart(self)
        self.parts = (Filing(self), Reading(self), Writing(self))

    def add_user(self, email: str, password: str = "", name: str = "") -> None:
        """Add a user with a mailbox."""
        self.add_users([(email, password, name)])

    def add_users(self, users: Iterable[tuple[str, str, str]]) -> None:
        """Add users, given as (address, password, name); an empty password disables the login."""
        with self.store.change():
            for email, password, name in users:
                if [address for _, address in addresses(email)] != [email]:
                    raise ToolError(
                        f"invalid argument: email must be one e-mail address, got {echo(email)}"
                    )
                if not re.fullmatch(rf"[^\x00-\x1f\x7f]{{0,{MAX_NAME}}}", name):
                    raise ToolError(
                        f"invalid argument: name must be one line of at most {MAX_NAME} "
                        f"characters, got {echo(name)}"
                    )
                if self._mailboxes.user_id(email) is not None:
                    raise ToolError(f"conflict: user {echo(email)} already exists")
                user = self.store.insert("users", email=email, name=name, password=password)
                for folder in SYSTEM_FOLDERS:
                    self.store.insert("folders", user=user, name=folder)

    def login_as(self, email: str) -> None:
        """Log a user in without a password, before an episode."""
        self.session["user"] = self._mailboxes.existing_user_id(email)

    def deliver(self, mails: Mail | Iterable[Mail], user: str | None = None) -> None:
        """Store emails with arbitrary dates in mailboxes, without sending the emails.

        By default, all recipients and the sender's Sent folder receive the emails. With `user`,
        only that user's INBOX receives the emails.
        """
        boxes = self._mailboxes
        places = None
        if user is not None:
            places = [(boxes.existing_user_id(user), "INBOX")]
        with self.store.change():
            for mail in [mails] if isinstance(mails, Mail) else mails:
                stored = boxes.check(mail)
                author = boxes.user_id(addresses(stored.sender)[0][1])
                if places is None and (unknown := boxes.unknown_recipients(stored)):
                    raise ToolError(f"not found: there is no mailbox {echo(unknown[0])}")
                boxes.put(stored, "filled", author, places or boxes.places(stored, author))

    def messages(self, user: str, folder: str | None = None) -> list[Mail]:
        """Return the emails of a mailbox or folder, oldest first."""
        user_id = self._mailboxes.existing_user_id(user)
        condition = "WHERE user = ? AND (? IS NULL OR folder = ?) ORDER BY at, mails.id"
        rows = self._mailboxes.rows(condition, user_id, folder, folder)
        return [self._mailboxes.to_mail(row) for row in rows]

    def sent(self) -> list[Mail]:
        """Return the emails sent with tools, in sending order, including deleted emails."""
        sql = """SELECT *, '' AS folder, 1 AS own, 0 AS is_read, 0 AS is_important, id AS message
            FROM messages WHERE origin = 'sent' ORDER BY id"""
        return list(map(self._mailboxes.to_mail, self.store.rows(sql)))

    def users(self) -> list[Row]:
        """Return each user's `email`, `name` and `password`, in creation order."""
        return self.store.rows("SELECT email, name, password FROM users ORDER BY id")

    @tool
    def login(self, email: str, password: str) -> Row:
        """Log in to a mailbox.

        Args:
            email: Email address.
            password: Password.
        """
        sql = "SELECT * FROM users WHERE email = ? AND password = ? AND password <> ''"
        user = self.store.row(sql, email, password)
        if user is None:
            raise ToolError("permission denied: no user has this e-mail address and password")
        self.session["user"] = user["id"]
        return {"message": "Login successful", "logged_in": True, **_show_user(user)}

    @tool
    def logout(self) -> Row:
        """Log out."""
        self._mailboxes.me()
        del self.session["user"]
        return {"message": "Logout successful", "logged_in": False}

    @tool
    def get_current_user(self) -> Row:
        """Get the user who is logged in."""
        return {**_show_user(self._mailboxes.me()), "logged_in": True}

    @tool
    def list_users(self) -> Row:
        """List the users of the mail server, sorted by address."""
        self._mailboxes.me()
        # The creation order could reveal which users matter.
        users = self.store.rows("SELECT email, name FROM users ORDER BY email")
        return {"users": users, "count": len(users)}

    @tool
    def check_connection(self) -> str:
        """Check the connection to the mail server."""
        login = "not logged in"
        if "user" in self.session:
            login = f"logged in as {self._mailboxes.me()['email']}"
        now = iso(self.context.clock.now())
        return f"Mail server:\n✓ IMAP connected\n✓ SMTP connected\n\nServer time {now}, {login}"


def _show_user(user: Row) -> Row:
    return {"email": user["email"], "name": user["name"]}
