"""The context that all servers of an office share: the clock of the episode, its identifiers and
its files.
"""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from agentgym.office.files.workspace import Workspace

START = datetime(2025, 1, 15, 9, tzinfo=UTC)
"""Begin of an episode, unless its task says otherwise: a working day at a working hour."""


class InitialState:
    """Attributes of an object as they are when its first episode begins, to which each later one
    returns them.

    Args:
        names: The names of the attributes; they are copied together, so that what they share stays
            shared.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._values: dict[str, Any] | None = None

    def begin(self, owner: object) -> None:
        """Take the attributes of an object at the first call, and set them to what they were then
        at any later one.
        """
        if self._values is None:
            self._values = copy.deepcopy({name: getattr(owner, name) for name in self._names})
            return
        for name, value in copy.deepcopy(self._values).items():
            setattr(owner, name, value)


class Clock:
    """The clock of an episode. It shows what the task sets, goes on by a second with each reading
    of `tick`, and with nothing else.

    Args:
        start: The moment at which the episode begins; it must have a time zone.

    Raises:
        ValueError: The start has no time zone.
    """

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(
                f"start must have a time zone, got {start!r}; write datetime(..., tzinfo=UTC)"
            )
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """Return the time, in UTC; it does not go on."""
        return self._now

    def undo_point(self) -> Callable[[], None]:
        """Return a function that sets the clock back to the time it shows now."""
        return functools.partial(setattr, self, "_now", self._now)

    def tick(self) -> datetime:
        """Return the time of something that happens now, in UTC; no two such moments are the
        same.
        """
        self._now += timedelta(seconds=1)
        return self._now


class OfficeContext:
    """Clock, identifiers and files of one office; its servers hold the same one.

    Args:
        start: The moment at which the episode begins.

    Attributes:
        clock: The clock.
        files: The workspace.
        seed: The randomness of identifiers and programs; the task draws it for the episode.
        workbench: The sandbox of programs (`agentgym.sandboxes.workbench.Workbench`), from the
            first one on. It keeps nothing of them, so copies do not have it.
    """

    def __init__(self, start: datetime = START) -> None:
        self.seed = 0
        self.workbench: Any = None  # of a module that not every host can import
        self.clock = Clock(start)
        self.files = Workspace()
        self.files.clock = self.clock.now
        self._ids = 0
        self._initial = InitialState(("clock", "files", "_ids"))

    def new_id(self, kind: str, length: int = 16) -> str:
        """Make an identifier that was not given before: `length` hexadecimal digits, the same in
        each run of the episode and others with each seed.
        """
        self._ids += 1
        return hashlib.sha256(f"{self.seed}:{kind}:{self._ids}".encode()).hexdigest()[:length]

    def undo_point(self) -> Callable[[], None]:
        """Return a function that returns clock, identifiers and files to what they are now."""
        clock, files, ids = self.clock.undo_point(), self.files.undo_point(), self._ids

        def restore() -> None:
            clock()
            files()
            self._ids = ids

        return restore

    def version(self) -> object:
        """Return what is equal later as long as nothing has changed."""
        return self.clock.now(), self._ids, self.files.version()

    def begin(self) -> None:
        """Return to the moment of the first call of this method."""
        self._initial.begin(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "workbench": None}

    def close(self) -> None:
        """End the sandbox of programs."""
        if self.workbench is not None:
            self.workbench.close()


@functools.lru_cache(maxsize=1_024)  # many records have the time of the clock, or the same day
def iso(moment: datetime) -> str:
    """Write a moment as the services do: `2025-01-15T09:00:00Z`."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
