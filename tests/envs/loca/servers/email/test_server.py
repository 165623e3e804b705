"""The mail server: what each tool does, and what its mails are to other programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from agentgym.envs.loca.servers.email.messages import Mail
from agentgym.envs.loca.servers.email.server import Email
from agentgym.tools import ToolError, tools_of
from tests.envs.loca.servers.test_laws import call, refused

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
    assert call(server, "logout") == {
        "status": "logged out",
        "user": {"email": ADA, "name": "Ada L"},
    }
    arguments = {"email_id": "2", "folder_name": "x", "query": "x", "to": BOB, "subject": "", "body": "", "target_folder": "INBOX",
                 "email_ids": ["2"], "status": "read", "draft_id": "2", "import_path": "x", "attachment_filename": "x"}  # fmt: skip
    free = {"login", "create_user", "check_connection"}
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
    assert call(server, "check_connection")["logged_in_as"] is None
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
    assert call(server, "login", email="BOB@x.org", password="pb")["user"]["email"] == BOB
    assert call(server, "get_current_user") == {"email": BOB, "name": "Bob, Jr."}
    created = call(server, "create_user", email="al@x.org", name="Al", password="p")
    assert created["user"] == {"email": "al@x.org", "name": "Al"}
    refused(
        server, "create_user", "^conflict: there is a user", email="AL@X.org", name="", password="p"
    )
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
    listed = call(server, "list_users")
    assert [user["email"] for user in listed["users"]] == [
        "ada@x.org",
        "al@x.org",
        "bob@x.org",
        "cyd@x.org",
        "dan@x.org",
    ]
    assert all(user.keys() == {"email", "name"} for user in listed["users"])
    server.add_users((f"u{k}@x.org", "", "") for k in range(200))
    assert [len(call(server, "list_users")["users"]), call(server, "list_users")["total"]] == [
        100,
        205,
    ]
    assert call(server, "list_users")["truncated"]


def test_folders_list_and_read() -> None:
    server = office()
    listing = call(server, "get_emails")
    assert ids(listing) == [
        "3",
        "6",
        "2",
    ]  # newest first; 1 is Bob's copy of the first, 4 Cyd's of the second
    assert {key: listing[key] for key in ("folder", "total", "page", "page_size", "total_pages")} == {
        "folder": "INBOX", "total": 3, "page": 1, "page_size": 20, "total_pages": 1}  # fmt: skip
    assert listing["emails"][2] == {
        "id": "2", "folder": "INBOX", "subject": "Exam of CS101", "from": f"Bob <{BOB}>", "to": ADA,
        "date": "2025-01-01T08:00:00+08:00", "is_read": False, "is_important": False, "has_attachments": False}  # fmt: skip
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
    assert call(server, "get_unread_count") == {"folder": None, "unread": 3}
    read = call(server, "read_email", email_id="3")
    assert (read["body"], read["html_body"], read["is_read"]) == (
        "Salad & soup\n\nOk",
        "<p>Salad &amp; soup</p><br>Ok",
        True,
    )
    assert call(server, "read_email", email_id="6")["attachments"] == [
        {"filename": "a.csv", "content_type": "text/csv", "size": 4},
        {"filename": "b.bin", "content_type": "application/octet-stream", "size": 2}]  # fmt: skip
    assert call(server, "get_unread_count", folder_name="INBOX")["unread"] == 1
    for unknown in ("4", "99", "", "1 ", "01", "x" * 50, "9" * 30, "²"):
        refused(server, "read_email", "^not found: there is no email with id", email_id=unknown)
    call(server, "mark_emails", email_ids=["2", "2", "3"], status="important")
    call(server, "mark_emails", email_ids=["3"], status="unread")
    refused(
        server,
        "mark_emails",
        "^invalid argument: status must be one of read, unread",
        email_ids=["2"],
        status="gone",
    )
    refused(server, "mark_emails", "^not found", email_ids=["2", "4"], status="read")
    stats = call(server, "get_mailbox_stats")
    assert {key: stats[key] for key in stats if key != "folders"} == {
        "total": 3,
        "unread": 2,
        "important": 2,
        "with_attachments": 1,
    }
    assert call(server, "get_folders")["folders"] == stats["folders"]
    assert [counts["folder"] for counts in stats["folders"]] == ["INBOX", "Sent", "Drafts", "Trash"]


def test_folders_are_made_filled_and_removed() -> None:
    server = office()
    assert call(server, "create_folder", folder_name="Work")["folder"] == "Work"
    refused(
        server, "create_folder", '^conflict: there is a folder "WORK" already', folder_name="WORK"
    )
    for wrong in ("", " a", "a\nb", "x" * 101):
        refused(
            server, "create_folder", "^invalid argument: the name of a folder", folder_name=wrong
        )
    assert call(server, "move_emails", email_ids=["2", "3"], target_folder="work") == {
        "moved": 2,
        "folder": "Work",
    }
    refused(server, "move_emails", "^not found", email_ids=["6", "7"], target_folder="Work")
    refused(
        server, "move_email", "^not found: there is no folder", email_id="6", target_folder="Play"
    )
    refused(
        server, "delete_folder", '^conflict: the folder "Work" holds 2 emails', folder_name="Work"
    )
    refused(server, "delete_folder", "^permission denied: the folder INBOX", folder_name="Inbox")
    assert call(server, "delete_emails", email_ids=["2", "3"]) == {
        "moved_to_trash": 2,
        "removed": 0,
    }
    assert call(server, "delete_folder", folder_name="WORK") == {
        "status": "deleted",
        "folder": "Work",
    }
    assert call(server, "delete_email", email_id="2") == {"id": "2", "status": "removed"}
    assert call(server, "move_email", email_id="3", target_folder="INBOX")["folder"] == "INBOX"
    assert ids(call(server, "get_emails")) == ["3", "6"]
    assert [mail.subject for mail in server.messages(CYD)] == [
        "files",
        "Lunch",
    ]  # others keep theirs: what Cyd sent, and the copy
    for k in range(196):
        call(server, "create_folder", folder_name=f"f{k}")
    refused(
        server,
        "create_folder",
        "^limit exceeded: a mailbox has at most 200 folders",
        folder_name="more",
    )


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


def test_search_pages_and_refusals() -> None:
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


def test_sending_by_value_to_users_and_others() -> None:
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
    assert (made["status"], made["date"]) == ("sent", "2025-01-15T09:00:01Z")
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
            made["message_id"],
            folder == "Sent",
        )
    assert [mail.recipients for mail in server.sent(ADA)] == [[BOB, "j@far.net", ADA, CYD]]
    assert server.sent(BOB) == []
    server.login_as(CYD)
    assert (
        call(server, "search_emails", query="cyd subject:häuser")["total"] == 0
    )  # hidden from the one who is hidden too
    got = call(server, "get_emails")["emails"][0]["id"]
    assert call(server, "read_email", email_id=got)["bcc"] == ""
    assert "Bcc" not in call(server, "get_email_headers", email_id=got)["headers"]
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


def test_what_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    server = office()
    for path, size in (("a/x.bin", 2**20), ("b/x.bin", 0), ("y.bin", 2**20), ("c.bin", 3)):
        server.context.files.write(path, b"x" * size)
    monkeypatch.setattr(
        "agentgym.envs.loca.servers.email.messages.MAX_ATTACHMENTS_BYTES", 2**21 - 1
    )
    plain = {"to": BOB, "subject": "s", "body": "b"}
    for text, more in (
        ('^not found: x.org has no mailbox "eve@x.org"; nothing was sent', {"cc": "eve@x.org"}),
        ("^not found: x.org has no mailbox", {"bcc": "eve@X.ORG"}),
        ("^invalid argument: to must name at least one", {"to": " "}),
        ("^invalid argument: .* is no list of e-mail addresses", {"to": "bob"}),
        ("^invalid argument: .* is no list of e-mail addresses", {"to": f"{BOB}; {CYD}"}),
        ("^invalid argument: .* is no list of e-mail addresses", {"to": f"{BOB}\nBcc: {CYD}"}),
        ("^invalid argument: .* is no list of e-mail addresses", {"to": "(" * 5_000}),
        ("^invalid argument: a subject is one line", {"subject": "a\nBcc: eve@far.net"}),
        ("^invalid argument: a subject is one line", {"subject": "x" * 999}),
        ("^not found: there is no file", {"attachments": ["none"]}),
        ("outside of /workspace", {"attachments": ["../etc/passwd"]}),
        ("^invalid argument: two attachments are called", {"attachments": ["a/x.bin", "b/x.bin"]}),
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
    monkeypatch.setattr("agentgym.envs.loca.servers.email.mailboxes.MAX_STORED_BYTES", 10)
    call(server, "send_email", **plain, attachments=["c.bin"])
    refused(
        server,
        "send_email",
        "^limit exceeded: the mailboxes are full",
        **plain,
        attachments=["c.bin"],
    )


def test_answers_keep_the_thread() -> None:
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
    )  # to whom the own mail went
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
    assert ids(call(server, "get_drafts"))[1] == made
    call(server, "update_draft", draft_id=made, body="c", cc=CYD)
    assert ids(call(server, "get_drafts", page_size=1)) == [made]  # the last that was changed
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
        server, "move_email", "^conflict: email 2 is no draft", email_id="2", target_folder="Drafts"
    )
    refused(server, "reply_email", "^conflict: email .* is a draft", email_id=made, body="x")
    call(server, "delete_draft", draft_id=made)
    refused(server, "delete_draft", "^not found", draft_id=made)
    assert (len(server.messages(ADA, "Drafts")), server.sent()) == (1, [])


def test_one_user_cannot_reach_what_another_has() -> None:
    server = office()
    call(server, "save_draft", subject="plan", body="secret", to=CYD)
    call(server, "create_folder", folder_name="Private")
    theirs = [mail.id for mail in server.messages(ADA)]
    server.login_as(BOB)
    for mine in theirs:
        for tool, more in (
            ("read_email", {}), ("get_email_headers", {}), ("delete_email", {}), ("move_email", {"target_folder": "INBOX"}),
            ("reply_email", {"body": "x"}), ("forward_email", {"to": BOB}),
            ("download_attachment", {"attachment_filename": "a.csv"}),
        ):  # fmt: skip
            refused(server, tool, "^not found: there is no email with id", email_id=mine, **more)
        refused(server, "delete_draft", "^not found", draft_id=mine)
        refused(server, "delete_emails", "^not found", email_ids=[mine])
    refused(server, "get_emails", "^not found: there is no folder", folder="Private")
    assert call(server, "search_emails", query="e")["total"] == 0
    assert (
        call(server, "export_emails", export_all_folders=True)["exported"] == 1
    )  # the copy of what Bob wrote
    assert "secret" not in server.context.files.read_text("emails_export.json")


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
    with pytest.raises(ToolError, match="the date of a mail has a time zone"):
        server.deliver(Mail(ADA, BOB, "", "", datetime(2025, 1, 1)))
    with pytest.raises(ToolError, match=r"not found: x\.org has no mailbox"):
        server.deliver([old, Mail(ADA, "eve@x.org", "", "", DAY)])
    assert server.users()[0] == {"email": ADA, "name": "Ada L", "password": "pa"}
