"""The SQL engine of the data warehouses: tables of one episode in DuckDB, asked in the dialect of a
warehouse.

The catalogue (schemas, tables, columns, comments) is kept here, and DuckDB holds rows only, of
tables that were asked for. So an engine costs nothing until the first statement, and a copy of one
shares its rows until either writes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agentgym.envs.loca.servers.libraries import install_hint
from agentgym.envs.loca.servers.warehouse.macros import MACROS
from agentgym.envs.loca.servers.warehouse.tables import (
    Column,
    Schema,
    Table,
    TableName,
    declare,
    fields_of,
    path,
    quote,
    table_of,
    unpack_columns,
)
from agentgym.envs.loca.servers.warehouse.values import Rows, converter, pack_values
from agentgym.tools import ToolError

if TYPE_CHECKING:
    import duckdb

SECONDS = 10.0
"""Time that a statement may run; those of tasks take milliseconds."""

MEMORY = "512MB"
"""Memory of one DuckDB: many offices share a machine."""
_OPTIMIZERS = "statistics_propagation,join_order,build_side_probe_side"
"""Optimizers that choose by statistics, which a copy does not share: with them its rows could come
in another order.
"""
_OPENING = (
    "SET TimeZone = 'UTC'",
    f"SET disabled_optimizers = '{_OPTIMIZERS}'",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
)
"""Settings that DuckDB takes after it was opened only: times in UTC, and no way to files or to
variables of Python.
"""
_CONFIG: dict[str, Any] = {
    "threads": 1,
    "async_threads": 0,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": MEMORY,
    "temp_directory": "",
}
"""One thread, so that results have one order; nothing from the network and nothing on the disk."""


@dataclass
class Engine:
    """The tables of one server. It pickles and deep-copies between statements; nothing of it is on
    disk.

    Args:
        dialect: The dialect that it is asked in, `bigquery` or `snowflake`.

    Attributes:
        schemas: The schemas by name.
        tables: The tables by name. Only `load`, `write` and `set_schema` change it.
    """

    dialect: str
    schemas: dict[str, Schema] = field(default_factory=dict)
    tables: dict[TableName, Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._live: duckdb.DuckDBPyConnection | None = None
        self._loaded: set[TableName] = set()  # are in DuckDB
        self._dirty: set[TableName] = set()  # have other rows there than in `tables`
        self._merged: dict[tuple[TableName, ...], TableName] = {}

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
        values = zip(*rows, strict=True) if rows else ([] for _ in columns)
        data = tuple(map(pack_values, values))
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
        data = [pack_values([row[k] for row in rows]) for k in range(len(columns))]
        start = (
            [f"CREATE TABLE {path(name)} ({', '.join(map(declare, columns))})"] if is_new else []
        )
        start += [f"DELETE FROM {path(name)}"] if replace_rows and not is_new else []
        insert = f"INSERT INTO {path(name)} SELECT {unpack_columns(columns)}"
        self.write(
            [*start, insert], [name], [] if is_new else [name], now, schema=name[0], values=data
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
            kinds["_TABLE_SUFFIX"], values["_TABLE_SUFFIX"] = "VARCHAR", []
            for name, table in zip(names, tables, strict=True):
                values["_TABLE_SUFFIX"] += [name[1][start:]] * table.rows
            definitions = [Column(label, kind) for label, kind in kinds.items()]
            self._merged[key] = ("lib", f"merged {len(self._merged)}")
            self._put(self._merged[key], definitions, list(map(pack_values, values.values())))
        return self._merged[key]

    def set_schema(self, name: TableName, table: Table | None) -> None:
        """Note in the catalogue what DuckDB holds under a name now; None if nothing."""
        self._merged.clear()
        if table is None:
            self.tables.pop(name, None)
            self._loaded.discard(name)
            self._dirty.discard(name)
        else:
            self.tables[name] = table
            self._loaded.add(name)
            self._dirty.add(name)

    def table(self, name: TableName) -> Table:
        """Return a table with its present rows."""
        if name in self._dirty:
            self._save(name)
        return self.tables[name]

    def count(self, name: TableName) -> int:
        """Count the records of a table."""
        return self.table(name).rows

    def read(
        self, sql: str, tables: Sequence[TableName], now: datetime, limit: int, seed: str = ""
    ) -> Rows:
        """Run a query.

        Args:
            sql: A query in the SQL of DuckDB.
            tables: The tables that it reads.
            now: The moment that it takes for the present.
            limit: The most records to return.
            seed: A text that random functions depend on; empty where there is none.

        Raises:
            ToolError: It is wrong, or needs too much time or memory.
        """
        with self._running(now, tables, seed) as live:
            cursor = live.execute(sql)
            names, kinds = (
                [item[0] for item in cursor.description],
                [item[1] for item in cursor.description],
            )
            _check_names(names)
            if any("WITH TIME ZONE" in str(kind) for kind in kinds):
                # DuckDB gives such values by a library that is not needed for the same moment
                # without a zone.
                parts = ", ".join(
                    f"CAST({quote(n)} AS {_without_zone(str(k))}) AS {quote(n)}"
                    for n, k in zip(names, kinds, strict=True)
                )
                cursor = live.execute(f"SELECT {parts} FROM ({sql})")
            records = cursor.fetchmany(limit + 1)
            total = len(records)
            if total > limit:
                total = live.execute(f"SELECT count(*) FROM ({sql})").fetchall()[0][0]
        converters = [converter(kind) for kind in kinds]
        plain = [
            [convert(value) for convert, value in zip(converters, record, strict=True)]
            for record in records[:limit]
        ]
        return Rows(names, [str(kind) for kind in kinds], plain, total)

    def write(
        self,
        statements: Sequence[str],
        tables: Sequence[TableName],
        targets: Sequence[TableName],
        now: datetime,
        seed: str = "",
        schema: str = "",
        values: Sequence[Any] = (),
    ) -> list[Any]:
        """Run statements that change the rows of `targets` (or make something in `schema`), all or
        none; `values` are for the last.

        Returns:
            The records that DuckDB answers the last one with.

        Raises:
            ToolError: One is wrong, or needs too much time or memory.
        """
        with self._running(now, tables, seed) as live:
            if schema:
                live.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
            live.execute("BEGIN")
            try:
                for statement in statements[:-1]:
                    live.execute(statement)
                answer = live.execute(statements[-1], list(values)).fetchall()
                live.execute("COMMIT")
            except BaseException:
                live.execute("ROLLBACK")
                raise
        self._dirty.update(targets)
        self._merged.clear()
        return answer

    def add_virtual_table(
        self, name: TableName, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Load a table into DuckDB that is not in the catalogue, such as a view of the information
        schema.
        """
        data = [pack_values([row[k] for row in rows]) for k in range(len(columns))]
        kinds = [
            "BIGINT" if rows and isinstance(rows[0][k], int) else "VARCHAR"
            for k in range(len(columns))
        ]
        declared = [Column(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        self._put(name, declared, data)

    def _put(self, name: TableName, columns: Sequence[Column], data: Sequence[str]) -> None:
        live = self._open()
        live.execute(f"CREATE OR REPLACE TABLE {path(name)} ({', '.join(map(declare, columns))})")
        if data and data[0] != "[]":
            live.execute(f"INSERT INTO {path(name)} SELECT {unpack_columns(columns)}", list(data))

    def columns_of(self, name: TableName, before: Sequence[Column] = ()) -> tuple[Column, ...]:
        """Return the columns of a table as DuckDB has them, with comments and keys of columns that
        it had before.
        """
        sql = (
            "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() "
            "WHERE schema_name = $1 AND table_name = $2 ORDER BY column_index"
        )
        old = {column.name.lower(): column for column in before}
        columns = []
        for label, kind, nullable, default in self._open().execute(sql, list(name)).fetchall():
            old_column = old.get(label.lower(), Column(label, kind))
            columns.append(
                replace(
                    old_column,
                    name=label,
                    type=kind,
                    nullable=nullable,
                    default=None if default == "NULL" else default,
                )
            )
        return tuple(columns)

    def close(self) -> None:
        """Close DuckDB; the tables stay."""
        self._save_all()
        if self._live is not None:
            self._live.close()
        self._live, self._loaded, self._merged = None, set(), {}

    def __getstate__(self) -> dict[str, Any]:
        self._save_all()
        state = [self.dialect, list(self.schemas.items()), sorted(self.tables.items())]
        return {"image": json.dumps(state, default=fields_of, ensure_ascii=False)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.dialect, schemas, tables = json.loads(state["image"])
        self.schemas = {name: Schema(*values) for name, values in schemas}
        self.tables = {tuple(name): table_of(values) for name, values in tables}
        self.__post_init__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        self._save_all()
        return Engine(self.dialect, dict(self.schemas), dict(self.tables))

    def _save_all(self) -> None:
        for name in sorted(self._dirty):
            self._save(name)

    def _save(self, name: TableName) -> None:
        table = self.tables[name]
        if not table.view:
            parts = [
                f"to_json(list(CAST({quote(column.name)} AS VARCHAR)))::VARCHAR"
                for column in table.columns
            ]
            *data, rows = (
                self._open()
                .execute(f"SELECT {', '.join([*parts, 'count(*)'])} FROM {path(name)}")
                .fetchall()[0]
            )
            self.tables[name] = replace(table, data=tuple(text or "[]" for text in data), rows=rows)
        self._dirty.discard(name)

    def drop(self, name: TableName) -> None:
        """Drop a table or a view, if there is one."""
        if name in self._loaded:
            self._open().execute(
                f"DROP {'VIEW' if self.tables[name].view else 'TABLE'} {path(name)}"
            )
        self.set_schema(name, None)

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._live is None:
            self._live = _connect(self.dialect)
        return self._live

    def _ensure_loaded(self, name: TableName) -> None:
        """Load a table with its rows into DuckDB, unless it is there."""
        if name in self._loaded or name not in self.tables:
            return
        live, table = self._open(), self.tables[name]
        live.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(name[0])}")
        for needed in table.needs:
            self._ensure_loaded(needed)
        if table.view:
            live.execute(f"CREATE OR REPLACE VIEW {path(name)} AS {table.view}")
        else:
            self._put(name, table.columns, table.data)
        self._loaded.add(name)

    @contextmanager
    def _running(
        self, now: datetime, tables: Sequence[TableName], seed: str
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """DuckDB with these tables, for one statement, whose errors become `ToolError`s."""
        live = self._open()
        import duckdb  # noqa: PLC0415 - it takes 0.1 s to load

        timer = threading.Timer(SECONDS, live.interrupt)
        try:
            for name in tables:
                self._ensure_loaded(name)
            timer.start()
            live.execute(
                f"SET VARIABLE now = TIMESTAMPTZ '{now.astimezone(UTC).isoformat(sep=' ')}'"
            )
            if seed:
                live.execute(
                    f"SELECT setseed({(sum(seed.encode()) * 7919 + len(seed)) % 10_007 / 10_007})"
                )
            yield live
        except duckdb.InterruptException:
            raise ToolError(
                f"limit exceeded: the statement ran for more than {SECONDS:g} seconds; ask for less"
            ) from None
        except (duckdb.OutOfMemoryException, MemoryError):
            raise ToolError(
                f"limit exceeded: the statement needs more than {MEMORY} of memory; ask for less"
            ) from None
        except (duckdb.Error, ValueError, OverflowError, RuntimeError, TypeError) as error:
            raise ToolError(f"invalid argument: {_explain(error)}") from None
        finally:
            timer.cancel()


def sql_hint() -> AbstractContextManager[None]:
    """Tell how to get DuckDB and SQLGlot where one of them is missing."""
    return install_hint("SQL needs DuckDB and SQLGlot", "duckdb", "sqlglot")


def _connect(dialect: str) -> duckdb.DuckDBPyConnection:
    with sql_hint():
        import duckdb  # noqa: PLC0415 - it takes 0.1 s to load
    live = duckdb.connect(":memory:", config=_CONFIG)
    for statement in (
        *_OPENING,
        "CREATE SCHEMA lib",
        *(f"CREATE MACRO lib.{macro}" for macro in MACROS[dialect]),
    ):
        live.execute(statement)
    live.execute("SET lock_configuration = true")
    return live


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ToolError(
            f"invalid argument: several columns of the result are called {', '.join(twice)}; give "
            "each an alias"
        )


def _without_zone(kind: str) -> str:
    return kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMP").replace("TIMESTAMPTZ", "TIMESTAMP")


def _explain(error: Exception) -> str:
    """Return the first lines of what DuckDB says, without its kind of error and without its names
    for things.
    """
    text = str(error).split("\n\n")[0].split("\nLINE ")[0].split("\nDid you mean")[0]
    kind, colon, rest = text.partition(": ")
    return (rest if colon and kind.endswith("Error") else text).replace("lib.", "").strip()[:600]
