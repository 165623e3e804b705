"""Mails as other programs show them, and exported files."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym.office.email import exports
from agentgym.office.email.headers import headers_of
from agentgym.office.email.messages import Mail, normalize
from tests.office.email.test_server import ADA, BOB, CYD, DAY, call, office, refused
from tests.office.test_laws import run

PATIENT = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize(
    ("body", "html", "parts"),
    [
        ("text ", None, ["text"]),
        ("text", "  ", ["text"]),
        ("text", "<b>other</b>", ["other", "text"]),
        ("", "<b>other</b>", ["other"]),
        ("text", "<a@b.org>", ["", "text"]),  # mail programs show the HTML, which is empty
        ("", None, [""]),
    ],
)
def test_parts_are_in_display_order(body: str, html: str, parts: list[str]) -> None:
    assert Mail(BOB, ADA, "subject", body, DAY, html=html).parts == parts


@pytest.mark.parametrize(
    ("body", "html", "files", "kind"),
    [
        ("text", None, {}, 'text/plain; charset="us-ascii"'),
        ("é", None, {}, 'text/plain; charset="utf-8"'),
        ("x" * 998, None, {}, 'text/plain; charset="utf-8"'),  # too long for an ASCII line
        ("", "<b>x</b>", {}, 'text/html; charset="us-ascii"'),
        ("text", "<b>x</b>", {}, "multipart/alternative; boundary="),
        ("text", None, {"a.txt": b"x"}, "multipart/mixed; boundary="),
    ],
)
def test_headers(body: str, html: str | None, files: dict[str, bytes], kind: str) -> None:
    people = f'"Doe, J." <{BOB}>, "Ann – B" <{CYD}>'
    mail = normalize(Mail(f"ÉLODIE <{ADA}>", people, "Häuser", body, DAY, html, attachments=files))
    headers = headers_of(mail)
    assert headers.pop("Content-Type").startswith(kind)
    assert headers == {
        "Date": "Wed, 01 Jan 2025 08:00:00 +0800",
        "From": f"ÉLODIE <{ADA}>",
        "To": f'"Doe, J." <{BOB}>, Ann – B <{CYD}>',
        "Subject": "Häuser",
    }


def test_exports_can_be_imported() -> None:
    server = office()
    call(server, "create_folder", folder_name="Work")
    call(server, "move_email", email_id="2", target_folder="Work")
    server.deliver(
        Mail(BOB, ADA, "From me", "From here\n>From there\n\n", DAY, cc="é <c@far.net>"), user=ADA
    )
    before = server.messages(ADA)
    shown = call(server, "export_emails", export_path="all.json")
    assert shown == "Exported 4 emails to /workspace/all.json"
    server.login_as(CYD)
    kept = server.messages(CYD)
    shown = call(server, "import_emails", import_path="all.json")
    assert shown == "Imported 4 emails from all.json"
    new = [mail for mail in server.messages(CYD) if mail not in kept]
    assert Counter(mail.folder for mail in new) == {"Work": 1, "INBOX": 3}
    same = ("sender", "to", "cc", "subject", "body", "html", "date", "attachments", "message_id")
    pick = [
        sorted(repr([getattr(mail, name) for name in same]) for mail in mails)
        for mails in (new, before)
    ]
    assert pick[0] == pick[1]
    assert {mail.origin for mail in new} == {"import"}
    assert server.sent() == []
    call(server, "import_emails", import_path="all.json", target_folder="Old")
    for more, count in (({"max_emails": 1}, 1), ({}, 4), ({"export_all_folders": True}, 10)):
        text = call(server, "export_emails", folder="Old", export_path="more.json", **more)
        assert text.startswith(f"Exported {count} emails")
    assert len(server.messages(CYD, "Old")) == 4


def test_files_that_are_not_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    server = office()
    call(server, "export_emails")
    entries = json.loads(server.context.files.read_text("emails_export.json"))
    for k, data in enumerate(("", "{}", "[{}]", "[" * 100_000, '{"emails": []}', b"\xff")):
        server.context.files.write(f"f{k}.json", data)
        refused(
            server,
            "import_emails",
            "^invalid argument: the file is not a JSON export of emails",
            import_path=f"f{k}.json",
        )
    for key, value, text in (
        ("from", "nobody", "not a list of e-mail"),
        ("date", "2025-01-01T00:00:00", "not a JSON export"),
        ("date", "0001-01-01T00:00:00Z", "a year"),
        ("subject", "a\nb", "one line"),
        ("folder", "a\nb", "a folder name"),
        ("attachments", [{}], "not a JSON export"),
    ):
        changed = [entries[0], {**entries[1], key: value}]
        server.context.files.write("bad.json", json.dumps(changed))
        refused(server, "import_emails", f"^invalid argument: .*{text}", import_path="bad.json")
    listed = call(server, "get_emails", page=2, page_size=2)["emails"]
    server.context.files.write("listed.json", json.dumps(listed))
    call(server, "import_emails", import_path="listed.json", target_folder="Copy")
    copies = call(server, "get_emails", folder="Copy")["emails"]  # a listing is a file, too
    assert [{**mail, "folder": "INBOX", "id": "2"} for mail in copies] == listed
    refused(server, "import_emails", "there is no file", import_path="none.json")
    refused(server, "export_emails", "outside of", export_path="../x")
    refused(server, "export_emails", "^invalid argument: max_emails", max_emails=0)
    monkeypatch.setattr(exports, "MAX_IMPORTED", 2)
    refused(server, "import_emails", "^limit exceeded", import_path="emails_export.json")


@PATIENT
@given(st.binary(max_size=200), st.integers(0, 2_000))
def test_damaged_files_get_errors(noise: bytes, place: int) -> None:
    server = office()
    call(server, "export_emails", export_path="f.json")
    data = server.context.files.read("f.json")
    server.context.files.write("f.json", data[:place] + noise + data[place + len(noise) :])
    assert run(server, "import_emails", {"import_path": "f.json"})


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
