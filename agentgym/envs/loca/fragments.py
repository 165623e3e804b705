"""Plan fragments for several tasks: reading listings, repairing outputs and sending letters."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym.envs.loca.calls import Effects, cell_effects
from agentgym.envs.loca.checks import CsvTable, same_subject, says, write_csv
from agentgym.envs.loca.plan import Piece, PlanStep, look, look_on, read, write
from agentgym.envs.loca.records import Fields, Grid, Record, Rows
from agentgym.envs.loca.results import cell_rows, read_metadata, sheet_values
from agentgym.office.context import START
from agentgym.office.email.messages import Mail
from agentgym.office.spreadsheet.cells import parse_area
from agentgym.office.spreadsheet.excel_sheets import spot_name
from agentgym.text.messages import ToolCall

_MAILS = 20  # the default page size of get_emails
_SHOP_PAGE = 20  # twenty products or orders fit even into a small context window


def read_folder(keep: Callable[[Record], Any], folder: str = "INBOX") -> Piece:
    """Read all emails in a folder, newest first."""

    def learn(text: str) -> Record:
        listing = json.loads(text)
        if listing["page_size"] < _MAILS:
            raise ValueError(f"page_size must be at least {_MAILS}, got {listing['page_size']}")
        return {
            "pages": listing["total_pages"],
            "size": listing["page_size"],
            "kept": _kept(keep, listing["emails"]),
        }

    def page(number: int, **size: int) -> PlanStep:
        label = f"Read the mails on page {number} of {folder}."
        return read(label, learn, "get_emails", folder=folder, page=number, **size)

    first = yield replace(page(1), same=("folder", "page"))
    size = {} if first["size"] == _MAILS else {"page_size": first["size"]}
    others = yield [page(number, **size) for number in range(2, first["pages"] + 1)]
    return [fact for listing in (first, *others) for fact in listing["kept"]]


def _kept(keep: Callable[[Record], Any], items: Iterable[Record]) -> list[Any]:
    return [fact for fact in map(keep, items) if fact is not None]


def read_shop(what: str, tool: str, keep: Callable[[Record], Any], **arguments: Any) -> Piece:
    """Read a shop listing page by page."""

    def learn(text: str) -> Record:
        items = json.loads(text)
        return {"count": len(items), "kept": _kept(keep, items)}

    facts: list[Any] = []
    for page in itertools.count(1):
        listing = yield read(
            f"List page {page} of {what}.", learn, tool, perPage=_SHOP_PAGE, page=page, **arguments
        )
        facts += listing["kept"]
        if listing["count"] < _SHOP_PAGE:
            break
    return facts


def find_spreadsheet(title: str) -> PlanStep:
    """Return the step that finds the first spreadsheet with this title."""

    def learn(text: str) -> str:
        return next(str(each["id"]) for each in json.loads(text) if each["title"] == title)

    return read("Find the spreadsheet.", learn, "list_spreadsheets")


def read_table(spreadsheet: str, sheet: str) -> PlanStep:
    """Return the step that reads a sheet.

    The step returns `rows` (including the header), `room` (the number of rows that the sheet can
    hold) and `own` (the indices of the rows that off-plan calls have written).
    """

    def learn(text: str) -> Record:
        [area] = json.loads(text)["valueRanges"]
        room = re.findall("[0-9]+", area["range"])[-1]
        return {"rows": area["values"], "room": int(room)}

    def mark_own(fact: Record, effects: Effects, _: Sequence[Any]) -> Record:
        own = []
        if effects:
            for k, row in enumerate(fact["rows"]):
                entered = cell_effects(f"{spreadsheet} {sheet}", k + 1, row)
                if entered.items() & effects.items():
                    own.append(k)
        return {**fact, "own": own}

    call = ToolCall("get_sheet_data", {"spreadsheet_id": spreadsheet, "sheet": sheet})
    return PlanStep(f"Read the sheet {sheet}.", call, learn, mark_own=mark_own)


def settle_file(table: CsvTable, rows: Rows) -> Piece:
    """Check a CSV file that off-plan calls changed; return the step that corrects it."""
    path = table.path

    def is_right(text: str) -> bool:
        return table.matches(text.removeprefix(f"{path}:\n").removesuffix("\n"), rows)

    # Unlike `read_file`, `read_multiple_files` does not fail if the file is missing.
    if (yield look(f"file {path}", f"Look at {path}.", is_right, "read_multiple_files", paths=[path])):  # fmt: skip
        return []
    step = write(
        f"Write {path}.",
        path,
        "write_file",
        thing=f"file {path}",
        same=("path",),
        accepts=lambda arguments: table.matches(arguments["content"], rows),
        path=path,
        content=write_csv(table.columns, rows),
    )
    return [step]


def look_at_workbook(
    path: str, title: str
) -> Generator[PlanStep, Any, Mapping[str, list[list[Any]]] | None]:
    """Return a workbook's sheets if off-plan calls changed it, else None."""
    thing = f"file {path}"
    label, learn = f"See whether {path} is there.", lambda text: text.startswith("/")
    is_there = yield look(thing, label, learn, "search_files", path="/workspace", pattern=path)
    if is_there is None:
        return None
    if not is_there:
        return {}
    titles = yield look_on(
        thing,
        f"Look at the sheets of {path}.",
        lambda text: read_metadata(text)["sheets"],
        "get_workbook_metadata",
        filepath=path,
    )
    sheets: dict[str, list[list[Any]]] = {name: [] for name in titles}
    if title not in sheets:
        return sheets
    sheets[title] = yield look_on(
        thing,
        f"Look at {path}.",
        cell_rows,
        "read_data_from_excel",
        filepath=path,
        sheet_name=title,
    )
    return sheets


