"""Event loops that live as long as the process, because clients bind their connections to the loop
that opened them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
POLICIES = "agentgym-policy"
# Policies may block their loop while they wait for an endpoint, so endpoints use another loop.
ENDPOINTS = "agentgym-endpoint"
_loops: dict[tuple[int, str], asyncio.AbstractEventLoop] = {}
_LOOPS = threading.Lock()


def event_loop(name: str = POLICIES) -> asyncio.AbstractEventLoop:
    """Return this process's event loop with the given name."""
    place = os.getpid(), name
    with _LOOPS:
        if place not in _loops:  # a forked child lacks the loop's thread
            loop = _loops[place] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name=name, daemon=True).start()
        return _loops[place]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the policies' event loop and wait."""
    future = asyncio.run_coroutine_threadsafe(work, event_loop())
    try:
        return future.result()
    finally:
        future.cancel()
