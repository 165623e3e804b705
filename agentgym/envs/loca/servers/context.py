"""What all servers of an office share: the clock of the episode, its identifiers and its files."""

from __future__ import annotations

import copy
import hashlib
from datetime import UTC, datetime, timedelta

from agentgym.envs.loca.servers.files.workspace import Workspace

START = datetime(2025, 1, 15, 9, tzinfo=UTC)
"""When an episode begins, unless its task says otherwise."""


class Clock:
    """The clock of an episode. It shows what the task sets, goes on by a second with each reading of `tick`, and with nothing else.

    Args:
        start: The moment at which the episode begins; it must have a time zone.

    Raises:
        ValueError: The start has no time zone.
    """

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"start must have a time zone, got {start!r}; write datetime(..., tzinfo=UTC)")
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """The time, in UTC; it does not go on."""
        return self._now

    def tick(self) -> datetime:
        """The time of something that happens now, in UTC; no two such moments are the same."""
        self._now += timedelta(seconds=1)
        return self._now


class OfficeContext:
    """Clock, identifiers and files of one office; its servers hold the same one.

    Args:
        start: When the episode begins.

    Attributes:
        clock: The clock.
        files: The workspace.
    """

    def __init__(self, start: datetime = START) -> None:
        self.clock = Clock(start)
        self.files = Workspace()
        self.files.clock = self.clock.now
        self._drawn = 0
        self._opening: dict[str, object] | None = None

    def new_id(self, kind: str, length: int = 16) -> str:
        """An identifier that was not given before: `length` hexadecimal digits, at most 64; the same in each run of the episode."""
        self._drawn += 1
        return hashlib.sha256(f"{kind}:{self._drawn}".encode()).hexdigest()[:length]

    def begin(self) -> None:
        """Return to the moment of the first call of this method."""
        if self._opening is None:
            self._opening = {name: copy.deepcopy(value) for name, value in vars(self).items() if name != "_opening"}
        else:
            held = copy.deepcopy(self._opening)
            vars(self.clock).update(vars(held.pop("clock")))
            vars(self.files).update(vars(held.pop("files")) | {"clock": self.clock.now})
            vars(self).update(held)


def iso(moment: datetime) -> str:
    """A moment as the services write it: `2025-01-15T09:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