def remove_sheets(path: str, sheets: Iterable[str], kept: str) -> Iterator[PlanStep]:
    """Yield the steps that remove all sheets of a workbook except `kept`."""
    for title in sheets:
        if title != kept:
            yield write(
                f"Remove the sheet {title}.",
                path,
                "delete_worksheet",
                thing=f"file {path}",
                filepath=path,
                sheet_name=title,
            )


def create(
    thing: str, label: str, output: str, key: str, tool: str, /, **arguments: Any
) -> PlanStep:
    """Return the step that creates a record and reads the field `key` of the new record."""
    return write(
        label, output, tool, thing=thing, learn=lambda text: json.loads(text)[key], **arguments
    )


def over(table: Grid, rows: Grid) -> list[list[Any]]:
    """Return data that overwrites a table with `rows` and clears all other cells."""
    width = max(map(len, [*table, *rows]))
    height = max(len(table), len(rows))
    data = [[*row, *[""] * (width - len(row))] for row in rows]
    return data + [[""] * width] * (height - len(rows))


def settle_sheet(
    write_step: Callable[..., PlanStep],
    where: Mapping[str, str],
    table: Grid,
    area: str,
    is_right: Callable[[Grid], bool],
) -> Piece:
    """Check a sheet that off-plan calls changed; return the step that corrects it.

    Args:
        write_step: Returns the step that writes `data` into `range`.
        where: The spreadsheet and the sheet.
        table: All required rows, including the header.
        area: The range to write if no off-plan call has changed the sheet, such as `A5:C9`.
        is_right: Whether the sheet needs no change.
    """
    label = f"Look at the entries of {where['sheet']}."
    seen = yield look("spreadsheets", label, sheet_values, "get_sheet_data", **where)
    if seen is not None and is_right(seen):
        return []
    if seen is not None:
        data = over(seen, table)
        corner = spot_name(len(data), len(data[0]))
        return [write_step(range=f"A1:{corner}", data=data)]
    part = parse_area(area)
    rows = table[part.top - 1 : part.bottom]
    data = [list(row[part.left - 1 : part.right]) for row in rows]
    return [write_step(range=area, data=data)]


def mail_of(arguments: Fields) -> Mail:
    """Return the email that a `send_email` call sends."""
    names = [path.rpartition("/")[2] for path in arguments.get("attachments") or ()]
    return Mail(
        sender="",
        to=arguments["to"],
        subject=arguments["subject"],
        body=arguments.get("body") or "",
        date=START,
        html=arguments.get("html_body"),
        attachments=dict.fromkeys(names, b""),
    )


def fill_letter(template: str, values: Fields) -> tuple[str, str]:
    """Fill a letter template; return the subject (the first line) and the body."""
    text = re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), template)
    subject, _, body = text.partition("\n")
    return subject.removeprefix("Subject: "), body.strip()


def send_letter(
    label: str, output: str, to: str, letter: tuple[str, str], attachments: Sequence[str] = ()
) -> PlanStep:
    """Return the step that sends a letter."""
    subject, body = letter
    message: Record = {"to": to, "subject": subject, "body": body}
    if attachments:
        message["attachments"] = list(attachments)

    def accepts(arguments: Fields) -> bool:
        mail = mail_of(arguments)
        is_right = same_subject(mail, subject) and says(mail, body)
        return is_right and list(mail.attachments) == list(attachments)

    return write(label, output, "send_email", same=("to",), accepts=accepts, **message)


def as_records(columns: Collection[str], rows: Iterable[Iterable[Any]]) -> list[Record]:
    """Return the rows of a table as dictionaries."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


def fields_of(record: Fields, /, *same: str, **renamed: str) -> Record:
    """Return some fields of a record; `renamed` maps new names to the record's names."""
    return {name: record[renamed.get(name, name)] for name in (*same, *renamed)}
