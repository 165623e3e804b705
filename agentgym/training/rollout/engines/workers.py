"""Local side of workers, which each run many slots in another process or Ray actor.

If a worker dies, or is ended because one episode failed, the dispatcher replays the worker's other
episodes in a new worker.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from typing_extensions import override

from agentgym.play.policy import Reply
from agentgym.text.validation import check_int
from agentgym.training.rollout.engines.base import (
    GRACE,
    NEVER,
    OPENING,
    Answer,
    Answers,
    Engine,
    Failure,
    MakeEnv,
    Slot,
    start_thread,
)
from agentgym.training.rollout.engines.deltas import Border
from agentgym.training.rollout.engines.servers import FarAnswer, Request
from agentgym.training.rollout.episode import StepOutcome
from agentgym.training.rollout.faults import describe

# Default number of workers. With 10,000 slots, 16 workers of 18 MB each add about 30 kB per slot.
WORKERS = 16
# After this many consecutive deaths without an answer, all pending requests fail.
BARREN = 3
# Maximum requests per batch; smaller batches leave fewer episodes to restore if a worker dies.
_BATCH = 256

_LOST = Failure("its worker ended", lost=True)


class WorkerDied(RuntimeError):
    """A worker's process or actor has ended; if `fatal`, every new worker would end too."""

    def __init__(self, cause: str, *, fatal: bool = False) -> None:
        super().__init__(cause)
        self.fatal = fatal


