"""Instances of large worlds on the disk, so that each is drawn once.

It is off unless the environment variable `AGENTGYM_RESET_CACHE` is set: to `1` for a folder in the
user's cache directory, or to the path of a folder. All processes of a run may share it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.world.world import World

VARIABLE = "AGENTGYM_RESET_CACHE"
"""The environment variable that switches the cache on."""

MAX_BYTES = 2 * 1024**3
"""Bytes of all entries: some six hundred boards of GridWorld-extreme. The entries that were not used
for the longest time go first.
"""
MIN_SECONDS = 0.02
"""Time of a draw from which it is stored: reading an entry takes up to a few milliseconds."""

_SUM_BYTES = 4
"""Bytes of a checksum against damage. Entries are trusted because the folder is the user's own; a
cryptographic digest would take longer than reading most entries.
"""
_UNREADABLE = (pickle.UnpicklingError, AttributeError, ImportError, EOFError, TypeError, ValueError)


class ResetCache:
    """Folder of instances, each as it is before its first turn.

    An entry is found by the class of the world, its configuration, the files that this names, the
    seed, and the sources of the package and of the world. One that is damaged is drawn again.

    Args:
        folder: The folder; it is created if it is not there. As entries are pickles, which can run
            code, nobody but the user may have access to it.
        max_bytes: The bytes that all entries may take.

    Raises:
        ValueError: The folder is open to others, or belongs to somebody else.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self._not_stored: set[tuple[type[World[Any]], str]] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)

    def generate(self, world: type[World[Any]], config: Any, seed: int) -> World[Any]:
        """Return the instance of a configuration and a seed: stored, or drawn and then stored if
        that took long.
        """
        kind = (world, repr(config))
        if kind in self._not_stored or world.__module__ == "__main__":
            return draw(world, config, seed)
        path = self.folder / _key(world, config, seed)
        stored = _read(path)
        if type(stored) is world:
            return stored
        start = time.perf_counter()
        instance = draw(world, config, seed)
        if time.perf_counter() - start < MIN_SECONDS or not self._store(path, instance):
            self._not_stored.add(kind)
        return instance

    def _store(self, path: Path, instance: World[Any]) -> bool:
        """Write an entry in one step; return whether instances of that kind can be stored."""
        try:
            data = pickle.dumps(instance, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            return False
        if len(data) > self.max_bytes:
            return False
        with suppress(OSError):  # a full disk, say: the instance is there all the same
            self._make_room(len(data) + _SUM_BYTES)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as entry:
                temporary = Path(entry.name)
                try:
                    entry.write(_checksum(data))
                    entry.write(data)
                    entry.close()
                    temporary.replace(path)
                finally:
                    temporary.unlink(missing_ok=True)
        return True

    def _make_room(self, size: int) -> None:
        """Delete the entries that were not used for the longest time until there is room."""
        entries = sorted(_entries(self.folder))
        total = sum(length for _, length, _ in entries) + size
        for _, length, path in entries:
            if total <= self.max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= length


def draw(world: type[World[Any]], config: Any, seed: int) -> World[Any]:
    """Draw the instance of a configuration and a seed."""
    instance = world(config, seed)
    instance.generate()
    return instance


def active() -> ResetCache | None:
    """Return the cache that the environment asks for; None if it asks for none.

    Raises:
        ValueError: Its folder is open to others.
    """
    value = os.environ.get(VARIABLE, "")
    return _open(value) if value not in ("", "0") else None


@functools.cache
def _open(value: str) -> ResetCache:
    if value != "1":
        return ResetCache(Path(value).expanduser().resolve())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return ResetCache(Path(home, "agentgym", "resets"))


def _check_private(folder: Path) -> None:
    """Refuse a folder in which somebody else could put a pickle."""
    if not hasattr(os, "getuid"):  # Windows: the folders of a user are closed to others
        return
    status = folder.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or mode & 0o077:
        raise ValueError(
            f"the reset cache {str(folder)!r} must be a folder of your own with the rights 0700, as "
            f"its entries can run code, got {mode:#o} of user {status.st_uid}; close it with "
            f"chmod 700, or set {VARIABLE} to another folder"
        )


def _entries(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield when each file was last used, its bytes and its path."""
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process makes room too
            status = entry.stat(follow_symlinks=False)
            yield status.st_mtime_ns, status.st_size, Path(entry.path)


def _read(path: Path) -> object:
    """Return the content of an entry; None if there is none. A damaged one is deleted."""
    try:
        entry = path.read_bytes()
    except OSError:
        return None
    data = memoryview(entry)[_SUM_BYTES:]
    if _checksum(data) == entry[:_SUM_BYTES]:
        with suppress(*_UNREADABLE):
            instance: object = pickle.loads(data)
            with suppress(OSError):
                os.utime(path)
            return instance
    with suppress(OSError):
        path.unlink()
    return None


def _checksum(data: bytes | memoryview) -> bytes:
    return zlib.crc32(data).to_bytes(_SUM_BYTES, "big")


def _key(world: type[World[Any]], config: Any, seed: int) -> str:
    """Return the name of the entry of an instance."""
    parts = (
        *(f"{world.__module__}:{world.__qualname__}", config, seed),
        [_state_of(each) for each in asdict(config).values() if isinstance(each, (str, Path))],
        *(sys.version, np.__version__, _sources_of("agentgym"), _sources_of(world.__module__)),
    )
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _state_of(value: str | Path) -> list[tuple[str, int, int]]:
    """Return the state of the files that the value of an option names, which may change."""
    if not value:  # as a path it would be the working folder
        return []
    path = Path(value)
    try:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        statuses = [(file, file.stat()) for file in files]
    except (OSError, ValueError):  # it names no file
        return []
    return [(str(file), status.st_size, status.st_mtime_ns) for file, status in statuses]


@functools.cache
def _sources_of(module: str) -> str:
    """Return a digest of all files of the package that a module belongs to; of a module on its own,
    of its file.
    """
    package = sys.modules.get(module.partition(".")[0])
    file = getattr(package, "__file__", None)
    if file is None:
        return ""
    path = Path(file)
    # As links to folders are followed by `os.walk` alone, it is not `rglob` here.
    folders = os.walk(path.parent, followlinks=True) if path.name == "__init__.py" else ()
    files = [path] if path.name != "__init__.py" else []
    files += [
        Path(folder, name)
        for folder, _, names in folders
        if not folder.endswith("__pycache__")
        for name in names
    ]
    digest = hashlib.sha256()
    for each in sorted(files):
        content = each.read_bytes()
        digest.update(f"{each.relative_to(path.parent)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
