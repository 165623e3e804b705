"""DuckDB in a separate process, which can be killed."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentgym.office.libraries import install_hint
from agentgym.office.warehouse.dialects.macros import COUNTERS, HIDDEN, MACROS
from agentgym.text import reply_work
from agentgym.text.tools import HostLimitError, ToolError

# CPU seconds per request, several times what the work limits allow; tasks need milliseconds.
SECONDS = 30.0

# A host counts as stuck after this; much longer, because others may use the same processors.
WALL_SECONDS = 600.0

MEMORY = "512MB"  # per DuckDB; many offices share a machine

_EXCEEDED = "limit exceeded: Resources exceeded during query execution"
# The exhausted resource by counting sequence.
_SPENT = {
    "rows": "the statement joins or makes more than {} rows; join on keys, or ask for less",
    "framed": "more than {} rows are in windows that are read again for each of them; ask for less",
    "long": "the statement makes more than {} long texts or arrays; ask for less",
    "compared": "the statement compares more than {} pairs of texts; ask for less",
    "huge": "the statement makes more than {} very long texts or arrays; ask for less",
    "matched": "the statement matches patterns too often; match fewer or shorter texts",
    "searched": "the statement matches long texts too often; match fewer or shorter texts",
    "steps": "Recursion exceeded max iteration count ({})",
}

_BROKEN = "limit exceeded: the engine cannot run this statement; write it more simply"
_KILLED = "the process that ran the statement was killed; run it again"
# A statement cannot cause these. The kernel sends SIGKILL if the host runs out of memory.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_PROGRAM = Path(__file__).with_name("duckdb_process.py")
# These optimizers use statistics, which copies do not share; they could change the row
# order.
_OPTIMIZERS = "statistics_propagation,join_order,build_side_probe_side"
# DuckDB accepts these only after opening: times in UTC, no access to files or Python
# variables.
_OPENING = (
    "SET TimeZone = 'UTC'",
    f"SET disabled_optimizers = '{_OPTIMIZERS}'",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
)
# One thread fixes the order of results; no network and no disk.
_CONFIG: dict[str, Any] = {
    "threads": 1,
    "async_threads": 0,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": MEMORY,
    "temp_directory": "",
}


class _Host:
    """The process that starts the engines' processes; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._abandoned: deque[int] = deque()
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(_PROGRAM)),
                    *(str(theirs.fileno()), json.dumps(sys.path)),
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a keyboard interrupt is only for this process
            )
        weakref.finalize(self, _hang_up, self._control, process)

    @property
    def usable(self) -> bool:
        """Return False in a fork, which inherits the object and not the child."""
        return self._owner == os.getpid()

    def start(self) -> tuple[Connection, int]:
        ours, theirs = socket.socketpair()
        with ours, theirs, self._lock:
            while self._abandoned:
                self._ask(str(self._abandoned.popleft()).encode())
            pid = self._ask(b"start", theirs.fileno())
            return Connection(ours.detach()), pid

    def end(self, pid: int) -> int:
        """Kill a process if necessary; return its status as from `os.wait`."""
        with self._lock:
            return self._ask(str(pid).encode())

    def abandon(self, pid: int) -> None:
        """Release a process, which ends when its connection closes, and reap it at the next start.

        The garbage collector may call this in a thread that holds the lock, between a request to
        the host and its answer.
        """
        self._abandoned.append(pid)

    def _ask(self, question: bytes, *files: int) -> int:
        try:
            socket.send_fds(self._control, [question], files)
            answer = self._control.recv(64)
            if not answer:
                raise ConnectionError("the process that starts those of DuckDB has ended")
        except BaseException:  # an interrupted request's answer would go to the next one
            self._control.close()
            _host_of.cache_clear()  # the next engine starts another
            raise
        return int(answer)


