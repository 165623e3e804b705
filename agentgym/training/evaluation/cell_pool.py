"""Thread and process pools for cells. If a worker is killed, its cells are retried."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from agentgym.training.rollout.engines.base import GRACE, start_thread
from agentgym.training.rollout.engines.processes import (
    GONE,
    UNGUARDED,
    describe_exit,
    follow_the_parent,
    interrupts_left_to_parent,
)
from agentgym.training.rollout.faults import describe

CellT = TypeVar("CellT", bound=Hashable)
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Lost(Generic[CellT]):
    """A cell whose worker process was killed in every attempt."""

    cell: CellT
    cause: str


class _Killed(Exception): ...


@dataclass(eq=False)
class _Worker(Generic[CellT]):
    process: Any
    connection: Connection
    cells: list[CellT] = field(default_factory=list)

    def send(self, cell: CellT) -> None:
        self.cells.append(cell)
        with suppress(OSError):  # `read` reports a dead worker
            self.connection.send(cell)

    def read(self) -> Any:
        try:
            succeeded, answer = self.connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self.process.join(GRACE)
            self.close()
            if self.process.exitcode == UNGUARDED:
                # The user's script lacks a main guard, which a traceback would not show.
                raise SystemExit(f"error: {describe_exit(UNGUARDED)}") from None
            raise _Killed(describe_exit(self.process.exitcode)) from None
        if not succeeded:
            raise answer
        del self.cells[0]
        return answer

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join(GRACE)


def play_in_threads(
    play: Callable[[CellT], AnswerT], cells: Iterator[CellT], threads: int
) -> Iterator[AnswerT]:
    """Play cells in threads and yield each result when its cell finishes."""
    if threads < 2:
        yield from map(play, cells)
        return
    waiting: SimpleQueue[CellT | None] = SimpleQueue()
    ended: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def serve() -> None:
        while (cell := waiting.get()) is not None:
            ended.put(_attempt(play, cell))

    for _ in range(threads):
        start_thread(serve, "agentgym-cells")
    under_way = 0
    try:
        while True:
            for cell in islice(cells, threads - under_way):
                under_way += 1
                waiting.put(cell)
            if not under_way:
                return
            succeeded, answer = ended.get()
            under_way -= 1
            if not succeeded:
                raise answer
            yield answer
    finally:
        for _ in range(threads):
            waiting.put(None)


def play_cells(
    play: Callable[[CellT], AnswerT], cells: Sequence[CellT], workers: int, retries: int
) -> Iterator[AnswerT | Lost[CellT]]:
    """Play cells in processes and yield results, or `Lost`, as they finish."""
    # Killed workers' cells are retried last, when an overloaded host may have recovered.
    waiting = deque(cells)
    attempts: Counter[CellT] = Counter()
    pool: list[_Worker[CellT]] = []
    try:
        while True:
            while len(pool) < min(workers, len(waiting)):
                pool.append(_start(play))
            # Send another cell before the last cell ends, so that workers never idle.
            for worker in [*pool, *pool]:
                if waiting and len(worker.cells) < 2:
                    worker.send(waiting.popleft())
            busy = {worker.connection: worker for worker in pool if worker.cells}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                try:
                    yield worker.read()
                except _Killed as killed:
                    pool.remove(worker)
                    cell, *others = worker.cells
                    waiting.extend(others)
                    attempts[cell] += 1
                    if attempts[cell] > retries:
                        yield Lost(cell, f"{killed} (attempt {attempts[cell]})")
                    else:
                        waiting.append(cell)
    finally:
        for worker in pool:
            worker.close()


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
            connection.send(_attempt(play, connection.recv()))


def _attempt(play: Callable[[CellT], Any], cell: CellT) -> tuple[bool, Any]:
    try:
        return True, play(cell)
    except Exception as error:  # noqa: BLE001 - it is the other end that has to know
        return False, _portable(error)


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a class of a user's may raise anything
        return RuntimeError(describe(error))
    return error
