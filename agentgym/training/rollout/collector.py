"""Collecting episodes: many at once, wherever an engine plays them, none lost if the run is
interrupted.
"""

from __future__ import annotations

import json
import queue
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import gymnasium
from gymnasium.envs.registration import EnvSpec

import agentgym.registry as registry
from agentgym.arguments import check_choice, check_float, check_int
from agentgym.messages import Chat
from agentgym.policy import Policy, Reply
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
)
from agentgym.training.rollout.episode import Recording, spec_of
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
    """Episode that begins or is under way in a slot, and the time at which the slot is given up."""

    number: int
    seed: int
    deadline: float
    recording: Recording | None = None


class Collector:
    """Plays episodes of one env, many at once, in slots that stay open between calls.

    A failure in a slot (an error in the env or in a policy that plays there, a worker that dies,
    one that takes longer than the timeout) costs the episode of that slot alone. It is reported as
    a truncated trajectory that names its `failure`, and is not the agent's: evaluation and training
    leave it out. The engine `lockstep` has no workers, so with it errors are raised.

    Args:
        env: An id, a spec (`agentgym.spec(...)`) or a function that makes an env with a spec.
        num_envs: The most episodes that are played at once, each in a slot.
        engine: `lockstep`, `threads`, `asyncio`, `processes`, `ray`, or an `Engine`.
        replicate: Give each slot the policy itself (threads share it, processes and actors have
            copies of it); if not, it is called here, with all chats that wait. Asyncio and Ray
            replicate unless told otherwise.
        timeout: Seconds that a reset or a step may take, with its reply if the policy is at hand;
            None for no limit. A worker has a minute more to start.

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
    ) -> None:
        check_int("num_envs", num_envs, 1, 100_000)
        self.num_envs, self.timeout = num_envs, timeout
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
        self._broken = self._pending = self._begun = 0
        self._linger = 0.0

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

    def collect(
        self,
        policy: Policy,
        seeds: Iterable[int],
        log: TrajectoryLog | Path | None = None,
        labels: Mapping[str, Any] | None = None,
    ) -> Iterator[Trajectory]:
        """Play episodes.

        Args:
            policy: Replies to chats.
            seeds: Each is played once. They are read as slots come free, so they may be endless.
            log: A file to which each trajectory is written before it is yielded. An episode of this
                env with these labels that it holds already is yielded as it is and not played
                again, unless it is a failure.
            labels: The labels of the trajectories.

        Yields:
            Trajectories, as they end.

        Raises:
            CollectionError: More than twice as many episodes as there are slots broke, and none
                between them did not.
            OSError: The log cannot be written.
            ValueError: The engine cannot play this policy.
        """
        labels = json.loads(json.dumps(dict(labels or {})))  # as they come back from a log
        file = TrajectoryLog(log) if isinstance(log, Path) else log
        shared = self._engine.share(policy) if self._replicate else None
        return self._logged(policy, shared, seeds, file, labels)

    def _logged(
        self,
        policy: Policy,
        shared: Any,
        seeds: Iterable[int],
        file: TrajectoryLog | None,
        labels: Mapping[str, Any],
    ) -> Iterator[Trajectory]:
        recorded = self._recorded(file, labels) if file else {}
        replayed: deque[Trajectory] = deque()
        for trajectory in self._play(policy, shared, _missing(seeds, recorded, replayed), labels):
            if file is not None:
                file.append(trajectory.to_json())
            yield trajectory
            while replayed:
                yield replayed.popleft()
        yield from replayed

    def _recorded(
        self, file: TrajectoryLog, labels: Mapping[str, Any]
    ) -> dict[int, list[Trajectory]]:
        """Return the episodes of this env in a log, by seed."""
        file.prepare()
        spec = json.loads(self.spec)
        recorded: dict[int, list[Trajectory]] = {}
        for trajectory in file:
            if (
                trajectory.labels == labels
                and json.loads(trajectory.spec) == spec
                and not trajectory.failure
            ):
                recorded.setdefault(trajectory.seed, []).append(trajectory)
        return recorded

    def _play(
        self, policy: Policy, shared: Any, seeds: Iterator[int], labels: Mapping[str, Any]
    ) -> Iterator[Trajectory]:
        for slot in self._idle if self._replicate else ():
            slot.use(shared)
        try:
            while self._begin_all(seeds, shared):
                waiting: list[Slot] = []
                for slot, answer in self._new_answers():
                    run = self._runs[slot]
                    if (ended := self._record(slot, run, answer, labels)) is not None:
                        yield ended
                        self._begin_all(seeds, shared)
                    else:
                        waiting.append(slot)
                # In the order of the seeds, so that a policy that draws does not depend on which
                # slots are open.
                self._reply(policy, sorted(waiting, key=lambda slot: self._runs[slot].number))
        finally:
            self._give_up_all()

    def _begin_all(self, seeds: Iterator[int], shared: Any) -> bool:
        """Begin episodes as long as there are seeds and room; return whether any is under way."""
        while len(self._runs) < self.num_envs and (seed := next(seeds, None)) is not None:
            opens = not self._idle
            slot = self._open(shared) if opens else self._idle.pop()
            self._begun += 1
            self._runs[slot] = _Run(self._begun, seed, self._deadline() + OPENING * opens)
            self._pending += 1
            slot.reset(seed)
        return bool(self._runs)

    def _open(self, shared: Any) -> Slot:
        free = min(set(range(self.num_envs)) - {slot.number for slot in self._runs})
        slot = self._engine.slot(self._make_env, free, self._answers)
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
        self, slot: Slot, run: _Run, answer: Answer, labels: Mapping[str, Any]
    ) -> Trajectory | None:
        """Record an answer; return the trajectory if it is the last of its episode."""
        run.deadline = float("inf")
        self._pending -= 1
        if isinstance(answer, Chat):
            run.recording = Recording(self.spec, run.seed, answer, labels)
            return None
        recording = run.recording or Recording(self.spec, run.seed, Chat(), labels)
        if isinstance(answer, Failure):
            self._give_up(slot)
            self._count_broken(answer.cause)
            return recording.trajectory(answer.cause)
        recording.add(*answer)
        if not recording.over:
            return None
        self._broken = 0
        del self._runs[slot]
        self._idle.append(slot)
        return recording.trajectory()

    def _reply(self, policy: Policy, slots: list[Slot]) -> None:
        replies: Sequence[Reply | None] = [None] * len(slots)
        if slots and not self._replicate:
            began = time.monotonic()
            replies = policy(
                [recording.chat for slot in slots if (recording := self._runs[slot].recording)]
            )
            self._linger = LINGER * (time.monotonic() - began)
        self._pending += len(slots)
        for slot, reply in zip(slots, replies, strict=True):
            self._runs[slot].deadline = self._deadline()
            slot.step(reply)

    def _deadline(self) -> float:
        return time.monotonic() + self.timeout if self.timeout else float("inf")

    def _count_broken(self, cause: str) -> None:
        self._broken += 1
        # Twice over, since all slots may fail together for a cause that passes.
        if self._broken > 2 * self.num_envs:
            raise CollectionError(
                f"{self._broken} episodes broke one after the other; the last one: {cause}"
            )

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


def _missing(
    seeds: Iterable[int], recorded: Mapping[int, list[Trajectory]], replayed: deque[Trajectory]
) -> Iterator[int]:
    """Yield the seeds but for those that are recorded, each as often as it is; put the recorded
    episodes into `replayed`.
    """
    for seed in seeds:
        if recorded.get(seed):
            replayed.append(recorded[seed].pop())
        else:
            yield seed
