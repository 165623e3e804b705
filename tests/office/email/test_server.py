"""Mail server: every tool, with hand-computed facts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email
from agentgym.text.tools import ToolError, tools_of
from tests.office.test_laws import call, refused

DAY = datetime(2025, 1, 1, 8, tzinfo=timezone(timedelta(hours=8)))
ADA, BOB, CYD = "ada@x.org", "bob@x.org", "cyd@x.org"


def office() -> Email:
    """Three users; Ada, who is logged in, has three mails."""
    server = Email()
    server.add_users([(ADA, "pa", "Ada L"), (BOB, "pb", "Bob, Jr."), (CYD, "pc", "")])
    server.deliver(
        [
            Mail(f"Bob <{BOB}>", ADA, "Exam of CS101", "The exam is on Monday.\nRoom 5", DAY),
            Mail(
                "ÉLODIE <e@far.net>",
                f"{ADA}, {CYD}",
                "Lunch",
                "",
                DAY + timedelta(hours=2),
                html="<p>Salad &amp; soup</p><br>Ok",
            ),
            Mail(
                CYD,
                ADA,
                "files",
                "see there",
                DAY + timedelta(hours=1),
                attachments={"a.csv": b"x,y\n", "b.bin": b"\0\xff"},
            ),
        ]
    )
    server.login_as(ADA)
    return server


def ids(listing: Mapping[str, Any]) -> list[str]:
    return [item["id"] for item in listing["emails"]]


def test_login_and_users() -> None:
    server = office()
    assert call(server, "logout") == {"message": "Logout successful", "logged_in": False}
    arguments = {"email_id": "2", "folder_name": "x", "query": "x", "to": BOB, "subject": "", "body": "", "target_folder": "INBOX",
                 "email_ids": ["2"], "status": "read", "draft_id": "2", "attachment_filename": "x"}  # fmt: skip
    refused_always = {"import_emails", "export_emails", "get_email_headers"}
    free = {"login", "create_user", "check_connection", *refused_always}
    for name, bound in tools_of(server).items():
        required = bound.schema.parameters.get("required", [])
        if name not in free:
            server.context.files.write("x", "{}")
            refused(
                server,
                name,
                "^not logged in: call login",
                **{key: arguments[key] for key in required},
            )
    assert call(server, "check_connection").endswith(
        "Server time 2025-01-15T09:00:00Z, not logged in"
    )
    for wrong in (
        {"email": ADA, "password": "pb"},
        {"email": "no@x.org", "password": "pa"},
        {"email": ADA, "password": ""},
    ):
        refused(
            server,
            "login",
            "^permission denied: no user has this e-mail address and password",
            **wrong,
        )
    server.add_user("dan@x.org")
    refused(server, "login", "^permission denied", email="dan@x.org", password="")
    bob = {"email": BOB, "name": "Bob, Jr.", "logged_in": True}
    login = call(server, "login", email="BOB@x.org", password="pb")
    assert login == {"message": "Login successful", **bob}
    assert call(server, "get_current_user") == bob
    assert call(server, "check_connection").endswith(f", logged in as {BOB}")
    assert call(server, "create_user", email="al@x.org", name="Al", password="p") == {
        "email": "al@x.org",
        "name": "Al",
        "created_at": "2025-01-15T09:00:01Z",
        "message": "User created",
    }
    assert server.folders("al@x.org") == ["INBOX", "Sent", "Drafts", "Trash", "Archive", "Spam"]
    refused(server, "create_user", "^conflict: user", email="AL@X.org", name="", password="p")
    refused(
        server,
        "create_user",
        "^invalid argument: email must be one",
        email="Al <q@x.org>",
        name="",
        password="p",
    )
    refused(
        server, "create_user", "^invalid argument: name", email="q@x.org", name="a\nb", password="p"
    )
    server.add_users((f"u{k}@x.org", "", "") for k in range(200))
    listing = call(server, "list_users")
    assert listing["count"] == len(listing["users"]) == 205
    emails = [user["email"] for user in listing["users"]]
    assert emails == sorted(emails)  # not in order of creation
    assert {ADA, BOB, CYD, "dan@x.org", "al@x.org", "u199@x.org"} <= set(emails)
    assert all(user.keys() == {"email", "name"} for user in listing["users"])


def test_listing_and_reading() -> None:
    server = office()
    listing = call(server, "get_emails")
    assert ids(listing) == [
        "3",
        "6",
        "2",
    ]  # newest first; mails 1 and 4 are in Bob's and Cyd's mailboxes
    assert {key: listing[key] for key in listing if key != "emails"} == {
        "total": 3, "page": 1, "page_size": 20, "total_pages": 1}  # fmt: skip
    assert listing["emails"][2] == {
        "id": "2", "from": BOB, "from_name": "Bob", "to": ADA, "cc": "", "bcc": "", "subject": "Exam of CS101",
        "body": "The exam is on Monday.\nRoom 5", "html_body": "", "date": "2025-01-01T08:00:00+08:00", "attachments": [],
        "has_attachments": False, "read": False, "important": False, "folder": "INBOX"}  # fmt: skip
    assert [
        ids(call(server, "get_emails", folder="inbox", page=page, page_size=2))
        for page in (1, 2, 3)
    ] == [
        ["3", "6"],
        ["2"],
        [],
    ]
    for wrong in ({"page": 0}, {"page_size": 0}, {"page_size": 101}, {"page": -(2**70)}):
        refused(server, "get_emails", "^invalid argument", **wrong)
    refused(
        server,
        "get_emails",
        '^not found: there is no folder "Spam"; folders: .*INBOX',
        folder="Spam",
    )
    mails = {mail["id"]: mail for mail in listing["emails"]}
    assert {key: call(server, "read_email", email_id=key) for key in mails} == mails
    assert (mails["3"]["body"], mails["3"]["html_body"]) == (
        "Salad & soup\n\nOk",
        "<p>Salad &amp; soup</p><br>Ok",
    )
    assert (mails["6"]["from"], mails["6"]["attachments"]) == (CYD, [
        {"filename": "a.csv", "size": 4, "content_type": "text/csv"},
        {"filename": "b.bin", "size": 2, "content_type": "application/octet-stream"}])  # fmt: skip
    assert "from_name" not in mails["6"]
    assert call(server, "get_unread_count") == "Unread emails: 3"  # reading does not mark
    assert call(server, "get_unread_count", folder_name="inbox") == "Unread emails in INBOX: 3"
    for unknown in ("4", "99", "", "1 ", "01", "x" * 50, "9" * 30, "²"):
        refused(server, "read_email", "^not found: there is no email with id", email_id=unknown)
    marked = call(server, "mark_emails", email_ids=["2", "2", "3"], status="important")
    assert (marked["count"], ids({"emails": marked["updated_emails"]})) == (2, ["2", "3"])
    marked = call(server, "mark_emails", email_ids=["3"], status="read")
    assert marked == {
        "updated_emails": [{**mails["3"], "read": True, "important": True}],
        "count": 1,
    }
    refused(
        server,
        "mark_emails",
        "^invalid argument: status must be one of read, unread",
        email_ids=["2"],
        status="gone",
    )
    refused(server, "mark_emails", "^not found", email_ids=["2", "4"], status="read")
    empty = {"total": 0, "unread": 0}
    folders = {"INBOX": {"total": 3, "unread": 2}, "Sent": empty, "Drafts": empty, "Trash": empty}
    assert call(server, "get_mailbox_stats") == {
        "total_emails": 3,
        "total_unread": 2,
        "folders": folders,
    }
    assert call(server, "get_mailbox_stats", folder_name="inbox") == folders["INBOX"]
    assert call(server, "get_folders") == (
        "Folders of the mailbox:\n1. INBOX (3 total, 2 unread)\n2. Sent (0 total, 0 unread)\n"
        "3. Drafts (0 total, 0 unread)\n4. Trash (0 total, 0 unread)\n"
    )


def test_creating_filling_and_deleting_folders() -> None:
    server = office()
    assert call(server, "create_folder", folder_name="Work") == 'Folder "Work" created'
    refused(server, "create_folder", '^conflict: folder "WORK" already exists', folder_name="WORK")
    for wrong in ("", " a", "a\nb", "x" * 101):
        refused(server, "create_folder", "^invalid argument: a folder name", folder_name=wrong)
    moved = call(server, "move_emails", email_ids=["2", "3"], target_folder="work")
    assert moved["count"] == 2
    assert [mail["folder"] for mail in moved["moved_emails"]] == ["Work", "Work"]
    refused(server, "move_emails", "^not found", email_ids=["6", "7"], target_folder="Work")
    refused(
        server, "move_email", "^not found: there is no folder", email_id="6", target_folder="Play"
    )
    refused(server, "delete_folder", "^permission denied: the folder INBOX", folder_name="Inbox")
    assert call(server, "delete_email", email_id="2") == "Email 2 deleted (moved to Trash)"
    assert call(server, "delete_folder", folder_name="WORK") == 'Folder "Work" deleted'
    assert ids(call(server, "get_emails", folder="Trash")) == ["3", "2"]
    assert call(server, "delete_email", email_id="2") == "Email 2 deleted permanently"
    assert call(server, "move_email", email_id="3", target_folder="INBOX")["folder"] == "INBOX"
    refused(server, "delete_emails", "^not found", email_ids=["3", "99"])
    assert (
        call(server, "delete_emails", email_ids=["3", "3"]) == "Deleted 1 emails (moved to Trash)"
    )
    assert (
        call(server, "delete_emails", email_ids=["3", "6"])
        == "Deleted 2 emails (1 of them permanently)"
    )
    assert call(server, "move_email", email_id="6", target_folder="INBOX")["from"] == CYD
    assert ids(call(server, "get_emails")) == ["6"]
    assert [mail.subject for mail in server.messages(CYD)] == [
        "files",
        "Lunch",
    ]  # other mailboxes keep their copies


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("exam", ["2"]), ("EXAM monday", ["2"]), ('"on Monday"', ["2"]), ('"Monday on"', []), ("élodie", ["3"]), ("soup", ["3"]),
        ("from:bob", ["2"]), ("from:cyd", ["6"]), ("to:cyd", ["3"]), ("subject:see", []), ("body: see", ["6"]),
        ("x.org", ["3", "6", "2"]),
        ("subject:exam from:élodie", []), ("<p>", []), ("%", []), ("_", []), ("101", ["2"]), ("e", ["3", "6", "2"]), ("from:", []),
    ],
)  # fmt: skip
def test_search(query: str, found: list[str]) -> None:
    assert ids(call(office(), "search_emails", query=query)) == found


def test_search_pages_and_errors() -> None:
    server = office()
    page = call(server, "search_emails", query="x.org", page=2, page_size=2)
    assert (ids(page), page["total"], page["total_pages"]) == (["2"], 3, 2)
    assert call(server, "search_emails", query="x.org", folder="Sent")["total"] == 0
    for blank in ("", "  ", '""'):
        refused(
            server,
            "search_emails",
            "^invalid argument: query must name at least one word",
            query=blank,
        )
    refused(
        server, "search_emails", "^limit exceeded: a query has at most 50 words", query="a " * 51
    )


def test_sending_copies_the_mail() -> None:
    server = office()
    server.context.files.write("out/list.csv", "old")
    to = f'Bob <{BOB}>, "Doe, J." <j@far.net>, {BOB.upper()}'
    made = call(
        server,
        "send_email",
        to=to,
        subject=" Häuser ",
        body="a\r\nb",
        cc=ADA,
        bcc=CYD,
        attachments=["out/list.csv"],
    )
    assert made == call(server, "read_email", email_id=made["id"])
    assert {key: made[key] for key in ("from", "bcc", "date", "folder", "read", "attachments")} == {
        "from": ADA,
        "bcc": CYD,
        "date": "2025-01-15T09:00:01Z",
        "folder": "Sent",
        "read": True,
        "attachments": [{"filename": "list.csv", "size": 3, "content_type": "text/csv"}],
    }
    (message_id,) = {mail.message_id for mail in server.sent()}
    server.context.files.write("out/list.csv", "new")
    for user, folder, hidden in (
        (ADA, "Sent", CYD),
        (ADA, "INBOX", ""),
        (BOB, "INBOX", ""),
        (CYD, "INBOX", ""),
    ):
        mail = server.messages(user, folder)[-1]
        assert (mail.sender, mail.to) == (f"Ada L <{ADA}>", f'Bob <{BOB}>, "Doe, J." <j@far.net>')
        assert (mail.subject, mail.body, mail.cc, mail.bcc) == ("Häuser", "a\nb", ADA, hidden)
        assert (mail.attachments, mail.message_id, mail.read) == (
            {"list.csv": b"old"},
            message_id,
            folder == "Sent",
        )
    assert [mail.recipients for mail in server.sent(ADA)] == [[BOB, "j@far.net", ADA, CYD]]
    assert server.sent(BOB) == []
    server.login_as(CYD)
    assert (
        call(server, "search_emails", query="cyd subject:häuser")["total"] == 0
    )  # Bcc recipients do not see themselves
    got = call(server, "get_emails")["emails"][0]["id"]
    assert call(server, "read_email", email_id=got)["bcc"] == ""
    assert call(server, "read_email", email_id=got)["from_name"] == "Ada L"
    path = call(server, "download_attachment", email_id=got, attachment_filename="list.csv")["path"]
    assert (path, server.context.files.read_text(path)) == (
        "/workspace/attachments/list.csv",
        "old",
    )
    server.context.files.write(path, "mine")
    again = [
        call(server, "download_attachment", email_id=got, attachment_filename="list.csv")["path"]
        for _ in range(2)
    ]
    assert again == ["/workspace/attachments/list (2).csv"] * 2
    assert server.context.files.read_text(path) == "mine"
    refused(
        server,
        "download_attachment",
        "^not found: .* attachments: list.csv",
        email_id=got,
        attachment_filename="../x",
    )


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
    assert report.in_reply_to == sent.message_id
    assert report.date > sent.date
    call(server, "forward_email", email_id=report.id, to=CYD)  # bounces can be forwarded
    assert len(server.sent()) == 2


def test_invalid_mails_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    server = office()
    for path, size in (("a/x.bin", 2**20), ("b/x.bin", 0), ("y.bin", 2**20), ("c.bin", 3)):
        server.context.files.write(path, b"x" * size)
    monkeypatch.setattr("agentgym.office.email.messages.MAX_ATTACHMENTS_BYTES", 2**21 - 1)
    plain = {"to": BOB, "subject": "s", "body": "b"}
    for text, more in (
        ("^invalid argument: to must name at least one", {"to": " "}),
        ("^invalid argument: .* is not a list of e-mail addresses", {"to": "bob"}),
        ("^invalid argument: .* is not a list of e-mail addresses", {"to": f"{BOB}; {CYD}"}),
        ("^invalid argument: .* is not a list of e-mail addresses", {"to": f"{BOB}\nBcc: {CYD}"}),
        ("^invalid argument: .* is not a list of e-mail addresses", {"to": "(" * 5_000}),
        ("^invalid argument: a subject must be one line", {"subject": "a\nBcc: eve@far.net"}),
        ("^invalid argument: a subject must be one line", {"subject": "x" * 999}),
        ("^not found: there is no file", {"attachments": ["none"]}),
        ("outside of /workspace", {"attachments": ["../etc/passwd"]}),
        (
            "^invalid argument: two attachments have the name",
            {"attachments": ["a/x.bin", "b/x.bin"]},
        ),
        (
            "^limit exceeded: a mail has at most 100 attachments",
            {"attachments": ["a/x.bin", "y.bin"]},
        ),
        (
            "^limit exceeded: a mail has at most 500 recipients",
            {"to": ", ".join(f"u{k}@far.net" for k in range(501))},
        ),
    ):
        refused(server, "send_email", text, **{**plain, **more})
    assert server.sent() == []
    monkeypatch.setattr("agentgym.office.email.mailboxes.MAX_STORED_BYTES", 10)
    call(server, "send_email", **plain, attachments=["c.bin"])
    refused(
        server,
        "send_email",
        "^limit exceeded: attachments take at most 10 bytes",
        **plain,
        attachments=["c.bin"],
    )


def test_replies_keep_the_thread() -> None:
    server = office()
    first = server.messages(ADA, "INBOX")[2]
    call(server, "reply_email", email_id="3", body="yes", reply_all=True, cc=BOB)
    answer = server.sent(ADA)[0]
    assert (answer.subject, answer.to, answer.cc, answer.body) == (
        "Re: Lunch",
        "ÉLODIE <e@far.net>",
        f"{BOB}, {CYD}",
        "yes",
    )
    assert (answer.in_reply_to, answer.references) == (first.message_id, first.message_id)
    server.login_as(CYD)
    got = ids(call(server, "get_emails"))[0]
    call(server, "reply_email", email_id=got, body="no")
    second = server.sent(CYD)[0]
    assert (second.subject, second.to, second.cc) == ("Re: Lunch", f"Ada L <{ADA}>", "")
    assert second.references == f"{first.message_id} {answer.message_id}"
    server.login_as(ADA)
    call(
        server,
        "reply_email",
        email_id=ids(call(server, "get_emails", folder="Sent"))[0],
        body="more",
    )  # a reply to one's own mail goes to its recipient
    assert server.sent(ADA)[1].to == "ÉLODIE <e@far.net>"
    call(server, "forward_email", email_id="6", to="j@far.net", body="look")
    passed = server.sent(ADA)[2]
    assert (passed.subject, list(passed.attachments)) == ("Fwd: files", ["a.csv", "b.bin"])
    assert passed.body.startswith(
        "look\n\n---------- Forwarded message ----------\nFrom: cyd@x.org\nDate: 2025-01-01T09:00:00+08:00\n"
    )
    assert passed.body.endswith("\n\nsee there")


def test_drafts() -> None:
    server = office()
    made = call(server, "save_draft", subject="s", body="b", to=BOB, bcc=CYD)["id"]
    assert call(server, "save_draft", subject="", body="")["id"] != made
    assert call(server, "get_drafts")["drafts"][1] == {
        "id": made, "to": BOB, "cc": "", "bcc": CYD, "subject": "s", "body": "b", "html_body": "",
        "created_at": "2025-01-15T09:00:01Z", "updated_at": "2025-01-15T09:00:01Z"}  # fmt: skip
    changed = call(server, "update_draft", draft_id=made, body="c", cc=CYD)
    assert (changed["created_at"], changed["updated_at"]) == (
        "2025-01-15T09:00:01Z",
        "2025-01-15T09:00:03Z",
    )
    page = call(server, "get_drafts", page_size=1)
    assert page == {  # latest change first
        "total": 2,
        "page": 1,
        "page_size": 1,
        "total_pages": 2,
        "drafts": [changed],
    }
    draft = server.messages(ADA, "Drafts")[-1]
    assert (draft.subject, draft.body, draft.to, draft.cc, draft.bcc, draft.origin) == (
        "s",
        "c",
        BOB,
        CYD,
        CYD,
        "draft",
    )
    refused(server, "update_draft", "^invalid argument", draft_id=made, to="nobody")
    refused(server, "update_draft", "^not found: there is no draft", draft_id="2")
    refused(
        server, "move_email", "^conflict: email .* is a draft", email_id=made, target_folder="Sent"
    )
    refused(
        server,
        "move_email",
        "^conflict: email 2 is not a draft",
        email_id="2",
        target_folder="Drafts",
    )
    refused(server, "reply_email", "^conflict: email .* is a draft", email_id=made, body="x")
    assert call(server, "delete_draft", draft_id=made) == f"Draft {made} deleted"
    refused(server, "delete_draft", "^not found", draft_id=made)
    assert (len(server.messages(ADA, "Drafts")), server.sent()) == (1, [])


def test_users_cannot_reach_other_mailboxes() -> None:
    server = office()
    call(server, "save_draft", subject="plan", body="secret", to=CYD)
    call(server, "create_folder", folder_name="Private")
    theirs = [mail.id for mail in server.messages(ADA)]
    server.login_as(BOB)
    for mine in theirs:
        for tool, more in (
            ("read_email", {}), ("delete_email", {}), ("move_email", {"target_folder": "INBOX"}),
            ("reply_email", {"body": "x"}), ("forward_email", {"to": BOB}),
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
    server.deliver(old, user=ADA, folder="Archive")
    kept = server.messages(ADA, "Archive")
    assert [(mail.folder, mail.read, mail.important, mail.to) for mail in kept] == [
        ("Archive", True, True, "someone@else.net")
    ]
    assert server.folders(ADA) == ["INBOX", "Sent", "Drafts", "Trash", "Archive"]
    with pytest.raises(ToolError, match="not found: there is no user"):
        server.messages("no@x.org")
    with pytest.raises(ToolError, match="the date of a mail must have a time zone"):
        server.deliver(Mail(ADA, BOB, "", "", datetime(2025, 1, 1)))
    with pytest.raises(ToolError, match="not found: there is no mailbox"):
        server.deliver([old, Mail(ADA, "eve@x.org", "", "", DAY)])
    assert server.users()[0] == {"email": ADA, "name": "Ada L", "password": "pa"}
