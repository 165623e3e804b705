"""Mail server: sending, answering and forwarding emails, and writing drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentgym.office.email.mailboxes import EmailPart, show_draft
from agentgym.office.email.messages import (
    MAX_SUBJECT,
    Mail,
    addresses,
    file_name,
    format_address,
)
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool


class Writing(EmailPart):
    """Tools for sending emails and writing drafts."""

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
        """Send an email.

        Args:
            to: Recipient addresses, comma-separated.
            subject: Subject line.
            body: Plain text.
            html_body: HTML version of the text.
            cc: Cc addresses, comma-separated.
            bcc: Bcc addresses, comma-separated.
            attachments: Paths of workspace files to attach.
        """
        mail = self._compose(to, subject, body, html_body, cc, bcc)
        return self._send(replace(mail, attachments=self._read_files(attachments or [])))

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
        """Reply to an email.

        Args:
            email_id: ID of the email to reply to.
            body: Plain text of the reply.
            html_body: HTML version of the text.
            cc: More Cc addresses, comma-separated.
            bcc: Bcc addresses, comma-separated.
            reply_all: Also send the reply to the other recipients.
        """
        old = self._original(email_id)
        me = self.me()["email"].casefold()
        to = old.sender
        if addresses(old.sender)[0][1].casefold() == me:
            to = old.to  # replies to one's own email go to the original recipients
        copies = [cc] if cc else []
        if reply_all:
            served = {me, *(address.casefold() for _, address in addresses(to))}
            for name, address in addresses(f"{old.to}, {old.cc}".strip(", ")):
                if address.casefold() not in served:
                    copies.append(format_address(name, address))
        subject = _with_prefix("Re: ", old.subject)
        mail = self._compose(to, subject, body, html_body, ", ".join(copies), bcc)
        return self._send(mail)

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
        """Save a draft.

        Args:
            subject: Subject line.
            body: Plain text.
            html_body: HTML version of the text.
            to: Recipient addresses, comma-separated.
            cc: Cc addresses, comma-separated.
            bcc: Bcc addresses, comma-separated.
        """
        me = self.my_id()
        mail = self.check(self._compose(to, subject, body, html_body, cc, bcc))
        draft = replace(mail, date=self.context.clock.tick())
        return show_draft(self.by_id(self.put(draft, "draft", me, [(me, "Drafts")]))[0])

    @tool
    def delete_draft(self, draft_id: str) -> str:
        """Delete a draft permanently.

        Args:
            draft_id: Draft ID.
        """
        self.purge(self._draft(draft_id))
        return f"Draft {draft_id} deleted"

    def _draft(self, draft_id: str) -> Row:
        row = self.mine(draft_id)
        if row["folder"] != "Drafts":
            raise ToolError(f"not found: there is no draft with id {echo(draft_id)}")
        return row

    def _original(self, email_id: str) -> Mail:
        row = self.mine(email_id)
        if row["origin"] == "draft":
            raise ToolError(f"conflict: email {email_id} is a draft that has not been sent yet")
        return self.to_mail(row)

    def _compose(
        self,
        to: str | None,
        subject: str,
        body: str,
        html: str | None,
        cc: str | None,
        bcc: str | None,
    ) -> Mail:
        me, now = self.me(), self.context.clock.now()
        sender = format_address(me["name"], me["email"])
        return Mail(sender, to or "", subject, body, now, html or None, cc or "", bcc or "")

    def _read_files(self, paths: Sequence[str]) -> dict[str, bytes]:
        files = self.context.files
        attachments: dict[str, bytes] = {}
        for path in paths:
            if not files.is_file(path):
                raise ToolError(f"not found: there is no file {echo(path)} in the workspace")
            name = file_name(path)
            if name in attachments:
                raise ToolError(f"invalid argument: two attachments have the name {echo(name)}")
            attachments[name] = files.read(path)
        return attachments

    def _send(self, mail: Mail) -> Row:
        me = self.my_id()
        mail = self.check(mail)
        places = self.places(mail, me)
        if not mail.recipients:
            raise ToolError("invalid argument: the list of recipients (to) must not be empty")
        # Advance the clock only after all checks have passed.
        mail = replace(mail, date=self.context.clock.tick())
        copy = self.put(mail, "sent", me, places)[0]
        if unknown := self.unknown_recipients(mail):
            self._bounce(mail, unknown)
        return self.show_mails([copy])[0]

    def _bounce(self, mail: Mail, unknown: Sequence[str]) -> None:
        me = self.me()
        domain = me["email"].partition("@")[2]
        report = Mail(
            format_address("Mail Delivery System", f"mailer-daemon@{domain}"),
            me["email"],
            _with_prefix("Undeliverable: ", mail.subject),
            "Your message was not delivered to these recipients, who have no mailbox:\n"
            + "\n".join(unknown),
            self.context.clock.tick(),
        )
        self.put(self.check(report), "bounce", None, [(me["id"], "INBOX")])


def _with_prefix(prefix: str, subject: str) -> str:
    if subject.casefold().startswith(prefix.strip().casefold()):
        return subject
    return f"{prefix}{subject}"[:MAX_SUBJECT]
