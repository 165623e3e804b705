"""SQL engine of the data warehouses, which runs statements in DuckDB.

The tables are stored in this process and copied to DuckDB when a statement uses them, so no data is
lost if DuckDB is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from agentgym.office.warehouse.database import DuckDBSession, SessionLostError
from agentgym.office.warehouse.values import Rows, pack_columns, to_plain

# Maximum total size of the tables as JSON; such tables fit into DuckDB's memory on every host.
MAX_CHARACTERS = 1 << 26

_Statements: TypeAlias = list[tuple[str, Sequence[Any]]]
TableName: TypeAlias = tuple[str, str]
"""Schema and name of a table; the schema is the engine's, such as `ab_testing` or `SALES.PUBLIC`.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """Name, DuckDB type and declared properties of a column."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    comment: str = ""
    key: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of a table; `data` contains a JSON array per column."""

    columns: tuple[Column, ...]
    data: tuple[str, ...] = ()
    rows: int = 0
    comment: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """Properties of a schema; `notes` is the location in BigQuery."""

    comment: str = ""
    created: str = ""
    notes: str = ""


@dataclass
class SQLEngine:
    """The tables of a server, in memory. Engines can be pickled and deep-copied."""

    dialect: str
    schemas: dict[str, Schema] = field(default_factory=dict)
    tables: dict[TableName, Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._live: DuckDBSession | None = None
        self._loaded: dict[TableName, tuple[str, ...]] = {}  # tables that DuckDB contains
        self._views: dict[TableName, Table] = {}  # tables outside the catalogue

    def load(
        self,
        name: TableName,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Any]],
        created: datetime,
    ) -> None:
        """Create or replace a table; raise `ValueError` if a row has the wrong length."""
        if any(len(row) != len(columns) for row in rows):
            raise ValueError(f"every row of {'.'.join(name)} must have {len(columns)} values")
        data = tuple(pack_columns(rows, len(columns)))
        now = created.isoformat()
        self.tables[name] = Table(tuple(columns), data, len(rows), created=now)

    def read(
        self,
        sql: str,
        tables: Sequence[TableName],
        now: datetime,
        limit: int,
        most_characters: int = 8 * MAX_CHARACTERS,  # more than any table
    ) -> Rows:
        """Run a DuckDB query and return at most `limit` records, or raise ToolError."""
        names, types, records, total = self._request(
            tables, "read", _opening(now), sql, limit, most_characters
        )
        columns = zip(types, zip(*records[:limit], strict=True), strict=False)  # or no records
        plain_columns = [to_plain(kind, values) for kind, values in columns]
        plain_records = [list(record) for record in zip(*plain_columns, strict=True)]
        return Rows(names, plain_records, total)

    def write(
        self,
        statements: Sequence[str],
        tables: Sequence[TableName],
        now: datetime,
        target: TableName,
        created: Table | None = None,
    ) -> list[Any]:
        """Run statements atomically; return the records of the last statement, or raise ToolError.

        The statements read `tables` and change the table `target`; `created` is the catalogue
        entry of a new table, possibly without columns.
        """
        before = self.tables.get(target)
        own = _size(before) if before else 0
        others = sum(map(_size, self.tables.values())) - own
        # Tables may always shrink, even if a task filled the office to the limit.
        room = max(own, MAX_CHARACTERS - others)
        opening = [f"CREATE SCHEMA IF NOT EXISTS {quote(target[0])}", *_opening(now)]
        answer, columns, data, rows = self._request(
            tables, "write", opening, statements, target, room
        )
        if created is None:
            table = self.tables[target]
        else:
            table = replace(created, columns=_columns(columns, created.columns))
        self.tables[target] = replace(table, data=tuple(data), rows=rows)
        self._loaded[target] = self.tables[target].data
        return list(answer)

    def add_virtual_table(
        self, name: TableName, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Add a table that is not in the catalogue, such as an information schema view."""
        declared = []
        for k, column in enumerate(columns):
            is_number = rows and isinstance(rows[0][k], int)
            declared.append(Column(column, "BIGINT" if is_number else "VARCHAR"))
        data = pack_columns(rows, len(columns))
        self._views[name] = Table(tuple(declared), tuple(data))

    def close(self) -> None:
        """Close the DuckDB session; the tables remain."""
        if self._live is not None:
            self._live.close()
        self._live = None

    def version(self) -> object:
        """Return a value that changes if and only if the schemas or tables change."""
        return self.schemas.copy(), self.tables.copy()

    def undo_point(self) -> Callable[[], None]:
        """Return a function that restores the current state."""
        schemas, tables = self.schemas.copy(), self.tables.copy()
        return lambda: vars(self).update(schemas=schemas, tables=tables)

    def __getstate__(self) -> dict[str, Any]:
        return {"dialect": self.dialect, "schemas": self.schemas, "tables": self.tables}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    def __deepcopy__(self, memo: dict[int, Any]) -> SQLEngine:
        return SQLEngine(self.dialect, dict(self.schemas), dict(self.tables))

    def _request(self, tables: Sequence[TableName], method: str, *arguments: Any) -> Any:
        while True:
            try:
                if self._live is None or not self._live.process.usable:
                    self._live, self._loaded = DuckDBSession(self.dialect), {}
                self._ensure_loaded(self._live, tables)
                return self._live.request(method, *arguments)
            except SessionLostError:  # a statement from another engine ended the process
                continue

    def _ensure_loaded(self, live: DuckDBSession, tables: Sequence[TableName]) -> None:
        every = self.tables | self._views
        statements: _Statements = []
        dropped = [name for name in self._loaded if name not in every]
        for name in dropped:
            statements.append((f"DROP TABLE {path(name)}", ()))
        needed = {name: every[name] for name in tables if name in every}
        for name, table in needed.items():
            if self._loaded.get(name) is not table.data:
                statements.append((f"CREATE SCHEMA IF NOT EXISTS {quote(name[0])}", ()))
                statements += _loading(name, table.columns, table.data)
        if statements:
            live.request("execute", statements)
        for name in dropped:
            del self._loaded[name]
        self._loaded |= {name: table.data for name, table in needed.items()}


