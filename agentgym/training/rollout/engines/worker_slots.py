"""Slots whose episodes are played by workers elsewhere, many in each: the near end.

A worker plays one step at a time. If it has to be ended for the sake of one episode, or dies of it,
the others are brought to where they were in a new one, by playing their replies again.
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
"""The most workers, unless told otherwise: with some 18 MB each they add 30 kB to each of 10,000 slots.
"""
RESTORES = 8
"""Times that a worker may die while an episode is brought back to where it was, which may be chance,
before the episode is begun again.
"""
BARREN = 3
"""Workers that may die one after the other without having answered anything. Then the cause is not in
what they were asked first.
"""
_BATCH = 256
"""The most requests that are sent together, which bounds what a worker that dies has to be sent
again.
"""

Request = tuple[int, str, Any]
"""Which slot of a worker is asked, for which method, with which argument."""


class WorkerDied(RuntimeError):
    """The process or the actor of a worker is gone."""


class FarEnd(ABC):
    """A worker, seen from here. A subclass fills all."""

    @property
    def alive(self) -> bool:
        """Return whether it is there, as far as can be seen from here."""
        return True

    @abstractmethod
    def play(self, policy: Any, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        """Yield the answers to requests in their order.

        Args:
            policy: The policy to use from now on; None for the one before.
            requests: What is asked.

        Raises:
            WorkerDied: The worker is gone.
        """

    @abstractmethod
    def kill(self) -> None:
        """End it at once; what is awaited from it raises `WorkerDied`."""

    @abstractmethod
    def close(self) -> None:
        """End it when its envs are closed."""


class WorkerEngine(Engine):
    """Workers that play the episodes of many slots each. A subclass fills `start`.

    Args:
        workers: The most workers.
    """

    def __init__(self, workers: int) -> None:
        check_int("workers", workers, 1, 100_000)
        self.workers = workers
        self._running: dict[int, Worker] = {}

    @property
    @override
    def recovered(self) -> int:  # type: ignore[override]
        """Return how often an episode was brought back to where it was."""
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
        """Close the envs, and end the workers; those at once that have not after `GRACE` seconds."""
        for worker in self._running.values():
            worker.close()
        until = time.monotonic() + GRACE
        for worker in self._running.values():
            worker.join(until)


class WorkerSlot(Slot):
    """A slot of a worker, with what it takes to bring its episode into another one."""

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
        """Return whether the episode has begun, and its state is not in this worker."""
        return self._chat is not None and not self.open_in(far)

    def requests(self, far: FarEnd) -> list[Request]:
        """Return what the worker is asked for: the episode, if it has not got it, and the rest."""
        if self.dead:
            return [(self._key, "close", None)]
        asked = (self._key, *self._asked)
        if not self.lost_in(far):
            return [asked]
        return [(self._key, "restore", (self._seed, tuple(self._texts))), asked]

    def restored(self, far: FarEnd, answer: FarAnswer) -> Failure | None:
        """Note that the worker has the episode; return the failure if it could not be restored."""
        succeeded, content = answer
        if not succeeded:
            return Failure(f"in a worker: {content[0]} when the episode was played again")
        if Border().receive_chat(*content) != self._chat:
            return Failure(
                "the episode was played again after its worker had died, and went another way"
            )
        self._border = Border()
        self._border.send_chat(self._chat)  # so that this side shares its messages
        self._home, self.restores = far, 0
        return None

    def received(self, far: FarEnd, answer: FarAnswer) -> Answer:
        """Return the answer to what was asked."""
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
    """The near end of a worker: a thread that sends it what its slots were asked, and starts it again
    if it dies.

    Args:
        engine: Starts the worker.
        make_env: Makes an env; pickled by cloudpickle.
        number: Which of the workers it is.
        answers: Where answers go.

    Attributes:
        recovered: How often an episode was brought back to where it was.
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
        self._answered = False  # the worker that runs has answered something
        self._lock = threading.Lock()  # of the two that follow
        self._head: WorkerSlot | None = None  # the slot whose step is played
        self._killed_for: WorkerSlot | None = None
        self._thread = start_thread(self._run, f"agentgym-worker-{number}")

    def use(self, policy: Any) -> None:
        """Play with this policy from now on."""
        if policy is not self._policy:
            self._policy, self._policy_of = policy, None

    def submit(self, slot: WorkerSlot) -> None:
        """Do what a slot was asked."""
        self._queue.put(slot)

    def give_up(self, slot: WorkerSlot) -> None:
        """Close a slot that is dead; the worker too if it is playing its step."""
        with self._lock:
            if self._head is slot:
                self._kill_for(slot)
                return
        self._queue.put(slot)

    def close(self) -> None:
        """End when all that was asked is done."""
        self._queue.put(None)

    def join(self, until: float) -> None:
        """Wait for the end until some time, then end the worker at once."""
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
        """Return what was asked meanwhile, or wait for it; None if that is the end."""
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
        """Wait for the answer to what a slot was asked; one that closes has little time."""
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
        """Have the death of the worker cost the episode whose step it was playing, and no other."""
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
