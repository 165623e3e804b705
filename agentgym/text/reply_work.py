"""Work budget that the calls of one reply share.

Calls are charged by steps or characters, so that every host refuses the same calls; only SQL and
programs are charged by time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agentgym.text.tools import ToolError

# Ten calls that use their full limits take about a minute.
ROOM = 10.0

# Short programs are not charged, because their run time depends on the host.
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
    """Deduct a share of one call's limit from the reply's work budget."""
    _room.left -= share


def spend_seconds(seconds: float) -> None:
    """Deduct the run time of a program from the reply's work budget."""
    _room.left -= max(0.0, seconds - _FREE_SECONDS) / _SECONDS_PER_CALL


def check_room() -> None:
    """Raise `ToolError` if the reply has used up its work budget."""
    if _room.left <= 0:
        raise ToolError(
            "limit exceeded: this call was not run, because earlier calls of the reply used up the "
            "work budget; send the call in the next reply"
        )
