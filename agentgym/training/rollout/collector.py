"""Collection of many concurrent episodes with any engine."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from operator import index
from pathlib import Path
from typing import Any, Self

from gymnasium.envs.registration import EnvSpec

from agentgym.text.validation import check_bool, check_choice, check_float, check_int
from agentgym.training.extras import needs_extra
from agentgym.training.rollout.engines.base import (
    Engine,
    EnvLike,
    Lockstep,
    MakeEnv,
    factory_of,
    rare_garbage_collection,
)
from agentgym.training.rollout.engines.dispatcher import Dispatcher
from agentgym.training.rollout.engines.processes import Processes
from agentgym.training.rollout.engines.threads import Asyncio, Threads
from agentgym.training.rollout.episode import spec_of
from agentgym.training.rollout.seat_policies import adapt, agents_of
from agentgym.training.rollout.trajectory import Trajectory, TrajectoryLog
from agentgym.training.rollout.user_policy import PolicyLike, UserPolicy, is_policy

ENGINES = ("lockstep", "threads", "asyncio", "processes", "ray")
# Maximum time to wait for more chats to fill a batch, as a fraction of the last reply's duration.
LINGER = 0.1


class Collector:
    """Plays many episodes of one env concurrently, in slots that stay open between calls.

    If an env raises an error, a worker dies or a slot times out, only the affected episode fails.
    A failed episode is retried up to `retries` times with the same seed, because a new seed would
    bias the sample against long episodes. If all attempts fail, or the policy does not reply, the
    trajectory is truncated and has a `failure`. With `lockstep`, the env's exceptions propagate.

    Args:
        env: An id, a spec (`agentgym.spec(...)`) or a function that makes an env with a spec.
        engine: `lockstep`, `threads`, `asyncio`, `processes`, `ray`, or an `Engine`.
        timeout: Maximum seconds for a reset, a step or, with `asyncio`, a reply; None for no limit.
        in_flight: Number of batches into which the running episodes are divided; `lockstep` ignores
            this option. With `in_flight=2`, the policy replies to one batch while the tools of the
            other batch run.

    Raises:
        ValueError: The env has no spec, an argument is invalid, or the engine is not installed.
    """

    def __init__(
        self,
        env: EnvLike,
        num_envs: int = 32,
        *,
        engine: str | Engine = "lockstep",
        timeout: float | None = None,
        retries: int = 2,
        in_flight: int = 2,
    ) -> None:
        check_int("in_flight", in_flight, 1, 1_000)
        check_int("num_envs", num_envs, 1, 100_000)
        check_int("retries", retries, 0, 1_000)
        self.num_envs, self.timeout, self.retries = num_envs, timeout, retries
        self._make_env, self.spec, self.agents = _factory(env)
        self._engine = _engine(engine)
        if timeout is not None:
            check_float("timeout", timeout, 0.001, 1e9)
            if not self._engine.isolates:
                raise ValueError(
                    "lockstep cannot abandon a hung slot, so it does not support timeout; use "
                    "another engine"
                )
        if self._engine.in_use:
            raise ValueError(
                f"another collector uses this {type(self._engine).__name__} engine; close that "
                "collector, or make an engine for each collector"
            )
        self._engine.in_use = True
        self._dispatcher = Dispatcher(
            self._engine, self._make_env, self.spec, num_envs, timeout, retries
        )
        self._in_flight = in_flight if self._engine.isolates else 1
        self._reply_time = 0.0

    @property
    def retried(self) -> int:
        """Number of episodes restarted so far."""
        return self._dispatcher.retried

    @property
    def recovered(self) -> int:
        """Number of episodes restored so far after their shared worker ended."""
        return self._dispatcher.recovered

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all slots, including hung slots."""
        self._dispatcher.close()
        self._engine.in_use = False

    def collect(
        self,
        policy: PolicyLike,
        seeds: Iterable[int],
        log: TrajectoryLog | Path | str | None = None,
        labels: Mapping[str, Any] | None = None,
        *,
        ordered: bool = False,
    ) -> Iterator[Trajectory]:
        """Play one episode per seed; `seeds` may be infinite.

        Args:
            policy: A form that `UserPolicy` accepts, or a mapping from a team's agents to policies.
            seeds: The reset seeds.
            log: File to which each trajectory is appended before the trajectory is yielded.
                Episodes in the file with the same env and labels are yielded instead of being
                played again, unless they failed.
            labels: The trajectories' labels.
            ordered: Whether to yield trajectories in seed order. If False, short episodes come
                first, which biases early results.

        Raises:
            CollectionError: Too many consecutive episodes failed.
            RunLockedError: Another process is writing to the log.
            ValueError: An argument is invalid, or the log belongs to another run.
        """
        player = adapt(policy)
        player.check(self.agents)
        _check_play(seeds, ordered)
        labels, file = _read_labels(labels), _open_log(log)
        self._engine.check(player)
        played = self._logged(player, enumerate(_read_seeds(seeds)), file, labels)
        return _in_order(played) if ordered else _as_they_end(played)

    def _logged(
        self,
        policy: UserPolicy,
        seeds: Iterable[tuple[int, int]],
        file: TrajectoryLog | None,
        labels: Mapping[str, Any],
    ) -> Generator[tuple[int, Trajectory], None, None]:
        replayed: deque[tuple[int, Trajectory]] = deque()
        writing = file.writing() if file else nullcontext()
        with writing, rare_garbage_collection(self.num_envs):
            missing = _missing(seeds, self._recorded(file, labels) if file else {}, replayed)
            for place, trajectory in self._play(policy, missing, labels):
                if file is not None:
                    file.append(trajectory.to_json())
                yield place, trajectory
                while replayed:
                    yield replayed.popleft()
            yield from replayed

    def _recorded(
        self, file: TrajectoryLog, labels: Mapping[str, Any]
    ) -> dict[int, deque[Trajectory]]:
        recorded: dict[int, deque[Trajectory]] = {}
        for trajectory in file.of_run(self.spec, labels):
            if not trajectory.failure:
                recorded.setdefault(trajectory.seed, deque()).append(trajectory)
        return recorded

    def _play(
        self,
        policy: UserPolicy,
        seeds: Iterator[tuple[int, int]],
        labels: Mapping[str, Any],
    ) -> Iterator[tuple[int, Trajectory]]:
        dispatcher = self._dispatcher
        dispatcher.use(labels)
        dispatcher.room = 1 if policy.serial else self.num_envs
        try:
            while dispatcher.begin_all(seeds) or dispatcher.ended:
                self._wait()
                while dispatcher.ended:
                    yield dispatcher.ended.popleft()
                    dispatcher.begin_all(seeds)
                    dispatcher.advance(0.0)
                self._reply(policy)
        finally:
            dispatcher.give_up_all()

    def _wait(self) -> None:
        dispatcher = self._dispatcher
        dispatcher.advance(0.0 if dispatcher.ready or dispatcher.ended else None)
        until = time.monotonic() + LINGER * self._reply_time * (self._in_flight == 1)
        while dispatcher.pending and (rest := until - time.monotonic()) > 0:
            dispatcher.advance(rest)

    def _reply(self, policy: UserPolicy) -> None:
        dispatcher = self._dispatcher
        if self._engine.awaits:
            dispatcher.ask(dispatcher.take(self.num_envs), policy)
            return
        slots = dispatcher.take(-(-dispatcher.under_way // self._in_flight))
        if not slots:
            return
        began = time.monotonic()
        replies = policy.ask(dispatcher.requests(slots))
        self._reply_time = time.monotonic() - began
        dispatcher.reply(slots, replies)


def _check_play(seeds: object, ordered: object) -> None:
    if not isinstance(seeds, Iterable) or isinstance(seeds, (str, bytes)):
        raise ValueError(f"seeds must be integers, such as range(100), got {seeds!r}")
    check_bool("ordered", ordered)


def _read_seeds(seeds: Iterable[object]) -> Iterator[int]:
    for seed in seeds:
        try:
            number = -1 if isinstance(seed, bool) else index(seed)  # type: ignore[arg-type]
        except TypeError:
            number = -1
        if number < 0:
            raise ValueError(f"seeds must be non-negative integers, got {seed!r}")
        yield number


def _read_labels(labels: object) -> dict[str, Any]:
    if labels is None:
        return {}
    try:
        if not isinstance(labels, Mapping):
            raise TypeError(f"wrong type {type(labels).__name__}")
        return dict(json.loads(json.dumps(dict(labels), allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"labels must be a mapping from names to JSON values, such as {{'arm': 'SP'}}, got "
            f"{labels!r} ({error})"
        ) from None


def _open_log(log: object) -> TrajectoryLog | None:
    if log is None or isinstance(log, TrajectoryLog):
        return log
    if isinstance(log, (str, Path)) and str(log):
        return TrajectoryLog(Path(log))
    raise ValueError(f"log must be a file path, such as runs/list.jsonl, got {log!r}")


def _factory(env: EnvLike) -> tuple[MakeEnv, str, tuple[str, ...]]:
    makes = callable(env) and not is_policy(env)
    if not (isinstance(env, (str, EnvSpec)) or makes):
        raise ValueError(
            f"env must be an id, a spec or a function that makes an env, got {env!r}; "
            "call collect(policy, env, seeds)"
        )
    make_env = factory_of(env)
    first = make_env()
    try:
        return make_env, spec_of(first), agents_of(first)
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


def _missing(
    seeds: Iterable[tuple[int, int]],
    recorded: Mapping[int, deque[Trajectory]],
    replayed: deque[tuple[int, Trajectory]],
) -> Iterator[tuple[int, int]]:
    for place, seed in seeds:
        if recorded.get(seed):
            replayed.append((place, recorded[seed].popleft()))
        else:
            yield place, seed


def _as_they_end(played: Generator[tuple[int, Trajectory], None, None]) -> Iterator[Trajectory]:
    with closing(played):
        yield from (trajectory for _, trajectory in played)


def _in_order(played: Generator[tuple[int, Trajectory], None, None]) -> Iterator[Trajectory]:
    ended: dict[int, Trajectory] = {}
    following = 0
    with closing(played):
        for place, trajectory in played:
            ended[place] = trajectory
            while following in ended:
                yield ended.pop(following)
                following += 1
