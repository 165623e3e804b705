"""Mails as other programs show them, and exported files."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import HealthCheck, settings

from agentgym.office.email.headers import headers_of
from agentgym.office.email.messages import Mail, normalize
from tests.office.prepared import ADA, BOB, CYD, DAY, office
from tests.office.test_laws import call, refused, run

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


def test_exports_contain_whole_mails() -> None:
    server = office()
    call(server, "create_folder", folder_name="Work")
    call(server, "move_email", email_id="2", target_folder="Work")
    shown = call(server, "export_emails", export_path="all.json")
    assert shown == "Exported 3 emails to /workspace/all.json"
    entries = json.loads(server.context.files.read_text("all.json"))
    assert [entry["folder"] for entry in entries].count("Work") == 1
    mails = server.messages(ADA)
    for key in ("to", "cc", "subject", "body", "message_id"):
        shown_values = {entry[key] or "" for entry in entries}
        assert shown_values == {getattr(mail, key) for mail in mails}
    files = {f["filename"]: f["content_base64"] for entry in entries for f in entry["attachments"]}
    assert {name: base64.b64decode(data) for name, data in files.items()} == {
        name: data for mail in mails for name, data in mail.attachments.items()
    }
    for more, count in (
        ({"max_emails": 1}, 2),
        ({"folder": "Work"}, 1),
        ({"folder": "Work", "export_all_folders": True}, 3),
    ):
        assert call(server, "export_emails", **more).startswith(f"Exported {count} emails")
    refused(server, "export_emails", "outside of", export_path="../x")
    refused(server, "export_emails", "^invalid argument: max_emails", max_emails=0)
    refused(server, "export_emails", "^not found: there is no folder", folder="Nope")


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
