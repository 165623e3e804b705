"""Processes that run SQL in DuckDB, so that any statement can be stopped.

This file is run by path and imports nothing from the package. The first process imports DuckDB once
and forks one per engine. An engine sends a `_Session` method name with arguments over a socket and
receives `ok` with the result, or an error's kind and text, and the share of the work limits that the
request has used. The kernel kills a process whose
statement exceeds its CPU time.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Bytes beyond DuckDB's libraries, several times its buffer limit for memory outside the buffers.
ADDRESS_SPACE = 2 << 30

# Few records per fetch, so that megabyte-sized ones do not add up.
_CHUNK = 256


class _Refusal(Exception):
    """A statement exceeds a work limit."""


class _Session:
    """One DuckDB with sequences that count a statement's work."""

    def __init__(
        self, config: dict[str, Any], statements: Sequence[str], counters: dict[str, int]
    ) -> None:
        import duckdb  # noqa: PLC0415 - loaded by the process that this one is forked from

        self._live = duckdb.connect(":memory:", config=config)
        self._counters = "; ".join(
            f"CREATE OR REPLACE SEQUENCE lib.{name} MAXVALUE {most} NO CYCLE"
            for name, most in counters.items()
        )
        self._limits = counters
        self._counts = False
        self._has_views = False
        self.execute([(statement, ()) for statement in statements])

    def execute(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Run statements with their values; return the last one's records."""
        for statement, values in statements:
            self._has_views |= " VIEW " in statement[:30]
            self._live.execute(statement, list(values))
        return self._live.fetchall()

    def _begin(self, opening: Sequence[str], statements: Sequence[str]) -> None:
        for statement in opening:
            self._live.execute(statement)
        self._has_views |= any(" VIEW " in statement[:30] for statement in statements)
        # The counters' schema `lib` is invisible inside a view.
        self._counts = self._has_views or any("lib." in each.lower() for each in statements)
        if self._counts:
            self._live.execute(self._counters)

    def used(self) -> float:
        """Return the used share of the counter that is closest to its limit."""
        if not self._counts:
            return 0.0
        self._counts = False
        counted = self._live.execute(
            "SELECT sequence_name, last_value FROM duckdb_sequences() WHERE schema_name = 'lib'"
        )
        return max((last or 0) / self._limits[name] for name, last in counted.fetchall())

    def read(
        self, opening: Sequence[str], sql: str, limit: int, most_characters: int
    ) -> tuple[list[str], list[str], list[Any], list[Any], int, bool]:
        """Run a query after the `opening` statements.

        Returns column names, types and shapes, the records within both limits, their total number,
        and whether some were omitted for their length.
        """
        self._begin(opening, [sql])
        cursor = self._live.execute(sql)
        names = [item[0] for item in cursor.description]
        kinds = [item[1] for item in cursor.description]
        types = [str(kind) for kind in kinds]
        if twice := sorted(name for name, number in Counter(names).items() if number > 1):
            raise ValueError(
                f"several columns of the result are called {', '.join(twice)}; give each an alias"
            )
        if any("WITH TIME ZONE" in kind for kind in types):
            # DuckDB needs a library for zoned times, but not for the same time without a zone.
            parts = ", ".join(
                f"CAST({_quote(name)} AS "
                f"{kind.replace('TIMESTAMP WITH TIME ZONE', 'TIMESTAMP')}) AS {_quote(name)}"
                for name, kind in zip(names, types, strict=True)
            )
            cursor = self._live.execute(f"SELECT {parts} FROM ({sql})")
        records: list[Any] = []
        characters, too_long = 0, False
        while len(records) <= limit and not too_long:
            chunk = cursor.fetchmany(min(_CHUNK, limit + 1 - len(records)))
            if not chunk:
                break
            for record in chunk:
                characters += sum(map(_length, record))
                if too_long := characters > most_characters:
                    break
                records.append(record)
        total = len(records)
        if total > limit or too_long:
            total = self._live.execute(f"SELECT count(*) FROM ({sql})").fetchall()[0][0]
        return names, types, list(map(_shape, kinds)), records, total, too_long

    def write(
        self,
        opening: Sequence[str],
        statements: Sequence[str],
        values: Sequence[Any],
        targets: Sequence[tuple[str, str]],
        room: int,
    ) -> list[Any]:
        """Run statements atomically, the last one with `values`, within `room` characters for
        `targets`.

        Returns the last one's records, and the targets' characters.
        """
        self._begin(opening, statements)
        self._live.execute("BEGIN")
        try:
            for statement in statements[:-1]:
                self._live.execute(statement)
            answer = self._live.execute(statements[-1], list(values)).fetchall()
            characters = sum(self._characters(*target) for target in targets)
            if characters > room:
                raise _Refusal(
                    f"the tables would have {characters} characters, {room} are free; store less"
                )
            self._live.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):  # DuckDB rolls back by itself when memory runs out
                self._live.execute("ROLLBACK")
            raise
        return [answer, characters]

    def dump(self, schema: str, name: str, columns: Sequence[str]) -> tuple[list[str], int]:
        """Return a JSON array of texts per column, and the number of records."""
        parts = [f"CAST({_quote(column)} AS VARCHAR)" for column in columns]
        cursor = self._live.execute(
            f"SELECT {', '.join(parts)} FROM {_quote(schema)}.{_quote(name)}"
        )
        values: list[list[str | None]] = [[] for _ in columns]
        while chunk := cursor.fetchmany(10 * _CHUNK):
            for k, items in enumerate(zip(*chunk, strict=True)):
                values[k] += items
        rows = len(values[0]) if values else 0
        return [json.dumps(column, ensure_ascii=False) for column in values], rows

    def _characters(self, schema: str, name: str) -> int:
        """Count a table's characters as texts, or the bytes of fixed-width columns."""
        columns = self._live.execute(
            f"SELECT * FROM {_quote(schema)}.{_quote(name)} LIMIT 0"
        ).description
        lengths = [
            f"sum(strlen(CAST({_quote(column[0])} AS VARCHAR)))"
            for column in columns
            if str(column[1]) in ("VARCHAR", "JSON", "BLOB") or str(column[1])[-1] in "])"
        ]
        parts = ", ".join([f"{8 * len(columns)} * count(*)", *lengths])
        answer = self._live.execute(f"SELECT {parts} FROM {_quote(schema)}.{_quote(name)}")
        return sum(int(part or 0) for part in answer.fetchall()[0])


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shape(kind: Any) -> tuple[str, list[Any]]:
    """Return a type's kind, and its parts' names and shapes."""
    parts = kind.children if kind.id in ("list", "array", "struct") else []
    # An array's length is separate from its type.
    return kind.id, [(name, _shape(part)) for name, part in parts if hasattr(part, "id")]


