"""Resources of the process, and what an episode leaves behind of them: memory, threads, processes,
files and sockets.
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

STEP_BYTES = 512 << 20
"""Memory that a step may add to the peak of the process: what the limits of a sandbox or of a
database allow, twice over.
"""
_LEAK_BYTES = 192 << 20
"""Memory that episodes of an id may add to the process until it is a strike: tables that are loaded
once, such as those of a tokenizer, take less.
"""
_STRIKES = 3
"""Strikes that are a leak: what is loaded once, or cached up to a limit, does not go on so."""
_BYTES_PER_CHARACTER = 100
"""Memory that each character of a reply may add: a chat keeps it a few times over."""
_WARM_UP = 3
"""Episodes after which pools and caches are filled, so that what is left then is a leak."""
_SLACK = 12
"""Descriptors or threads above those after the first episodes: a pool may still grow a little."""
_RUN = 4
"""Episodes in a row after each of which more is left than before: growth that does not end."""


def peak_memory() -> int:
    """Return the largest memory of the process so far, in bytes; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource  # noqa: PLC0415 - Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_memory() -> int:
    """Return the memory of the process, in bytes; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def open_handles() -> dict[str, int]:
    """Return the numbers of threads, open files and sockets, child processes and temporary files,
    as far as the system says.
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
    """Accounts of what is left after each episode, by id.

    A process has one, whose temporary folder nobody else uses.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def close_episode(self, env_id: str, characters: int) -> Iterator[str]:
        """Take account after an episode was closed; yield what has grown without end, once each.

        Args:
            env_id: The id.
            characters: The length of the replies that were played.
        """
        account = self._accounts.setdefault(env_id, _Account())
        account.episodes += 1
        account.characters += characters
        handles = open_handles()
        if account.handles and any(handles[k] > n for k, n in account.handles[-1].items()):
            gc.collect()  # what a cycle of garbage holds is not left behind
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
