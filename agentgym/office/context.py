"""The context shared by all servers of an office."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from agentgym.office.files.workspace import Workspace

START = datetime(2025, 1, 15, 9, tzinfo=UTC)
"""Default start of an episode, on a working day during working hours."""


class InitialState:
    """Saves an object's attributes at the first episode start, and restores them at later starts.

    Attributes are copied together, so shared objects stay shared.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._values: dict[str, Any] | None = None

    def begin(self, owner: object) -> None:
        """Save the attributes on the first call, and restore them on later calls."""
        if self._values is None:
            self._values = copy.deepcopy({name: getattr(owner, name) for name in self._names})
            return
        for name, value in copy.deepcopy(self._values).items():
            setattr(owner, name, value)


class Clock:
    """The episode's clock; only tasks and `tick` (one second per call) advance it.

    Raises:
        ValueError: The start time has no time zone.
    """

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(
                f"start must have a time zone, got {start!r}; write datetime(..., tzinfo=UTC)"
            )
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """Return the time in UTC without advancing it."""
        return self._now

    def undo_point(self) -> Callable[[], None]:
        """Return a function that resets the clock to the current time."""
        return functools.partial(setattr, self, "_now", self._now)

    def tick(self) -> datetime:
        """Advance the clock by one second and return the time in UTC."""
        self._now += timedelta(seconds=1)
        return self._now


class OfficeContext:
    """Clock, identifiers and files of one office, shared by its servers.

    Attributes:
        files: The workspace.
        seed: The seed of identifiers and programs; a task draws a new one for each episode.
    """

    def __init__(self, start: datetime = START) -> None:
        self.seed = 0
        self.clock = Clock(start)
        self.files = Workspace()
        self.files.clock = self.clock.now
        self._ids = 0
        self._initial = InitialState(("clock", "files", "_ids"))

    def new_id(self, kind: str, length: int = 16) -> str:
        """Return a new, reproducible id of `length` hexadecimal digits."""
        self._ids += 1
        name = f"{self.seed}:{kind}:{self._ids}"
        return hashlib.sha256(name.encode()).hexdigest()[:length]

    def undo_point(self) -> Callable[[], None]:
        """Return a function that restores the current state."""
        clock, files, ids = self.clock.undo_point(), self.files.undo_point(), self._ids

        def restore() -> None:
            clock()
            files()
            self._ids = ids

        return restore

    def version(self) -> object:
        """Return a value that changes if and only if the state changes."""
        return self.clock.now(), self._ids, self.files.version()

    def begin(self) -> None:
        """Save the state on the first call, and restore it on later calls."""
        self._initial.begin(self)


@functools.lru_cache(maxsize=1_024)  # cached, because many records have the same time
def iso(moment: datetime) -> str:
    """Format a time in UTC, such as `2025-01-15T09:00:00Z`."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
