"""Shared connections to APIs: an SDK client with its event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from agentgym.play.policy import PolicyError
from agentgym.training.rollout.endpoints.budget import RequestBudget
from agentgym.training.rollout.endpoints.config import RequestConfig

CLOSED = "the policy was closed before the reply arrived; close it when no call is running"

T = TypeVar("T")


class EndpointError(PolicyError):
    """The endpoint did not return a reply."""

    # HTTP status; None if there was no answer.
    status: int | None = None


class ContextLengthError(EndpointError):
    """The chat exceeds the model's context window."""


class Connection:
    """Lane to an API, opened on demand, with the budget of all its clients."""

    def __init__(self, connect: Callable[[], Any], config: RequestConfig) -> None:
        self._connect, self._concurrency = connect, config.concurrency
        self.budget = RequestBudget(config)
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._lane: Lane | None = None

    def open(self) -> Lane:
        """Return the lane."""
        self._follow_fork()
        with self._lock:
            if self._lane is None:
                self._lane = Lane(self._connect(), self._concurrency)
                weakref.finalize(self, self._lane.close)
            return self._lane

    def close(self) -> None:
        """Close the lane, if it is open."""
        self._follow_fork()
        with self._lock:
            lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()

    def _follow_fork(self) -> None:
        # A forked process has no lane thread, its sockets belong to the parent, and the lock may be
        # locked.
        if self._pid != os.getpid():
            self._pid, self._lock, self._lane = os.getpid(), threading.Lock(), None


_orphans: list[Lane] = []


class Lane:
    """Event loop in a thread, with its client and semaphore; holds no reference to its owner."""

    def __init__(self, client: Any, concurrency: int) -> None:
        self.client = client
        self.slots = asyncio.Semaphore(concurrency)
        self.closed, self._lock, self._pid = False, threading.Lock(), os.getpid()
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="agentgym-endpoint", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""
        # After the stop, a coroutine would never run and its future never resolve.
        with self._lock:
            if self.closed:
                work.close()
                raise EndpointError(CLOSED)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel all work and end the thread."""
        if self._pid != os.getpid():
            # Keep the loop alive: freeing it in a forked process would warn that it is open.
            _orphans.append(self)
            return
        with self._lock:
            if not self.closed:
                self.closed = True
                self._loop.call_soon_threadsafe(self._stop.set)
        # The garbage collector may call this in the lane's own thread. The timeout guards against a
        # hanging name lookup.
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def _run(self) -> None:
        # Not `asyncio.Runner`: it starts a thread when it ends, which Python 3.12 forbids during
        # interpreter shutdown.
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        await self._stop.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()
