"""The records of a server: an SQLite database in memory that pickles."""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TypeAlias, TypeVar, cast

from agentgym.text.tools import ToolError, echo

Row: TypeAlias = dict[str, Any]
ValueT = TypeVar("ValueT")

_to_json = json.JSONEncoder(ensure_ascii=False).encode
_raw_decode = json.JSONDecoder().raw_decode  # of our own texts, which have no spaces around them


def _from_json(text: str) -> Any:
    return _raw_decode(text)[0]


_DECODERS: dict[str, Callable[[Any], Any]] = {"JSON": _from_json, "BOOL": bool}
"""What makes a value of a stored one, by the declared type of its column."""


class _Database(sqlite3.Connection):
    """Connection that closes itself when it is dropped, of which Python 3.13 would warn."""

    def __del__(self) -> None:
        self.close()


class Store:
    """Tables of records. A column whose declared type is JSON holds any JSON value, one of type
    BOOL a truth value.

    A column name has one type in all tables of a schema. Every table whose records have an `id`
    declares it as primary key.

    Args:
        schema: SQL that makes the tables.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._open(_empty(schema))

    def _open(self, image: bytes) -> None:
        self._db = sqlite3.connect(
            ":memory:", check_same_thread=False, isolation_level=None, factory=_Database
        )
        self._db.deserialize(image)
        self._db.execute("PRAGMA foreign_keys = ON")
        self._decoders, self._columns = _columns(self._schema)
        self._depth = self._undone = 0
        self._table_changes: Counter[str] = Counter()  # those known to concern one table alone
        self._derived: dict[Hashable, tuple[Hashable, Any]] = {}

    def rows(self, sql: str, *values: Any, **parameters: Any) -> list[Row]:
        """Return the records that a SELECT gives, each as a dict in the order of its columns.

        Args:
            sql: The statement.
            values: What its `?` stand for, or else
            parameters: what its `:name` stand for.
        """
        bound = dict(zip(parameters, _encode_all(parameters.values()), strict=True))
        cursor = self._db.execute(sql, bound or _encode_all(values))
        names = [column[0] for column in cursor.description]
        records = [dict(zip(names, record, strict=True)) for record in cursor]
        for name in self._decoders.keys() & names if records else ():
            decode = self._decoders[name]
            for record in records:
                if record[name] is not None:
                    record[name] = decode(record[name])
        return records

    def tuples(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the records that a SELECT gives, as SQLite keeps them: for many short ones."""
        return self._db.execute(sql, _encode_all(values)).fetchall()

    def row(self, sql: str, *values: Any) -> Row | None:
        """Return the first record that a SELECT gives, or None."""
        return next(iter(self.rows(sql, *values)), None)

    def value(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first record that a SELECT gives, or None."""
        record = self._db.execute(sql, _encode_all(values)).fetchone()
        return record[0] if record else None

    def find(self, table: str, order: str = "id", **equal: Any) -> list[Row]:
        """Return the records of a table whose columns have these values, in an order."""
        return self.rows(_selection(table, tuple(equal), order), *equal.values())

    def get(self, table: str, id: int | float | str, kind: str | None = None, **equal: Any) -> Row:
        """Return the record with an id.

        Args:
            table: Its table.
            id: Its id.
            kind: What to call such a record in the error; the name of the table without its last
                letter by default.
            **equal: Columns that must have these values besides; the id alone is not found
                otherwise.

        Raises:
            ToolError: There is none.
        """
        records = self.find(table, id=id, **equal)
        if not records:
            raise ToolError(
                f"not found: there is no {kind or table[:-1].replace('_', ' ')} with id {echo(id)}"
            )
        return records[0]

    def insert(self, table: str, **record: Any) -> int:
        """Add a record; its rowid, which is its id where that is an integer."""
        cursor = self._write(table, _insertion(table, tuple(record)), _encode_all(record.values()))
        return int(cursor.lastrowid or 0)

    def insert_all(self, table: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Add records that have the same columns, in any order."""
        rows = list(records)
        if not rows:
            return
        names = tuple(rows[0])
        values = [_encode_all([record[name] for name in names]) for record in rows]
        with self.change():
            self._db.executemany(_insertion(table, names), values)

    def update(self, table: str, id: int | float | str, **changes: Any) -> None:
        """Change columns of the record with an id."""
        if changes:
            names = ", ".join(f'"{name}" = ?' for name in changes)
            self._write(
                table,
                f'UPDATE "{table}" SET {names} WHERE id = ?',
                _encode_all([*changes.values(), id]),
            )

    def delete(self, table: str, **equal: Any) -> int:
        """Remove the records whose columns have these values; how many there were."""
        where = " AND ".join(f'"{name}" IS ?' for name in equal) or "1"
        return self._write(
            table, f'DELETE FROM "{table}" WHERE {where}', _encode_all(equal.values())
        ).rowcount

    def _write(self, table: str, sql: str, values: list[Any]) -> sqlite3.Cursor:
        """Run a statement that changes a table, and others only as foreign keys ask for it."""
        before = self._db.total_changes
        cursor = self._db.execute(sql, values)
        if self._db.total_changes - before == cursor.rowcount:  # no other table was changed
            self._table_changes[table] += cursor.rowcount
        return cursor

    @property
    def changes(self) -> int:
        """Return a number that grows with every change, and where changes are undone."""
        return self._db.total_changes + self._undone

    def version(self) -> object:
        """Return what is equal later as long as nothing has changed."""
        return self._db, self.changes

    def derive(self, key: Hashable, tables: Collection[str], make: Callable[[], ValueT]) -> ValueT:
        """Return what is made of some tables, made anew only if one of them has changed since.

        Args:
            key: What it is; it belongs to this one way to make it.
            tables: The tables that it is made of.
            make: Makes it.
        """
        elsewhere = self.changes - self._table_changes.total()  # perhaps in these tables
        version = (elsewhere, *(self._table_changes[table] for table in tables))
        known, value = self._derived.get(key, (None, None))
        if known != version:
            value = make()
            self._derived[key] = (version, value)
        return cast("ValueT", value)

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the names of the columns of a table."""
        return self._columns[table]

    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables of the schema."""
        return tuple(name for name in self._columns if not name.startswith("sqlite_"))

    def fingerprint(self, table: str, without: Collection[str] = ()) -> str:
        """Return a hash of all records of a table, but for some columns."""
        columns = tuple(name for name in self.columns(table) if name not in without)
        return self.derive(
            ("fingerprint", table, columns), (table,), lambda: self._fingerprint(table, columns)
        )

    def _fingerprint(self, table: str, columns: Iterable[str]) -> str:
        names = ", ".join(f'"{name}"' for name in columns)
        records = self._db.execute(f'SELECT {names} FROM "{table}" ORDER BY 1, 2').fetchall()
        return hashlib.sha256(repr(records).encode()).hexdigest()

    @contextmanager
    def change(self) -> Iterator[None]:
        """Several changes that are made all or, when something is raised, not at all."""
        name = f"change_{self._depth}"
        self._db.execute(f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._undone += 1
            # SQLite rolls all back by itself if it runs out of memory.
            if self._db.in_transaction:
                # The outermost is not released after it: that would be a commit, which SQLite
                # counts in the file.
                self._db.execute(f"ROLLBACK TO {name}" if self._depth > 1 else "ROLLBACK")
            raise
        finally:
            self._depth -= 1
            if self._db.in_transaction:
                self._db.execute(f"RELEASE {name}")

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self._schema, "image": self._db.serialize()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._schema = state["schema"]
        self._open(state["image"])


@functools.lru_cache(maxsize=1_024)
def _insertion(table: str, names: tuple[str, ...]) -> str:
    """Return the statement that adds a record."""
    columns = ", ".join(f'"{name}"' for name in names)
    return f'INSERT INTO "{table}" ({columns}) VALUES ({", ".join("?" * len(names))})'


@functools.lru_cache(maxsize=1_024)
def _selection(table: str, names: tuple[str, ...], order: str) -> str:
    """Return the statement that finds the records of a table by columns, in an order."""
    where = " AND ".join(f'"{name}" IS ?' for name in names) or "1"
    return f'SELECT * FROM "{table}" WHERE {where} ORDER BY {order}'


_STORED = frozenset({str, float, bool, bytes, type(None)})
"""Types whose values SQLite keeps as they are; the others are encoded, or have to be in range."""


def _encode_all(values: Iterable[Any]) -> list[Any]:
    """Return values as SQLite keeps them."""
    return [value if type(value) in _STORED else _encode(value) for value in values]


def _encode(value: Any) -> Any:
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return value
        raise ToolError(f"invalid argument: {echo(value)} is beyond the integers of 64 bits")
    return _to_json(value) if isinstance(value, (dict, list, tuple)) else value


@functools.cache
def _empty(schema: str) -> bytes:
    with closing(sqlite3.connect(":memory:")) as db:
        # Setting a version makes the first page, without which there is nothing to serialise.
        db.executescript(f"PRAGMA page_size = 1024; PRAGMA user_version = 1; {schema}")
        return db.serialize()


@functools.cache
def _columns(
    schema: str,
) -> tuple[dict[str, Callable[[Any], Any]], dict[str, tuple[str, ...]]]:
    """The decoders of the columns that need one, and the columns of each table."""
    db = sqlite3.connect(":memory:")
    db.executescript(schema)
    decoders: dict[str, Callable[[Any], Any]] = {}
    columns: dict[str, tuple[str, ...]] = {}
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        listed = db.execute(f'PRAGMA table_info("{table}")').fetchall()
        columns[table] = tuple(column[1] for column in listed)
        decoders |= {name: _DECODERS[kind] for _, name, kind, *_ in listed if kind in _DECODERS}
    db.close()
    return decoders, columns
