"""Worker processes that play cells. A killed worker costs only its cell, which is retried."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from agentgym.training.rollout.engines.base import GRACE, describe
from agentgym.training.rollout.engines.workers import (
    GONE,
    describe_exit,
    follow_the_parent,
    interrupts_left_to_parent,
)

CellT = TypeVar("CellT", bound=Hashable)
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Lost(Generic[CellT]):
    """A cell whose worker was killed every time.

    Attributes:
        cell: The cell.
        cause: How the last worker ended.
    """

    cell: CellT
    cause: str


class _Killed(Exception):
    """Error: a worker's process has ended."""


@dataclass(eq=False)
class _Worker(Generic[CellT]):
    """A process with its unanswered cells, in order."""

    process: Any
    connection: Connection
    cells: deque[CellT] = field(default_factory=deque)

    def send(self, cells: Sequence[CellT]) -> None:
        self.cells.extend(cells)
        with suppress(OSError):  # a dead worker is noticed when its answer is read
            self.connection.send(cells)

    def read(self) -> Any:
        """Return the answer to the first cell, or raise its exception."""
        try:
            succeeded, answer = self.connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self.process.join(GRACE)
            self.close()
            raise _Killed(describe_exit(self.process.exitcode)) from None
        if not succeeded:
            raise answer
        self.cells.popleft()
        return answer

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join(GRACE)


def play_cells(
    play: Callable[[CellT], AnswerT], batches: Iterable[Sequence[CellT]], workers: int, retries: int
) -> Iterator[AnswerT | Lost[CellT]]:
    """Play cells in processes.

    Args:
        play: Plays a cell; pickled.
        batches: The cells, read as workers become free. A batch goes to one worker while it lives.
        workers: The maximum number of processes.
        retries: The maximum number of retries after a worker was killed.

    Yields:
        What `play` returns for each cell, as they end, or `Lost`.

    Raises:
        Exception: Any exception of `play`.
    """
    rest_of = iter(batches)
    waiting: deque[Sequence[CellT]] = deque()
    attempts: Counter[CellT] = Counter()
    pool: list[_Worker[CellT]] = []
    try:
        while True:
            if len(pool) < workers and not waiting:
                waiting.extend(islice(rest_of, workers - len(pool)))
                pool += [_start(play) for _ in waiting]
            for worker in pool:
                _feed(worker, waiting, rest_of)
            busy = {worker.connection: worker for worker in pool if worker.cells}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                try:
                    yield worker.read()
                except _Killed as killed:
                    pool[pool.index(worker)] = _start(play)
                    cell, *rest = worker.cells
                    attempts[cell] += 1
                    waiting.extendleft([rest] if rest else [])
                    if attempts[cell] > retries:
                        yield Lost(cell, f"{killed} (attempt {attempts[cell]})")
                    else:
                        waiting.append([cell])  # last, when an overloaded host may have recovered
    finally:
        for worker in pool:
            worker.close()


def _feed(
    worker: _Worker[CellT], waiting: deque[Sequence[CellT]], batches: Iterator[Sequence[CellT]]
) -> None:
    """Send a worker its next batch before its last cell ends, so that it never idles."""
    if len(worker.cells) <= 1:
        waiting.extend([] if waiting else islice(batches, 1))
        if waiting:
            worker.send(waiting.popleft())


def _start(play: Callable[[CellT], Any]) -> _Worker[CellT]:
    context = get_context("spawn")  # a fork would inherit the libraries' threads and locks
    near, far = context.Pipe()
    process = context.Process(target=_serve, args=(far, play), name="agentgym-cells", daemon=True)
    with interrupts_left_to_parent():
        process.start()
    far.close()
    return _Worker(process, near)


def _serve(connection: Connection, play: Callable[[Any], Any]) -> None:
    follow_the_parent()
    with suppress(*GONE):
        while True:
            for cell in connection.recv():
                try:
                    answer = True, play(cell)
                except Exception as error:  # noqa: BLE001 - it is the other end that has to know
                    answer = False, _portable(error)
                connection.send(answer)


def _portable(error: Exception) -> Exception:
    """Return an exception that can be pickled: itself, if its class can be rebuilt from its
    arguments.
    """
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a class of a user's may raise anything
        return RuntimeError(describe(error))
    return error
