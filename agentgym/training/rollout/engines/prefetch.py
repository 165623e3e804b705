"""Instances that are drawn ahead of time, in processes of their own, into the reset cache."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from typing import Any, cast

import cloudpickle  # type: ignore[import-untyped]
import gymnasium

from agentgym.text.validation import check_int
from agentgym.training.rollout.engines.base import MakeEnv
from agentgym.training.rollout.engines.workers import follow_the_parent, interrupts_left_to_parent
from agentgym.world import reset_cache

_NICENESS = 10
"""Priority of the processes: they use what envs and policy leave."""
_MOST_WORKERS = 8
"""More processes than this write more than a run reads: each instance of a large world takes
seconds to draw and minutes to play.
"""


class Prefetcher:
    """Draws instances while others are played, so that later resets find them in the reset cache.

    It resets an env of the same kind with the same seeds, so whatever a reset draws is there. Where
    the reset cache is off (`agentgym.world.reset_cache`) it does nothing. What goes wrong in it is left to
    the reset that would have used the instance.

    Args:
        make_env: Makes the env.
        workers: Processes that draw; by default half as many as there are processors.
    """

    def __init__(self, make_env: MakeEnv, workers: int | None = None) -> None:
        self._workers = (
            max(1, min(_MOST_WORKERS, (os.cpu_count() or 1) // 2)) if workers is None else workers
        )
        check_int("workers", self._workers, 1, 1_000)
        self._make_env = make_env
        self._pickled = b""
        self._pool: ProcessPoolExecutor | None = None
        self._pending: dict[int, Future[None]] = {}

    def prefetch(self, seeds: Iterable[int]) -> None:
        """Begin to draw the instances of some seeds; return at once."""
        if reset_cache.active() is None:
            return
        if self._pool is None:
            self._pickled = cloudpickle.dumps(self._make_env)
            self._pool = ProcessPoolExecutor(
                self._workers,
                get_context("forkserver"),
                _begin_worker,
                (os.environ[reset_cache.VARIABLE],),
            )
        self._pending = {seed: draw for seed, draw in self._pending.items() if not draw.done()}
        with suppress(BrokenProcessPool), interrupts_left_to_parent():
            for seed in dict.fromkeys(seeds):
                if seed not in self._pending:
                    self._pending[seed] = self._pool.submit(_draw, self._pickled, seed)

    def wait(self) -> None:
        """Wait until all instances that were asked for have been drawn."""
        for drawn in self._pending.values():
            drawn.exception()

    def close(self) -> None:
        """End the processes, once they have drawn what they have begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._pending = {}


def _begin_worker(folder: str) -> None:
    follow_the_parent()
    os.environ[reset_cache.VARIABLE] = folder  # the server of the processes may be older than it
    if hasattr(os, "nice"):  # Windows has no priorities of that kind
        os.nice(_NICENESS)


@functools.lru_cache(maxsize=1)
def _env(make_env: bytes) -> gymnasium.Env[Any, Any]:
    return cast("gymnasium.Env[Any, Any]", cloudpickle.loads(make_env)())


def _draw(make_env: bytes, seed: int) -> None:
    _env(make_env).reset(seed=seed)
