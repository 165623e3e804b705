"""Collecting episodes: many at once, wherever an engine plays them, none lost if the run is
interrupted.
"""

from __future__ import annotations

import json
import queue
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import gymnasium
from gymnasium.envs.registration import EnvSpec

import agentgym.registry as registry
from agentgym.arguments import check_choice, check_float, check_int
from agentgym.messages import Chat
from agentgym.policy import Policy, PolicyError, Reply
from agentgym.training.extras import needs_extra
from agentgym.training.rollout.engines import (
    GRACE,
    Answer,
    Answers,
    Asyncio,
    Engine,
    EnvLike,
    Failure,
    Lockstep,
    MakeEnv,
    Slot,
    Threads,
    describe,
)
from agentgym.training.rollout.episode import Recording, spec_of
from agentgym.training.rollout.prefetch import Prefetcher
from agentgym.training.rollout.trajectory import Trajectory, TrajectoryLog
from agentgym.training.rollout.workers import Processes

ENGINES = ("lockstep", "threads", "asyncio", "processes", "ray")
OPENING = 60.0
"""Seconds that a new worker may take on top of the timeout: a process that imports a deep-learning
library needs some.
"""
LINGER = 0.1
"""Share of the time of the last reply for which a batch waits for more chats: a fuller batch is
worth that much delay.
"""


class CollectionError(RuntimeError):
    """Episode after episode breaks, so the cause is not in one of them."""


@dataclass(slots=True)
class _Run:
    """Episode that begins or is under way in a slot, its place among the seeds, and the time at
    which the slot is given up.
    """

    place: int
    seed: int
    deadline: float
    attempt: int = 1
    recording: Recording | None = None