def _length(value: Any) -> int:
    """Return a lower bound on a value's characters."""
    if isinstance(value, (list, tuple)):
        return sum(map(_length, value))
    if isinstance(value, dict):
        return sum(map(_length, value.values()))
    return len(value) if isinstance(value, (str, bytes)) else 1


def _answer(session: _Session, method: str, arguments: Sequence[Any]) -> tuple[str, Any, float]:
    kind, value = _try(session, method, arguments)
    if kind in ("work", "memory", "broken"):
        return kind, value, 1.0
    counted, share = _try(session, "used", ())
    return kind, value, share if counted == "ok" else 1.0


def _try(session: _Session, method: str, arguments: Sequence[Any]) -> tuple[str, Any]:
    import duckdb  # noqa: PLC0415 - as above

    try:
        return "ok", getattr(session, method)(*arguments)
    except _Refusal as error:
        return "limit", str(error)
    except duckdb.SequenceException as error:
        return "work", str(error).partition('""')[2].partition('"')[0]
    except (duckdb.OutOfMemoryException, MemoryError):
        return "memory", ""
    except (duckdb.FatalException, duckdb.InternalException):  # every later statement would fail
        return "broken", ""
    except (duckdb.Error, ValueError, OverflowError, RuntimeError, TypeError) as error:
        text = str(error)
        return ("memory" if "bad_alloc" in text else "refused"), text


def serve_engine(connection: Connection) -> None:
    """Answer one engine's requests until it disconnects."""
    pages = Path("/proc/self/statm")
    if pages.exists():  # elsewhere the kernel does not enforce this limit
        mapped = int(pages.read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds, *opening = connection.recv()
    session = _Session(*opening)
    connection.send(("ok", None, 0.0))
    while True:
        method, arguments = connection.recv()
        # The kernel kills the process if the answer exceeds its CPU time.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        reply = _answer(session, method, arguments)
        signal.setitimer(signal.ITIMER_PROF, 0)
        try:
            connection.send(reply)
        except MemoryError:
            connection.send(("memory", "", 1.0))


def serve_host(control: socket.socket) -> None:
    """Start a process for each socket received and reap one for each number."""
    import duckdb  # noqa: F401, PLC0415 - for the processes that are forked

    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 1)
        if not message:
            return
        if not descriptors:
            pid = int(message)
            os.kill(pid, signal.SIGKILL)  # it exists, if only as a zombie
            control.send(str(os.waitpid(pid, 0)[1]).encode())
        elif pid := os.fork():
            os.close(descriptors[0])
            control.send(str(pid).encode())
        else:
            control.close()
            try:
                serve_engine(Connection(descriptors[0]))
            except EOFError:
                pass
            finally:
                os._exit(0)


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[2])
    serve_host(socket.socket(fileno=int(sys.argv[1])))
