"""Load state folders that LOCA-bench's generators wrote.

A folder has `agent_workspace`, `groundtruth_workspace` and `local_db` with a folder per server.
Five tasks can be loaded; docs/loca_states.md tells why the others cannot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from agentgym.envs.loca.published.files import Columns, Rows, read_json, typed_rows
from agentgym.envs.loca.task import OfficeConfig
from agentgym.office.files.workspace import Workspace

# Bounds of a Google spreadsheet, so a malformed key cannot ask for more memory.
_MOST_CELLS, _MOST_COLUMNS = 10_000_000, 18_278
_ANYTHING = TypeAdapter(dict[str, Any])


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


@dataclass(frozen=True)
class _Properties:
    title: str


@dataclass(frozen=True)
class _Spreadsheet:
    properties: _Properties


@dataclass(frozen=True)
class _Sheet:
    spreadsheetId: str
    title: str


@dataclass(frozen=True)
class _Cell:
    value: str | int | float | bool | None


def load_workspace(state: Path, files: Workspace, needed: Sequence[str], *outputs: str) -> None:
    """Copy the agent's files; raise `ValueError` if one is missing or an agent has worked."""
    folder = state / "agent_workspace"
    if not folder.is_dir():
        raise ValueError(f"{folder} must be the folder of the agent's files")
    for name in needed:
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} must be a file: the task needs it")
    for name in outputs:
        if (folder / name).exists():
            raise ValueError(f"{folder / name} must not exist: an agent has worked on this state")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files.write(path.relative_to(folder).as_posix(), path.read_bytes())
    for name in ("storage_buckets", "storage_objects", "log_entries"):
        path = state / "local_db" / "google_cloud" / f"{name}.json"
        if path.exists() and path.stat().st_size and read_json(path, _ANYTHING):
            raise ValueError(f"{path} must be empty: an agent has worked on this state")


def read_spreadsheet(state: Path, title: str, sheet: str, columns: Columns) -> tuple[Any, Rows]:
    """Return the cells of the state's only sheet by row, and its rows in typed columns."""
    folder = state / "local_db" / "google_sheets"
    books = read_json(folder / "spreadsheets.json", TypeAdapter(dict[str, _Spreadsheet]))
    if [book.properties.title for book in books.values()] != [title]:
        titles = [book.properties.title for book in books.values()]
        raise ValueError(
            f"{folder / 'spreadsheets.json'} must have only the spreadsheet {title!r}, got {titles}"
        )
    [book] = books
    sheets = read_json(folder / "sheets.json", TypeAdapter(dict[str, _Sheet]))
    if list(sheets.values()) != [_Sheet(book, sheet)]:
        raise ValueError(f"{folder / 'sheets.json'} must have only the sheet {sheet!r} of {book}")
    path = folder / "cells.json"
    table = _table(path, f"{book}_{sheet}", read_json(path, TypeAdapter(dict[str, _Cell])))
    return table, typed_rows(path, table, columns)


def _table(path: Path, prefix: str, cells: dict[str, _Cell]) -> list[list[Any]]:
    pattern = re.compile(rf"{re.escape(prefix)}_(0|[1-9][0-9]{{0,6}})_(0|[1-9][0-9]{{0,4}})")
    values = {}
    for key, cell in cells.items():
        match = pattern.fullmatch(key)
        if not match:
            raise ValueError(f"{path}: {key} must be {prefix}_ROW_COLUMN, counted from 0")
        values[int(match[1]), int(match[2])] = cell.value
    height = 1 + max((row for row, _ in values), default=0)
    width = 1 + max((column for _, column in values), default=0)
    if width > _MOST_COLUMNS or height * width > _MOST_CELLS:
        raise ValueError(f"{path} has {height} rows of {width} cells; a sheet is smaller")
    return [[values.get((row, column), "") for column in range(width)] for row in range(height)]
