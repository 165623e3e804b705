"""Collecting episodes: many at once, wherever an engine plays them, none lost if the run is
interrupted.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any, Self

from gymnasium.envs.registration import EnvSpec

from agentgym.play.policy import Policy, PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.text.validation import check_bool, check_choice, check_float, check_int
from agentgym.training.extras import needs_extra
from agentgym.training.rollout.engines.base import (
    Engine,
    EnvLike,
    Lockstep,
    MakeEnv,
    RareGarbageCollection,
    Slot,
    factory_of,
)
from agentgym.training.rollout.engines.dispatcher import Counts, Dispatcher
from agentgym.training.rollout.engines.prefetch import Prefetcher
from agentgym.training.rollout.engines.threads import Asyncio, Threads
from agentgym.training.rollout.engines.workers import Processes
from agentgym.training.rollout.episode import spec_of
from agentgym.training.rollout.trajectory import Trajectory, TrajectoryLog

ENGINES = ("lockstep", "threads", "asyncio", "processes", "ray")
LINGER = 0.1
"""Share of the time of the last reply for which a batch waits for more chats: a fuller batch is
worth that much delay.
"""
QUICK = 0.001
"""Seconds of a reply for which no thread is started to record what comes meanwhile."""


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
        in_flight: Batches into which the live episodes are split, if the policy is called here and
            the engine is not `lockstep`: with two, the policy replies to one while the tools of the
            other work, and never waits for a slow one. With 1 it waits for most of them, so that
            batches are full: better where a batch takes as long as half of it and tools are quick.

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
        in_flight: int = 2,
    ) -> None:
        check_int("in_flight", in_flight, 1, 1_000)
        check_int("num_envs", num_envs, 1, 100_000)
        check_int("retries", retries, 0, 1_000)
        self.num_envs, self.timeout, self.retries = num_envs, timeout, retries
        self._make_env, self.spec = _factory(env)
        self._engine = _engine(engine)
        if timeout is not None:
            check_float("timeout", timeout, 0.001, 1e9)
            if not self._engine.isolates:
                raise ValueError(
                    "lockstep cannot give up a slot that hangs, so it takes no timeout; use "
                    "another engine"
                )
        if replicate is not None:
            check_bool("replicate", replicate)
        self._replicate = self._engine.replicates if replicate is None else replicate
        self._dispatcher = Dispatcher(
            self._engine, self._make_env, self.spec, num_envs, timeout, retries
        )
        self._in_flight = in_flight if self._engine.isolates else 1
        self._reply_time = 0.0
        self._unsent: tuple[list[Slot], Sequence[Reply | PolicyError]] = ([], [])
        self._prefetcher = Prefetcher(self._make_env)

    @property
    def counts(self) -> Counts:
        """What became of the episodes so far."""
        return replace(self._dispatcher.counts, recovered=self._engine.recovered)

    @property
    def retried(self) -> int:
        """The episodes so far that were begun again."""
        return self._dispatcher.counts.retried

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the slots, those that hang too."""
        self._dispatcher.close()
        self._prefetcher.close()

    def prefetch(self, seeds: Iterable[int]) -> None:
        """Draw the instances of later episodes while others are played, if there is a reset cache."""
        self._prefetcher.prefetch(seeds)

    def collect(
        self,
        policy: Policy,
        seeds: Iterable[int],
        log: TrajectoryLog | Path | str | None = None,
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
                again, unless it is a failure. Nobody else can write to it meanwhile. Other labels may
                share it; with these labels it holds one env alone.
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
            ValueError: An argument is not right, the engine cannot play this policy, or the log
                belongs to another run.
        """
        _check_play(policy, seeds, ordered)
        labels, file = _read_labels(labels), _open_log(log)
        shared = self._engine.share(policy) if self._replicate else None
        played = self._logged(policy, shared, enumerate(_read_seeds(seeds)), file, labels)
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
            missing = _missing(seeds, self._recorded(file, labels) if file else {}, replayed)
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
        recorded: dict[int, deque[Trajectory]] = {}
        for trajectory in file.of_run(self.spec, labels):
            if not trajectory.failure:
                recorded.setdefault(trajectory.seed, deque()).append(trajectory)
        return recorded

    def _play(
        self,
        policy: Policy,
        shared: Any,
        seeds: Iterator[tuple[int, int]],
        labels: Mapping[str, Any],
    ) -> Iterator[tuple[int, Trajectory]]:
        dispatcher = self._dispatcher
        dispatcher.use(shared, labels)
        RareGarbageCollection.begin(self.num_envs)
        try:
            while dispatcher.begin_all(seeds) or dispatcher.ended:
                self._wait()
                while dispatcher.ended:
                    yield dispatcher.ended.popleft()
                    dispatcher.begin_all(seeds)
                    dispatcher.advance(0.0)
                self._reply(policy)
        finally:
            RareGarbageCollection.end(self.num_envs)
            self._unsent = ([], [])
            dispatcher.give_up_all()

    def _wait(self) -> None:
        """Wait for an answer; if all slots are to be in one batch, for those that come shortly
        after too.
        """
        dispatcher = self._dispatcher
        dispatcher.advance(0.0 if dispatcher.ready or dispatcher.ended else None)
        until = time.monotonic() + LINGER * self._reply_time * (self._in_flight == 1)
        while dispatcher.pending and (rest := until - time.monotonic()) > 0:
            dispatcher.advance(rest)

    def _reply(self, policy: Policy) -> None:
        """Have slots that are ready play a reply: all, or a batch while others are stepped."""
        dispatcher = self._dispatcher
        if self._replicate:
            slots = dispatcher.take(self.num_envs)
            dispatcher.reply(slots, [None] * len(slots))
            return
        slots = dispatcher.take(-(-dispatcher.under_way // self._in_flight))
        if not slots:
            return
        unsent, self._unsent = self._unsent, ([], [])
        overlaps = self._engine.isolates and (self._reply_time > QUICK or bool(unsent[0]))
        began = time.monotonic()
        with dispatcher.advancing(*unsent) if overlaps else nullcontext():
            replies = _ask(policy, dispatcher.chats(slots))
            self._reply_time = time.monotonic() - began
        if overlaps and dispatcher.ready:  # the next batch need not wait until these are sent
            self._unsent = slots, replies
        else:
            dispatcher.reply(slots, replies)


def _check_play(policy: object, seeds: object, ordered: object) -> None:
    """Raise `ValueError` unless there are a policy and seeds to play."""
    if not callable(policy):
        raise ValueError(
            f"policy must be a function from chats to replies, such as OraclePolicy('ListWorld'), "
            f"got {policy!r}"
        )
    if not isinstance(seeds, Iterable) or isinstance(seeds, (str, bytes)):
        raise ValueError(f"seeds must be integers, such as range(100), got {seeds!r}")
    check_bool("ordered", ordered)


def _read_seeds(seeds: Iterable[object]) -> Iterator[int]:
    """Yield seeds, those of NumPy as integers.

    Raises:
        ValueError: One is no integer, or negative; an episode of it could not be played again.
    """
    for seed in seeds:
        try:
            number = -1 if isinstance(seed, bool) else index(seed)  # type: ignore[arg-type]
        except TypeError:
            number = -1
        if number < 0:
            raise ValueError(f"seeds must be integers of 0 or more, got {seed!r} among them")
        yield number


def _read_labels(labels: object) -> dict[str, Any]:
    """Return labels as they come back from a log; none for None.

    Raises:
        ValueError: They are no mapping, or hold what JSON cannot say.
    """
    if labels is None:
        return {}
    try:
        if not isinstance(labels, Mapping):
            raise TypeError(f"{type(labels).__name__} is no mapping")
        return dict(json.loads(json.dumps(dict(labels), allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"labels must be a mapping of names to JSON values, such as {{'arm': 'SP'}}, got "
            f"{labels!r} ({error})"
        ) from None


def _open_log(log: object) -> TrajectoryLog | None:
    """Return a log, which may be given by its path; None for None.

    Raises:
        ValueError: It is neither.
    """
    if log is None or isinstance(log, TrajectoryLog):
        return log
    if isinstance(log, (str, Path)) and str(log):
        return TrajectoryLog(Path(log))
    raise ValueError(f"log must be the path of a file, such as runs/list.jsonl, got {log!r}")


def _factory(env: EnvLike) -> tuple[MakeEnv, str]:
    """Return the factory of the envs, and their spec as JSON text."""
    if not (isinstance(env, (str, EnvSpec)) or callable(env)):
        raise ValueError(f"env must be an id, a spec or a function that makes an env, got {env!r}")
    make_env = factory_of(env)
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
            from agentgym.training.rollout.engines.ray import Ray  # noqa: PLC0415 - slow to import, and an extra
        return Ray()
    engines: Mapping[str, type[Engine]] = {
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