def _size(table: Table) -> int:
    return sum(map(len, table.data))


def _columns(found: Sequence[Sequence[Any]], known: Sequence[Column]) -> tuple[Column, ...]:
    old = {column.name.lower(): column for column in known}
    columns = []
    for label, kind, nullable, default in found:
        column = replace(old.get(label.lower(), Column(label, kind)), name=label, type=kind)
        value = None if default == "NULL" else default
        columns.append(replace(column, nullable=nullable, default=value))
    return tuple(columns)


def _opening(now: datetime) -> list[str]:
    return [f"SET VARIABLE now = TIMESTAMPTZ '{now.astimezone(UTC).isoformat(sep=' ')}'"]


def _loading(name: TableName, columns: Sequence[Column], data: Sequence[str]) -> _Statements:
    statements: _Statements = [
        (f"CREATE OR REPLACE TABLE {path(name)} ({', '.join(map(declare, columns))})", ())
    ]
    if data and data[0] != "[]":
        parts = []
        for k, column in enumerate(columns, 1):
            parts.append(f"CAST(unnest(from_json(${k}, '[\"VARCHAR\"]')) AS {column.type})")
        statements.append((f"INSERT INTO {path(name)} SELECT {', '.join(parts)}", data))
    return statements


def declare(column: Column) -> str:
    """Return a DuckDB column declaration without keys, which warehouses do not enforce."""
    words = [quote(column.name), column.type]
    if not column.nullable:
        words.append("NOT NULL")
    if column.default:
        words.append(f"DEFAULT {column.default}")
    return " ".join(words)


def quote(name: str) -> str:
    """Quote a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def path(name: TableName) -> str:
    """Return the qualified name of a table in DuckDB."""
    return f"{quote(name[0])}.{quote(name[1])}"
