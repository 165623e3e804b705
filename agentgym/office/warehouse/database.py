"""DuckDB in a separate process, which can be killed."""

from __future__ import annotations

import contextlib
import itertools
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
from agentgym.office.warehouse.dialects.macros import HIDDEN, MACROS
from agentgym.text import reply_work
from agentgym.text.tools import HostLimitError, ToolError

# Maximum CPU seconds per statement; tasks' statements take milliseconds.
SECONDS = 5.0

# Seconds until the process counts as stuck; many, because other processes may slow it down.
WALL_SECONDS = 600.0

MEMORY = "512MB"  # per DuckDB database; many offices share a machine

_EXCEEDED = "limit exceeded: Resources exceeded during query execution"
_BROKEN = "limit exceeded: the engine cannot run this statement; write it more simply"
_KILLED = "the process that ran the statement was killed; run it again"
# Statements cannot cause these signals. The kernel sends SIGKILL if the host runs out of memory.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_PROGRAM = Path(__file__).with_name("duckdb_process.py")
# These optimizers use statistics, which copies do not share; they could change the row order.
_OPTIMIZERS = "statistics_propagation,join_order,build_side_probe_side"
# DuckDB accepts these settings only after opening.
_OPENING = (
    "SET TimeZone = 'UTC'",
    f"SET disabled_optimizers = '{_OPTIMIZERS}'",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "CREATE SCHEMA lib",
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


class SessionLostError(Exception):
    """A session's process has ended; a new session can load the tables again."""


class _Process:
    """A child process that runs all DuckDB databases of this process, and ends with it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.closed: deque[int] = deque()  # a finalizer may append at any moment
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(_PROGRAM)),
                    *(str(theirs.fileno()), json.dumps(sys.path)),
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # keeps keyboard interrupts from the child
            )
        self.pid = self._process.pid
        self._connection = Connection(ours.detach())
        self._answers = select.poll()  # cached, because `Connection.poll` creates one per call
        self._answers.register(self._connection, select.POLLIN)
        weakref.finalize(self, _hang_up, self._connection, self._process, self.owner)

    @property
    def usable(self) -> bool:
        return not self._connection.closed and self.owner == os.getpid()

    def ask(self, session: int, method: str, arguments: Any) -> tuple[str, Any, float]:
        """Return an answer's kind, value and CPU seconds, or raise SessionLostError."""
        with self._lock:
            if not self.usable:
                raise SessionLostError
            closed = [self.closed.popleft() for _ in range(len(self.closed))]
            try:
                self._connection.send((closed, session, SECONDS, method, arguments))
                if not self._answers.poll(1_000 * WALL_SECONDS):
                    raise EOFError
                kind, value, seconds = self._connection.recv()
            except (EOFError, OSError):
                return self._kind_of_end(), "", SECONDS
            except BaseException:  # otherwise the next request would get this one's answer
                self.end()
                raise
            if kind in ("memory", "broken"):
                # DuckDB may be partly broken, and the next statement should start with free memory.
                self.end()
            return kind, value, seconds

    def end(self) -> int:
        self._connection.close()
        self._process.kill()
        return -self._process.wait()

    def _kind_of_end(self) -> str:
        """Return why the process ended; blame the statement unless an external signal did it."""
        cause = self.end()
        if cause == signal.SIGPROF:
            return "time"
        return "killed" if cause in _FROM_OUTSIDE else "broken"


def _hang_up(connection: Connection, process: subprocess.Popen[bytes], owner: int) -> None:
    connection.close()
    if owner == os.getpid():  # a forked process inherits the finalizer but not the child
        process.kill()
        process.wait()


_processes: dict[int, _Process] = {}  # by the id of the process that started each
_numbers = itertools.count()


def _process() -> _Process:
    process = _processes.get(os.getpid())
    if process is None or not process.usable:
        process = _processes[os.getpid()] = _Process()
    return process


class DuckDBSession:
    """One engine's DuckDB. A statement that exceeds the limits ends all DuckDBs of this process."""

    def __init__(self, dialect: str) -> None:
        with sql_hint():
            if find_spec("duckdb") is None:  # only the other process imports it
                raise ModuleNotFoundError("No module named 'duckdb'", name="duckdb")
        self.process, self._number = _process(), next(_numbers)
        self.close = weakref.finalize(self, self.process.closed.append, self._number)
        macros = [f"CREATE MACRO lib.{macro}" for macro in MACROS[dialect]]
        hidden = [
            f"CREATE MACRO {hidden}() AS "
            f"CAST(error('there is no column or function {name}') AS VARCHAR)"
            for hidden, name in HIDDEN.items()
        ]
        opening = [*_OPENING, *macros, *hidden, "SET lock_configuration = true"]
        self.request("open", _CONFIG, opening)

    @property
    def usable(self) -> bool:
        """Return False after a fork, or once the process has ended."""
        return self.process.usable

    def request(self, method: str, *arguments: Any) -> Any:
        """Call a method of the other process's session and return its result.

        Raises ToolError if DuckDB refuses the statement or it exceeds the limits, HostLimitError if
        something external killed the process, and SessionLostError if another session's statement
        ended it.
        """
        kind, value, seconds = self.process.ask(self._number, method, arguments)
        reply_work.spend(seconds / SECONDS)
        if kind == "ok":
            return value
        if kind == "killed":
            raise HostLimitError(f"limit exceeded: {_KILLED}")
        raise ToolError(
            {
                "time": f"{_EXCEEDED}: it ran for more than {SECONDS:g} seconds of CPU time; ask for less",
                "memory": f"{_EXCEEDED}: it needs more than {MEMORY} of memory; ask for less",
                "full": f"limit exceeded: {value}",
                "broken": _BROKEN,
            }.get(kind, f"invalid argument: {_explain(value)}")
        )


def sql_hint() -> contextlib.AbstractContextManager[None]:
    """Return a context manager that explains how to install libraries."""
    return install_hint("SQL needs DuckDB and SQLGlot", "duckdb", "sqlglot")


def _explain(text: str) -> str:
    text = (
        text.split("\n\n", maxsplit=1)[0]
        .split("\nLINE ", maxsplit=1)[0]
        .split("\nDid you mean", maxsplit=1)[0]
    )
    kind, colon, rest = text.partition(": ")
    return (rest if colon and kind.endswith("Error") else text).replace("lib.", "").strip()[:600]
