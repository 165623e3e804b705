"""How final states are compared: in both directions, nothing missing and nothing extra, with a
sentence for each fault.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, TypeAlias

from agentgym.envs.loca.servers.email.server import Email
from agentgym.envs.loca.servers.files.workspace import Workspace
from agentgym.envs.loca.servers.gcloud.google_cloud import GoogleCloud
from agentgym.envs.loca.servers.spreadsheet.google_sheet import GoogleSheet
from agentgym.envs.loca.servers.store import Store
from agentgym.tools import ToolError, echo

Same: TypeAlias = Callable[[Any, Any], bool]
"""Whether a cell that was found (first) is the one that is wanted (second)."""


def _whole_seconds(text: str) -> str:
    """A moment in UTC as DuckDB casts it to text, whether a task or DuckDB wrote it."""
    return text[:-3] if text.endswith("+00:00") else text


_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "VARCHAR": str,
    "BIGINT": int,
    "DOUBLE": float,
    "TIMESTAMP WITH TIME ZONE": _whole_seconds,
}
"""How the image of a table holds values of the types that need no conversion by DuckDB."""

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def exact(found: Any, wanted: Any) -> bool:
    """The same text, but for blanks around it."""
    return as_text(found) == as_text(wanted)


def loose(found: Any, wanted: Any) -> bool:
    """The same text, whatever its case and blanks."""
    return (
        " ".join(as_text(found).split()).casefold() == " ".join(as_text(wanted).split()).casefold()
    )


def number(tolerance: float = 0.0, unit: str = "") -> Same:
    """The same number within a tolerance; a text may hold it, with the unit after it and commas
    between thousands.
    """

    def same(found: Any, wanted: Any) -> bool:
        value = as_number(found, unit)
        return value is not None and abs(value - float(wanted)) <= tolerance + 1e-9

    return same


def as_number(value: Any, unit: str = "") -> float | None:
    """The number that a cell holds, or None; truth values are none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    text = as_text(value).removesuffix(unit).strip() if unit else as_text(value)
    text = (
        text.replace(",", "")
        if re.fullmatch(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?", text)
        else text
    )
    return float(text) if _NUMBER.fullmatch(text) else None


def as_text(value: Any) -> str:
    """A cell as text: dates and times in ISO, whole numbers without a point, nothing as the empty
    text.
    """
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def set_faults(what: str, found: Iterable[Hashable], wanted: Iterable[Hashable]) -> Iterator[str]:
    """What is missing and what is too much, duplicates counted."""
    there, asked = Counter(found), Counter(wanted)
    yield from (
        f"{what}: {echo(item)} is missing" for item in sorted((asked - there).elements(), key=str)
    )
    yield from (
        f"{what}: {echo(item)} should not be there"
        for item in sorted((there - asked).elements(), key=str)
    )


def row_faults(
    what: str,
    found: Sequence[Mapping[str, Any]],
    wanted: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Same],
    key: Sequence[str],
    ordered: bool = False,
) -> Iterator[str]:
    """Where rows differ from those that are wanted.

    Args:
        what: What to call the table.
        found: Its rows.
        wanted: The rows that it should have.
        columns: The columns that are compared, and how.
        key: The columns that tell rows apart, compared as text; several wanted rows may share a
            key.
        ordered: Whether the order of the rows counts.
    """
    there, asked = (
        [tuple(as_text(row.get(name)) for name in key) for row in rows] for rows in (found, wanted)
    )
    missing = list(set_faults(what, (" / ".join(k) for k in there), (" / ".join(k) for k in asked)))
    yield from missing
    left: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for name, row in zip(there, found, strict=True):
        left.setdefault(name, []).append(row)
    for name, row in zip(asked, wanted, strict=True):
        if not (rows := left.get(name)):
            continue
        best = rows[0]
        if len(rows) > 1:
            best = min(
                rows,
                key=lambda each: sum(not same(each.get(c), row[c]) for c, same in columns.items()),
            )
        rows.remove(best)
        for column, same in columns.items():
            if not same(best.get(column), row[column]):
                place = f"{what}: {column} of {' / '.join(name)}"
                yield f"{place} is {echo(as_text(best.get(column)))}, it should be {echo(as_text(row[column]))}"
    if ordered and not missing and there != asked:
        yield f"{what}: the rows are not in the order that was asked for"