class FarEnd(ABC):
    """Local handle of a worker. Subclasses implement every method."""

    @property
    def alive(self) -> bool:
        """Report whether the worker seems to be alive."""
        return True

    @abstractmethod
    def play(self, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        """Yield the answers to requests in order, or raise `WorkerDied`."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker immediately; unanswered requests raise `WorkerDied`."""

    @abstractmethod
    def close(self) -> None:
        """Close the worker's envs, then end the worker."""


class WorkerEngine(Engine):
    """Engine whose workers each run many slots. Subclasses implement `start`."""

    def __init__(self, workers: int) -> None:
        check_int("workers", workers, 1, 100_000)
        self.workers = workers
        self._running: dict[int, Worker] = {}

    def start(self, make_env: bytes) -> FarEnd:
        """Start a worker."""
        raise NotImplementedError

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        place = number % self.workers
        if place not in self._running:
            self._running[place] = Worker(self, cloudpickle.dumps(make_env), answers)
        return WorkerSlot(number, self._running[place])

    def close(self) -> None:
        closing, self._running = self._running.values(), {}
        for worker in closing:
            worker.close()
        until = time.monotonic() + GRACE
        for worker in closing:
            worker.join(until)


class WorkerSlot(Slot):
    """Slot in a worker; `home` is the worker that owns the slot's env."""

    def __init__(self, number: int, worker: Worker) -> None:
        super().__init__(number)
        self.home: FarEnd | None = None
        self._worker = worker
        self._key = next(worker.keys)
        self._border = Border()
        self._asked: tuple[str, Any] = ("close", None)
        self._reply = Reply("")

    @override
    def reset(self, seed: int) -> None:
        self._asked, self._border = ("reset", seed), Border()
        self._worker.submit(self)

    @override
    def step(self, reply: Reply) -> None:
        self._reply, self._asked = reply, ("step", (reply.text, reply.ended))
        self._worker.submit(self)

    @override
    def close(self) -> None:
        self.dead = True
        self._worker.give_up(self)

    def lost_in(self, far: FarEnd) -> bool:
        """Report whether the slot's running episode was last played in another worker."""
        return self._asked[0] == "step" and self.home is not far

    @property
    def request(self) -> Request:
        """Request for the worker."""
        return (self._key, "close", None) if self.dead else (self._key, *self._asked)

    def received(self, answer: FarAnswer) -> Answer:
        """Return the result of the request."""
        succeeded, content = answer
        if not succeeded:
            failure: Failure = content
            return replace(failure, cause=f"in a worker: {failure.cause}")
        if self._asked[0] == "reset":
            return self._border.receive(content)
        news, *ends = content
        return self._reply, StepOutcome(self._border.receive(news), *ends)


class Worker:
    """Thread that sends requests to a worker and restarts the worker if it dies."""

    def __init__(self, engine: WorkerEngine, make_env: bytes, answers: Answers) -> None:
        self._engine, self._make_env, self._answers = engine, make_env, answers
        self._queue: SimpleQueue[WorkerSlot | None] = SimpleQueue()
        self.keys = count()
        self._far: FarEnd | None = None
        self._barren = 0
        self._lock = threading.Lock()  # guards the next two attributes
        self._head: WorkerSlot | None = None
        self._killed_for: WorkerSlot | None = None
        self._thread = start_thread(self._run, "agentgym-worker")

    def submit(self, slot: WorkerSlot) -> None:
        """Run a slot's request."""
        self._queue.put(slot)

    def give_up(self, slot: WorkerSlot) -> None:
        """Close a dead slot; if the worker is running the slot's step, kill the worker."""
        with self._lock:
            if self._head is slot:
                self._kill_for(slot)
                return
        self._queue.put(slot)

    def close(self) -> None:
        """End the thread once all pending requests are done."""
        self._queue.put(None)

    def join(self, until: float) -> None:
        """Wait for the worker to end; after a deadline, kill the worker."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive() and self._far is not None:
            self._far.kill()
            self._thread.join(GRACE)

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                self._play(batch)
            except Exception as error:  # noqa: BLE001 - if this thread ended, its slots would wait forever
                self._end_worker()
                for slot in batch:
                    self._answer(slot, Failure(describe(error)))
        self._end_worker()

    def _next_batch(self) -> list[WorkerSlot] | None:
        batch: list[WorkerSlot] = []
        while len(batch) < _BATCH:
            try:
                slot = self._queue.get(block=not batch)
            except Empty:
                break
            if slot is None:
                if not batch:
                    return None
                self._queue.put(None)
                break
            batch.append(slot)
        return batch

    def _play(self, batch: Sequence[WorkerSlot]) -> None:
        if self._far is None or not self._far.alive:
            self._end_worker()
            self._far = self._engine.start(self._make_env)
        far = self._far
        going: list[WorkerSlot] = []
        for slot in batch:
            if slot.lost_in(far):
                self._answer(slot, _LOST)
            elif not slot.dead or slot.home is far:
                going.append(slot)
        if not going:
            return
        requests = [slot.request for slot in going]
        answers = far.play(requests)
        for place, slot in enumerate(going):
            try:
                answer = self._play_one(slot, far, answers, closes=requests[place][1] == "close")
            except WorkerDied as error:
                self._blame(going[place:], error)
                return
            self._answer(slot, answer)
        with self._lock:
            self._head = None

    def _play_one(
        self, slot: WorkerSlot, far: FarEnd, answers: Iterator[FarAnswer], *, closes: bool
    ) -> Answer:
        with self._lock:
            self._head = slot
            slot.began = time.monotonic() + (0.0 if slot.home is far else OPENING)
            if slot.dead and not closes:
                self._kill_for(slot)
        if closes:
            timer = threading.Timer(GRACE, self.give_up, [slot])
            timer.start()
            next(answers)
            timer.cancel()
            return Failure("it was closed")
        answer = next(answers)
        slot.home, self._barren = far, 0
        return slot.received(answer)

    def _kill_for(self, slot: WorkerSlot) -> None:
        self._killed_for = slot
        if self._far is not None:
            self._far.kill()

    def _blame(self, slots: Sequence[WorkerSlot], death: WorkerDied) -> None:
        # Only the episode being stepped failed; the worker's other episodes must be restored.
        with self._lock:
            self._head, killed_for = None, self._killed_for
            self._killed_for = None
        self._end_worker()
        self._barren = 0 if killed_for else self._barren + 1
        failure = Failure(str(death), fatal=death.fatal)
        # If the worker was killed because of a slot that has since answered, no slot failed.
        guilty = slots if self._barren >= BARREN else slots[: killed_for in (None, slots[0])]
        for slot in slots:
            self._answer(slot, failure if slot in guilty else _LOST)

    def _answer(self, slot: WorkerSlot, answer: Answer) -> None:
        slot.began = NEVER
        if not slot.dead:
            self._answers.put((slot, answer))

    def _end_worker(self) -> None:
        with self._lock:
            self._head, far, self._far = None, self._far, None
        if far is not None:
            far.close()
