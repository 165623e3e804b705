"""Worker processes and the engine that steps envs in them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import current_process, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from agentgym.training.rollout.engines.base import GRACE
from agentgym.training.rollout.engines.servers import (
    FarAnswer,
    Request,
    WorkerServer,
    decode_answer,
    encode_answer,
)
from agentgym.training.rollout.engines.workers import WORKERS, FarEnd, WorkerDied, WorkerEngine

# Lock for polling child processes, because concurrent polls could miss an exit code.
_CHILDREN = threading.Lock()
# Exit code of a worker whose script starts workers at import time.
UNGUARDED = 97
# Signal that the kernel sends when memory runs out; Windows does not define it.
_SIGKILL = 9


class Processes(WorkerEngine):
    """Worker processes, for compute-bound worlds and for tools that crash, leak or hang.

    The default start method, `forkserver`, never forks a multithreaded process. With fewer
    `workers` than slots, several slots share a process, which runs one step at a time.
    """

    def __init__(self, method: str = "forkserver", workers: int = WORKERS) -> None:
        exit_while_importing()
        super().__init__(workers)
        self._context = get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload([__name__])

    def start(self, make_env: bytes) -> FarEnd:
        near, far = self._context.Pipe()
        process: Any = self._context.Process(  # type: ignore[attr-defined]
            target=_serve,
            args=(far, make_env),
            name="agentgym-worker",
            daemon=True,
        )
        with far, _CHILDREN, interrupts_left_to_parent():
            process.start()
        return _Process(near, process)


class _Process(FarEnd):
    def __init__(self, connection: Connection, process: Any) -> None:
        self._connection, self._process = connection, process

    def play(self, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        try:
            self._connection.send(requests)
            for _ in requests:
                yield decode_answer(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            self._join()
            code = self._process.exitcode
            raise WorkerDied(describe_exit(code), fatal=code == UNGUARDED) from error

    @property
    def alive(self) -> bool:
        with _CHILDREN:
            return bool(self._process.is_alive())

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._connection.close()  # makes the process close its envs and exit
        if not self._join():
            self.kill()
            self._join()

    def _join(self) -> bool:
        ended = bool(wait([self._process.sentinel], GRACE))
        with _CHILDREN:
            self._process.join(0)
        return ended


def exit_while_importing() -> None:
    """Exit quietly if this worker is still importing the user's script."""
    # The script starts workers at its top level, so each worker would start workers.
    if getattr(current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


def describe_exit(code: int | None) -> str:
    """Describe a worker's exit code; a negative code means a signal."""
    if code == UNGUARDED:
        return (
            "worker processes import the script, so the script must start them below "
            "`if __name__ == '__main__':`"
        )
    text = f"the worker process ended with exit code {code}"
    if code == -_SIGKILL:
        text += ": it was killed, possibly out of memory"
    return text


# Errors of a connection that the parent has closed, for example after an interrupt.
GONE = (EOFError, ConnectionError)


def _serve(connection: Connection, make_env: bytes) -> None:
    follow_the_parent()
    server = WorkerServer(make_env)
    try:
        while True:
            for request in connection.recv():
                connection.send_bytes(encode_answer(request[1], server.answer(request)))
    except GONE:
        server.close_all()


@contextmanager
def interrupts_left_to_parent() -> Iterator[None]:
    """Block interrupts while child processes start."""
    # An interrupted process that is still importing would print a traceback.
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it unblocks interrupts
    handler = signal.getsignal(signal.SIGINT)
    noted: list[tuple[int, FrameType | None]] = []
    defers = callable(handler) and threading.current_thread() is threading.main_thread()
    if defers:
        signal.signal(signal.SIGINT, lambda *interrupt: noted.append(interrupt))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if defers:
            signal.signal(signal.SIGINT, handler)
        if noted and callable(handler):
            handler(*noted[0])


def follow_the_parent() -> None:
    """Ignore interrupts, and exit when the parent exits."""
    # If the parent is killed, a worker would otherwise wait forever.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
