"""Resources of the process, and those that an episode leaks: memory, threads, processes, files and
sockets.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Bytes that a step may add to the peak memory, twice the limit of a sandbox or a database.
STEP_BYTES = 512 << 20
# Bytes that an id's episodes may add before a strike. Tables that are loaded once, such as a
# tokenizer's, take less.
_LEAK_BYTES = 192 << 20
# Strikes that make a leak; one-time loading and bounded caches do not repeat.
_STRIKES = 3
# Memory per character of a reply; a chat keeps a few copies.
_BYTES_PER_CHARACTER = 100
# Episodes after which pools and caches are full, so that further growth is a leak.
_WARM_UP = 3
# Tolerance above the descriptors or threads of the first episodes, for a growing pool.
_SLACK = 12
# Consecutive episodes with growth that make a leak.
_RUN = 4


def peak_memory() -> int:
    """Return the peak memory of the process in bytes; 0 if the system does not report it."""
    if sys.platform == "win32":
        return 0
    import resource  # noqa: PLC0415 - Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_memory() -> int:
    """Return the memory of the process in bytes; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def open_handles() -> dict[str, int]:
    """Return the numbers of threads, open files and sockets, child processes and temporary files,
    as far as the system reports them.
    """
    handles = {"threads": threading.active_count()}
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            handles["open files and sockets"] = len(list(Path(folder).iterdir()))
            break
        except OSError:
            continue
    tasks = Path("/proc/self/task")
    if (tasks / str(os.getpid()) / "children").exists():
        lists = (task / "children" for task in tasks.iterdir())
        handles["child processes"] = sum(
            len(each.read_text(encoding="ascii").split()) for each in lists if each.exists()
        )
    handles["temporary files"] = len(list(Path(tempfile.gettempdir()).iterdir()))
    return handles


@dataclass
class _Account:
    episodes: int = 0
    characters: int = 0
    memory: int = 0
    strikes: int = 0
    handles: list[dict[str, int]] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)


class ResourceLedger:
    """Ledger of the resources left after each episode, by id.

    Each process has one, with its own temporary folder.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def close_episode(self, env_id: str, characters: int) -> Iterator[str]:
        """Record a closed episode; yield each unbounded growth once.

        Args:
            env_id: The id.
            characters: The length of the replies.
        """
        account = self._accounts.setdefault(env_id, _Account())
        account.episodes += 1
        account.characters += characters
        handles = open_handles()
        if account.handles and any(handles[k] > n for k, n in account.handles[-1].items()):
            gc.collect()  # reference cycles are not leaks
            handles = open_handles()
        account.handles.append(handles)
        for name in handles:
            counts = [each[name] for each in account.handles]
            recent = counts[-_RUN - 1 :]
            steady = len(recent) > _RUN and all(a < b for a, b in itertools.pairwise(recent))
            much = len(counts) > _WARM_UP and counts[-1] > max(counts[:_WARM_UP]) + _SLACK
            if (steady or much) and name not in account.reported:
                account.reported.add(name)
                yield f"{name} are left behind: {counts[0]} became {counts[-1]} in {len(counts)} episodes"
        yield from self._memory(account)

    def _memory(self, account: _Account) -> Iterator[str]:
        memory = resident_memory()
        if account.episodes <= _WARM_UP:
            account.memory, account.characters = memory, 0
            return
        growth = memory - account.memory
        if growth <= _LEAK_BYTES + _BYTES_PER_CHARACTER * account.characters:
            return
        account.memory, account.characters = memory, 0
        account.strikes += 1
        if account.strikes == _STRIKES:
            yield (
                f"memory is left behind: {growth >> 20} MB or more for the {_STRIKES}rd time "
                f"within {account.episodes} episodes"
            )
