"""Start, record, time and retry episodes in slots."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, count
from queue import Empty
from typing import Any

from agentgym.play.policy import PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.engines.base import (
    NEVER,
    Answer,
    Answers,
    Engine,
    Failure,
    MakeEnv,
    Slot,
    failure_of,
)
from agentgym.training.rollout.episode import Recording, StepOutcome
from agentgym.training.rollout.faults import CollectionError, FaultStreak, PolicyFault
from agentgym.training.rollout.trajectory import Trajectory
from agentgym.training.rollout.user_policy import PolicyRequest, UserPolicy
from agentgym.world.digests import digest


@dataclass(slots=True, eq=False)
class _Run:
    place: int
    seed: int
    number: int  # in starting order
    attempt: int = 1
    id: str = ""  # episode id for stateful policies
    recording: Recording | None = None
    asked: int = 0  # number of the open request; 0 if none
    reply: Reply | None = None  # the last reply given to the slot
    replayed: int | None = None  # steps replayed so far in another worker


class Dispatcher:
    """A collector's slots and the episodes that run in them.

    Attributes:
        ready: The slots whose chats are waiting for a reply, in order of arrival.
        ended: Finished episodes not yet taken by the collector, each with the index of its seed.
    """

    def __init__(
        self,
        engine: Engine,
        make_env: MakeEnv,
        spec: str,
        num_slots: int,
        timeout: float | None,
        retries: int,
    ) -> None:
        self._engine, self._make_env, self._spec = engine, make_env, spec
        self._num_slots, self._timeout, self._retries = num_slots, timeout, retries
        self._answers = Answers()
        self._idle: list[Slot] = []
        self._free = list(reversed(range(num_slots)))
        self._runs: dict[Slot, _Run] = {}
        self._deadlines: list[tuple[float, int, Slot]] = []
        self._requests = count(1)
        self._broken = 0  # failures since the last complete episode
        self._faults = FaultStreak()
        self._run_id = ""
        self._labels: Mapping[str, Any] = {}
        self.room = num_slots
        self.begun = self.retried = self.recovered = 0
        self.ready: list[Slot] = []
        self.ended: deque[tuple[int, Trajectory]] = deque()
        self.pending = 0

    def use(self, labels: Mapping[str, Any]) -> None:
        """Set the labels of all episodes started after this call."""
        self._labels = labels
        self._run_id, self._faults = digest([self._spec, labels])[:8], FaultStreak()

    def begin_all(self, seeds: Iterator[tuple[int, int]]) -> bool:
        """Start as many episodes as possible; report whether any episode is running."""
        while len(self._runs) < self.room and (following := next(seeds, None)) is not None:
            slot = self._idle.pop() if self._idle else self._open(self._free.pop())
            self.begun += 1
            self._begin(slot, _Run(*following, self.begun))
        return bool(self._runs)

    def advance(self, wait: float | None) -> None:
        """Record the slots' results, waiting up to `wait` seconds, and abandon hung slots."""
        if self._deadlines:
            rest = max(0.0, self._deadlines[0][0] - time.monotonic())
            wait = rest if wait is None else min(rest, wait)
        for slot, answer in self._arrived(wait):
            if slot in self._runs:
                self._record(slot, answer)
        for slot in list(self._hung()):
            self._record(slot, Failure(f"timeout: no answer in {self._timeout:g} seconds"))

    def _arrived(self, wait: float | None) -> Iterator[tuple[Slot, Answer]]:
        with suppress(Empty):
            yield self._answers.get(timeout=wait)
            while True:
                yield self._answers.get_nowait()

    def take(self, most: int) -> list[Slot]:
        """Take up to `most` ready slots, grouped by seed and in seed order."""
        # Chats with the same seed share a prefix. Sorting by seed makes a policy's random choices
        # independent of which slots are open.
        alike: dict[int, list[Slot]] = {}
        for slot in self.ready:
            alike.setdefault(self._runs[slot].seed, []).append(slot)
        ordered = list(chain.from_iterable(alike.values()))
        self.ready = ordered[most:]
        return sorted(ordered[:most], key=lambda slot: self._runs[slot].place)

    def requests(self, slots: Sequence[Slot]) -> list[PolicyRequest]:
        """Return a policy request for each slot's waiting chat."""
        runs = [self._runs[slot] for slot in slots]
        return [
            PolicyRequest(each.recording.chat, each.seed, each.id, not each.recording.steps)
            for each in runs
            if each.recording is not None
        ]

    def ask(self, slots: Sequence[Slot], policy: UserPolicy) -> None:
        """Let the slots await the policy's replies and play the replies."""
        for slot, request in zip(slots, self.requests(slots), strict=True):
            self._await_answer(slot)
            slot.ask(policy, request)

    def reply(self, slots: Sequence[Slot], replies: Sequence[Reply | PolicyError]) -> None:
        """Play the replies, and end each episode whose reply is an error."""
        silent: list[tuple[Slot, PolicyError]] = []
        for slot, reply in zip(slots, replies, strict=True):
            if isinstance(reply, PolicyError):
                silent.append((slot, reply))
            else:
                self._runs[slot].reply = reply
                self._step(slot, reply)
        for slot, error in silent:
            self._idle.append(slot)
            self._break_off(self._runs.pop(slot), failure_of(error))

    @property
    def under_way(self) -> int:
        """Number of running episodes."""
        return len(self._runs)

    def give_up_all(self) -> None:
        """End all running episodes and discard finished episodes not yet taken."""
        slots = list(self._runs)
        for slot in slots:
            slot.dead = True  # Mark all slots as dead first, so that no worker starts another step.
        for slot in slots:
            self._give_up(slot)
            self._free.append(slot.number)
        self.ended.clear()
        self.ready, self.pending = [], 0
        self._deadlines.clear()

    def close(self) -> None:
        """Close all slots, including hung slots."""
        self.give_up_all()
        for slot in self._idle:
            slot.close()
        self._idle = []
        self._engine.close()

    def _open(self, number: int) -> Slot:
        return self._engine.slot(self._make_env, number, self._answers)

    def _begin(self, slot: Slot, run: _Run) -> None:
        self._runs[slot] = run
        self._await_answer(slot)
        run.id = f"{self._run_id}-{run.place}-{run.attempt}"
        slot.reset(run.seed)

    def _step(self, slot: Slot, reply: Reply) -> None:
        self._await_answer(slot)
        slot.step(reply)

    def _await_answer(self, slot: Slot) -> None:
        self.pending += 1
        self._runs[slot].asked = request = next(self._requests)
        if self._timeout is not None:
            heappush(self._deadlines, (time.monotonic() + self._timeout, request, slot))

    def _hung(self) -> Iterator[Slot]:
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] < now:
            _, request, slot = heappop(self._deadlines)
            run = self._runs.get(slot)
            if run is None or run.asked != request:
                continue
            began = slot.began
            due = (now if began == NEVER else began) + (self._timeout or 0.0)
            if due < now:
                yield slot
            else:
                heappush(self._deadlines, (due, request, slot))

    def _record(self, slot: Slot, answer: Answer) -> None:
        run = self._runs[slot]
        run.asked = 0
        self.pending -= 1
        if isinstance(answer, Failure):
            if answer.lost:
                self._restore(slot, run)
            else:
                self._fail(slot, answer)
        elif run.replayed is not None:
            self._replay(slot, run, answer)
        elif isinstance(answer, Chat):
            run.recording = Recording(self._spec, run.seed, answer, self._labels)
            self.ready.append(slot)
        elif run.recording is not None:
            run.recording.add(*answer)
            if run.recording.over:
                del self._runs[slot]
                self._idle.append(slot)
                self._broken = 0
                self.ended.append((run.place, run.recording.trajectory()))
            else:
                self.ready.append(slot)

    def _restore(self, slot: Slot, run: _Run) -> None:
        run.replayed = None if run.recording is None else 0
        self._begin(slot, run)

    def _replay(self, slot: Slot, run: _Run, answer: Chat | tuple[Reply, StepOutcome]) -> None:
        recording, done, reply = run.recording, run.replayed, run.reply
        if recording is None or done is None or reply is None:
            raise RuntimeError(f"no replay was started for the episode with seed {run.seed}")
        if done < len(recording.steps):
            run.replayed = done + 1
            self._step(slot, recording.steps[done].reply)
            return
        run.replayed = None
        chat = answer if isinstance(answer, Chat) else answer[1].chat
        if chat != recording.chat:
            cause = "the episode was replayed after its worker had died, and took another course"
            self._fail(slot, Failure(cause))
            return
        self.recovered += 1
        self._step(slot, reply)

    def _fail(self, slot: Slot, failure: Failure) -> None:
        run = self._runs[slot]
        self._give_up(slot)
        if run.attempt > self._retries or failure.error is not None or failure.fatal:
            self._free.append(slot.number)
            self._break_off(run, failure)
            return
        self.retried += 1
        self._begin(self._open(slot.number), _Run(run.place, run.seed, run.number, run.attempt + 1))

    def _break_off(self, run: _Run, failure: Failure) -> None:
        if failure.fatal:
            raise CollectionError(failure.cause)
        self._broken += 1
        if isinstance(failure.error, PolicyFault):
            self._faults.add(run.number, failure.error)
        # Allow twice as many failures as slots, because a temporary fault may affect all slots.
        if self._broken > 2 * self._num_slots:
            raise CollectionError(
                f"{self._broken} consecutive episodes failed; the last cause: {failure.cause}"
            )
        recording = run.recording or Recording(self._spec, run.seed, Chat(), self._labels)
        attempts = f" (attempt {run.attempt})" if run.attempt > 1 else ""
        self.ended.append((run.place, recording.trajectory(failure.cause + attempts)))

    def _give_up(self, slot: Slot) -> None:
        del self._runs[slot]
        slot.close()
