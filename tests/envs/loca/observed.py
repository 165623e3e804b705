"""Independent observation of an office, used to verify the checks in the mutation tests."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any, TypeAlias

from agentgym.office.email.messages import text_of
from agentgym.office.server import Server
from agentgym.office.spreadsheet.workbooks import library
from tests.envs.loca.office import csv_rows_of

Observation: TypeAlias = Mapping[tuple[str, Any], Mapping[str, Any]]
"""Fields of each record, by part and key."""

# Maps the origin of a message to a part of the mailbox; all other origins belong to `received`.
_ORIGINS = {"draft": "drafts", "sent": "sent", "bounce": "bounces"}


def observe(office: Any) -> Observation:
    records: dict[tuple[str, Any], Mapping[str, Any]] = {}
    for server in office.toolsets():
        for part, key, fields in _records(server):
            records[f"{server.name}.{part}", key] = fields
    files = office.context.files
    records |= {("files", path): _content(path, files.read(path)) for path in files.walk()}
    return records


def differences(
    start: Observation, before: Observation, after: Observation, outputs: Collection[str]
) -> set[str]:
    """Return the names of the differences between two observations.

    A name is `part.field` for a changed record, `part+` for a new record, `part-` for a removed
    record, or a file path. The prefix `output:` marks outputs. The prefix `own:` marks other
    records and files that did not exist at the start.
    """

    def name(key: tuple[str, Any], change: str) -> str:
        part, record = key
        if part == "files":
            is_output = str(record).removeprefix("/workspace/") in outputs
            prefix = "output:" if is_output else "" if key in start or change == "+" else "own:"
            return f"{prefix}{record}{change}"
        fields = before.get(key, after.get(key, {}))
        parent = ("google_sheet.spreadsheets", fields.get("spreadsheet"))
        whole = parent if part.startswith("google_sheet.sheets") else key
        is_own = whole not in start and (change != "+" or whole == parent)
        return f"{'own:' if is_own else ''}{part}{change}"

    names = {name(key, "+") for key in after.keys() - before.keys()}
    names |= {name(key, "-") for key in before.keys() - after.keys()}
    for key in before.keys() & after.keys():
        old, new = before[key], after[key]
        changed = [field for field in {**old, **new} if old.get(field) != new.get(field)]
        names |= {name(key, f".{field}") for field in changed}
    return names


def _records(server: Server) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    origins = {}
    if server.name == "email":
        rows = server.store.rows("SELECT id, origin FROM messages")
        origins = {row["id"]: _ORIGINS.get(row["origin"], "received") for row in rows}
    for table in server.store.tables():
        for row in server.store.rows(f'SELECT * FROM "{table}"'):
            if server.name == "google_sheet" and table in ("sheets", "lines"):
                continue  # `_sheets` and `_lines` read these tables
            part = table
            if origins and table in ("messages", "mails", "attachments"):
                message = row["id" if table == "messages" else "message"]
                part = f"{origins[message]}.{table}"
            yield part, _key(row), _without_same_html(row)
    if server.name == "google_sheet":
        yield from _sheets(server)
        yield from _lines(server)
    engine = getattr(server, "engine", None)
    if engine is not None:
        yield from _catalog(engine)
    yield "session", "", server.session


def _without_same_html(row: Mapping[str, Any]) -> Mapping[str, Any]:
    shown = text_of("", row.get("html")).split()
    return {**row, "html": None} if shown and shown == row["body"].split() else row


def _sheets(server: Server) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    titles = {row["id"]: row["title"] for row in server.store.rows("SELECT * FROM spreadsheets")}
    for row in server.store.rows("SELECT * FROM sheets"):
        yield f"sheets/{titles[row['spreadsheet']]}/{row['title']}", row["id"], row


def _lines(server: Server) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    rows = server.store.rows("SELECT * FROM lines ORDER BY sheet, row")
    for sheet, filled in groupby(rows, key=lambda row: row["sheet"]):
        for place, row in enumerate(filled):
            first = {"first": row["row"]} if place == 0 else {}
            yield "lines", (sheet, place), {"cells": row["cells"], **first}


def _key(row: Mapping[str, Any]) -> Any:
    if "id" in row:
        return row["id"]
    return repr(row)


def _catalog(engine: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    for name, schema in engine.schemas.items():
        yield "schemas", name, {"comment": schema.comment, "notes": schema.notes}
    for name in list(engine.tables):
        table = engine.tables[name]
        yield (
            "tables",
            name,
            {"columns": table.columns, "data": table.data, "comment": table.comment},
        )


def _content(path: str, data: bytes) -> Mapping[str, Any]:
    if path.endswith(".xlsx"):
        return _workbook(data)
    if path.endswith(".csv"):
        # Ignore blanks inside ranges such as `0.65 - 1.99`.
        rows = [[re.sub(r"\s*-\s*", "-", cell) for cell in row] for row in csv_rows_of(data)]
        return {"rows": rows, "look": data}
    return {"data": data}


def _workbook(data: bytes) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"look": data}
    try:
        book = library().load_workbook(io.BytesIO(data))
    except Exception:  # noqa: BLE001 - any broken workbook
        return {"broken": data}
    fields["sheets"] = [sheet.title for sheet in book.worksheets]
    fields["hidden"] = [
        [
            sheet.sheet_state,
            [key for key, line in sheet.row_dimensions.items() if line.hidden],
            [key for key, column in sheet.column_dimensions.items() if column.hidden],
        ]
        for sheet in book.worksheets
    ]
    fields["rows"] = [_table(list(sheet.iter_rows(values_only=True))) for sheet in book.worksheets]
    return fields


def _table(rows: list[Any]) -> list[Any]:
    filled = [k for k, row in enumerate(rows) if any(row)]
    return [filled[:1], *(rows[k] for k in filled)]
