"""Read LOCA-bench files as typed records. Every error names the file and the position."""

from __future__ import annotations

import contextlib
import csv
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter

from agentgym.envs.loca.records import Fields, Grid, Rows
from agentgym.office.spreadsheet.workbooks import read_workbook
from agentgym.text.tools import ToolError
from agentgym.text.validation import check_shape

T = TypeVar("T")
# Maps each required column to a conversion function that may raise ValueError.
Columns: TypeAlias = Mapping[str, Callable[[Any], Any]]


def as_name(cell: object) -> str:
    """Return a cell's text; raise ValueError if there is no text."""
    if not isinstance(cell, str) or not cell.strip():
        raise ValueError(f"must be a non-empty string, got {cell!r}")
    return cell


def as_finite(cell: object) -> float:
    """Return a cell's finite number, which may be stored as a string."""
    with contextlib.suppress(TypeError, ValueError):
        number = float(cell)  # type: ignore[arg-type]
        if math.isfinite(number) and not isinstance(cell, bool):
            return number
    raise ValueError(f"must be a number, got {cell!r}")


def finite_or(cell: object, default: T) -> float | T:
    """Return a cell's finite number, or `default` if there is none."""
    try:
        return as_finite(cell)
    except ValueError:
        return default


def as_moment(cell: object) -> datetime:
    """Return a time with a time zone, such as 2026-03-12T23:59:00Z."""
    with contextlib.suppress(TypeError, ValueError):
        moment = datetime.fromisoformat(cell)  # type: ignore[arg-type]
        if moment.tzinfo:
            return moment
    raise ValueError(f"must be a time with a time zone, got {cell!r}")


def read_json(path: Path, shape: TypeAdapter[T]) -> T:
    """Return the content of a JSON file, validated against a type."""
    try:
        return check_shape(shape, path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} must be a JSON file: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_text(path: Path) -> str:
    """Return the content of a text file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a text file: {error}") from None


def read_json_lines(path: Path, shape: TypeAdapter[T]) -> Sequence[T]:
    """Return the values in a JSON Lines file."""
    values = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        try:
            if line.strip():
                values.append(check_shape(shape, line.encode()))
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from None
    return values


def read_table(path: Path, columns: Columns, key: Sequence[str] = ()) -> Rows:
    """Return the rows of a CSV file; any `key` columns must identify each row."""
    try:
        table = list(csv.reader(read_text(path).rstrip().splitlines()))
    except csv.Error as error:
        raise ValueError(f"{path} must be a CSV file: {error}") from None
    return typed_rows(path, table or [[]], columns, key)


def read_book(path: Path, *titles: str) -> Mapping[str, Grid]:
    """Return the rows of each sheet of a workbook, which must contain the sheets `titles`."""
    try:
        sheets = read_workbook(path.read_bytes())
    except (OSError, ToolError) as error:
        raise ValueError(f"{path} must be a workbook: {error}") from None
    for title in titles:
        if not sheets.get(title):
            raise ValueError(f"{path} must have a non-empty sheet {title!r}, got {list(sheets)}")
    return sheets


def typed_rows(place: object, table: Grid, columns: Columns, key: Sequence[str] = ()) -> Rows:
    """Return the rows of a table, converting columns; any `key` columns must identify each row."""
    header = list(table[0])
    if any(header.count(name) != 1 for name in columns):
        raise ValueError(f"{place}: row 1 must contain each of {list(columns)} once, got {header}")
    records = []
    seen = set()
    for number, row in enumerate(table[1:], 2):
        cells = dict(zip(header, row, strict=False))
        record = {}
        for name, convert in columns.items():
            try:
                record[name] = convert(cells.get(name))
            except ValueError as error:
                raise ValueError(f"{place}: row {number}: {name} {error}") from None
        identity = tuple(record[name] for name in key)
        if key and identity in seen:
            raise ValueError(f"{place}: row {number}: {', '.join(key)} {identity} occurs twice")
        seen.add(identity)
        records.append(record)
    return records


def read_tables(
    state: Path, dataset: str, columns: Mapping[str, str]
) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Return the rows of a BigQuery dataset's tables, by table name.

    `columns` maps the required columns of each table to types, as in `BigQuery.load`. Raise
    ValueError if the database is missing or has different columns.
    """
    path = state / "local_db" / "google_cloud" / "bigquery_data.db"
    prefix = f"local-project_{dataset}_"
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        # Copy the database and any log files, because reading in WAL mode may change them.
        for part in filter(Path.is_file, path.parent.glob(f"{path.name}*")):
            shutil.copy(part, folder)
        with contextlib.closing(sqlite3.connect(Path(folder, path.name))) as database:
            try:
                names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                for [name] in names.fetchall():
                    if name.startswith(prefix):
                        found = database.execute(f'SELECT * FROM "{name}" ORDER BY rowid')
                        heads = [column[0] for column in found.description]
                        rows = found.fetchall()
                        _check(f"{path}: {name}", columns, heads, rows)
                        tables[name.removeprefix(prefix)] = rows
            except sqlite3.DatabaseError as error:
                raise ValueError(f"{path} must be an SQLite database: {error}") from None
    if not tables:
        raise ValueError(f"{path} must have tables whose names start with {prefix}")
    return tables


def _check(place: str, columns: Mapping[str, str], heads: Sequence[str], rows: Grid) -> None:
    if heads != list(columns):
        raise ValueError(f"{place} must have the columns {list(columns)}, got {heads}")
    kinds: Fields = {"INT64": int, "FLOAT64": (int, float)}
    for number, row in enumerate(rows, 1):
        for (head, kind), value in zip(columns.items(), row, strict=True):
            if not isinstance(value, kinds.get(kind, str)):
                raise ValueError(f"{place}: row {number}: {head} must be {kind}, got {value!r}")
