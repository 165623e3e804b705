"""Parent side of worker engines: slots that share workers.

A worker plays one step at a time. If it dies, or is killed because of one episode, the other
episodes are restored in a new worker by replaying their replies.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from typing_extensions import override

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
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
    describe,
    start_thread,
)
from agentgym.training.rollout.engines.deltas import Border
from agentgym.training.rollout.engines.wire import FarAnswer
from agentgym.training.rollout.episode import StepOutcome

WORKERS = 16
"""Default maximum number of workers. At about 18 MB each, they add 30 kB to each of 10,000 slots.
"""
RESTORES = 8
"""Worker deaths allowed while an episode is being restored, before it restarts from its reset."""
BARREN = 3
"""Consecutive workers that may die without a single answer; beyond that, no one request is to
blame.
"""
# Bounds the requests that must be resent when a worker dies.
_BATCH = 256

Request = tuple[int, str, Any]
"""Slot key, method and argument."""


class WorkerDied(RuntimeError):
    """The worker's process or actor is gone."""


class FarEnd(ABC):
    """Connection to a worker; subclasses implement every method."""

    @property
    def alive(self) -> bool:
        """Return whether the worker appears to be running."""
        return True

    @abstractmethod
    def play(self, policy: Any, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        """Yield the answers to requests in order.

        Args:
            policy: The policy to use from now on; None keeps the current one.
            requests: The requests.

        Raises:
            WorkerDied: The worker is gone.
        """

    @abstractmethod
    def kill(self) -> None:
        """Kill the worker; a pending `play` raises `WorkerDied`."""

    @abstractmethod
    def close(self) -> None:
        """End the worker after its envs are closed."""


class WorkerEngine(Engine):
    """Engine whose workers each play the episodes of many slots; subclasses implement `start`.

    Args:
        workers: Maximum number of workers.
    """

    def __init__(self, workers: int) -> None:
        check_int("workers", workers, 1, 100_000)
        self.workers = workers
        self._running: dict[int, Worker] = {}

    @property
    @override
    def recovered(self) -> int:  # type: ignore[override]
        """Return the number of restored episodes."""
        return sum(worker.recovered for worker in self._running.values())

    def start(self, make_env: bytes, number: int) -> FarEnd:
        """Start a worker."""
        raise NotImplementedError

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        place = number % self.workers
        if place not in self._running:
            self._running[place] = Worker(self, cloudpickle.dumps(make_env), place, answers)
        return WorkerSlot(number, self._running[place])

    def close(self) -> None:
        """Close the envs and end the workers, killing those still running after `GRACE` seconds."""
        for worker in self._running.values():
            worker.close()
        until = time.monotonic() + GRACE
        for worker in self._running.values():
            worker.join(until)


class WorkerSlot(Slot):
    """Slot of a worker, with what is needed to restore its episode in another one."""

    def __init__(self, number: int, worker: Worker) -> None:
        super().__init__(number)
        self._worker = worker
        self._key = next(worker.keys)
        self._border = Border()
        self._seed = 0
        self._texts: list[str] = []
        self._chat: Chat | None = None
        self._asked: tuple[str, Any] = ("close", None)
        self._reply: Reply | None = None
        self._home: FarEnd | None = None
        self.restores = 0

    @override
    def use(self, policy: Any) -> None:
        self._worker.use(policy)

    @override
    def reset(self, seed: int) -> None:
        self._seed, self._chat, self._reply = seed, None, None
        self._texts.clear()
        self._asked = "reset", seed
        self._worker.submit(self)

    @override
    def step(self, reply: Reply | None) -> None:
        self._reply = reply
        self._asked = "step", None if reply is None else reply.text
        self._worker.submit(self)

    @override
    def close(self) -> None:
        self.dead = True
        self._worker.give_up(self)

    def open_in(self, far: FarEnd | None) -> bool:
        """Return whether the slot is open in this worker."""
        return far is not None and self._home is far

    def lost_in(self, far: FarEnd | None) -> bool:
        """Return whether the episode has started and this worker lacks its state."""
        return self._chat is not None and not self.open_in(far)

    def requests(self, far: FarEnd) -> list[Request]:
        """Return the pending request, preceded by a restore if this worker lacks the episode."""
        if self.dead:
            return [(self._key, "close", None)]
        asked = (self._key, *self._asked)
        if not self.lost_in(far):
            return [asked]
        return [(self._key, "restore", (self._seed, tuple(self._texts))), asked]

    def restored(self, far: FarEnd, answer: FarAnswer) -> Failure | None:
        """Record a restore; return a failure if the episode could not be restored."""
        succeeded, content = answer
        if not succeeded:
            return Failure(f"in a worker: {content[0]} while replaying the episode")
        if Border().receive_chat(*content) != self._chat:
            return Failure("replaying the episode after its worker died gave a different chat")
        self._border = Border()
        self._border.send_chat(self._chat)  # so later deltas refer to it on this side too
        self._home, self.restores = far, 0
        return None

    def received(self, far: FarEnd, answer: FarAnswer) -> Answer:
        """Return the answer to the pending request."""
        succeeded, content = answer
        self._home = far
        if not succeeded:
            cause, by_policy = content
            return Failure(f"in a worker: {cause}", by_policy)
        if self._asked[0] == "reset":
            self._border = Border()
            self._chat = self._border.receive_chat(*content)
            return self._chat
        played, news, *ends = content
        reply = self._reply or self._border.receive_reply(*played)
        self._chat = self._border.receive_chat(*news)
        self._texts.append(reply.text)
        return reply, StepOutcome(self._chat, *ends)


class Worker:
    """Thread that sends slot requests to a worker and restarts the worker if it dies.

    Args:
        engine: Starts the worker.
        make_env: Makes an env; pickled with cloudpickle.
        number: The worker's index.
        answers: Mailbox for the answers.

    Attributes:
        recovered: Number of restored episodes.
        keys: Yields keys for new slots.
    """

    def __init__(
        self, engine: WorkerEngine, make_env: bytes, number: int, answers: Answers
    ) -> None:
        self.recovered = 0
        self._engine, self._make_env, self._number = engine, make_env, number
        self._answers = answers
        self._queue: SimpleQueue[WorkerSlot | None] = SimpleQueue()
        self._again: deque[WorkerSlot] = deque()
        self.keys = count()
        self._policy: Any = None
        self._policy_of: FarEnd | None = None  # the worker that already has the policy
        self._far: FarEnd | None = None
        self._barren = 0
        self._answered = False  # the current worker has answered a request
        self._lock = threading.Lock()  # guards the next two attributes
        self._head: WorkerSlot | None = None  # the slot whose request is running
        self._killed_for: WorkerSlot | None = None
        self._thread = start_thread(self._run, f"agentgym-worker-{number}")

    def use(self, policy: Any) -> None:
        """Use this policy from now on."""
        if policy is not self._policy:
            self._policy, self._policy_of = policy, None

    def submit(self, slot: WorkerSlot) -> None:
        """Queue a slot's request."""
        self._queue.put(slot)

    def give_up(self, slot: WorkerSlot) -> None:
        """Close a dead slot; kill the worker if it is playing that slot's step."""
        with self._lock:
            if self._head is slot:
                self._kill_for(slot)
                return
        self._queue.put(slot)

    def close(self) -> None:
        """End after all queued requests."""
        self._queue.put(None)

    def join(self, until: float) -> None:
        """Wait until a time, then kill the worker."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive() and self._far is not None:
            self._far.kill()
            self._thread.join(GRACE)

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            batch = [slot for slot in batch if not slot.dead or slot.open_in(self._far)]
            try:
                if batch:
                    self._play(batch)
            except Exception as error:  # noqa: BLE001 - if this thread ended, its slots would never get an answer
                self._end_worker()
                self._fail(batch, Failure(describe(error)))
        self._end_worker()

    def _next_batch(self) -> list[WorkerSlot] | None:
        """Wait for requests and return a batch; None at the end."""
        batch = [self._again.popleft() for _ in range(min(len(self._again), _BATCH))]
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
            self._far, self._answered = self._engine.start(self._make_env, self._number), False
        far = self._far
        policy = None if self._policy_of is far else self._policy
        self._policy_of = far
        asked = [slot.requests(far) for slot in batch]
        answers = far.play(policy, [request for requests in asked for request in requests])
        for place, slot in enumerate(batch):
            closes = asked[place][0][1] == "close"
            try:
                answer = self._play_one(slot, far, answers, closes=closes)
            except WorkerDied as error:
                self._blame(slot, batch[place + 1 :], str(error))
                return
            if not slot.dead:
                self._answers.put((slot, answer))
        with self._lock:
            self._head = None

    def _play_one(
        self, slot: WorkerSlot, far: FarEnd, answers: Iterator[FarAnswer], *, closes: bool
    ) -> Answer:
        """Wait for a slot's answer; closing gets at most `GRACE` seconds."""
        with self._lock:
            self._head = slot
            slot.began = time.monotonic() + (0.0 if slot.open_in(far) else OPENING)
            if slot.dead and not closes:
                self._kill_for(slot)
        if closes:
            timer = threading.Timer(GRACE, self.give_up, [slot])
            timer.start()
            next(answers)
            timer.cancel()
            return Failure("it was closed")
        failure = None
        if slot.lost_in(far):
            failure = slot.restored(far, next(answers))
            self._answered = True
            self.recovered += failure is None
        answer = slot.received(far, next(answers))
        slot.began = NEVER
        self._answered = True
        return failure or answer

    def _kill_for(self, slot: WorkerSlot) -> None:
        self._killed_for = slot
        if self._far is not None:
            self._far.kill()

    def _blame(self, slot: WorkerSlot, rest: Sequence[WorkerSlot], cause: str) -> None:
        """Charge the worker's death to the episode whose step it was playing, and requeue the
        others.
        """
        with self._lock:
            self._head, killed_for = None, self._killed_for
            self._killed_for = None
        lost = slot.lost_in(self._far)
        self._end_worker()
        self._barren = 0 if self._answered or killed_for else self._barren + 1
        slot.began = NEVER
        if self._barren >= BARREN:
            self._fail([slot, *rest], Failure(cause))
            return
        slot.restores += lost
        if killed_for not in (None, slot) or (lost and slot.restores <= RESTORES):
            rest = [slot, *rest]
        else:
            self._fail([slot], Failure(cause))
        self._again.extend(rest)

    def _fail(self, slots: Sequence[WorkerSlot], failure: Failure) -> None:
        for slot in slots:
            slot.began = NEVER
            if not slot.dead:
                self._answers.put((slot, failure))

    def _end_worker(self) -> None:
        with self._lock:
            self._head, far, self._far = None, self._far, None
        if far is not None:
            far.close()
