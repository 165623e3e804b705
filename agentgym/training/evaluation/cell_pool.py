"""Thread and process pools for cells. A killed worker costs only its cell, which is retried."""

from __future__ import annotations

import pickle
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
    """A cell whose worker was killed every time."""

    cell: CellT
    cause: str


class _Killed(Exception):
    """Error: a worker's process has ended."""


@dataclass(eq=False)
class _Worker(Generic[CellT]):
    """Process that plays cells, with its unanswered cells in order."""

    process: Any
    connection: Connection
    at_once: int
    cells: list[CellT] = field(default_factory=list)

    def send(self, cells: Sequence[CellT]) -> None:
        self.cells.extend(cells)
        with suppress(OSError):  # a dead worker is noticed when its answer is read
            self.connection.send(cells)

    def read(self) -> Any:
        try:
            cell, succeeded, answer = self.connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self.process.join(GRACE)
            self.close()
            if self.process.exitcode == UNGUARDED:
                # The script itself has to change; a traceback would only show where it called.
                raise SystemExit(f"error: {describe_exit(UNGUARDED)}") from None
            raise _Killed(describe_exit(self.process.exitcode)) from None
        if not succeeded:
            raise answer
        self.cells.remove(cell)
        return answer

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join(GRACE)


def play_in_threads(
    play: Callable[[CellT], AnswerT], cells: Iterator[CellT], threads: int
) -> Iterator[AnswerT]:
    """Play cells in threads and yield results as they finish; one thread uses the calling thread."""
    if threads == 1:
        yield from map(play, cells)
        return
    ended: SimpleQueue[tuple[CellT, bool, Any]] = SimpleQueue()
    waiting = _start_threads(play, threads, ended.put)
    under_way = 0
    try:
        while True:
            for cell in islice(cells, threads - under_way):
                under_way += 1
                waiting.put(cell)
            if not under_way:
                return
            _, succeeded, answer = ended.get()
            under_way -= 1
            if not succeeded:
                raise answer
            yield answer
    finally:
        for _ in range(threads):
            waiting.put(None)


def play_cells(
    play: Callable[[CellT], AnswerT],
    batches: Iterable[Sequence[CellT]],
    workers: int,
    retries: int,
    at_once: int = 1,
) -> Iterator[AnswerT | Lost[CellT]]:
    """Play cells in processes and yield results, or `Lost`, as they finish.

    A batch stays with one worker while it lives; a worker plays `at_once` cells concurrently.
    """
    rest_of = iter(batches)
    waiting: deque[Sequence[CellT]] = deque()
    suspects: deque[CellT] = deque()
    attempts: Counter[CellT] = Counter()
    pool: list[_Worker[CellT]] = []
    try:
        while True:
            if len(pool) < workers and not waiting:
                waiting.extend(islice(rest_of, workers - len(pool)))
                pool += [_start(play, at_once) for _ in waiting]
            for worker in pool:
                _feed(worker, waiting, rest_of, suspects)
            busy = {worker.connection: worker for worker in pool if worker.cells}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                try:
                    yield worker.read()
                except _Killed as killed:
                    # Any of its cells may have killed the worker, so a worker that plays one at a
                    # time repeats them.
                    pool[pool.index(worker)] = _start(play, 1)
                    running, rest = worker.cells[: worker.at_once], worker.cells[worker.at_once :]
                    waiting.extendleft([rest] if rest else [])
                    for cell in running:
                        attempts[cell] += 1
                        if attempts[cell] > retries and len(running) == 1:
                            yield Lost(cell, f"{killed} (attempt {attempts[cell]})")
                        else:
                            suspects.append(cell)
    finally:
        for worker in pool:
            worker.close()


def _feed(
    worker: _Worker[CellT],
    waiting: deque[Sequence[CellT]],
    batches: Iterator[Sequence[CellT]],
    suspects: deque[CellT],
) -> None:
    """Send a worker its next batch before its last cell ends, so it never idles."""
    while len(worker.cells) <= worker.at_once:
        if not waiting:
            waiting.extend(islice(batches, 1))
        if waiting:
            worker.send(waiting.popleft())
        elif suspects and worker.at_once == 1:
            # last, when an overloaded host may have recovered
            worker.send([suspects.popleft()])
        else:
            return


def _start(play: Callable[[CellT], Any], at_once: int) -> _Worker[CellT]:
    context = get_context("spawn")  # a fork would inherit the libraries' threads and locks
    near, far = context.Pipe()
    process = context.Process(
        target=_serve, args=(far, play, at_once), name="agentgym-cells", daemon=True
    )
    with interrupts_left_to_parent():
        process.start()
    far.close()
    return _Worker(process, near, at_once)


def _serve(connection: Connection, play: Callable[[Any], Any], at_once: int) -> None:
    follow_the_parent()
    sending = threading.Lock()

    def answer(item: tuple[Any, bool, Any]) -> None:
        with sending, suppress(*GONE):
            connection.send(item)

    waiting = _start_threads(play, at_once, answer)
    with suppress(*GONE):
        while True:
            for cell in connection.recv():
                waiting.put(cell)


def _start_threads(
    play: Callable[[CellT], Any], count: int, answer: Callable[[tuple[CellT, bool, Any]], None]
) -> SimpleQueue[CellT | None]:
    waiting: SimpleQueue[CellT | None] = SimpleQueue()

    def serve() -> None:
        while (cell := waiting.get()) is not None:
            answer((cell, *_attempt(play, cell)))

    for _ in range(count):
        start_thread(serve, "agentgym-cells")
    return waiting


def _attempt(play: Callable[[CellT], Any], cell: CellT) -> tuple[bool, Any]:
    try:
        return True, play(cell)
    except Exception as error:  # noqa: BLE001 - it is the other end that has to know
        return False, _portable(error)


def _portable(error: Exception) -> Exception:
    """Return the exception if it survives pickling, else a copy that does."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a class of a user's may raise anything
        return RuntimeError(describe(error))
    return error
