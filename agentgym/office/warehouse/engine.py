"""SQL engine of the data warehouses: one episode's tables in DuckDB.

This process keeps the catalogue (schemas, tables, columns, comments); DuckDB contains only the rows
of tables in use. So an engine costs nothing before the first statement, and a copy shares rows
until either writes. DuckDB runs in a separate process, which is killed if a statement takes too
much time or memory; a journal then brings a new process to the same state.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from agentgym.office.warehouse.database import DuckDBProcess
from agentgym.office.warehouse.tables import (
    Column,
    Schema,
    Table,
    TableName,
    declare,
    fields_of,
    insertion,
    path,
    quote,
    table_of,
)
from agentgym.office.warehouse.values import Rows, pack_columns, to_plain

# In all tables (bytes of fixed-width columns), a fraction of DuckDB's memory, so every host refuses
# the same statements.
MAX_CHARACTERS = 1 << 26


# DuckDB statements with their values.
_Statements: TypeAlias = list[tuple[str, Sequence[Any]]]


@dataclass
class _Journal:
    """The actions in DuckDB since all tables were last saved; they rebuild its state.

    Attributes:
        tables: The saved tables.
        loaded: Those that were in DuckDB.
        steps: The requests and table loads since then.
    """

    tables: dict[TableName, Table]
    loaded: tuple[TableName, ...]
    steps: list[tuple[str, Any]] = field(default_factory=list)


@dataclass
class SQLEngine:
    """A server's tables in memory. Picklable and deep-copyable between statements."""

    dialect: str
    schemas: dict[str, Schema] = field(default_factory=dict)
    tables: dict[TableName, Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._live: DuckDBProcess | None = None
        self._loaded: dict[TableName, None] = {}  # in DuckDB, in loading order
        self._dirty: dict[TableName, int] = {}  # changed in DuckDB, with their number of characters
        self._library: dict[TableName, _Statements] = {}  # tables outside the catalogue
        self._journal: _Journal | None = None
        self._version = 0

    def load(
        self,
        name: TableName,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Any]],
        created: datetime,
    ) -> None:
        """Create or replace a table without DuckDB; raise `ValueError` for ragged rows."""
        if any(len(row) != len(columns) for row in rows):
            raise ValueError(f"every row of {'.'.join(name)} must have {len(columns)} values")
        data = tuple(pack_columns(rows, len(columns)))
        self.drop(name)
        self.tables[name] = Table(tuple(columns), data, len(rows), created=created.isoformat())

    def set_schema(self, name: TableName, table: Table | None) -> None:
        """Record what DuckDB now contains under a name, None if nothing."""
        if table is None:
            self.tables.pop(name, None)
            self._loaded.pop(name, None)
            self._dirty.pop(name, None)
        else:
            self.tables[name] = table
            self._loaded[name] = None
            self._dirty.setdefault(name, 0)

    def table(self, name: TableName) -> Table:
        """Return a table with its current rows."""
        if name in self._dirty:
            self._save_all()
        return self.tables[name]

    def rows_bound(self, name: TableName) -> float:
        """Return an upper bound on a table's records, infinite if only DuckDB knows."""
        table = self.tables.get(name)
        if table is None:
            return math.inf
        if name not in self._dirty:
            return table.rows
        return self._dirty[name] / 8 or math.inf  # a value counts as at least 8 characters

    def read(
        self,
        sql: str,
        tables: Sequence[TableName],
        now: datetime,
        limit: int,
        seed: str = "",
        most_characters: int = MAX_CHARACTERS,
    ) -> Rows:
        """Run a DuckDB query.

        Args:
            sql: The query.
            tables: The tables that it reads.
            now: The query's current time.
            limit: The maximum number of records.
            seed: The seed of random functions, if any.
            most_characters: The maximum characters of the records.

        Raises:
            ToolError: It is invalid, or needs too much time or memory.
        """
        self._ensure_loaded(tables)
        names, types, shapes, records, total, too_long = self._open().request(
            "read", _opening(now, seed), sql, limit, most_characters
        )
        columns = zip(shapes, zip(*records[:limit], strict=True), strict=False)  # or no records
        plain_columns = [to_plain(shape, values) for shape, values in columns]
        return Rows(
            names, types, list(map(list, zip(*plain_columns, strict=True))), total, too_long
        )

    def write(
        self,
        statements: Sequence[str],
        tables: Sequence[TableName],
        now: datetime,
        targets: Sequence[TableName] = (),
        seed: str = "",
        schema: str = "",
        values: Sequence[Any] = (),
        new: Sequence[TableName] = (),
    ) -> list[Any]:
        """Run statements atomically and return the last one's records.

        Args:
            statements: The DuckDB statements.
            tables: The tables that they read or change.
            now: The statements' current time.
            targets: The tables whose rows they change.
            seed: The seed of random functions, if any.
            schema: The schema in which they create something.
            values: The last one's values.
            new: The tables that they create.

        Raises:
            ToolError: One is invalid, needs too much time or memory, or stores too much.
        """
        self._ensure_loaded(tables)
        opening = [f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}"] if schema else []
        grown = [*targets, *new]
        room = MAX_CHARACTERS - sum(self._size(name) for name in self.tables if name not in grown)
        # Shrinking is always allowed, even in an office that a task filled to the limit.
        room = max(room, sum(self._size(name) for name in grown if name in self.tables))
        opening += _opening(now, seed)
        answer, characters = self._change("write", opening, statements, list(values), grown, room)
        self._dirty.update(dict.fromkeys(targets, 0))
        for name in grown[:1]:
            self._dirty[name] = characters
        return list(answer)

    def add_virtual_table(
        self, name: TableName, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Load a table outside the catalogue, such as an information schema view."""
        declared = [
            Column(column, "BIGINT" if rows and isinstance(rows[0][k], int) else "VARCHAR")
            for k, column in enumerate(columns)
        ]
        self._put(name, declared, pack_columns(rows, len(columns)))

    def _put(self, name: TableName, columns: Sequence[Column], data: Sequence[str]) -> None:
        statements = _loading(name, columns, data)
        self._open().request("execute", statements)
        self._library[name] = statements

    def columns_of(self, name: TableName, before: Sequence[Column] = ()) -> tuple[Column, ...]:
        """Return a table's columns, keeping comments and keys from `before`."""
        sql = (
            "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() "
            "WHERE schema_name = $1 AND table_name = $2 ORDER BY column_index"
        )
        old = {column.name.lower(): column for column in before}
        return tuple(
            replace(
                old.get(label.lower(), Column(label, kind)),
                name=label,
                type=kind,
                nullable=nullable,
                default=None if default == "NULL" else default,
            )
            for label, kind, nullable, default in self._open().request("execute", [(sql, name)])
        )

    def close(self) -> None:
        """End DuckDB; the tables stay."""
        self._save_all()
        if self._live is not None:
            self._live.close()
        self._live, self._loaded = None, {}
        self._library = {}

    def version(self) -> object:
        """Return a value that changes exactly when the tables change."""
        rows = self._version, self._dirty.copy()
        return rows, self.schemas.copy(), self.tables.copy()

    def undo_point(self) -> Callable[[], None]:
        """Return a function that restores the current state."""
        before = {
            name: getattr(self, name).copy() for name in ("schemas", "tables", "_dirty", "_loaded")
        }
        journal, version = self._journal, self._version
        steps = 0 if journal is None else len(journal.steps)

        def restore() -> None:
            vars(self).update(before, _journal=journal)
            if journal is not None:
                del journal.steps[steps:]
            if self._version != version and self._live is not None:
                self._live.close()  # the next request starts another one

        return restore

    def __getstate__(self) -> dict[str, Any]:
        self._save_all()
        listed = [self.dialect, list(self.schemas.items()), sorted(self.tables.items())]
        return {"image": json.dumps(listed, default=fields_of, ensure_ascii=False)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.dialect, schemas, tables = json.loads(state["image"])
        self.schemas = {name: Schema(*values) for name, values in schemas}
        self.tables = {tuple(name): table_of(values) for name, values in tables}
        self.__post_init__()

    def __deepcopy__(self, memo: dict[int, Any]) -> SQLEngine:
        self._save_all()
        return SQLEngine(self.dialect, dict(self.schemas), dict(self.tables))

    def _save_all(self) -> None:
        for name in sorted(self._dirty):
            table = self.tables[name]
            labels = [column.name for column in table.columns]
            data, rows = self._open().request("dump", *name, labels)
            self.tables[name] = replace(table, data=tuple(data), rows=rows)
        self._dirty, self._journal = {}, None

    def drop(self, name: TableName) -> None:
        """Drop a table, if it exists."""
        if name in self._loaded:
            self._change("execute", [(f"DROP TABLE {path(name)}", ())])
        self.set_schema(name, None)

    def _size(self, name: TableName) -> int:
        if name in self._dirty:
            return self._dirty[name]
        return sum(map(len, self.tables[name].data))

    def _change(self, method: str, *arguments: Any) -> Any:
        """Record the request in the journal."""
        live = self._open()
        result = live.request(method, *arguments)
        if self._journal is None:
            self._journal = _Journal(self.tables.copy(), tuple(self._loaded))
        for name, loading in self._library.items() if method == "write" else ():
            if any(path(name) in statement for statement in arguments[1]):
                self._journal.steps.append(("execute", (loading,)))
        self._journal.steps.append((method, arguments))
        self._version += 1
        return result

    def _open(self) -> DuckDBProcess:
        if self._live is None or not self._live.usable:
            self._live = DuckDBProcess(self.dialect)
            self._restore()
        return self._live

    def _restore(self) -> None:
        """Bring a new DuckDB to the previous state."""
        self._library = {}
        journal, present = self._journal, self.tables
        if journal is None:
            self._loaded = {}
            return
        loaded, self._loaded, self.tables = self._loaded, {}, journal.tables
        try:
            self._ensure_loaded(journal.loaded)
            for method, arguments in journal.steps:
                self._open().request(method, *arguments)
        finally:
            self._loaded, self.tables = loaded, present

    def _ensure_loaded(self, tables: Iterable[TableName]) -> None:
        live = self._open()
        for name in tables:
            if name in self._loaded or name not in self.tables:
                continue
            table = self.tables[name]
            statements: _Statements = [(f"CREATE SCHEMA IF NOT EXISTS {quote(name[0])}", ())]
            statements += _loading(name, table.columns, table.data)
            live.request("execute", statements)
            if self._journal is not None and self.tables is not self._journal.tables:
                self._journal.steps.append(("execute", (statements,)))
            self._loaded[name] = None


def _opening(now: datetime, seed: str) -> list[str]:
    statements = [f"SET VARIABLE now = TIMESTAMPTZ '{now.astimezone(UTC).isoformat(sep=' ')}'"]
    if seed:
        number = (sum(seed.encode()) * 7919 + len(seed)) % 10_007 / 10_007
        statements.append(f"SELECT setseed({number})")
    return statements


def _loading(name: TableName, columns: Sequence[Column], data: Sequence[str]) -> _Statements:
    statements: _Statements = [
        (f"CREATE OR REPLACE TABLE {path(name)} ({', '.join(map(declare, columns))})", ())
    ]
    if data and data[0] != "[]":
        statements.append((insertion(name, columns), list(data)))
    return statements
