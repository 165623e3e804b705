"""Clock, random numbers and file times for programs, all derived from the episode.

Every program in a sandbox loads a library (`preload/episode.c`) that replaces some functions of the
C library. The library reads the struct written by `RunSeed.pack`. A program that bypasses the C
library sees the host's clock.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

STATE_FOLDER = "/run/episode"
# A run's processes share one clock, so all of them write to the struct at this path.
STATE_FILE = f"{STATE_FOLDER}/state"

STATE_BYTES = 65_536  # size limit of the folder, of which the struct and two pipes use one page

# Unlike LD_PRELOAD, /etc/ld.so.preload also affects programs with a changed environment.
_PRELOAD_LIST = "/etc/ld.so.preload"
_LIBRARY = "/run/episode.so"
_STRUCT = struct.Struct("<qqQq")  # the C struct's start, real start, seed and elapsed time
_SECOND = 10**9
_FIXED_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE, from <linux/personality.h>
_ASK = 0xFFFFFFFF  # makes `personality` return the flags unchanged


@dataclass(frozen=True, slots=True)
class RunSeed:
    """Values that determine a run's clock and random numbers.

    Attributes:
        now: The time on the episode's clock when the run starts.
        seed: The episode's seed, which determines the random numbers together with `now`.
    """

    now: datetime = datetime(2025, 1, 1, tzinfo=UTC)
    seed: int = 0

    def digest(self) -> bytes:
        """Return 32 bytes that depend on the seed and the time."""
        return hashlib.sha256(f"{self.seed}:{self.now.isoformat()}".encode()).digest()

    def pack(self, began: int) -> bytes:
        """Pack the library's struct; `began` is the real start time in nanoseconds since 1970."""
        digest = self.digest()
        # A real clock has arbitrary fractions of a second, and bash seeds $RANDOM from them.
        fraction = int.from_bytes(digest[8:16], "little") % _SECOND
        start = int(self.now.timestamp()) * _SECOND + fraction
        return _STRUCT.pack(start, began, int.from_bytes(digest[:8], "little"), 0)


def preload_arguments() -> tuple[str, ...]:
    """Return the `bwrap` arguments that put the library on the linker's path."""
    folder = Path(__file__).parent / "preload"
    return (
        *("--ro-bind", str(folder / f"episode-{platform.machine()}.so"), _LIBRARY),
        *("--ro-bind", str(folder / "ld.so.preload"), _PRELOAD_LIST),
        *("--size", str(STATE_BYTES), "--tmpfs", STATE_FOLDER),
    )


@contextmanager
def fixed_addresses() -> Iterator[None]:
    """Disable address randomisation for processes that this thread starts, or raise OSError."""
    library = ctypes.CDLL(None)
    before = library.personality(_ASK)
    if before < 0 or library.personality(before | _FIXED_ADDRESSES) < 0:
        raise OSError("the kernel cannot disable address randomisation (personality)")
    try:
        yield
    finally:
        library.personality(before)
