"""Servers filled with data that a session file cannot contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email
from agentgym.office.files.filesystem import Filesystem
from agentgym.office.files.pdf_tools import PdfTools
from agentgym.office.files.pdfs import write_pdf
from agentgym.office.server import Server
from agentgym.office.spreadsheet.excel import Excel
from agentgym.office.spreadsheet.workbooks import write_workbook

DAY = datetime(2025, 1, 1, 8, tzinfo=timezone(timedelta(hours=8)))
ADA, BOB, CYD = "ada@x.org", "bob@x.org", "cyd@x.org"


def office() -> Email:
    """Three users; Ada is logged in and has three emails."""
    server = Email()
    server.add_users([(ADA, "pa", "Ada L"), (BOB, "pb", "Bob, Jr."), (CYD, "pc", "")])
    lunch, files = DAY + timedelta(hours=2), DAY + timedelta(hours=1)
    salad = "<p>Salad &amp; soup</p><br>Ok"
    tables = {"a.csv": b"x,y\n", "b.bin": b"\0\xff"}
    server.deliver(
        [
            Mail(f"Bob <{BOB}>", ADA, "Exam of CS101", "The exam is on Monday.\nRoom 5", DAY),
            Mail("ÉLODIE <e@far.net>", f"{ADA}, {CYD}", "Lunch", "", lunch, html=salad),
            Mail(CYD, ADA, "files", "see there", files, attachments=tables),
        ]
    )
    server.login_as(ADA)
    return server


def workspace() -> Filesystem:
    """Five files of different kinds and an empty folder."""
    server = Filesystem()
    held = {
        "a.txt": b"one\ntwo\nthree\n",
        "sub/b.md": b"x",
        "p.png": b"\x89PNG",
        "z.bin": bytes(3_000),
        "bad.txt": b"\xff\xfe",
    }
    for name, data in held.items():
        server.context.files.write(name, data)
    server.context.files.mkdir("empty")
    return server


BOOK = write_workbook(
    {
        "Games": [
            ["team", "place", "goals", "rank"],
            ["Kings", "H", 3, 1],
            ["Bruins", "A", 5, 2],
            ["Kings", "A", 4, 3],
        ],
        "Other one": [],
    }
)


def spreadsheets() -> Excel:
    server = Excel()
    server.context.files.write("in/book.xlsx", BOOK)
    return server


def pages() -> PdfTools:
    """A PDF file of three pages with ten lines each."""
    server = PdfTools()
    rows = [[f"row {10 * page + k}" for k in range(10)] for page in range(3)]
    server.context.files.write("m.pdf", write_pdf(rows, "Rows"))
    return server


PREPARED: Mapping[str, Callable[[], Server]] = {
    "email": office,
    "excel": spreadsheets,
    "filesystem": workspace,
}
