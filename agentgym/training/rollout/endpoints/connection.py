"""Shared connections to APIs."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from agentgym.play.policy import PolicyError
from agentgym.training.rollout.endpoints.budget import RequestBudget
from agentgym.training.rollout.endpoints.config import EndpointOptions
from agentgym.training.rollout.event_loop import ENDPOINTS, event_loop

# Maximum seconds to wait for a connection to close; a hung DNS lookup could block closing.
_CLOSING = 5.0

T = TypeVar("T")


class EndpointError(PolicyError):
    """The endpoint did not return a reply."""

    # HTTP status; None if the server did not answer.
    status: int | None = None


class ContextLengthError(EndpointError):
    """The chat exceeds the model's context window."""


class Connection:
    """Shared API session with one budget, opened on demand in each process."""

    def __init__(self, client: Callable[..., Any], config: EndpointOptions) -> None:
        self._client, self._config = client, config
        self.budget = RequestBudget(config)
        self._sessions: dict[int, Session] = {}

    def open(self) -> Session:
        """Return the session."""
        process = os.getpid()
        if process not in self._sessions:
            new = Session(self._client, self._config)
            # No lock protects the sessions, because locks are unsafe across forks.
            if self._sessions.setdefault(process, new) is new:
                weakref.finalize(self, new.close)
        return self._sessions[process]

    def close(self) -> None:
        """Close the session, if it is open."""
        session = self._sessions.pop(os.getpid(), None)
        if session is not None:
            session.close()


class Session:
    """API session that uses a vendor's SDK."""

    def __init__(self, client: Callable[..., Any], config: EndpointOptions) -> None:
        # The SDKs require a key even if the server does not.
        key = os.environ.get(config.api_key_env) or "none"
        self._make = functools.partial(
            client,
            base_url=config.base_url,
            api_key=key,
            timeout=config.timeout,
            max_retries=config.retries,
        )
        self.slots = asyncio.Semaphore(config.concurrency)
        self._loop, self._process = event_loop(ENDPOINTS), os.getpid()

    @functools.cached_property
    def client(self) -> Any:
        """The SDK's asynchronous client, used only in the endpoints' event loop."""
        return self._make()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the endpoints' event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Close the client and cancel its requests."""
        # The sockets of a forked client belong to the parent process.
        if self._process != os.getpid() or "client" not in vars(self):
            return
        end = asyncio.run_coroutine_threadsafe(self.client.close(), self._loop)
        # Waiting in the event loop's own thread would deadlock.
        if threading.current_thread().name != ENDPOINTS:
            with suppress(TimeoutError):
                end.result(_CLOSING)
