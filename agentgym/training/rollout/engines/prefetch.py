"""Draw instances ahead of time into the reset cache."""

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

from agentgym.training.rollout.engines.base import MakeEnv
from agentgym.training.rollout.engines.processes import (
    follow_the_parent,
    interrupts_left_to_parent,
)
from agentgym.world import reset_cache

# The processes use only idle time.
_NICENESS = 10
# More processes would write more than a run reads: a large instance takes seconds to draw and
# minutes to play.
_MOST_WORKERS = 8


class Prefetcher:
    """Resets an env in background processes, which fills the reset cache.

    Without a reset cache (`agentgym.world.reset_cache`) it does nothing. Errors are left to the
    reset that uses the instance.
    """

    def __init__(self, make_env: MakeEnv) -> None:
        self._make_env = make_env
        self._pickled = b""
        self._pool: ProcessPoolExecutor | None = None
        self.pending: dict[int, Future[None]] = {}

    def prefetch(self, seeds: Iterable[int]) -> None:
        """Start drawing instances and return at once."""
        if reset_cache.active() is None:
            return
        if self._pool is None:
            self._pickled = cloudpickle.dumps(self._make_env)
            workers = max(1, min(_MOST_WORKERS, (os.cpu_count() or 1) // 2))
            folder = os.environ[reset_cache.VARIABLE]
            self._pool = ProcessPoolExecutor(
                workers, get_context("forkserver"), _begin_worker, (folder,)
            )
        self.pending = {seed: draw for seed, draw in self.pending.items() if not draw.done()}
        with suppress(BrokenProcessPool), interrupts_left_to_parent():
            for seed in dict.fromkeys(seeds):
                if seed not in self.pending:
                    self.pending[seed] = self._pool.submit(_draw, self._pickled, seed)

    def close(self) -> None:
        """End the processes after their current instances."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self.pending = {}


def _begin_worker(folder: str) -> None:
    follow_the_parent()
    os.environ[reset_cache.VARIABLE] = folder  # the process server may be older than the variable
    if hasattr(os, "nice"):  # Windows has no niceness
        os.nice(_NICENESS)


@functools.lru_cache(maxsize=1)
def _env(make_env: bytes) -> gymnasium.Env[Any, Any]:
    return cast("gymnasium.Env[Any, Any]", cloudpickle.loads(make_env)())


def _draw(make_env: bytes, seed: int) -> None:
    _env(make_env).reset(seed=seed)
