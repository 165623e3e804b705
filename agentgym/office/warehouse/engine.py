"""The SQL engine of the data warehouses: tables of one episode in DuckDB, asked in the dialect of a
warehouse.

The catalogue (schemas, tables, columns, comments) is kept here, and DuckDB holds rows only, of
tables that were asked for. So an engine costs nothing until the first statement, and a copy of one
shares its rows until either writes. DuckDB runs in a process of its own, which ends if a statement
takes too much time or memory; another one is then brought to the same state by a journal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from agentgym.office.warehouse.database import Allowance, Database
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
from agentgym.office.warehouse.values import (
    Rows,
    pack_values,
    to_plain,
)

MAX_CHARACTERS = 1 << 26
"""Characters of all tables together (bytes of columns of a fixed width), which fit into the memory
of a DuckDB several times: a statement that would store more is refused, so that any host refuses the same.
"""


_Statements: TypeAlias = list[tuple[str, Sequence[Any]]]
"""Statements in the SQL of DuckDB, with their values."""


class _Image(NamedTuple):
    """The catalogue at a moment; it is never changed."""

    schemas: dict[str, Schema]
    tables: dict[TableName, Table]


@dataclass
class _Journal:
    """What was done in DuckDB since all tables were last saved: its state can be made again.

    Attributes:
        tables: The tables as they were saved.
        loaded: Those of them that were in DuckDB.
        steps: The requests since then, and the tables that were loaded in between.
    """

    tables: dict[TableName, Table]
    loaded: tuple[TableName, ...]
    steps: list[tuple[str, Any]] = field(default_factory=list)


@dataclass
class Engine:
    """The tables of one server. It pickles and deep-copies between statements; nothing of it is on
    disk.

    Args:
        dialect: The dialect that it is asked in, `bigquery` or `snowflake`.

    Attributes:
        allowance: Time that the requests of a script share.
        schemas: The schemas by name.
        tables: The tables by name. Only `load`, `write` and `set_schema` change it.
    """

    dialect: str
    schemas: dict[str, Schema] = field(default_factory=dict)
    tables: dict[TableName, Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._live: Database | None = None
        self._loaded: dict[TableName, None] = {}  # are in DuckDB, in the order of loading
        self._dirty: dict[TableName, int] = {}  # have other rows there, and so many characters
        self._merged: dict[tuple[TableName, ...], TableName] = {}
        self._library: dict[TableName, _Statements] = {}  # tables outside of the catalogue
        self._journal: _Journal | None = None
        self._version = 0
        self._committed: _Image | None = None  # before the transaction that is under way
        self.allowance = Allowance()

    def load(
        self,
        name: TableName,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Any]],
        created: datetime,
    ) -> None:
        """Make or replace a table with records, without DuckDB: fast for many.

        Raises:
            ValueError: A record has another number of values than there are columns.
        """
        if any(len(row) != len(columns) for row in rows):
            raise ValueError(f"every row of {'.'.join(name)} must have {len(columns)} values")
        data = tuple(_pack_columns(rows, len(columns)))
        self.drop(name)
        self.tables[name] = Table(tuple(columns), data, len(rows), created=created.isoformat())

    def append_rows(
        self,
        name: TableName,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Any]],
        now: datetime,
        replace_rows: bool = False,
    ) -> None:
        """Add records to a table, or make one with them.

        Raises:
            ToolError: A value does not fit the type of its column; nothing has changed.
        """
        is_new = name not in self.tables
        if is_new:
            start = [f"CREATE TABLE {path(name)} ({', '.join(map(declare, columns))})"]
        else:
            start = [f"DELETE FROM {path(name)}"] * replace_rows
        self.write(
            [*start, insertion(name, columns)],
            [name],
            now,
            targets=[] if is_new else [name],
            schema=name[0],
            values=_pack_columns(rows, len(columns)),
            new=[name] if is_new else [],
        )
        if is_new:
            self.set_schema(name, Table(tuple(columns), created=now.isoformat()))

    def merge(self, names: Sequence[TableName], start: int) -> TableName:
        """Load several tables into DuckDB as one, with the names from a place on in the column
        `_TABLE_SUFFIX`.
        """
        key = tuple(names)
        if key not in self._merged:
            tables = [self.table(name) for name in names]
            kinds = {
                column.name: column.type for table in reversed(tables) for column in table.columns
            }
            values: dict[str, list[Any]] = {label: [] for label in kinds}
            for table in tables:
                columns = dict(
                    zip((column.name for column in table.columns), table.data, strict=True)
                )
                for label in kinds:
                    values[label] += (
                        json.loads(columns[label]) if columns.get(label) else [None] * table.rows
                    )
            kinds["_TABLE_SUFFIX"] = "VARCHAR"
            values["_TABLE_SUFFIX"] = [
                source[1][start:]
                for source, table in zip(names, tables, strict=True)
                for _ in range(table.rows)
            ]
            self._open()  # of a new one nothing is merged yet
            name = ("lib", f"merged {len(self._merged)}")
            self._put(
                name,
                [Column(label, kind) for label, kind in kinds.items()],
                list(map(pack_values, values.values())),
            )
            self._merged[key] = name
        return self._merged[key]

    def set_schema(self, name: TableName, table: Table | None) -> None:
        """Note in the catalogue what DuckDB holds under a name now; None if nothing."""
        self._merged.clear()
        if table is None:
            self.tables.pop(name, None)
            self._loaded.pop(name, None)
            self._dirty.pop(name, None)
        else:
            self.tables[name] = table
            self._loaded[name] = None
            self._dirty.setdefault(name, 0)

    def table(self, name: TableName) -> Table:
        """Return a table with its present rows."""
        if name in self._dirty:
            self._save_all()
        return self.tables[name]

    def rows_bound(self, name: TableName) -> float:
        """Return a number of records that a table has at most; infinite if none is known without
        asking DuckDB.
        """
        table = self.tables.get(name)
        if table is None or table.view:
            return math.inf
        if name not in self._dirty:
            return table.rows
        return self._dirty[name] / 8 or math.inf  # a value counts for at least 8 characters

    def read(
        self,
        sql: str,
        tables: Sequence[TableName],
        now: datetime,
        limit: int,
        seed: str = "",
        most_characters: int = MAX_CHARACTERS,
    ) -> Rows:
        """Run a query.

        Args:
            sql: A query in the SQL of DuckDB.
            tables: The tables that it reads.
            now: The moment that it takes for the present.
            limit: The most records to return.
            seed: A text that random functions depend on; empty where there is none.
            most_characters: The most characters of the records.

        Raises:
            ToolError: It is wrong, or needs too much time or memory.
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
        """Run statements that change something, all or none.

        Args:
            statements: The statements, in the SQL of DuckDB.
            tables: The tables that they read or change.
            now: The moment that they take for the present.
            targets: The tables whose rows they change.
            seed: A text that random functions depend on; empty where there is none.
            schema: The schema in which they make something.
            values: Values of the last one.
            new: The tables that they make.

        Returns:
            The records that DuckDB answers the last one with.

        Raises:
            ToolError: One is wrong, or needs too much time or memory, or stores too much.
        """
        self._ensure_loaded(tables)
        opening = [f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}"] if schema else []
        grown = [*targets, *new]
        room = MAX_CHARACTERS - sum(self._size(name) for name in self.tables if name not in grown)
        # There is always room for less than there was, in an office that a task filled to the rim.
        room = max(room, sum(self._size(name) for name in grown if name in self.tables))
        opening += _opening(now, seed)
        answer, characters = self._change("write", opening, statements, list(values), grown, room)
        self._dirty.update(dict.fromkeys(targets, 0))
        for name in grown[:1]:
            self._dirty[name] = characters
        self._merged.clear()
        return list(answer)

    def add_virtual_table(
        self, name: TableName, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Load a table into DuckDB that is not in the catalogue, such as a view of the information
        schema.
        """
        declared = [
            Column(column, "BIGINT" if rows and isinstance(rows[0][k], int) else "VARCHAR")
            for k, column in enumerate(columns)
        ]
        self._put(name, declared, _pack_columns(rows, len(columns)))

    def _put(self, name: TableName, columns: Sequence[Column], data: Sequence[str]) -> None:
        """Load a table that is not in the catalogue."""
        statements = _loading(name, columns, data)
        self._open().request("execute", statements)
        self._library[name] = statements

    def columns_of(self, name: TableName, before: Sequence[Column] = ()) -> tuple[Column, ...]:
        """Return the columns of a table as DuckDB has them, with comments and keys of columns that
        it had before.
        """
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

    def begin(self) -> None:
        """Begin a transaction, unless one is under way."""
        if self._committed is None:
            self._save_all()
            self._committed = _Image(dict(self.schemas), dict(self.tables))

    def commit(self) -> None:
        """End a transaction, if one is under way; what it did stays."""
        self._committed = None

    def rollback(self) -> None:
        """End a transaction, if one is under way, and undo it."""
        if self._committed is not None:
            self.schemas, self.tables = self._committed
            self._committed, self._journal, self._dirty, self._loaded = None, None, {}, {}
            self._version += 1
            if self._live is not None:
                self._live.close()  # the next request makes another one

    def committed_table(self, name: TableName) -> Table | None:
        """Return a table with its rows as others see it, without what a transaction has done so
        far; None if there is none.
        """
        if self._committed is not None:
            return self._committed.tables.get(name)
        return self.table(name) if name in self.tables else None

    def committed_catalog(self) -> tuple[Mapping[str, Schema], Mapping[TableName, Table]]:
        """Return schemas and tables as others see them, without what a transaction has done so far;
        rows may be out of date.
        """
        return self._committed or _Image(self.schemas, self.tables)

    def close(self) -> None:
        """End DuckDB; the tables stay."""
        self._save_all()
        if self._live is not None:
            self._live.close()
        self._live, self._loaded, self._merged = None, {}, {}
        self._library = {}

    def version(self) -> object:
        """Return what is equal later as long as nothing has changed."""
        rows = self._version, self._dirty.copy()
        return rows, self.schemas.copy(), self.tables.copy(), self._committed

    def undo_point(self) -> Callable[[], None]:
        """Return a function that returns the engine to what it is now."""
        before = {
            name: getattr(self, name).copy() for name in ("schemas", "tables", "_dirty", "_loaded")
        }
        journal, version, committed = self._journal, self._version, self._committed
        steps = 0 if journal is None else len(journal.steps)

        def restore() -> None:
            vars(self).update(before, _journal=journal, _committed=committed)
            if journal is not None:
                del journal.steps[steps:]
            if self._version != version and self._live is not None:
                self._live.close()  # the next request makes another one

        return restore

    def __getstate__(self) -> dict[str, Any]:
        self._save_all()
        images = [_Image(self.schemas, self.tables)] + (
            [self._committed] if self._committed else []
        )
        listed = [[list(image.schemas.items()), sorted(image.tables.items())] for image in images]
        return {"image": json.dumps([self.dialect, listed], default=fields_of, ensure_ascii=False)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.dialect, listed = json.loads(state["image"])
        [present, *committed] = [
            _Image(
                {name: Schema(*values) for name, values in schemas},
                {tuple(name): table_of(values) for name, values in tables},
            )
            for schemas, tables in listed
        ]
        self.schemas, self.tables = present
        self.__post_init__()
        self._committed = committed[0] if committed else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        self._save_all()
        copied = Engine(self.dialect, dict(self.schemas), dict(self.tables))
        copied._committed = self._committed
        return copied

    def _save_all(self) -> None:
        """Take the rows of all tables that were changed out of DuckDB."""
        for name in sorted(self._dirty):
            table = self.tables[name]
            if not table.view:
                labels = [column.name for column in table.columns]
                data, rows = self._open().request("dump", *name, labels)
                self.tables[name] = replace(table, data=tuple(data), rows=rows)
        self._dirty, self._journal = {}, None

    def drop(self, name: TableName) -> None:
        """Drop a table or a view, if there is one."""
        if name in self._loaded:
            kind = "VIEW" if self.tables[name].view else "TABLE"
            self._change("execute", [(f"DROP {kind} {path(name)}", ())])
        self.set_schema(name, None)

    def _size(self, name: TableName) -> int:
        """Return about how many characters a table has."""
        if name in self._dirty:
            return self._dirty[name]
        return sum(map(len, self.tables[name].data))

    def _change(self, method: str, *arguments: Any) -> Any:
        """Make a request that changes what is in DuckDB, and note it in the journal."""
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

    def _open(self) -> Database:
        if self._live is None or not self._live.usable:
            self._live = Database(self.dialect, self.allowance)
            self._restore()
        return self._live

    def _restore(self) -> None:
        """Bring a new DuckDB to where the last one was: by the tables and the journal."""
        self._merged, self._library = {}, {}
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
        """Load tables with their rows into DuckDB, but for those that are there."""
        live = self._open()
        for name in tables:
            if name in self._loaded or name not in self.tables:
                continue
            table = self.tables[name]
            statements: _Statements = [(f"CREATE SCHEMA IF NOT EXISTS {quote(name[0])}", ())]
            self._ensure_loaded(table.needs)
            if table.view:
                statements += [(f"CREATE OR REPLACE VIEW {path(name)} AS {table.view}", ())]
            else:
                statements += _loading(name, table.columns, table.data)
            live.request("execute", statements)
            if self._journal is not None and self.tables is not self._journal.tables:
                self._journal.steps.append(("execute", (statements,)))
            self._loaded[name] = None


def _opening(now: datetime, seed: str) -> list[str]:
    """Return the statements that set what a statement depends on beside the tables."""
    statements = [f"SET VARIABLE now = TIMESTAMPTZ '{now.astimezone(UTC).isoformat(sep=' ')}'"]
    if seed:
        number = (sum(seed.encode()) * 7919 + len(seed)) % 10_007 / 10_007
        statements.append(f"SELECT setseed({number})")
    return statements


def _pack_columns(rows: Sequence[Sequence[Any]], width: int) -> list[str]:
    """Return for each column of records a JSON array of its values."""
    return list(map(pack_values, zip(*rows, strict=True) if rows else [()] * width))


def _loading(name: TableName, columns: Sequence[Column], data: Sequence[str]) -> _Statements:
    """Return the statements that make a table with its rows, with their values."""
    statements: _Statements = [
        (f"CREATE OR REPLACE TABLE {path(name)} ({', '.join(map(declare, columns))})", ())
    ]
    if data and data[0] != "[]":
        statements.append((insertion(name, columns), list(data)))
    return statements
