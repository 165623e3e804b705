"""DuckDB in a child process, which can be killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import tomllib
import weakref
from collections import deque
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentgym.office.libraries import install_hint
from agentgym.text import reply_work
from agentgym.text.tools import HostLimitError, ToolError

# Maximum CPU seconds per statement; typical statements take milliseconds.
SECONDS = 5.0

# Seconds until the child process counts as stuck; the host may be busy.
WALL_SECONDS = 600.0

MEMORY = "512MB"  # limit per DuckDB database, because many offices share a machine

_EXCEEDED = "limit exceeded: Resources exceeded during query execution"
# Signals that statements cannot cause. The kernel sends SIGKILL if the host runs out of memory.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_PROGRAM = Path(__file__).with_name("duckdb_process.py")
_MACROS = tomllib.loads(Path(__file__).with_name("macros.toml").read_text(encoding="utf-8"))
# These optimizers depend on statistics, so the row order could differ between copies of an env.
_OPTIMIZERS = "statistics_propagation,join_order,build_side_probe_side"
_OPENING = (
    "SET TimeZone = 'UTC'",
    f"SET disabled_optimizers = '{_OPTIMIZERS}'",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "CREATE SCHEMA lib",
)
# A single thread makes the row order reproducible.
_CONFIG: dict[str, Any] = {
    "threads": 1,
    "async_threads": 0,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": MEMORY,
    "temp_directory": "",
}


class SessionLostError(Exception):
    """Raised if a session's process has ended; a new session can reload the tables."""


class _Process:
    """A child process that runs all DuckDB databases of the current process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.closed: deque[int] = deque()  # a finalizer may append at any time
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
                start_new_session=True,  # the child must not receive keyboard interrupts
            )
        self.pid = self._process.pid
        self._connection = Connection(ours.detach())
        weakref.finalize(self, _hang_up, self._connection, self._process, self.owner)

    @property
    def usable(self) -> bool:
        return not self._connection.closed and self.owner == os.getpid()

    def ask(self, session: int, method: str, arguments: Any) -> tuple[str, Any, float]:
        """Return a response's kind, value and CPU seconds, or raise SessionLostError."""
        with self._lock:
            if not self.usable:
                raise SessionLostError
            closed = [self.closed.popleft() for _ in range(len(self.closed))]
            try:
                self._connection.send((closed, session, SECONDS, method, arguments))
                if not self._connection.poll(WALL_SECONDS):
                    raise EOFError
                kind, value, seconds = self._connection.recv()
            except (EOFError, OSError):
                return self._kind_of_end(), "", SECONDS
            except BaseException:  # the next request must not receive this response
                self.end()
                raise
            if kind in ("memory", "broken"):
                # DuckDB may be in an invalid state or use too much memory.
                self.end()
            return kind, value, seconds

    def end(self) -> int:
        self._connection.close()
        self._process.kill()
        return -self._process.wait()

    def _kind_of_end(self) -> str:
        """Return why the process ended; `broken` means that the statement crashed DuckDB."""
        cause = self.end()
        if cause == signal.SIGPROF:
            return "time"
        return "killed" if cause in _FROM_OUTSIDE else "broken"


def _hang_up(connection: Connection, process: subprocess.Popen[bytes], owner: int) -> None:
    connection.close()
    if owner == os.getpid():  # in a forked process, this child belongs to the parent
        process.kill()
        process.wait()


_processes: dict[int, _Process] = {}  # keyed by the id of the parent process
_numbers = itertools.count()


def _process() -> _Process:
    process = _processes.get(os.getpid())
    if process is None or not process.usable:
        process = _processes[os.getpid()] = _Process()
    return process


class DuckDBSession:
    """One engine's DuckDB. A statement that exceeds the time or memory limit ends all sessions."""

    def __init__(self, dialect: str) -> None:
        with sql_hint():
            if find_spec("duckdb") is None:  # only the child process imports DuckDB
                raise ModuleNotFoundError("No module named 'duckdb'", name="duckdb")
        self.process, self._number = _process(), next(_numbers)
        self.close = weakref.finalize(self, self.process.closed.append, self._number)
        macros = (*_MACROS[dialect], *_MACROS["common"])
        opening = [*_OPENING, *(f"CREATE MACRO lib.{macro}" for macro in macros)]
        for macro, name in _MACROS["hidden"].items():
            error = f"CAST(error('there is no column or function {name}') AS VARCHAR)"
            opening.append(f"CREATE MACRO {macro}() AS {error}")
        self.request("open", _CONFIG, [*opening, "SET lock_configuration = true"])

    def request(self, method: str, *arguments: Any) -> Any:
        """Call a method of the session in the child process and return the result.

        Raises ToolError if the statement is invalid or exceeds a limit, HostLimitError if an
        external signal killed the process, and SessionLostError if another session's statement
        ended the process.
        """
        kind, value, seconds = self.process.ask(self._number, method, arguments)
        reply_work.spend(seconds / SECONDS)
        if kind == "ok":
            return value
        if kind == "killed":
            raise HostLimitError(
                "limit exceeded: the process that ran the statement was killed; run it again"
            )
        problems = {
            "time": f"{_EXCEEDED}: it ran for more than {SECONDS:g} seconds of CPU time; ask for less",
            "memory": f"{_EXCEEDED}: it needs more than {MEMORY} of memory; ask for less",
            "full": f"limit exceeded: {value}",
            "broken": "limit exceeded: the engine cannot run this statement; write it more simply",
        }
        raise ToolError(problems.get(kind) or f"invalid argument: {_explain(value)}")


def sql_hint() -> contextlib.AbstractContextManager[None]:
    """Return a context manager that explains how to install missing SQL libraries."""
    return install_hint("SQL needs DuckDB and SQLGlot", "duckdb", "sqlglot")


def _explain(text: str) -> str:
    text = re.split(r"\n\n|\nLINE |\nDid you mean", text, maxsplit=1)[0]
    kind, colon, rest = text.partition(": ")
    if colon and kind.endswith("Error"):
        text = rest
    return text.replace("lib.", "").strip()[:600]
