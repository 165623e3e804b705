"""Python's search for garbage in cycles, made rare while episodes are played."""

from __future__ import annotations

import gc
import threading

YOUNG = 50_000
"""New objects after which Python searches, whatever the slots. With its 700, it goes through the
recorded steps so often that this takes a third of the time of a step at 1,000 slots.
"""
YOUNG_PER_SLOT = 200
"""New objects a slot after which Python searches. A step adds some twelve that last until its
episode is done with, so that most of them go without having been visited, however many slots there
are; as garbage, 200 take 20 kB.
"""


class RareGarbageCollection:
    """The threshold of the garbage collector, raised as long as any slots are in use."""

    _lock = threading.Lock()
    _users = _slots = 0
    _before = (0, 0, 0)

    @classmethod
    def begin(cls, slots: int) -> None:
        """Raise the threshold for some more slots."""
        with cls._lock:
            if not cls._users:
                cls._before = gc.get_threshold()
            cls._users += 1
            cls._set(cls._slots + slots)

    @classmethod
    def end(cls, slots: int) -> None:
        """Lower the threshold again."""
        with cls._lock:
            cls._users -= 1
            cls._set(cls._slots - slots)

    @classmethod
    def _set(cls, slots: int) -> None:
        cls._slots = slots
        young = max(YOUNG, YOUNG_PER_SLOT * slots) if cls._users else 0
        if cls._before[0]:  # 0 is that of somebody who wants no search
            gc.set_threshold(max(young, cls._before[0]), *cls._before[1:])
