"""Clock, randomness and addresses of programs as functions of the episode.

A library (`preload/episode.c`) is loaded into every program of a sandbox and answers what differs
from run to run on a real machine: the time, the random bytes, the times of files, the kernel's
release, the number of processors. It reads the struct that `RunSeed.pack` writes. Addresses are
fixed by the kernel, whose `personality` is asked not to randomise them.
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
STATE_FILE = f"{STATE_FOLDER}/state"
"""The struct inside. All processes of a run write to it, since they share one clock."""

STATE_BYTES = 65_536  # of that folder: the struct and two pipes take a page

_PRELOAD_LIST = "/etc/ld.so.preload"
"""Names the library to the linker; unlike LD_PRELOAD it also holds for programs that are started
with another environment.
"""
_LIBRARY = "/run/episode.so"
_STRUCT = struct.Struct("<qqQq")  # struct episode: start, real time, seed, elapsed
_SECOND = 10**9
_FIXED_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE, from <linux/personality.h>
_ASK = 0xFFFFFFFF  # a persona that changes nothing


@dataclass(frozen=True, slots=True)
class RunSeed:
    """All that the clock and the randomness of a run depend on.

    Attributes:
        now: The moment at which the run begins, by the clock of the episode.
        seed: The seed of the episode; runs of one seed at different moments differ too.
    """

    now: datetime = datetime(2025, 1, 1, tzinfo=UTC)
    seed: int = 0

    def digest(self) -> bytes:
        """Return 32 bytes that differ with the seed and with the moment."""
        return hashlib.sha256(f"{self.seed}:{self.now.isoformat()}".encode()).digest()

    def pack(self, began: int) -> bytes:
        """Return the struct that the library reads.

        Args:
            began: The real time, in nanoseconds since 1970, at which the sandbox was started: what
                the kernel has stamped since then is shown as the moment of the run.
        """
        digest = self.digest()
        # A real clock is read at any part of a second; bash draws the seed of $RANDOM from it.
        fraction = int.from_bytes(digest[8:16], "little") % _SECOND
        start = int(self.now.timestamp()) * _SECOND + fraction
        return _STRUCT.pack(start, began, int.from_bytes(digest[:8], "little"), 0)


def preload_arguments() -> tuple[str, ...]:
    """Return the words of a call of `bwrap` that put the library where the linker looks for it."""
    folder = Path(__file__).parent / "preload"
    return (
        *("--ro-bind", str(folder / f"episode-{platform.machine()}.so"), _LIBRARY),
        *("--ro-bind", str(folder / "ld.so.preload"), _PRELOAD_LIST),
        *("--size", str(STATE_BYTES), "--tmpfs", STATE_FOLDER),
    )


@contextmanager
def fixed_addresses() -> Iterator[None]:
    """Start processes in here whose addresses are not random: what is inherited belongs to this
    thread alone.

    Raises:
        OSError: The kernel refuses it.
    """
    library = ctypes.CDLL(None)
    before = library.personality(_ASK)
    if before < 0 or library.personality(before | _FIXED_ADDRESSES) < 0:
        raise OSError("the kernel does not let addresses be fixed (personality)")
    try:
        yield
    finally:
        library.personality(before)
