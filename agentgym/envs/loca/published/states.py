"""Load state folders that LOCA-bench's generators wrote.

A folder has `agent_workspace`, `groundtruth_workspace` and `local_db` with a folder per server. Two
tasks can be loaded; docs/loca_states.md tells why the others cannot.
"""

from __future__ import annotations

import contextlib
import csv
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from agentgym.envs.loca.task import OfficeConfig
from agentgym.office.files.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class PublishedConfig(OfficeConfig):
    """Options of a task that plays LOCA-bench's own states.

    Attributes:
        data: A state folder of LOCA-bench, or a folder of `state0`, `state1`, …, one of which is
            drawn. Empty draws a state of our own.
    """

    data: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data and not Path(self.data).is_dir():
            raise ValueError(f"data must be a state folder of LOCA-bench, got {self.data!r}")

    def for_seed(self, seed: int) -> Self:
        """Return the configuration of a seed's state."""
        if not self.data:
            return self
        states = sorted(Path(self.data).glob("state*")) or [Path(self.data)]
        # Without a size, the length would be met by drawing again.
        return replace(self, data=str(states[seed % len(states)]), size=1)


def load_workspace(state: Path, files: Workspace) -> None:
    """Copy the agent's files; raise `ValueError` if there are none or an agent has worked."""
    folder = state / "agent_workspace"
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if not paths:
        raise ValueError(f"{folder} must be a folder with the files of the task")
    for path in paths:
        files.write(path.relative_to(folder).as_posix(), path.read_bytes())
    for name in ("storage_buckets", "storage_objects", "log_entries"):
        path = state / "local_db" / "google_cloud" / f"{name}.json"
        if path.exists() and path.read_text(encoding="utf-8").strip() not in ("", "{}"):
            raise ValueError(f"{path} must be empty: an agent has worked on this state")


def read_table(path: Path, columns: Mapping[str, type[Any]]) -> Sequence[Mapping[str, Any]]:
    """Return a CSV file's columns of these types by row, or raise `ValueError`."""
    try:
        reader = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a CSV file: {error}") from None
    header = reader.fieldnames or []
    if not columns.keys() <= set(header):
        raise ValueError(f"{path}: line 1 must have the columns {list(columns)}, got {header}")
    rows = []
    for row in reader:
        try:
            rows.append({name: kind(row[name]) for name, kind in columns.items()})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: line {reader.line_num}: {error}") from None
    return rows


def read_tables(
    state: Path, dataset: str, columns: Mapping[str, str]
) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Return the rows of a BigQuery dataset's tables by name.

    Args:
        state: The state folder.
        dataset: The dataset.
        columns: The columns that each table must have, with types as in `BigQuery.load`.

    Raises:
        ValueError: The database is missing or has another form.
    """
    path = state / "local_db" / "google_cloud" / "bigquery_data.db"
    prefix = f"local-project_{dataset}_"
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        # The log of a database in WAL mode lies beside it, and reading may change both.
        for part in path.parent.glob(f"{path.name}*"):
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
        raise ValueError(f"{path} must have tables {prefix}…")
    return tables


def _check(
    place: str,
    columns: Mapping[str, str],
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
) -> None:
    if heads != list(columns):
        raise ValueError(f"{place} must have the columns {list(columns)}, got {heads}")
    kinds: Mapping[str, type[Any] | tuple[type[Any], ...]]
    kinds = {"INT64": int, "FLOAT64": (int, float)}
    for number, row in enumerate(rows, 1):
        for (head, kind), value in zip(columns.items(), row, strict=True):
            if not isinstance(value, kinds.get(kind, str)):
                raise ValueError(f"{place}: row {number}: {head} must be {kind}, got {value!r}")
