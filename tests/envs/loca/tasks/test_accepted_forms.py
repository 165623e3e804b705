"""Check that reasonable alternatives to the correct final state also get the full score."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from agentgym.envs.loca.calls import PROGRAMS, is_read
from agentgym.envs.loca.protected_state import DRAFTS
from agentgym.office.calendar import Calendar
from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email
from agentgym.office.spreadsheet.workbooks import open_workbook, save_workbook
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, tools_of
from tests.envs.loca.office import TASKS, Change, call, csv_rows_of, csv_text, solved, unsent
from tests.envs.loca.own_forms import ORDERED

BOM = b"\xef\xbb\xbf"
SPARE = "work/notes/spare.txt"

FILES: dict[str, Change] = {
    "an empty folder": call("create_directory", path="work/empty"),
    "a note": call("write_file", path="note.txt", content="Done."),
    "a note in a folder": lambda world: (
        call("create_directory", path="work/notes")(world),
        call("write_file", path=SPARE, content="x")(world),
    ),
    "a note that is edited": lambda world: (
        call("write_file", path="edited.txt", content="one")(world),
        call("edit_file", path="edited.txt", edits=[{"oldText": "one", "newText": "two"}])(world),
    ),
    "a note that is renamed": lambda world: (
        call("write_file", path="draft.md", content="one")(world),
        call("move_file", source="draft.md", destination="final.md")(world),
    ),
    "copies of all files": lambda world: [
        world.office.context.files.write(
            f"copies/{path.strip('/')}", world.office.context.files.read(path)
        )
        for path in list(world.office.context.files.walk())
    ],
}


def in_outputs(suffix: str, change: Callable[[bytes], bytes]) -> Change:
    def apply(world: Any) -> None:
        files = world.office.context.files
        for path in paths(type(world), suffix):
            files.write(path, change(files.read(path)))

    return apply


def paths(kind: Any, suffix: str) -> list[str]:
    return [path for path in kind.outputs if path.endswith(suffix) and ":" not in path]


def in_csv(**form: Any) -> Change:
    return lambda world: [
        world.office.context.files.write(
            path, csv_text(csv_rows_of(world.office.context.files.read(path)), **form)
        )
        for path in paths(type(world), ".csv")
    ]


def backwards(world: Any) -> None:
    files = world.office.context.files
    for path in paths(type(world), ".csv"):
        head, *body = csv_rows_of(files.read(path))
        files.write(path, csv_text([head, *(body if path in ORDERED else body[::-1])]))


def with_blanks(data: bytes) -> bytes:
    rows = [[f" {cell} " for cell in row] for row in csv_rows_of(data)]
    return csv_text(rows).encode()


CSV: dict[str, Change] = {
    "Windows line ends": in_csv(lineterminator="\r\n"),
    "Unix line ends": in_csv(lineterminator="\n"),
    "all cells in quotes": in_csv(quoting=csv.QUOTE_ALL),
    "a byte order mark": in_outputs(".csv", lambda data: BOM + data.removeprefix(BOM)),
    "empty lines at the end": in_outputs(".csv", lambda data: data + b"\n\n"),
    "no line end at the end": in_outputs(".csv", lambda data: data.rstrip(b"\r\n")),
    "rows in another order": backwards,
    "empty lines between": in_csv(lineterminator="\r\n\r\n"),
    "blanks around the cells": in_outputs(".csv", with_blanks),
}


def in_book(change: Callable[[Any], object]) -> Change:
    def rewrite(data: bytes) -> bytes:
        book = open_workbook(data)
        change(book.worksheets[0])
        return save_workbook(book, book.properties.modified)

    return in_outputs(".xlsx", rewrite)


def widened(sheet: Any) -> None:
    sheet.column_dimensions["A"].width = 40


def frozen(sheet: Any) -> None:
    sheet.freeze_panes = "A2"


def filtered(sheet: Any) -> None:
    sheet.auto_filter.ref = sheet.dimensions


def marked(sheet: Any) -> None:
    sheet.sheet_properties.tabColor = "FF0000"


def with_blank_heads(sheet: Any) -> None:
    for cell in sheet[1]:
        cell.value = f" {cell.value} "


BOOKS: dict[str, Change] = {
    "written by another program": in_book(lambda _: None),
    "a wide column": in_book(widened),
    "a row that stays in view": in_book(frozen),
    "a filter that shows all": in_book(filtered),
    "a tab with a color": in_book(marked),
    "blanks around the heads": in_book(with_blank_heads),
    "an empty row below the head": in_book(lambda sheet: sheet.insert_rows(2)),
    "empty rows at the end": in_book(lambda sheet: sheet.append([None, ""])),
    "a bold head": in_book(lambda sheet: setattr(sheet["A1"], "number_format", "@")),
}


def mails(change: Callable[[Mail], Mail], backwards: bool = False) -> Change:
    def apply(world: Any) -> None:
        sent = world.office.get(Email).sent()
        for mail in sent:
            unsent(world, mail)
        for k, mail in enumerate(reversed(sent) if backwards else sent):
            send(world, change(mail), f"/workspace/resent/{k}")

    return apply


def send(world: Any, mail: Mail, folder: str) -> None:
    attached = []
    for name, data in mail.attachments.items():
        attached.append(f"{folder}/{name}")
        world.office.context.files.write(attached[-1], data)
    parts: dict[str, Any] = {"html_body": mail.html} if mail.html else {}
    parts |= {"attachments": attached} if attached else {}
    call("send_email", to=mail.to, subject=mail.subject, body=mail.body, **parts)(world)


def as_html(text: str) -> str:
    return "".join(f"<p>{line}</p>\n" for line in text.split("\n"))


def own(folder: str) -> Callable[[Any], Iterator[str]]:
    def ids(world: Any) -> Iterator[str]:
        email = world.office.get(Email)
        user = email.get_current_user()["email"]
        yield from (mail.id for mail in email.messages(user, folder))

    return ids


def of_copies(tool: str, **arguments: Any) -> Change:
    return lambda world: [
        world.office.call(tool, {"email_ids": [key], **arguments}) for key in own("Sent")(world)
    ]


SENT: dict[str, Change] = {
    "a name before the address": mails(
        lambda mail: replace(mail, to=f"Student <{mail.recipients[0]}>")
    ),
    "a title before the name": mails(
        lambda mail: replace(mail, to=f'"Prof. X" <{mail.recipients[0]}>')
    ),
    "the address in capitals": mails(lambda mail: replace(mail, to=mail.recipients[0].upper())),
    "Windows line ends in the mails": mails(
        lambda mail: replace(mail, body=mail.body.replace("\n", "\r\n"))
    ),
    "empty lines around the text": mails(lambda mail: replace(mail, body=f"\n\n{mail.body}\n\n")),
    "the same in HTML": mails(lambda mail: replace(mail, html=as_html(mail.body))),
    "in HTML with a style": mails(
        lambda mail: replace(mail, html=f'<div style="color: red">{as_html(mail.body)}</div>')
    ),
    "in another order": mails(lambda mail: mail, backwards=True),
    "the copies are deleted": of_copies("delete_emails"),
    "the copies are moved": of_copies("move_emails", target_folder="Trash"),
    "the copies are marked": of_copies("mark_emails", status="important"),
}
DRAFTED: dict[str, Change] = {
    "a draft": call("save_draft", subject="Later", body="x", to="a@mcp.com"),
    "a draft that was deleted": lambda world: (
        call("save_draft", subject="Later", body="x")(world),
        call("delete_draft", draft_id=next(own("Drafts")(world)))(world),
    ),
}


def events(change: Callable[[Any], Mapping[str, Any]]) -> Change:
    return lambda world: [
        call("update_event", eventId=str(event.id), **change(event))(world)
        for event in world.office.get(Calendar).events()
    ]


CALENDAR: dict[str, Change] = {
    "notes in the reminders": events(lambda _: {"description": "AoE is UTC-12."}),
    "a place of the reminders": events(lambda _: {"location": "my office"}),
    "titles in capitals": events(lambda event: {"summary": event.summary.upper()}),
    "longer titles": events(lambda event: {"summary": f"Reminder: {event.summary} deadline"}),
}


def rewritings(task: str) -> dict[str, Change]:
    kind = TASKS[task]
    fitting = dict(FILES)
    if solved_mails(task):
        fitting |= SENT
    if "email" in kind.servers and DRAFTS not in kind.forbidden:
        fitting |= DRAFTED
    if "calendar" in kind.servers:
        fitting |= CALENDAR
    if "snowflake" in kind.servers:
        fitting["an insight"] = call("append_insight", insight="Some are open.")
    return fitting | (CSV if paths(kind, ".csv") else {}) | (BOOKS if paths(kind, ".xlsx") else {})


def solved_mails(task: str) -> list[Mail]:
    if "email" not in TASKS[task].servers:
        return []
    mails: list[Mail] = solved(task).office.get(Email).sent()
    return mails


@pytest.mark.parametrize("task", TASKS)
def test_every_rewriting_passes(task: str) -> None:
    """Apply the rewritings one by one, then together in a random order."""
    fitting = rewritings(task)
    for name, change in fitting.items():
        world = solved(task)
        change(world)
        assert list(world.all_failures()) == [], name
    world, names = solved(task), sorted(fitting)
    random.Random(task).shuffle(names)
    for name in names:
        fitting[name](world)
    assert world.score() == 1.0


@pytest.mark.parametrize("task", TASKS)
def test_reading_and_refused_calls_keep_the_score(task: str) -> None:
    world = solved(task)
    arguments = {
        "path": "/workspace",
        "timeMin": "2025-01-01T00:00:00Z",
        "timeMax": "2026-01-01T00:00:00Z",
    }
    for name, tool in (
        (name, tool) for server in world.toolsets() for name, tool in tools_of(server).items()
    ):
        if name not in PROGRAMS and name != "claim_done":
            needed = tool.schema.parameters.get("required", ())
            given = {key: arguments.get(key, "no such thing") for key in needed}
            with suppress(ToolError):
                if is_read(ToolCall(name, given)):
                    world.office.call(name, given)
    assert world.score() == 1.0
