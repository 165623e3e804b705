"""Compare the final state of the services with the expected state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentgym.envs.loca.checks import hash_of
from agentgym.envs.loca.records import Grid
from agentgym.office.email.server import Email
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.office.store import Store
from agentgym.text.tools import echo

# Converters for the column types that can be read without DuckDB.
_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "VARCHAR": str,
    "BIGINT": int,
    "DOUBLE": float,
    "TIMESTAMP WITH TIME ZONE": lambda text: text.replace("+00:00", "+00"),
}


def mail_places(store: Store) -> list[tuple[Any, ...]]:
    """Return the id, user, folder and message of each email."""
    return store.tuples("SELECT id, user, folder, message FROM mails ORDER BY id")


def mail_failures(store: Store, before: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Yield a sentence if an initial email was moved or removed."""
    if mail_places(store)[: len(before)] != list(before):
        yield "mails of the mailbox were moved or removed"


def sent_failures(email: Email) -> Iterator[str]:
    """Yield a sentence for each sent email."""
    for mail in email.sent():
        yield f"the mail {mail.subject!r} was sent"


def bigquery_state(cloud: GoogleCloud, dataset: str) -> dict[str, str]:
    """Hash the records of each table in a dataset."""
    return {
        f"{dataset}.{table}": _table_state(cloud, dataset, table)
        for table in cloud.bigquery.tables(dataset)
    }


def _table_state(cloud: GoogleCloud, dataset: str, table: str) -> str:
    # Reading a stored table is faster than running a query.
    image = cloud.engine.tables[dataset, table]
    if not all(column.type in _CONVERTERS for column in image.columns):
        return hash_of(cloud.bigquery.rows(dataset, table))
    content = {}
    for column, data in zip(image.columns, image.data, strict=True):
        convert = _CONVERTERS[column.type]
        values = json.loads(data)
        content[column.name] = [None if value is None else convert(value) for value in values]
    return hash_of(content)


def bigquery_failures(cloud: GoogleCloud, before: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each changed table; new tables are allowed."""
    if not cloud.store.value("SELECT 1 FROM bigquery_jobs WHERE statement <> 'SELECT'"):
        return  # queries change no table
    # Altering a description is a failure even if the agent restores the description.
    if cloud.store.value("SELECT 1 FROM bigquery_jobs WHERE statement LIKE 'ALTER%'"):
        yield "a table or dataset was altered"
    for name, state in before.items():
        dataset, _, table = name.partition(".")
        if (
            table not in cloud.bigquery.tables(dataset)
            or _table_state(cloud, dataset, table) != state
        ):
            yield f"the table {name} was changed"


def values_of(sheets: GoogleSheet, spreadsheet: str, sheet: str) -> Grid:
    """Return the values of a sheet, or an empty list if the sheet is missing."""
    titles = [row["title"] for row in sheets.store.find("sheets", spreadsheet=spreadsheet)]
    if sheet not in titles:
        return []
    return sheets.store.derive(
        ("values", spreadsheet, sheet),
        sheets.store.tables(),
        lambda: sheets.values(spreadsheet, sheet),
    )


def other_sheet_failures(
    sheets: GoogleSheet, spreadsheet: str, sheet: str, before: Sequence[Any]
) -> Iterator[str]:
    """Yield a sentence if anything outside one sheet has changed."""
    if other_sheets(sheets, spreadsheet, sheet) != before:
        yield "a protected spreadsheet or sheet was added, removed, shared or changed"


def other_sheets(sheets: GoogleSheet, spreadsheet: str, sheet: str) -> list[Any]:
    """Return the state of all spreadsheets except the values of one sheet."""
    state: list[Any] = [sheets.titles()]
    for book in sheets.titles():
        names = sheets.sheet_titles(book)
        others = [name for name in names if (book, name) != (spreadsheet, sheet)]
        tables = [(sheets.size(book, name), values_of(sheets, book, name)) for name in others]
        state.append([names, tables, {}])  # removing the {} would change instance keys
    return state


def storage_state(cloud: GoogleCloud) -> dict[str, str]:
    """Return bucket settings and object hashes by `gs://` URL."""
    state = {}
    for row in cloud.store.rows("SELECT name, location FROM buckets"):
        bucket = row.pop("name")
        state[f"gs://{bucket}"] = repr(row)
    for row in cloud.store.rows("SELECT bucket, name, md5 FROM objects"):
        state[f"gs://{row['bucket']}/{row['name']}"] = row["md5"]
    return state


def storage_failures(
    cloud: GoogleCloud, before: Mapping[str, str], changed: Iterable[str] = ()
) -> Iterator[str]:
    """Yield a sentence for each unexpected difference in buckets or objects."""
    free, now = set(changed), storage_state(cloud)
    for name in before:
        if name in free:
            continue
        if name not in now:
            yield f"{name} is gone"
        elif now[name] != before[name]:
            yield f"{name} was changed"
    for name in sorted(now.keys() - before.keys() - free):
        yield f"{echo(name)} should not be there"


def log_state(cloud: GoogleCloud) -> list[tuple[str, str, str]]:
    """Return the log name, severity and JSON content of each log entry."""
    entries = []
    for row in cloud.store.rows("SELECT * FROM log_entries ORDER BY id"):
        payload = json.dumps(row["payload"], ensure_ascii=False)
        entries.append((row["log"].rsplit("/", 1)[-1], row["severity"], payload))
    return entries
