"""A server's records: an in-memory SQLite database that can be pickled."""

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
_raw_decode = json.JSONDecoder().raw_decode  # stored JSON has no whitespace around it


def _from_json(text: str) -> Any:
    return _raw_decode(text)[0]


_Decoder: TypeAlias = Callable[[Any], Any]
_DECODERS: dict[str, _Decoder] = {"JSON": _from_json, "BOOL": bool}

# Maximum size of a server's records, because each copy of an env copies the records.
MAX_BYTES = 256 * 2**20
_PAGE_BYTES = 1_024


class _Database(sqlite3.Connection):
    """Connection that closes itself when deleted; otherwise, Python 3.13 warns."""

    def __del__(self) -> None:
        self.close()


class Store:
    """Tables of records, created by an SQL schema.

    JSON columns contain JSON values, and BOOL columns contain booleans. Columns with the same name
    have the same type in all tables, and `id` is the primary key.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._open(_layout(schema)[0])

    def _open(self, image: bytes) -> None:
        self._db = sqlite3.connect(
            ":memory:", check_same_thread=False, isolation_level=None, factory=_Database
        )
        self._db.deserialize(image)
        self._db.execute("PRAGMA foreign_keys = ON")
        _, self._decoders, self._columns = _layout(self._schema)
        self._depth = self._undone = 0
        self._table_changes: Counter[str] = Counter()  # the number of changes to each table
        self._derived: dict[Hashable, tuple[Hashable, Any]] = {}

    def rows(self, sql: str, *values: Any, **parameters: Any) -> list[Row]:
        """Return records as dicts; `values` fill `?` in the SQL, and `parameters` fill `:name`."""
        bound = dict(zip(parameters, _encode_all(parameters.values()), strict=True))
        cursor = self._db.execute(sql, bound or _encode_all(values))
        names = [column[0] for column in cursor.description]
        records = [dict(zip(names, record, strict=True)) for record in cursor]
        if not records:
            return []
        for name in self._decoders.keys() & names:
            decode = self._decoders[name]
            for record in records:
                if record[name] is not None:
                    record[name] = decode(record[name])
        return records

    def tuples(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return undecoded records, which is faster for many short records."""
        return self._db.execute(sql, _encode_all(values)).fetchall()

    def row(self, sql: str, *values: Any) -> Row | None:
        """Return the first record, or None."""
        return next(iter(self.rows(sql, *values)), None)

    def value(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first record, or None."""
        record = self._db.execute(sql, _encode_all(values)).fetchone()
        return record[0] if record else None

    def find(self, table: str, order: str = "id", **equal: Any) -> list[Row]:
        """Return the records whose columns have the values in `equal`, sorted by `order`."""
        sql = f'SELECT * FROM "{table}" WHERE {_all_equal(equal)} ORDER BY {order}'
        return self.rows(sql, *equal.values())

    def get(self, table: str, id: int | float | str, kind: str | None = None, **equal: Any) -> Row:
        """Return the record with the given id and column values, or raise `ToolError`."""
        records = self.find(table, id=id, **equal)
        if not records:
            raise missing_record(table, id, kind)
        return records[0]

    def insert(self, table: str, **record: Any) -> int:
        """Add a record and return its rowid, which is an integer id."""
        sql = _insertion(table, tuple(record))
        cursor = self._write(table, sql, _encode_all(record.values()))
        return int(cursor.lastrowid or 0)

    def insert_all(self, table: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Add records, all of which must have the same columns."""
        rows = list(records)
        if not rows:
            return
        names = tuple(rows[0])
        values = [_encode_all([record[name] for name in names]) for record in rows]
        with self.change():
            self._db.executemany(_insertion(table, names), values)

    def update(self, table: str, id: int | float | str, **changes: Any) -> None:
        """Change columns of the record with the given id."""
        if changes:
            new_values = ", ".join(f'"{name}" = ?' for name in changes)
            sql = f'UPDATE "{table}" SET {new_values} WHERE id = ?'
            self._write(table, sql, _encode_all([*changes.values(), id]))

    def delete(self, table: str, **equal: Any) -> int:
        """Delete the records whose columns have the values in `equal`, and return the count."""
        sql = f'DELETE FROM "{table}" WHERE {_all_equal(equal)}'
        return self._write(table, sql, _encode_all(equal.values())).rowcount

    def _write(self, table: str, sql: str, values: list[Any]) -> sqlite3.Cursor:
        """Run a statement that changes one table; foreign keys may change other tables."""
        before = self._db.total_changes
        cursor = self._db.execute(sql, values)
        if self._db.total_changes - before == cursor.rowcount:  # no other table changed
            self._table_changes[table] += cursor.rowcount
        return cursor

    @property
    def changes(self) -> int:
        """Return a number that grows with every change, including undone changes."""
        return self._db.total_changes + self._undone

    def version(self) -> object:
        """Return a value that is different after each change of the records."""
        return self._db, self.changes

    def derive(self, key: Hashable, tables: Collection[str], make: Callable[[], ValueT]) -> ValueT:
        """Return `make()`; the result is cached under `key` until one of `tables` changes."""
        elsewhere = self.changes - self._table_changes.total()  # may have affected `tables`
        version = (elsewhere, *(self._table_changes[table] for table in tables))
        known, value = self._derived.get(key, (None, None))
        if known != version:
            value = make()
            self._derived[key] = (version, value)
        return cast("ValueT", value)

    def columns(self, table: str) -> tuple[str, ...]:
        """Return a table's column names."""
        return self._columns[table]

    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables."""
        return tuple(name for name in self._columns if not name.startswith("sqlite_"))

    def fingerprint(self, table: str, without: Collection[str] = ()) -> str:
        """Return a hash of a table's records, ignoring the columns in `without`."""
        columns = tuple(name for name in self.columns(table) if name not in without)
        key = ("fingerprint", table, columns)
        return self.derive(key, (table,), lambda: self._fingerprint(table, columns))

    def _fingerprint(self, table: str, columns: Iterable[str]) -> str:
        sql = f'SELECT {_quoted(columns)} FROM "{table}" ORDER BY 1, 2'
        records = self._db.execute(sql).fetchall()
        return hashlib.sha256(repr(records).encode()).hexdigest()

    @contextmanager
    def change(self) -> Iterator[None]:
        """Make all changes in the block atomic; an exception or excess data undoes the changes."""
        name = f"change_{self._depth}"
        before = self._db.total_changes
        self._db.execute(f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
            if self._depth == 1 and self._db.total_changes != before:
                self._check_size()
        except BaseException:
            self._undone += 1
            # If SQLite runs out of memory, it has already rolled back.
            if self._db.in_transaction:
                # Releasing the outermost savepoint would commit, which changes the file.
                self._db.execute(f"ROLLBACK TO {name}" if self._depth > 1 else "ROLLBACK")
            raise
        finally:
            self._depth -= 1
            if self._db.in_transaction:
                self._db.execute(f"RELEASE {name}")

    def _check_size(self) -> None:
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        if pages * _PAGE_BYTES > MAX_BYTES:
            raise ToolError(
                f"limit exceeded: the service can store at most {MAX_BYTES} bytes; delete records"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self._schema, "image": self._db.serialize()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._schema = state["schema"]
        self._open(state["image"])


def missing_record(table: str, id: int | float | str, kind: str | None = None) -> ToolError:
    """Return the error for an unknown id; `kind` defaults to the table's name in the singular."""
    name = kind or table[:-1].replace("_", " ")
    return ToolError(f"not found: there is no {name} with id {echo(id)}")


@functools.lru_cache(maxsize=1_024)
def _insertion(table: str, names: tuple[str, ...]) -> str:
    marks = ", ".join("?" * len(names))
    return f'INSERT INTO "{table}" ({_quoted(names)}) VALUES ({marks})'


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _all_equal(names: Iterable[str]) -> str:
    return " AND ".join(f'"{name}" IS ?' for name in names) or "1"


# SQLite stores values of these types unchanged; other values are encoded or range-checked.
_STORED = frozenset({str, float, bool, bytes, type(None)})


def _encode_all(values: Iterable[Any]) -> list[Any]:
    return [value if type(value) in _STORED else _encode(value) for value in values]


def _encode(value: Any) -> Any:
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return value
        raise ToolError(f"invalid argument: {echo(value)} does not fit into a 64-bit integer")
    if isinstance(value, (dict, list, tuple)):
        return _to_json(value)
    return value


@functools.cache
def _layout(schema: str) -> tuple[bytes, dict[str, _Decoder], dict[str, tuple[str, ...]]]:
    """Return an empty database, the decoders of columns, and the column names by table."""
    decoders: dict[str, _Decoder] = {}
    columns: dict[str, tuple[str, ...]] = {}
    with closing(sqlite3.connect(":memory:")) as db:
        # Setting a version creates the first page; an empty database cannot be serialised.
        db.executescript(f"PRAGMA page_size = {_PAGE_BYTES}; PRAGMA user_version = 1; {schema}")
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            listed = db.execute(f'PRAGMA table_info("{table}")').fetchall()
            columns[table] = tuple(column[1] for column in listed)
            for _, name, kind, *_ in listed:
                if kind in _DECODERS:
                    decoders[name] = _DECODERS[kind]
        return db.serialize(), decoders, columns
