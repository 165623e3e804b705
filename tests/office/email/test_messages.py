"""Mails as messages and in files: other programs read them, and what is damaged is refused."""

from __future__ import annotations

import email
import json
import mailbox
from collections import Counter
from datetime import timedelta
from email import policy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym.office.email.exports import read_mbox, write_mbox
from agentgym.office.email.messages import Mail, format_address, normalize
from agentgym.office.email.rfc5322 import parse, render
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
def test_what_mail_programs_show_comes_first(body: str, html: str, parts: list[str]) -> None:
    assert Mail(BOB, ADA, "subject", body, DAY, html=html).parts == parts


@pytest.mark.parametrize("path", ["all.json", "box.mbox"])
def test_exports_come_back(path: str) -> None:
    server = office()
    call(server, "create_folder", folder_name="Work")
    call(server, "move_email", email_id="2", target_folder="Work")
    server.deliver(
        Mail(BOB, ADA, "From me", "From here\n>From there\n\n", DAY, cc="é <c@far.net>"), user=ADA
    )
    before = server.messages(ADA)
    assert (
        call(server, "export_emails", export_path=path) == f"Exported 4 emails to /workspace/{path}"
    )
    server.login_as(CYD)
    kept = server.messages(CYD)
    assert call(server, "import_emails", import_path=path) == f"Imported 4 emails from {path}"
    new = [mail for mail in server.messages(CYD) if mail not in kept]
    folders = {"INBOX": 4} if path == "box.mbox" else {"Work": 1, "INBOX": 3}
    assert Counter(mail.folder for mail in new) == folders
    same = ("sender", "to", "cc", "subject", "body", "html", "date", "attachments", "message_id")
    pick = [
        sorted(repr([getattr(mail, name) for name in same]) for mail in mails)
        for mails in (new, before)
    ]
    assert pick[0] == pick[1]
    assert {mail.origin for mail in new} == {"import"}
    assert server.sent() == []
    call(server, "import_emails", import_path=path, target_folder="Old")
    for more, count in (({"max_emails": 1}, 1), ({}, 4), ({"export_all_folders": True}, 10)):
        text = call(server, "export_emails", folder="Old", export_path=path, **more)
        assert text.startswith(f"Exported {count} emails")
    assert len(server.messages(CYD, "Old")) == 4


def test_files_that_are_no_export() -> None:
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
        ("from", "nobody", "not a list of e-mail"), ("date", "2025-01-01T00:00:00", "not a JSON export"),
        ("date", "0001-01-01T00:00:00Z", "a year"),
        ("subject", "a\nb", "one line"), ("folder", "a\nb", "a folder name"), ("attachments", [{}], "not a JSON export"),
    ):  # fmt: skip
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


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
LINE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=120)
ENTRY = st.builds(
    lambda name, where: (name.strip(), where),
    LINE.filter(lambda name: name.count("(") < 9),
    st.sampled_from([ADA, BOB, "o'n+e@a-b.co"]),
)
NAMES = st.sampled_from(
    ["a.csv", "b c.zip", "é\u4e2d.pdf", 'q"uo;te.txt', "noext", "x.eml", "n" * 150 + ".md"]
)


@st.composite
def mails(draw: st.DrawFn) -> Mail:
    people = draw(st.lists(ENTRY, min_size=1, max_size=3, unique_by=lambda entry: entry[1]))
    return normalize(
        Mail(
            format_address(*people[0]), ", ".join(format_address(*entry) for entry in people),
            draw(LINE | st.just("=?utf-8?q?a?= b")),
            draw(TEXT | st.just("x" * 1_500) | st.just("From a\n.\n--b")), DAY + timedelta(seconds=draw(st.integers(0, 10**8))),
            html=draw(st.none() | TEXT), cc=ADA if draw(st.booleans()) else "",
            attachments=draw(st.dictionaries(NAMES, st.binary(max_size=90), max_size=3)),
            message_id="<1@x.org>", references=" ".join(f"<{k}@x.org>" for k in range(draw(st.integers(0, 30)))),
        )
    )  # fmt: skip


@pytest.mark.rotation
@PATIENT
@given(mails())
def test_a_mail_is_a_message_to_other_readers(mail: Mail) -> None:
    data = render(mail)
    assert all(len(line) <= 998 and line.isascii() for line in data.split(b"\r\n"))
    assert b"\n" not in data.replace(b"\r\n", b"")
    message = email.message_from_bytes(data, policy=policy.default)
    assert not message.defects
    assert (message["subject"], message["date"].datetime) == (mail.subject, mail.date)
    assert [(entry.addr_spec) for entry in message["to"].addresses] == [
        entry for entry in mail.recipients if entry in mail.to
    ][: len(message["to"].addresses)]
    plain, rich = message.get_body(("plain",)), message.get_body(("html",))
    assert (plain.get_content().replace("\r\n", "\n") if plain else "") == mail.body
    assert (rich.get_content().replace("\r\n", "\n") if rich else None) == mail.html
    files = (
        {part.get_filename(): part.get_payload(decode=True) for part in message.iter_attachments()}
        if mail.attachments
        else {}
    )
    assert files == mail.attachments
    assert parse(data, mail) == mail == read_mbox(write_mbox([mail, mail]), mail)[1]


def test_an_mbox_is_one_to_other_readers(tmp_path: Path) -> None:
    server = office()
    call(server, "export_emails", export_path="box.mbox")
    (tmp_path / "box").write_bytes(server.context.files.read("box.mbox"))
    box = mailbox.mbox(tmp_path / "box")
    assert [message["Subject"] for message in box] == ["Lunch", "files", "Exam of CS101"]
    assert box[1].get_payload()[1].get_payload(decode=True) == b"x,y\n"
    box.close()


@PATIENT
@given(st.binary(max_size=200), st.integers(0, 2_000), st.sampled_from([".mbox", ".eml", ".json"]))
def test_damaged_files_get_errors(noise: bytes, place: int, suffix: str) -> None:
    server = office()
    call(server, "export_emails", export_path=f"f{suffix}")
    data = server.context.files.read(f"f{suffix}")
    server.context.files.write(f"f{suffix}", data[:place] + noise + data[place + len(noise) :])
    assert run(server, "import_emails", {"import_path": f"f{suffix}"})


def test_long_hostile_texts_take_no_time() -> None:
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
    many = (
        'Content-Type: multipart/mixed; boundary="b"\n\n'
        + "--b\nContent-Type: image/png\n\n\n" * 5_000
    )
    for k, text in enumerate(
        (
            many,
            "Subject: " + "=?utf-8?q?" * 50_000,
            "From: " + "a" * 200_000,
            "To: " + "(<" * 100_000,
            "From a\n\n" * 500,
        )
    ):
        server.context.files.write(f"{k}.eml", text)
        run(server, "import_emails", {"import_path": f"{k}.eml"})
    server.context.files.write("box.mbox", "From a\n\n" * 10_002)
    refused(
        server,
        "import_emails",
        "^limit exceeded: a file of emails holds at most 5000, got 5001",
        import_path="box.mbox",
    )
    deep = "".join(
        f'Content-Type: multipart/mixed; boundary="{k}"\n\n--{k}\n' for k in range(1_500)
    )
    server.context.files.write("deep.eml", deep)
    refused(server, "import_emails", "nested too deeply", import_path="deep.eml")
