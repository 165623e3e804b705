"""The local side of workers that play many slots each.

A worker runs one step at a time. If it dies or must be ended because of one episode, the others are
restored in a new worker by replaying their replies.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    start_thread,
)
from agentgym.training.rollout.engines.deltas import Border
from agentgym.training.rollout.engines.wire import FarAnswer
from agentgym.training.rollout.episode import StepOutcome
from agentgym.training.rollout.faults import describe

WORKERS = 16
"""Default number of workers: with about 18 MB each they add 30 kB to each of 10,000 slots."""
# Worker deaths during a restore, which may be chance, before the episode is restarted.
RESTORES = 8
# After this many consecutive workers without an answer, the cause is not the first request.
BARREN = 3
# Bounds what must be sent again after a worker's death.
_BATCH = 256

Request = tuple[int, str, Any]
"""The slot of a worker, the method and its argument."""


class WorkerDied(RuntimeError):
    """Error: a worker's process or actor is gone.

    Args:
        cause: How it ended.
        fatal: Whether every other worker would end too.
    """

    def __init__(self, cause: str, *, fatal: bool = False) -> None:
        super().__init__(cause)
        self.fatal = fatal


class FarEnd(ABC):
    """A worker as seen from here. Subclasses implement every method."""

    @property
    def alive(self) -> bool:
        """Report whether the worker seems to be alive."""
        return True

    @abstractmethod
    def play(self, policy: Any, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        """Yield the answers to requests in order.

        Args:
            policy: The policy to use from now on; None keeps the previous one.
            requests: The requests.

        Raises:
            WorkerDied: The worker is gone.
        """

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once; pending answers raise `WorkerDied`."""

    @abstractmethod
    def close(self) -> None:
        """End the worker when its envs are closed."""


class WorkerEngine(Engine):
    """Engine of workers that play many slots each. Subclasses implement `start`.

    Args:
        workers: The maximum number of workers.
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
        """Close the envs and end the workers, forcibly after `GRACE` seconds."""
        for worker in self._running.values():
            worker.close()
        until = time.monotonic() + GRACE
        for worker in self._running.values():
            worker.join(until)


class WorkerSlot(Slot):
    """A slot of a worker, with the data to restore its episode in another one."""

    def __init__(self, number: int, worker: Worker) -> None:
        super().__init__(number)
        self._worker = worker
        self._key = next(worker.keys)
        self._border = Border()
        self._episode = 0, ""
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
    def reset(self, seed: int, episode_id: str) -> None:
        self._episode, self._chat, self._reply = (seed, episode_id), None, None
        self._texts.clear()
        self._asked = "reset", self._episode
        self._worker.submit(self)

    @override
    def step(self, reply: Reply | None) -> None:
        self._reply = reply
        self._asked = "step", None if reply is None else (reply.text, reply.ended)
        self._worker.submit(self)

    @override
    def close(self) -> None:
        self.dead = True
        self._worker.give_up(self)

    def open_in(self, far: FarEnd | None) -> bool:
        """Report whether the slot is open in this worker."""
        return far is not None and self._home is far

    def lost_in(self, far: FarEnd | None) -> bool:
        """Report whether the running episode is missing in this worker."""
        return self._chat is not None and not self.open_in(far)

    def requests(self, far: FarEnd) -> list[Request]:
        """Return the requests for the worker, first restoring a missing episode."""
        if self.dead:
            return [(self._key, "close", None)]
        asked = (self._key, *self._asked)
        if not self.lost_in(far):
            return [asked]
        return [(self._key, "restore", (*self._episode, tuple(self._texts))), asked]

    def restored(self, far: FarEnd, answer: FarAnswer) -> Failure | None:
        """Record that the worker has the episode; return the failure if restoring failed."""
        succeeded, content = answer
        if not succeeded:
            return Failure(f"in a worker: {content.cause} when the episode was replayed")
        if Border().receive_chat(*content) != self._chat:
            return Failure(
                "the episode was replayed after its worker had died, and took another course"
            )
        self._border = Border()
        self._border.send_chat(self._chat)  # so that this side shares its messages
        self._home, self.restores = far, 0
        return None

    def received(self, far: FarEnd, answer: FarAnswer) -> Answer:
        """Return the answer to the request."""
        succeeded, content = answer
        self._home = far
        if not succeeded:
            failure: Failure = content
            return replace(failure, cause=f"in a worker: {failure.cause}")
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
    """The local side of a worker: a thread that sends it requests and restarts it if it dies.

    Args:
        engine: Starts the worker.
        make_env: Makes an env; pickled by cloudpickle.
        number: The worker's index.
        answers: Receives the answers.

    Attributes:
        recovered: The number of restored episodes.
        keys: Yields the keys of new slots.
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
        self._policy_of: FarEnd | None = None  # the worker that has the policy
        self._far: FarEnd | None = None
        self._barren = 0
        self._answered = False  # whether the current worker has answered anything
        self._lock = threading.Lock()  # guards the next two attributes
        self._head: WorkerSlot | None = None  # the slot whose step is running
        self._killed_for: WorkerSlot | None = None
        self._thread = start_thread(self._run, f"agentgym-worker-{number}")

    def use(self, policy: Any) -> None:
        """Use this policy from now on."""
        if policy is not self._policy:
            self._policy, self._policy_of = policy, None

    def submit(self, slot: WorkerSlot) -> None:
        """Run a slot's request."""
        self._queue.put(slot)

    def give_up(self, slot: WorkerSlot) -> None:
        """Close a dead slot, and the worker if it runs the slot's step."""
        with self._lock:
            if self._head is slot:
                self._kill_for(slot)
                return
        self._queue.put(slot)

    def close(self) -> None:
        """End when all requests are done."""
        self._queue.put(None)

    def join(self, until: float) -> None:
        """Wait for the end until a deadline, then kill the worker."""
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
            except Exception as error:  # noqa: BLE001 - a thread that ended would leave its slots without an answer
                self._end_worker()
                self._fail(batch, Failure(describe(error)))
        self._end_worker()

    def _next_batch(self) -> list[WorkerSlot] | None:
        """Return new requests, waiting for them; None at the end."""
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
                self._blame(slot, batch[place + 1 :], error)
                return
            if not slot.dead:
                self._answers.put((slot, answer))
        with self._lock:
            self._head = None

    def _play_one(
        self, slot: WorkerSlot, far: FarEnd, answers: Iterator[FarAnswer], *, closes: bool
    ) -> Answer:
        """Wait for the answer to a request; closing has little time."""
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

    def _blame(self, slot: WorkerSlot, rest: Sequence[WorkerSlot], death: WorkerDied) -> None:
        """Charge a worker's death to the episode it was stepping."""
        with self._lock:
            self._head, killed_for = None, self._killed_for
            self._killed_for = None
        lost = slot.lost_in(self._far)
        failure = Failure(str(death), fatal=death.fatal)
        self._end_worker()
        self._barren = 0 if self._answered or killed_for else self._barren + 1
        slot.began = NEVER
        if self._barren >= BARREN:
            self._fail([slot, *rest], failure)
            return
        slot.restores += lost
        if killed_for not in (None, slot) or (lost and slot.restores <= RESTORES):
            rest = [slot, *rest]
        else:
            self._fail([slot], failure)
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
