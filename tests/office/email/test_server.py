"""Mail server: logins, bounces, privacy and size limits. Other tests are in
`recorded/email.txt`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agentgym.office.email.messages import Mail
from agentgym.text.tools import ToolError, tools_of
from tests.office.prepared import ADA, BOB, CYD, DAY, office
from tests.office.test_disabled import DISABLED_TOOLS
from tests.office.test_laws import call, refused, run


def test_tools_need_a_login() -> None:
    server = office()
    call(server, "logout")
    server.context.files.write("x", "{}")
    arguments = {"email_id": "2", "folder_name": "x", "query": "x", "to": BOB, "subject": "", "body": "", "target_folder": "INBOX",
                 "email_ids": ["2"], "status": "read", "draft_id": "2", "attachment_filename": "x"}  # fmt: skip
    free = {"login", "check_connection", *DISABLED_TOOLS["email"]}
    for name in tools_of(server).keys() - free:
        required = tools_of(server)[name].schema.parameters.get("required", [])
        given = {key: arguments[key] for key in required}
        refused(server, name, "^not logged in: call login", **given)


def test_unknown_recipients_bounce() -> None:
    server = office()
    subject = "x" * 990
    call(
        server,
        "send_email",
        to=BOB,
        cc="eve@x.org",
        bcc="a@far.net, al@X.ORG",
        subject=subject,
        body="b",
    )
    (sent,) = server.sent()
    assert sent.recipients == [BOB, "eve@x.org", "a@far.net", "al@x.org"]
    assert [mail.subject for mail in server.messages(BOB, "INBOX")] == [subject]
    report = server.messages(ADA, "INBOX")[-1]
    assert (report.sender, report.to, report.origin) == (
        "Mail Delivery System <mailer-daemon@x.org>",
        ADA,
        "bounce",
    )
    assert report.subject == f"Undeliverable: {subject}"[:998]
    assert report.body.endswith(":\neve@x.org\nal@x.org")
    assert report.date > sent.date
    call(server, "reply_email", email_id=report.id, body="x", cc=CYD)  # bounces can be answered
    assert len(server.sent()) == 2


def test_attachments_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    server = office()
    for path, size in (("a/x.bin", 2**20), ("b/x.bin", 0), ("y.bin", 2**20), ("c.bin", 3)):
        server.context.files.write(path, b"x" * size)
    monkeypatch.setattr("agentgym.office.email.messages.MAX_ATTACHMENTS_BYTES", 2**21 - 1)
    plain = {"to": BOB, "subject": "s", "body": "b"}
    for text, files in (
        ("^invalid argument: two attachments have the name", ["a/x.bin", "b/x.bin"]),
        ("^limit exceeded: an email may have at most 100 attachments", ["a/x.bin", "y.bin"]),
    ):
        refused(server, "send_email", text, **plain, attachments=files)
    monkeypatch.setattr("agentgym.office.store.MAX_BYTES", 10)
    text = "^limit exceeded: the service can store at most 10 bytes"
    refused(server, "send_email", text, **plain, attachments=["c.bin"])


def test_users_cannot_reach_other_mailboxes() -> None:
    server = office()
    call(server, "save_draft", subject="plan", body="secret", to=CYD)
    call(server, "create_folder", folder_name="Private")
    theirs = [mail.id for mail in server.messages(ADA)]
    server.login_as(BOB)
    for mine in theirs:
        for tool, more in (
            ("read_email", {}), ("delete_email", {}), ("move_email", {"target_folder": "INBOX"}),
            ("reply_email", {"body": "x"}),
            ("download_attachment", {"attachment_filename": "a.csv"}),
        ):  # fmt: skip
            refused(server, tool, "^not found: there is no email with id", email_id=mine, **more)
        refused(server, "delete_draft", "^not found", draft_id=mine)
        refused(server, "delete_emails", "^not found", email_ids=[mine])
    refused(server, "get_emails", "^not found: there is no folder", folder="Private")
    assert call(server, "search_emails", query="e")["total"] == 0


def test_tasks_fill_mailboxes() -> None:
    server = office()
    old = Mail(
        "Al <al@far.net>",
        "someone@else.net",
        "hello",
        "x",
        datetime(1999, 1, 1, tzinfo=UTC),
        read=True,
        important=True,
    )
    server.deliver(old, user=ADA)
    kept = server.messages(ADA, "INBOX")[0]
    assert (kept.read, kept.important, kept.to) == (True, True, "someone@else.net")
    with pytest.raises(ToolError, match="not found: there is no user"):
        server.messages("no@x.org")
    with pytest.raises(ToolError, match="the date of an email must have a time zone"):
        server.deliver(Mail(ADA, BOB, "", "", datetime(2025, 1, 1)))
    with pytest.raises(ToolError, match="not found: there is no mailbox"):
        server.deliver([old, Mail(ADA, "eve@x.org", "", "", DAY)])
    assert server.users()[0] == {"email": ADA, "name": "Ada L", "password": "pa"}


@pytest.mark.parametrize(
    ("body", "html", "parts"),
    [
        ("text ", None, ["text"]),
        ("text", "  ", ["text"]),
        ("text", "<b>other</b>", ["other", "text"]),
        ("", "<b>other</b>", ["other"]),
        ("text", "<a@b.org>", ["", "text"]),  # mail programs show the HTML part, which is empty
        ("", None, [""]),
    ],
)
def test_parts_are_in_display_order(body: str, html: str, parts: list[str]) -> None:
    assert Mail(BOB, ADA, "subject", body, DAY, html=html).parts == parts


def test_hostile_texts_take_linear_time() -> None:
    server = office()
    for text in (
        "<" * 200_000,
        "<style>" * 30_000,
        "&" * 200_000,
        '"' * 200_000,
        "(" * 99 + "x" * 100_000,
        "from:" * 40_000,
        f"{BOB}," * 20_000,
    ):
        for tool, arguments in (
            ("send_email", {"to": BOB, "subject": "x", "body": "", "html_body": text}),
            ("send_email", {"to": text, "subject": "x", "body": ""}),
            ("search_emails", {"query": text}),
        ):
            run(server, tool, arguments)
