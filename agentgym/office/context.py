"""The context shared by an office's servers: clock, identifiers and files."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from agentgym.office.files.workspace import Workspace

START = datetime(2025, 1, 15, 9, tzinfo=UTC)  # a working day during working hours


class InitialState:
    """Attributes of an object at the first episode's start, restored at later ones.

    They are copied together, so shared objects stay shared.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._values: dict[str, Any] | None = None

    def begin(self, owner: object) -> None:
        """Store the attributes at the first call and restore them at later ones."""
        if self._values is None:
            self._values = copy.deepcopy({name: getattr(owner, name) for name in self._names})
            return
        for name, value in copy.deepcopy(self._values).items():
            setattr(owner, name, value)


class Clock:
    """The episode's clock, advanced by the task and by `tick` (one second)."""

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
        """Return a function that resets the clock."""
        return functools.partial(setattr, self, "_now", self._now)

    def tick(self) -> datetime:
        """Return the UTC time of a new event; each event's time is unique."""
        self._now += timedelta(seconds=1)
        return self._now


class OfficeContext:
    """Clock, identifiers and files shared by an office's servers.

    Attributes:
        seed: The seed of identifiers and programs, drawn per episode by the task.
        workbench: The program sandbox (`agentgym.sandboxes.workbench.Workbench`), None before the
            first program. It keeps no state, so copies omit it.
    """

    def __init__(self, start: datetime = START) -> None:
        self.seed = 0
        self.workbench: Any = None  # typed Any because not every host can import it
        self.clock = Clock(start)
        self.files = Workspace()
        self.files.clock = self.clock.now
        self._ids = 0
        self._initial = InitialState(("clock", "files", "_ids"))

    def new_id(self, kind: str, length: int = 16) -> str:
        """Return `length` hexadecimal digits, determined by the seed and earlier calls."""
        self._ids += 1
        return hashlib.sha256(f"{self.seed}:{kind}:{self._ids}".encode()).hexdigest()[:length]

    def undo_point(self) -> Callable[[], None]:
        """Return a function that restores the current state."""
        clock, files, ids = self.clock.undo_point(), self.files.undo_point(), self._ids

        def restore() -> None:
            clock()
            files()
            self._ids = ids

        return restore

    def version(self) -> object:
        """Return a value that changes exactly when the state changes."""
        return self.clock.now(), self._ids, self.files.version()

    def begin(self) -> None:
        """Return to the state at this method's first call."""
        self._initial.begin(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "workbench": None}

    def close(self) -> None:
        """Close the program sandbox."""
        if self.workbench is not None:
            self.workbench.close()


@functools.lru_cache(maxsize=1_024)  # many records share a timestamp or a day
def iso(moment: datetime) -> str:
    """Format a time like the services: `2025-01-15T09:00:00Z`."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