class Collector:
    """Plays episodes of one env, many at once, in slots that stay open between calls.

    A failure in a slot (an error in the env or in a policy that plays there, a worker that dies,
    one that takes longer than the timeout) costs the episode of that slot alone. The episode is
    played again, with its seed and in a new slot of the same number: were another one drawn in its
    place, long episodes, in which more can break, would become rare. If it breaks each time, or the
    policy has given up on it (a `PolicyError`, whose `replies` say on which of a batch), it is
    reported as a truncated trajectory that names its `failure`, and is not the agent's: evaluation
    and training leave it out. The engine `lockstep` has no workers, so with it all other errors are
    raised.

    Args:
        env: An id, a spec (`agentgym.spec(...)`) or a function that makes an env with a spec.
        num_envs: The most episodes that are played at once, each in a slot.
        engine: `lockstep`, `threads`, `asyncio`, `processes`, `ray`, or an `Engine`.
        replicate: Give each slot the policy itself (threads share it, processes and actors have
            copies of it); if not, it is called here, with all chats that wait. Asyncio and Ray
            replicate unless told otherwise.
        timeout: Seconds that a reset or a step may take, with its reply if the policy is at hand;
            None for no limit. A worker has a minute more to start.
        retries: The most times that an episode which broke is played again.

    Attributes:
        retried: The episodes so far that were begun again.

    Raises:
        ValueError: The env has no spec, or an argument is not right, or the engine is not
            installed.

    Example:
        >>> with Collector("ListWorld", 64, engine="processes", timeout=60) as collector:
        ...     trajectories = list(collector.collect(policy, range(1_000), log=Path("runs/list.jsonl")))
    """

    def __init__(
        self,
        env: EnvLike,
        num_envs: int = 32,
        *,
        engine: str | Engine = "lockstep",
        replicate: bool | None = None,
        timeout: float | None = None,
        retries: int = 2,
    ) -> None:
        check_int("num_envs", num_envs, 1, 100_000)
        check_int("retries", retries, 0, 1_000)
        self.num_envs, self.timeout, self.retries = num_envs, timeout, retries
        self.retried = 0
        self._make_env, self.spec = _factory(env)
        self._engine = _engine(engine)
        if timeout is not None:
            check_float("timeout", timeout, 0.001, 1e9)
            if not self._engine.isolates:
                raise ValueError(
                    "lockstep cannot give up a slot that hangs, so it takes no timeout; use "
                    "another engine"
                )
        self._replicate = self._engine.replicates if replicate is None else replicate
        self._answers: Answers = queue.Queue()
        self._idle: list[Slot] = []
        self._runs: dict[Slot, _Run] = {}
        self._broken = self._pending = 0
        self._linger = 0.0
        self._prefetcher = Prefetcher(self._make_env)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the slots, those that hang too."""
        self._give_up_all()
        for slot in self._idle:
            slot.close()
        until = time.monotonic() + GRACE
        for slot in self._idle:
            if not slot.join(max(0.0, until - time.monotonic())):
                slot.kill()
        self._idle = []
        self._engine.close()
        self._prefetcher.close()

    def prefetch(self, seeds: Iterable[int]) -> None:
        """Draw the instances of later episodes while others are played, if there is a reset cache."""
        self._prefetcher.prefetch(seeds)

    def collect(
        self,
        policy: Policy,
        seeds: Iterable[int],
        log: TrajectoryLog | Path | None = None,
        labels: Mapping[str, Any] | None = None,
        *,
        ordered: bool = False,
    ) -> Iterator[Trajectory]:
        """Play episodes.

        Args:
            policy: Replies to chats.
            seeds: Each is played once. They are read as slots come free, so they may be endless.
            log: A file to which each trajectory is written before it is yielded. An episode of this
                env with these labels that it holds already is yielded as it is and not played
                again, unless it is a failure. Nobody else can write to it meanwhile.
            labels: The labels of the trajectories.
            ordered: Yield the trajectories in the order of the seeds, each when all before it have
                ended. Without, they come as they end, short ones first, so that the first n of more
                than n are no fair sample; with it they are.

        Yields:
            Trajectories.

        Raises:
            CollectionError: More than twice as many episodes as there are slots broke, and none
                between them did not.
            RunLockedError: Somebody else writes to the log.
            OSError: The log cannot be written.
            ValueError: The engine cannot play this policy.
        """
        labels = json.loads(json.dumps(dict(labels or {})))  # as they come back from a log
        file = TrajectoryLog(log) if isinstance(log, Path) else log
        shared = self._engine.share(policy) if self._replicate else None
        played = self._logged(policy, shared, enumerate(seeds), file, labels)
        return _in_order(played) if ordered else _as_they_end(played)

    def _logged(
        self,
        policy: Policy,
        shared: Any,
        seeds: Iterable[tuple[int, int]],
        file: TrajectoryLog | None,
        labels: Mapping[str, Any],
    ) -> Generator[tuple[int, Trajectory], None, None]:
        replayed: deque[tuple[int, Trajectory]] = deque()
        with file.writing() if file else nullcontext():
            recorded = self._recorded(file, labels) if file else {}
            missing = _missing(seeds, recorded, replayed)
            for place, trajectory in self._play(policy, shared, missing, labels):
                if file is not None:
                    file.append(trajectory.to_json())
                yield place, trajectory
                while replayed:
                    yield replayed.popleft()
            yield from replayed

    def _recorded(
        self, file: TrajectoryLog, labels: Mapping[str, Any]
    ) -> dict[int, deque[Trajectory]]:
        """Return the episodes of this env in a log, by seed."""
        spec = json.loads(self.spec)
        recorded: dict[int, deque[Trajectory]] = {}
        for trajectory in file:
            if (
                trajectory.labels == labels
                and json.loads(trajectory.spec) == spec
                and not trajectory.failure
            ):
                recorded.setdefault(trajectory.seed, deque()).append(trajectory)
        return recorded

    def _play(
        self,
        policy: Policy,
        shared: Any,
        seeds: Iterator[tuple[int, int]],
        labels: Mapping[str, Any],
    ) -> Iterator[tuple[int, Trajectory]]:
        for slot in self._idle if self._replicate else ():
            slot.use(shared)
        try:
            while self._begin_all(seeds, shared):
                waiting: list[Slot] = []
                for slot, answer in self._new_answers():
                    place = self._runs[slot].place
                    if (ended := self._record(slot, answer, labels, shared)) is not None:
                        yield place, ended
                        self._begin_all(seeds, shared)
                    elif slot in self._runs:  # else its episode is played again in another one
                        waiting.append(slot)
                # In the order of the seeds, so that a policy that draws does not depend on which
                # slots are open.
                waiting.sort(key=lambda slot: self._runs[slot].place)
                yield from self._reply(policy, waiting)
        finally:
            self._give_up_all()

    def _begin_all(self, seeds: Iterator[tuple[int, int]], shared: Any) -> bool:
        """Begin episodes as long as there are seeds and room; return whether any is under way."""
        while len(self._runs) < self.num_envs and (following := next(seeds, None)) is not None:
            opens = not self._idle
            if opens:
                free = min(set(range(self.num_envs)) - {slot.number for slot in self._runs})
            slot = self._open(free, shared) if opens else self._idle.pop()
            self._begin(slot, _Run(*following, self._deadline() + OPENING * opens))
        return bool(self._runs)

    def _begin(self, slot: Slot, run: _Run) -> None:
        self._runs[slot] = run
        self._pending += 1
        slot.reset(run.seed)

    def _open(self, number: int, shared: Any) -> Slot:
        slot = self._engine.slot(self._make_env, number, self._answers)
        if self._replicate:
            slot.use(shared)
        return slot

    def _new_answers(self) -> Iterator[tuple[Slot, Answer]]:
        """Yield at least one answer, and those that come while they are read or shortly after."""
        wait = (
            min(run.deadline for run in self._runs.values()) - time.monotonic()
            if self.timeout
            else None
        )
        with suppress(queue.Empty):
            newest = self._answers.get(timeout=None if wait is None else max(0.0, wait))
            until = time.monotonic() + self._linger
            while True:
                if newest[0] in self._runs:  # a slot that was given up may answer yet
                    yield newest
                rest = until - time.monotonic() if self._linger and self._pending else 0.0
                newest = self._answers.get(timeout=rest) if rest > 0 else self._answers.get_nowait()
        now = time.monotonic()
        for slot in [slot for slot, run in self._runs.items() if run.deadline < now]:
            yield slot, Failure(f"it hung: no answer in {self.timeout:g} seconds")

    def _record(
        self, slot: Slot, answer: Answer, labels: Mapping[str, Any], shared: Any
    ) -> Trajectory | None:
        """Record an answer; return the trajectory if it is the last of its episode."""
        run = self._runs[slot]
        run.deadline = float("inf")
        self._pending -= 1
        if isinstance(answer, Chat):
            run.recording = Recording(self.spec, run.seed, answer, labels)
            return None
        recording = run.recording or Recording(self.spec, run.seed, Chat(), labels)
        if isinstance(answer, Failure):
            self._give_up(slot)
            if run.attempt <= self.retries and not answer.by_policy:
                self.retried += 1
                again = _Run(run.place, run.seed, self._deadline() + OPENING, run.attempt + 1)
                self._begin(self._open(slot.number, shared), again)
                return None
            return self._broken_off(recording, answer.cause, run.attempt)
        recording.add(*answer)
        if not recording.over:
            return None
        self._broken = 0
        self._end(slot)
        return recording.trajectory()

    def _reply(self, policy: Policy, slots: list[Slot]) -> Iterator[tuple[int, Trajectory]]:
        """Play a reply in each slot; yield the episodes that have none."""
        replies: Sequence[Reply | PolicyError | None] = [None] * len(slots)
        if slots and not self._replicate:
            began = time.monotonic()
            replies = _ask(
                policy,
                [recording.chat for slot in slots if (recording := self._runs[slot].recording)],
            )
            self._linger = LINGER * (time.monotonic() - began)
        silent: list[tuple[Slot, PolicyError]] = []
        for slot, reply in zip(slots, replies, strict=True):
            if isinstance(reply, PolicyError):
                silent.append((slot, reply))
                continue
            self._pending += 1
            self._runs[slot].deadline = self._deadline()
            slot.step(reply)
        for slot, error in silent:
            run = self._runs[slot]
            self._end(slot)
            if run.recording is not None:
                yield (
                    run.place,
                    self._broken_off(run.recording, describe(error), run.attempt),
                )

    def _broken_off(self, recording: Recording, cause: str, attempts: int) -> Trajectory:
        self._broken += 1
        # Twice over, since all slots may fail together for a cause that passes.
        if self._broken > 2 * self.num_envs:
            raise CollectionError(
                f"{self._broken} episodes broke one after the other; the last one: {cause}"
            )
        return recording.trajectory(cause + (f" (attempt {attempts})" if attempts > 1 else ""))

    def _end(self, slot: Slot) -> None:
        del self._runs[slot]
        self._idle.append(slot)

    def _deadline(self) -> float:
        return time.monotonic() + self.timeout if self.timeout else float("inf")

    def _give_up(self, slot: Slot) -> None:
        del self._runs[slot]
        slot.kill()

    def _give_up_all(self) -> None:
        for slot in list(self._runs):
            self._give_up(slot)
        self._pending = 0


def _factory(env: EnvLike) -> tuple[MakeEnv, str]:
    """Return the factory of the envs, and their spec as JSON text."""
    if isinstance(env, str):
        env = registry.spec(env)
    make_env = partial(gymnasium.make, env) if isinstance(env, EnvSpec) else env
    first = make_env()
    try:
        return make_env, spec_of(first)
    finally:
        first.close()


def _engine(engine: str | Engine) -> Engine:
    if isinstance(engine, Engine):
        return engine
    check_choice("engine", engine, ENGINES)
    if engine == "ray":
        with needs_extra("the engine ray", "ray"):
            from agentgym.training.rollout.ray_engine import Ray  # noqa: PLC0415 - slow to import, and an extra
        return Ray()
    engines: dict[str, type[Engine]] = {
        "lockstep": Lockstep,
        "threads": Threads,
        "asyncio": Asyncio,
        "processes": Processes,
    }
    return engines[engine]()


def _ask(policy: Policy, chats: Sequence[Chat]) -> Sequence[Reply | PolicyError]:
    """Return the reply to each chat; in its place the error, if the policy says of which it is."""
    try:
        return policy(chats)
    except PolicyError as error:
        if len(error.replies) != len(chats):
            raise
        return error.replies


def _missing(
    seeds: Iterable[tuple[int, int]],
    recorded: Mapping[int, deque[Trajectory]],
    replayed: deque[tuple[int, Trajectory]],
) -> Iterator[tuple[int, int]]:
    """Yield the seeds with their places but for those that are recorded, each as often as it is;
    put the recorded episodes into `replayed`.
    """
    for place, seed in seeds:
        if recorded.get(seed):
            replayed.append((place, recorded[seed].popleft()))
        else:
            yield place, seed


def _as_they_end(played: Generator[tuple[int, Trajectory], None, None]) -> Iterator[Trajectory]:
    with closing(played):
        yield from (trajectory for _, trajectory in played)


def _in_order(played: Generator[tuple[int, Trajectory], None, None]) -> Iterator[Trajectory]:
    """Yield trajectories in the order of their places, each when all before it are there."""
    ended: dict[int, Trajectory] = {}
    following = 0
    with closing(played):
        for place, trajectory in played:
            ended[place] = trajectory
            while following in ended:
                yield ended.pop(following)
                following += 1
