"""Alternative final states that a careful person would accept keep the score."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agentgym.envs.loca.protected_state import DRAFTS
from agentgym.office.calendar import Calendar
from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email
from agentgym.office.spreadsheet.workbooks import open_workbook, save_workbook
from agentgym.text.tools import ToolError
from tests.envs.loca.office import TASKS, Change, call, csv_rows_of, csv_text, solved, unsent
from tests.envs.loca.own_forms import ORDERED

AT_LEAST = 20  # rewritings per task
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
    "a hidden file": call("write_file", path=".cache", content="x"),
    "a file without a suffix": call("write_file", path="result", content="x"),
    "copies of all files": lambda world: [
        world.office.context.files.write(
            f"copies/{path.strip('/')}", world.office.context.files.read(path)
        )
        for path in list(world.office.context.files.walk())
    ],
    "a look at all files": lambda world: (
        call("directory_tree", path="/workspace")(world),
        call("search_files", path="/workspace", pattern="*")(world),
    ),
    "a call that is refused": lambda world: refused(world, "read_text_file", path="no such file"),
    "a write that is refused": lambda world: refused(
        world, "edit_file", path="no such file", edits=[{"oldText": "a", "newText": "b"}]
    ),
}


def refused(world: Any, tool: str, **arguments: Any) -> None:
    with pytest.raises(ToolError):
        world.office.call(tool, arguments)


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
    "looking at the sheets": lambda world: [
        call("get_workbook_metadata", filepath=path)(world)
        for path in world.office.context.files.walk()
        if path.endswith(".xlsx")
    ],
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
MAILBOX: dict[str, Change] = {
    "all mails are read": lambda world: [
        call("read_email", email_id=key)(world) for key in own("INBOX")(world)
    ],
    "a mail is unread again": lambda world: [
        call("mark_emails", email_ids=[key], status="unread")(world) for key in own("INBOX")(world)
    ],
    "a search": call("search_emails", query="the"),
    "logged out": call("logout"),
}
DRAFTED: dict[str, Change] = {
    "a draft": call("save_draft", subject="Later", body="x", to="a@mcp.com"),
    "a draft that was deleted": lambda world: (
        call("save_draft", subject="Later", body="x")(world),
        call("delete_draft", draft_id=next(own("Drafts")(world)))(world),
    ),
}
CLOUD: dict[str, Change] = {
    "a query": call("bigquery_run_query", query="SELECT 1"),
    "a query that is refused": lambda world: refused(
        world, "bigquery_run_query", query="SELECT nothing FROM nowhere"
    ),
    "a look at the tables": call("bigquery_list_datasets"),
    "a look at the buckets": call("storage_list_buckets"),
    "a look at the logs": call("logging_read_logs"),
}
SHOP: dict[str, Change] = {
    "a look at the orders": call("woo_orders_list"),
    "a look at the customers": call("woo_customers_list"),
    "a look at the products": call("woo_products_list", perPage=100),
    "a report": call("woo_reports_stock"),
    "a product that is not there": lambda world: refused(
        world, "woo_products_get", productId=10**6
    ),
}
CANVAS: dict[str, Change] = {
    "a look at the courses": call("canvas_list_courses"),
    "a look at the profile": call("canvas_get_user_profile"),
    "a change that is refused": lambda world: refused(
        world, "canvas_update_course", course_id=1, name="Mine"
    ),
}


def of_books(change: Callable[[Any, str, str], object]) -> Change:
    def apply(world: Any) -> None:
        for book in (server := sheets_of(world)).titles():
            for title in server.sheet_titles(book):
                change(world, book, title)

    return apply


def sheets_of(world: Any) -> Any:
    return next(each for each in world.office.toolsets() if each.name == "google_sheet")


SHEETS: dict[str, Change] = {
    "a look at all sheets": of_books(
        lambda world, book, title: call("get_sheet_data", spreadsheet_id=book, sheet=title)(world)
    ),
    "a look at all formulas": of_books(
        lambda world, book, title: call("get_sheet_formulas", spreadsheet_id=book, sheet=title)(
            world
        )
    ),
    "the same entered again": of_books(
        lambda world, book, title: (
            call(
                "update_cells",
                spreadsheet_id=book,
                sheet=title,
                range="A1",
                data=sheets_of(world).values(book, title)[:1],
            )(world)
            if sheets_of(world).values(book, title)
            else None
        )
    ),
    "a sheet that is not there": of_books(
        lambda world, book, _: refused(world, "get_sheet_data", spreadsheet_id=book, sheet="None")
    ),
}
SNOWFLAKE: dict[str, Change] = {
    "an insight": call("append_insight", insight="Some are open."),
    "a query of Snowflake": call("read_query", query="SELECT 1"),
    "a look at the databases": call("list_databases"),
    "a statement that is refused": lambda world: refused(
        world, "write_query", query="DROP TABLE NOWHERE"
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
    "a look at the calendar": call(
        "list_events", timeMin="2025-01-01T00:00:00Z", timeMax="2026-01-01T00:00:00Z"
    ),
}
BY_SERVER = {
    "filesystem": FILES,
    "email": MAILBOX,
    "google_cloud": CLOUD,
    "woocommerce": SHOP,
    "canvas": CANVAS,
    "google_sheet": SHEETS,
    "snowflake": SNOWFLAKE,
    "calendar": CALENDAR,
}


def rewritings(task: str) -> dict[str, Change]:
    kind = TASKS[task]
    fitting: dict[str, Change] = {}
    for server in kind.servers:
        fitting |= BY_SERVER.get(server, {})
    if solved_mails(task):
        fitting |= SENT
    if "email" in kind.servers and DRAFTS not in kind.forbidden:
        fitting |= DRAFTED
    return fitting | (CSV if paths(kind, ".csv") else {}) | (BOOKS if paths(kind, ".xlsx") else {})


def solved_mails(task: str) -> list[Mail]:
    if "email" not in TASKS[task].servers:
        return []
    mails: list[Mail] = solved(task).office.get(Email).sent()
    return mails


@pytest.mark.parametrize("task", TASKS)
def test_every_rewriting_passes(task: str) -> None:
    fitting = rewritings(task)
    assert len(fitting) >= AT_LEAST
    faults = {}
    for name, change in fitting.items():
        world = solved(task)
        change(world)
        faults[name] = list(world.all_failures())
    assert {name: found[:3] for name, found in faults.items() if found} == {}


@pytest.mark.parametrize("task", TASKS)
def test_rewritings_pass_together(task: str) -> None:
    """The order is random, except that logging out comes last."""
    fitting = rewritings(task)
    last = fitting.pop("logged out", lambda _: None)
    world, names = solved(task), sorted(fitting)
    random.Random(task).shuffle(names)
    for name in names:
        fitting[name](world)
        assert list(world.all_failures()) == [], names[: names.index(name) + 1]
    last(world)
    assert world.score() == 1.0