def csv_rows(
    files: Workspace, path: str, columns: Sequence[str]
) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of a CSV file, and what is wrong with the file as such: it is missing, is no CSV, or
    has other columns.

    Args:
        files: Where it is.
        path: Its path.
        columns: The columns that it should have, in order.
    """
    try:
        text = files.read_text(path).removeprefix("\ufeff")
        records = [
            record for record in csv.reader(io.StringIO(text, newline=""), strict=True) if record
        ]
    except ToolError as error:
        return [], [f"{path}: {error}"]
    except csv.Error as error:
        return [], [f"{path} is no CSV: {error}"]
    header = [name.strip() for name in records[0]] if records else []
    if header != list(columns):
        return [], [f"{path} has the columns {echo(header)}, it should have {echo(list(columns))}"]
    if bad := [k for k, record in enumerate(records, 1) if len(record) != len(header)]:
        return [], [
            (
                f"{path} has {len(records[bad[0] - 1])} cells in row {bad[0]}, it should have "
                f"{len(header)}"
            )
        ]
    return [dict(zip(header, record, strict=True)) for record in records[1:]], []


def digest(store: Store, *tables: str, without: Collection[str] = ()) -> str:
    """A hash of all records of some tables of a server, to see whether anything in them was
    changed.

    Args:
        store: The records of the server.
        *tables: Names of tables.
        without: Columns of theirs that may be changed.
    """
    records = []
    for table in tables:
        columns = ", ".join(f'"{name}"' for name in store.columns(table) if name not in without)
        records.append(store.rows(f'SELECT {columns} FROM "{table}" ORDER BY rowid'))
    return hashlib.sha256(repr(records).encode()).hexdigest()


def mail_places(store: Store) -> list[tuple[int, int, str, int]]:
    """Where the mails of the mail server are: id, user, folder and message of each, in the order in
    which they came.
    """
    rows = store.rows("SELECT id, user, folder, message FROM mails ORDER BY id")
    return [(row["id"], row["user"], row["folder"], row["message"]) for row in rows]


def mail_faults(store: Store, before: Sequence[tuple[int, int, str, int]]) -> Iterator[str]:
    """Whether mails that were there at the start are gone or in another folder; which of them were
    read does not matter.
    """
    if mail_places(store)[: len(before)] != list(before):
        yield "mails of the mailbox were moved or removed"


def sent_faults(email: Email) -> Iterator[str]:
    """The mails that were sent though the task asks for none."""
    yield from (f"the mail {mail.subject!r} was sent" for mail in email.sent())


def bigquery_state(cloud: GoogleCloud, dataset: str) -> dict[str, str]:
    """A hash of the records of each table of a dataset, by its name."""
    return {
        f"{dataset}.{table}": _table_state(cloud, dataset, table)
        for table in cloud.bigquery.tables(dataset)
    }


def _table_state(cloud: GoogleCloud, dataset: str, table: str) -> str:
    return hashlib.sha256(repr(_records(cloud, dataset, table)).encode()).hexdigest()


def _records(cloud: GoogleCloud, dataset: str, table: str) -> list[dict[str, Any]]:
    """All records of a table; those of plain types are taken from its image, which costs less than
    a query.
    """
    held = cloud.engine.table((dataset, table))
    if held.view or not all(column.type in _PLAIN for column in held.columns):
        return cloud.bigquery.rows(dataset, table)
    columns = []
    for column, data in zip(held.columns, held.data, strict=True):
        columns.append(
            [None if value is None else _PLAIN[column.type](value) for value in json.loads(data)]
        )
    names = [column.name for column in held.columns]
    return [dict(zip(names, record, strict=True)) for record in zip(*columns, strict=True)]


def bigquery_faults(cloud: GoogleCloud, before: Mapping[str, str]) -> Iterator[str]:
    """Tables that are not as they were; `before` are states of datasets. Tables that were not there
    before may be there.
    """
    if not cloud.store.value(
        "SELECT 1 FROM bigquery_jobs WHERE statement <> 'SELECT' AND kind <> 'EXTRACT'"
    ):
        return  # nobody ran anything but queries, so nothing needs to be read
    for name, state in before.items():
        dataset, _, table = name.partition(".")
        if (
            table not in cloud.bigquery.tables(dataset)
            or _table_state(cloud, dataset, table) != state
        ):
            yield f"the table {name} was changed"


def sheet_rows(
    sheets: GoogleSheet, spreadsheet: str, sheet: str, columns: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The filled rows of a sheet, and what is wrong with it as such: it is missing, or has other
    columns.
    """
    titles = [row["title"] for row in sheets.store.find("sheets", spreadsheet=spreadsheet)]
    table = sheets.values(spreadsheet, sheet) if sheet in titles else []
    names, found = named_rows(table, columns)
    if names != list(columns):
        return [], [
            f"the sheet {sheet} has the columns {echo(names)}, it should have {echo(list(columns))}"
        ]
    wide = any(as_text(cell) for row in table[1:] for cell in row[len(columns) :])
    return found, [f"the sheet {sheet} has cells to the right of its columns"] if wide else []


