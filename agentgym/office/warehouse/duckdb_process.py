"""Processes that run SQL in DuckDB, so that a statement can be stopped whatever it does.

This file is run by its path and imports nothing of the package. The first process imports DuckDB
once, and forks one for each engine, which speaks with that engine over a socket: it gets the name
of a method of `_Session` with its arguments, and answers `ok` with the result or the kind and the
text of an error, and the time that it took. A statement that takes more time of the processor than it may is ended by the
kernel, and its process with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ADDRESS_SPACE = 2 << 30
"""Bytes of memory that a process may map beside what DuckDB's libraries take: several times what
its buffers may hold, for what DuckDB takes outside of them.
"""

_CHUNK = 256
"""Records that are fetched at once: few, so that records of a megabyte each do not add up."""


class _Refusal(Exception):
    """A statement goes beyond a limit that is counted in work."""


class _Session:
    """One DuckDB.

    Args:
        config: Its configuration.
        statements: Statements to begin with.
        counters: Sequences that count the work of a statement, and where each ends.
    """

    def __init__(
        self, config: dict[str, Any], statements: Sequence[str], counters: dict[str, int]
    ) -> None:
        import duckdb  # noqa: PLC0415 - loaded by the process that this one is forked from

        self._live = duckdb.connect(":memory:", config=config)
        self._counters = "; ".join(
            f"CREATE OR REPLACE SEQUENCE lib.{name} MAXVALUE {most} NO CYCLE"
            for name, most in counters.items()
        )
        self._has_views = False
        self.execute([(statement, ()) for statement in statements])

    def execute(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Run statements with their values; return the records that the last one answers with."""
        for statement, values in statements:
            self._has_views |= " VIEW " in statement[:30]
            self._live.execute(statement, list(values))
        return self._live.fetchall()

    def _begin(self, opening: Sequence[str], statements: Sequence[str]) -> None:
        """Run statements before others, whose work is counted from 0 on."""
        for statement in opening:
            self._live.execute(statement)
        self._has_views |= any(" VIEW " in statement[:30] for statement in statements)
        # Whatever counts is in the schema `lib`, but in a view it is not seen.
        if self._has_views or any("lib." in statement.lower() for statement in statements):
            self._live.execute(self._counters)

    def read(
        self, opening: Sequence[str], sql: str, limit: int, most_characters: int
    ) -> tuple[list[str], list[str], list[Any], list[Any], int, bool]:
        """Run a query.

        Args:
            opening: Statements to run before.
            sql: The query.
            limit: The most records to return.
            most_characters: The most characters of the records; the first one that goes beyond and
                those after it are left out.

        Returns:
            Names, types and shapes of the columns, the records, how many there are, and whether
            some were left out for their length.
        """
        self._begin(opening, [sql])
        cursor = self._live.execute(sql)
        names = [item[0] for item in cursor.description]
        kinds = [item[1] for item in cursor.description]
        types = [str(kind) for kind in kinds]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"several columns of the result are called {', '.join(twice)}; give each an alias"
            )
        if any("WITH TIME ZONE" in kind for kind in types):
            # DuckDB gives such values by a library that is not needed for the same moment without a
            # zone.
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
        """Run statements that change something, all or none.

        Args:
            opening: Statements to run before.
            statements: The statements.
            values: Values of the last one.
            targets: The tables that may have grown, by schema and name.
            room: The characters that they may have together.

        Returns:
            The records that the last one answers with, and the characters of the targets.
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
            with contextlib.suppress(Exception):  # DuckDB has done so itself if memory ran out
                self._live.execute("ROLLBACK")
            raise
        return [answer, characters]

    def dump(self, schema: str, name: str, columns: Sequence[str]) -> tuple[list[str], int]:
        """Return for each column of a table a JSON array of its values as texts, and the number of
        records.
        """
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
        """Return the characters of the values of a table as texts; of columns of a fixed width
        the bytes.
        """
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
    """Return a type as plain data: its kind, and the names and shapes of its parts."""
    parts = kind.children if kind.id in ("list", "array", "struct") else []
    # An array has its length beside its type.
    return kind.id, [(name, _shape(part)) for name, part in parts if hasattr(part, "id")]


def _length(value: Any) -> int:
    """Return a number of characters that a value takes at least."""
    if isinstance(value, (list, tuple)):
        return sum(map(_length, value))
    if isinstance(value, dict):
        return sum(map(_length, value.values()))
    return len(value) if isinstance(value, (str, bytes)) else 1


def _answer(session: _Session, method: str, arguments: Sequence[Any]) -> tuple[str, Any]:
    import duckdb  # noqa: PLC0415 - as above

    try:
        return "ok", getattr(session, method)(*arguments)
    except _Refusal as error:
        return "limit", str(error)
    except duckdb.OutOfMemoryException:  # counted by DuckDB itself, in what it has asked for
        return "bytes", ""
    except duckdb.SequenceException as error:
        return "work", str(error).partition('""')[2].partition('"')[0]
    except MemoryError:
        return "memory", ""
    except (duckdb.Error, ValueError, OverflowError, RuntimeError, TypeError) as error:
        text = str(error)
        return ("memory" if "bad_alloc" in text else "refused"), text


def serve_engine(connection: Connection) -> None:
    """Answer the requests of one engine until it hangs up."""
    pages = Path("/proc/self/statm")
    if pages.exists():  # elsewhere the kernel does not hold processes to this limit
        mapped = int(pages.read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds, *opening = connection.recv()
    session = _Session(*opening)
    connection.send(("ok", None, 0.0))
    while True:
        seconds, method, arguments = connection.recv()
        # The kernel ends the process if the answer takes more time of the processor.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        reply = _answer(session, method, arguments)
        left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        try:
            connection.send((*reply, seconds - left))
        except MemoryError:
            connection.send(("memory", "", seconds - left))


def serve_host(control: socket.socket) -> None:
    """Start and end processes until the host hangs up: a socket asks for a new one on it, a number
    for the end of the process that has it.
    """
    import duckdb  # noqa: F401, PLC0415 - for the processes that are forked

    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 1)
        if not message:
            return
        if not descriptors:
            pid = int(message)
            os.kill(pid, signal.SIGKILL)  # it is there, if only as an exit status
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
