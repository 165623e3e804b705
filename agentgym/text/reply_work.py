"""The work that the calls of one reply share.

Shares count steps or characters, so every host refuses the same calls; only SQL and programs count
time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agentgym.text.tools import ToolError

# Ten calls at their limits take about a minute.
ROOM = 10.0

# A short program is free, because its time depends on the host; all others together may take as
# long as one program may.
_FREE_SECONDS = 1.0
_SECONDS_PER_CALL = 12.0


class _Room(threading.local):
    left = math.inf


_room = _Room()


@contextmanager
def shared_room() -> Iterator[None]:
    """Let the calls in this block share one reply's work budget."""
    opened = _room.left == math.inf
    if opened:
        _room.left = ROOM
    try:
        yield
    finally:
        if opened:
            _room.left = math.inf


def spend(share: float) -> None:
    """Charge a share of one call's limit to the reply."""
    _room.left -= share


def spend_seconds(seconds: float) -> None:
    """Charge a program's time to the reply."""
    _room.left -= max(0.0, seconds - _FREE_SECONDS) / _SECONDS_PER_CALL


def check_room() -> None:
    """Raise `ToolError` if the reply has used up its work."""
    if _room.left <= 0:
        raise ToolError(
            "limit exceeded: the calls of this reply have used up their work, and this one was not "
            "run; send it in the next reply"
        )