def named_rows(
    table: Sequence[Sequence[Any]], columns: Sequence[str]
) -> tuple[list[str], list[dict[str, Any]]]:
    """The header of a table, and its filled rows by the columns that it should have; what is to the
    right of these is left out.
    """
    header, *rows = table or [[]]
    filled = [row for row in rows if any(map(as_text, row))]
    found = [dict(zip(columns, [*row, *[None] * len(columns)], strict=False)) for row in filled]
    return [as_text(cell) for cell in header], found


def other_sheet_faults(
    sheets: GoogleSheet, spreadsheet: str, sheet: str, before: Sequence[Any]
) -> Iterator[str]:
    """Whether anything but the values of one sheet was changed; `before` is what `other_sheets`
    told at the start.
    """
    if other_sheets(sheets, spreadsheet, sheet) != before:
        yield "a spreadsheet or sheet was added, removed, shared or changed that had to stay as it was"


def other_sheets(sheets: GoogleSheet, spreadsheet: str, sheet: str) -> list[Any]:
    """All that is in the spreadsheets, and with whom they are shared, but for the values of one
    sheet.
    """
    found: list[Any] = [sheets.titles()]
    for made in sheets.titles():
        names = [row["title"] for row in sheets.store.find("sheets", spreadsheet=made)]
        tables = [
            sheets.values(made, name) for name in names if (made, name) != (spreadsheet, sheet)
        ]
        found.append([names, tables, sheets.permissions(made)])
    return found


def storage_state(cloud: GoogleCloud) -> dict[str, str]:
    """All buckets, with what they are set to, and all live objects, with their hashes, by `gs://`
    name.
    """
    buckets = cloud.store.rows("SELECT name, location, versioning, lifecycle FROM buckets")
    objects = cloud.store.rows("SELECT bucket, name, md5 FROM objects WHERE deleted IS NULL")
    return {f"gs://{row.pop('name')}": repr(row) for row in buckets} | {
        f"gs://{o['bucket']}/{o['name']}": o["md5"] for o in objects
    }


def storage_faults(
    cloud: GoogleCloud, before: Mapping[str, str], changed: Iterable[str] = ()
) -> Iterator[str]:
    """Buckets and objects that are gone, changed or new; nothing is said of those that are named in
    `changed`.
    """
    free, now = set(changed), storage_state(cloud)
    yield from (f"{name} is gone" for name in before if name not in now and name not in free)
    yield from (
        f"{name} was changed"
        for name in before
        if name in now and now[name] != before[name] and name not in free
    )
    yield from (
        f"{echo(name)} should not be there"
        for name in sorted(now)
        if name not in before and name not in free
    )


def log_state(cloud: GoogleCloud) -> list[tuple[str, str, str]]:
    """Log, severity and content (as JSON) of all entries, in the order in which they were
    written.
    """
    rows = cloud.store.rows("SELECT * FROM log_entries ORDER BY id")
    return [
        (
            row["log"].rsplit("/", 1)[-1],
            row["severity"],
            json.dumps(row["payload"], ensure_ascii=False),
        )
        for row in rows
    ]


def file_state(files: Workspace) -> dict[str, bytes]:
    """What a workspace holds, by canonical path."""
    return {path: files.read(path) for path in files.walk()}


def file_faults(
    files: Workspace, before: Mapping[str, bytes], changed: Iterable[str]
) -> Iterator[str]:
    """Files of the start that were changed or removed though the task does not ask for it.

    Args:
        files: The workspace.
        before: What it held, as `file_state` told.
        changed: The paths that may be changed.
    """
    free = {files.resolve(path) for path in changed}
    for path, data in before.items():
        if path in free:
            continue
        if not files.is_file(path):
            yield f"the file {path} is gone"
        elif files.read(path) != data:
            yield f"the file {path} was changed"


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as a CSV file with these columns."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([as_text(row[name]) for name in columns] for row in rows)
    return text.getvalue()
