"""Child process that runs SQL in DuckDB, so that any statement can be stopped.

This file is executed by path and imports nothing from the package. A request contains the name of
a `_Session` method and arguments. The response contains its kind (`ok` or a kind of
error), a value and the CPU seconds.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Address space in bytes that a request may add; several times DuckDB's memory limit.
ADDRESS_SPACE = 2 << 30


class _Full(Exception):
    """Raised if a table would become too large."""


class _Session:
    def __init__(self, config: dict[str, Any], statements: Sequence[str]) -> None:
        import duckdb  # noqa: PLC0415 - found on the path that `main` sets

        self._live = duckdb.connect(":memory:", config=config)
        self._run(statements)

    def _run(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._live.execute(statement)

    def execute(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> None:
        for statement, values in statements:
            self._live.execute(statement, list(values))

    def read(
        self, opening: Sequence[str], sql: str, limit: int, most_characters: int
    ) -> tuple[list[str], list[str], list[Any], int]:
        """Run a query after the `opening` statements.

        Returns column names, column types, up to `limit` + 1 records with at most
        `most_characters` as Python literals, and the total number of records.
        """
        self._run(opening)
        cursor = self._live.execute(sql)
        names = [item[0] for item in cursor.description]
        types = [str(item[1]) for item in cursor.description]
        if twice := sorted(name for name, number in Counter(names).items() if number > 1):
            raise ValueError(
                f"several columns of the result are called {', '.join(twice)}; give each an alias"
            )
        if any("WITH TIME ZONE" in kind for kind in types):
            # DuckDB needs another library to return times with a time zone.
            parts = []
            for name, kind in zip(names, types, strict=True):
                plain = kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMP")
                parts.append(f"CAST({_quote(name)} AS {plain}) AS {_quote(name)}")
            cursor = self._live.execute(f"SELECT {', '.join(parts)} FROM ({sql})")
        records: list[Any] = []
        characters = 0
        while len(records) <= limit:
            record = cursor.fetchone()
            if record is None:
                return names, types, records, len(records)
            characters += len(str(record))
            if characters > most_characters:
                break
            records.append(record)
        total = self._live.execute(f"SELECT count(*) FROM ({sql})").fetchall()[0][0]
        return names, types, records, total

    def write(
        self, opening: Sequence[str], statements: Sequence[str], target: tuple[str, str], room: int
    ) -> tuple[list[Any], list[Any], list[str], int]:
        """Run statements atomically; raise if the table `target` exceeds `room` characters.

        Returns the last statement's records, the table's columns, a JSON array of strings per
        column, and the number of records.
        """
        self._run([*opening, "BEGIN"])
        try:
            self._run(statements)
            answer = self._live.fetchall()
            columns, data, rows = self._dump(*target)
            characters = sum(map(len, data))
            if characters > room:
                raise _Full(
                    f"the table must have at most {room} characters, got {characters}; store less "
                    "data"
                )
            self._live.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):  # DuckDB may already have rolled back
                self._live.execute("ROLLBACK")
            raise
        return answer, columns, data, rows

    def _dump(self, schema: str, name: str) -> tuple[list[Any], list[str], int]:
        columns = self._live.execute(
            "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() "
            "WHERE schema_name = $1 AND table_name = $2 ORDER BY column_index",
            [schema, name],
        ).fetchall()
        parts = []
        for column in columns:
            text = f"CAST({_quote(column[0])} AS VARCHAR)"
            parts.append(f"coalesce(json_group_array({text}), '[]')")
        table = f"{_quote(schema)}.{_quote(name)}"
        cursor = self._live.execute(f"SELECT {', '.join(parts)}, count(*) FROM {table}")
        *data, rows = cursor.fetchall()[0]
        return columns, data, rows


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _answer(
    sessions: dict[int, _Session], number: int, method: str, arguments: Sequence[Any]
) -> tuple[str, Any]:
    import duckdb  # noqa: PLC0415 - as above

    try:
        if method == "open":
            sessions[number] = _Session(*arguments)
            return "ok", None
        return "ok", getattr(sessions[number], method)(*arguments)
    except _Full as error:
        return "full", str(error)
    except (duckdb.OutOfMemoryException, MemoryError):
        return "memory", ""
    except (duckdb.FatalException, duckdb.InternalException):
        return "broken", ""  # all later statements in this process would fail
    except (duckdb.Error, ValueError, OverflowError, RuntimeError, TypeError) as error:
        text = str(error)
        kind = "memory" if "bad_alloc" in text else "refused"
        return kind, text


def _limit_memory() -> None:
    pages = Path("/proc/self/statm")
    if pages.exists():  # only Linux enforces this limit
        mapped = int(pages.read_bytes().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        room = mapped + ADDRESS_SPACE
        if most in (resource.RLIM_INFINITY, max(room, most)):
            resource.setrlimit(resource.RLIMIT_AS, (room, most))


def main(descriptor: str, path: str) -> None:
    """Answer requests until the parent process disconnects."""
    sys.path[:] = json.loads(path)
    connection = Connection(int(descriptor))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sessions: dict[int, _Session] = {}
    while True:
        try:
            closed, number, seconds, method, arguments = connection.recv()
        except EOFError:
            return
        for each in closed:
            sessions.pop(each, None)
        _limit_memory()
        # The kernel kills the process if a request exceeds its CPU time.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        start = time.process_time()
        kind, value = _answer(sessions, number, method, arguments)
        signal.setitimer(signal.ITIMER_PROF, 0)
        try:
            connection.send((kind, value, time.process_time() - start))
        except MemoryError:
            connection.send(("memory", "", seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
