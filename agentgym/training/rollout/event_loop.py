"""Event loop in which all async policies of a process run.

All runs share it because clients bind their connections to the loop that opened them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_LOOPS = threading.Lock()


def event_loop() -> asyncio.AbstractEventLoop:
    """Return this process's event loop, which runs in a thread."""
    with _LOOPS:
        if os.getpid() not in _loops:  # a forked child has the parent's loop without its thread
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="agentgym-policy", daemon=True).start()
        return _loops[os.getpid()]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop and wait; an interrupt cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, event_loop())
    try:
        return future.result()
    finally:
        future.cancel()