def _hang_up(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.wait()


@functools.cache
def _host_of(process: int) -> _Host:
    return _Host()


class DuckDBProcess:
    """DuckDB for one dialect. It ends if a request needs too much time or memory."""

    def __init__(self, dialect: str) -> None:
        with sql_hint():
            if find_spec("duckdb") is None:  # only the other process imports it
                raise ModuleNotFoundError("No module named 'duckdb'", name="duckdb")
        self._counters = COUNTERS[dialect]
        self._owner = os.getpid()
        self._host = _host_of(self._owner)
        try:
            self._connection, self.pid = self._host.start()
        except OSError:  # the host has ended
            self._host = _host_of(self._owner)
            self._connection, self.pid = self._host.start()
        self._answers = select.poll()  # cached, because `Connection.poll` creates one per call
        self._answers.register(self._connection, select.POLLIN)
        self._dropped = weakref.finalize(self, _drop, self._host, self._connection, self.pid)
        statements = [
            *_OPENING,
            "CREATE SCHEMA lib",
            *(f"CREATE SEQUENCE lib.{name} MAXVALUE {n}" for name, n in self._counters.items()),
            *(f"CREATE MACRO lib.{macro}" for macro in MACROS[dialect]),
            *(
                f"CREATE MACRO {hidden}() AS "
                f"CAST(error('there is no column or function {name}') AS VARCHAR)"
                for hidden, name in HIDDEN.items()
            ),
            "SET lock_configuration = true",
        ]
        self._ask(SECONDS, _CONFIG, statements, dict(self._counters))

    @property
    def usable(self) -> bool:
        """Return False in a fork or after the end."""
        return self._dropped.alive and self._owner == os.getpid()

    def request(self, method: str, *arguments: Any) -> Any:
        """Call a method of the other process's session and return its result.

        Raises:
            ToolError: DuckDB refuses it, or it needs too much time or memory.
            HostLimitError: The process was killed from outside.
        """
        return self._ask(method, arguments)

    def close(self) -> None:
        """End the process."""
        self._end()

    def _ask(self, *message: Any) -> Any:
        try:
            self._connection.send(message)
            if not self._answers.poll(1_000 * WALL_SECONDS):
                raise EOFError
            kind, value, share = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        except BaseException:  # an interrupted request's answer would go to the next one
            self._end()
            raise
        reply_work.spend(share)
        if kind == "memory":
            # Parts of DuckDB may have failed, and the next statement should start with as much free
            # memory as any other.
            self._end()
            raise ToolError(f"{_EXCEEDED}: it needs more than {MEMORY} of memory; ask for less")
        if kind == "broken":
            self._end()
            raise ToolError(_BROKEN)
        if kind == "work":
            spent = _SPENT[value.rstrip("0123456789")]
            raise ToolError(f"{_EXCEEDED}: {spent.format(f'{self._counters.get(value, 0):,}')}")
        if kind != "ok":
            prefix = "limit exceeded" if kind == "limit" else "invalid argument"
            raise ToolError(f"{prefix}: {_explain(value)}")
        return value

    def _end(self) -> int | None:
        """End the process; return its exit status, None if absent or another process's."""
        if self._dropped.detach() is None:
            return None
        self._connection.close()
        if not self._host.usable:
            return None
        with contextlib.suppress(OSError):  # the host has ended
            return self._host.end(self.pid)
        return None

    def _ended(self) -> ToolError:
        """Blame the statement unless a signal from outside ended the process."""
        status = self._end()
        cause = signal.SIGKILL if status is None else os.WTERMSIG(status)
        if cause == signal.SIGPROF:
            reply_work.spend(reply_work.ROOM)  # no counter has seen its work
            return ToolError(
                f"{_EXCEEDED}: it ran for more than {SECONDS:g} seconds of CPU time; ask for less"
            )
        if cause in _FROM_OUTSIDE:
            return HostLimitError(f"limit exceeded: {_KILLED}")
        return ToolError(_BROKEN)


def sql_hint() -> contextlib.AbstractContextManager[None]:
    """Return a context manager that explains how to install missing libraries."""
    return install_hint("SQL needs DuckDB and SQLGlot", "duckdb", "sqlglot")


def _drop(host: _Host, connection: Connection, pid: int) -> None:
    connection.close()
    if host.usable:
        host.abandon(pid)


def _explain(text: str) -> str:
    """Drop a DuckDB error's kind, internal names and later lines."""
    text = (
        text.split("\n\n", maxsplit=1)[0]
        .split("\nLINE ", maxsplit=1)[0]
        .split("\nDid you mean", maxsplit=1)[0]
    )
    kind, colon, rest = text.partition(": ")
    return (rest if colon and kind.endswith("Error") else text).replace("lib.", "").strip()[:600]
