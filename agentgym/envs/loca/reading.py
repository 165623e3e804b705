"""Pieces of plans that several tasks share: reading what comes in pages, finding a spreadsheet,
writing a table.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from agentgym.envs.loca.checks import write_csv
from agentgym.envs.loca.plan import Step, read, write

Piece = Generator[Step | Sequence[Step], Any, list[Any]]
"""A part of a plan that gives a list; use it with `yield from`."""

_PAGE = 100
_SHOP_PAGE = 20  # products and orders are told at length; this many still fit a small window


def read_folder(keep: Callable[[dict[str, Any]], Any], folder: str = "INBOX") -> Piece:
    """Read all mails of a folder of the mail server.

    Args:
        keep: What is to be kept of a mail, given what `read_email` tells of it; None if it does not
            matter.
        folder: The folder.

    Returns:
        What was kept, newest mail first, without None.
    """

    def listing(page: int) -> Step:
        return read(
            f"List page {page} of {folder}.",
            _ids,
            "get_emails",
            folder=folder,
            page=page,
            page_size=_PAGE,
        )

    first = yield listing(1)
    others = yield [listing(page) for page in range(2, first["pages"] + 1)]
    ids = [mail for page in (first, *others) for mail in page["ids"]]
    kept = yield [
        read(f"Read mail {mail}.", lambda text: keep(json.loads(text)), "read_email", email_id=mail)
        for mail in ids
    ]
    return [fact for fact in kept if fact is not None]


def _ids(text: str) -> dict[str, Any]:
    listed = json.loads(text)
    return {"pages": listed["total_pages"], "ids": [mail["id"] for mail in listed["emails"]]}


def read_shop(
    what: str, tool: str, keep: Callable[[dict[str, Any]], Any], **arguments: Any
) -> Piece:
    """Read a listing of the shop, page after page up to the first that is not full.

    Args:
        what: What is listed, in words.
        tool: The tool that lists it.
        keep: What is to be kept of an item; None if it does not matter.
        **arguments: Further arguments of the tool.

    Returns:
        What was kept, in the order of the listing, without None.
    """

    def learn(text: str) -> dict[str, Any]:
        items = json.loads(text)
        return {
            "count": len(items),
            "kept": [fact for item in items if (fact := keep(item)) is not None],
        }

    found: list[Any] = []
    for page in itertools.count(1):
        fact = yield read(
            f"List page {page} of {what}.", learn, tool, perPage=_SHOP_PAGE, page=page, **arguments
        )
        found += fact["kept"]
        if fact["count"] < _SHOP_PAGE:
            break
    return found


def find_spreadsheet(title: str) -> Step:
    """The step that lists the spreadsheets for the id of the first with a title."""

    def learn(text: str) -> str:
        return next(str(each["id"]) for each in json.loads(text) if each["title"] == title)

    return read("Find the spreadsheet.", learn, "list_spreadsheets")


def read_table(spreadsheet: str, sheet: str) -> Step:
    """The step that reads a sheet: its `rows`, the header among them, as lists of texts, and how
    many it has `room` for.
    """

    def learn(text: str) -> dict[str, Any]:
        [found] = json.loads(text)["valueRanges"]
        return {"rows": found["values"], "room": int(re.findall("[0-9]+", found["range"])[-1])}

    return read(
        f"Read the sheet {sheet}.", learn, "get_sheet_data", spreadsheet_id=spreadsheet, sheet=sheet
    )


def write_table(path: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Step:
    """The step that writes an output which is a CSV file."""
    return write(
        f"Write {path}.",
        path,
        "write_file",
        same=("path",),
        path=path,
        content=write_csv(columns, rows),
    )


def split_letter(text: str) -> tuple[str, str]:
    """Subject and text of a letter whose first line is its subject."""
    subject, _, body = text.partition("\n")
    return subject.removeprefix("Subject: "), body.strip()
