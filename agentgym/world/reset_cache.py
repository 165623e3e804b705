"""Disk cache of generated instances, which processes may share.

`AGENTGYM_RESET_CACHE` enables it: `1` selects a folder in the user's cache directory, any other
value is the path of a folder.
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

# About six hundred boards of GridWorld-extreme.
MAX_BYTES = 2 * 1024**3

# Reading a cached instance takes a few milliseconds.
MIN_SECONDS = 0.02

_SUM_BYTES = 4  # a CRC-32 detects damage, and the private folder needs no more
_UNREADABLE = (pickle.UnpicklingError, AttributeError, ImportError, EOFError, TypeError, ValueError)


class ResetCache:
    """Folder of instances before their first turn.

    The key covers the world class, its config, the files that the config names, the seed, and the
    sources of the package and the world. Damaged entries are generated again, and the least
    recently used entries are deleted first.

    Raises:
        ValueError: The folder is accessible to others or belongs to another user. Entries are
            pickles, which can run code.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self._not_stored: set[tuple[type[World[Any]], str]] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)

    def generate(self, world: type[World[Any]], config: Any, seed: int) -> World[Any]:
        """Return a cached instance, or generate it and cache it if that was slow."""
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
        try:
            data = pickle.dumps(instance, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            return False
        if len(data) > self.max_bytes:
            return False
        with suppress(OSError):  # a full disk, say: caching is optional
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
        entries = sorted(_entries(self.folder))
        total = sum(length for _, length, _ in entries) + size
        for _, length, path in entries:
            if total <= self.max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= length


def draw(world: type[World[Any]], config: Any, seed: int) -> World[Any]:
    """Generate the instance of a config and a seed."""
    instance = world(config, seed)
    instance.generate()
    return instance


def active() -> ResetCache | None:
    """Return the cache that the environment selects, or None."""
    value = os.environ.get(VARIABLE, "")
    return _open(value) if value not in ("", "0") else None


@functools.cache
def _open(value: str) -> ResetCache:
    if value != "1":
        return ResetCache(Path(value).expanduser().resolve())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return ResetCache(Path(home, "agentgym", "resets"))


def _check_private(folder: Path) -> None:
    if not hasattr(os, "getuid"):  # Windows: user folders are private by default
        return
    status = folder.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or mode & 0o077:
        raise ValueError(
            f"the reset cache {str(folder)!r} must be your own folder with mode 0700, because "
            f"its entries can run code; got {mode:#o} of user {status.st_uid}; run "
            f"chmod 700, or set {VARIABLE} to another folder"
        )


def _entries(folder: Path) -> Iterator[tuple[int, int, Path]]:
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process may delete it
            status = entry.stat(follow_symlinks=False)
            yield status.st_mtime_ns, status.st_size, Path(entry.path)


def _read(path: Path) -> object:
    """Return an entry's content, or None; delete a damaged entry."""
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
    parts = (
        *(f"{world.__module__}:{world.__qualname__}", config, seed),
        [_state_of(each) for each in asdict(config).values() if isinstance(each, (str, Path))],
        *(sys.version, np.__version__, _sources_of("agentgym"), _sources_of(world.__module__)),
    )
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _state_of(value: str | Path) -> list[tuple[str, int, int]]:
    if not value:  # an empty path would be the working directory
        return []
    path = Path(value)
    try:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        statuses = [(file, file.stat()) for file in files]
    except (OSError, ValueError):  # not a path
        return []
    return [(str(file), status.st_size, status.st_mtime_ns) for file, status in statuses]


@functools.cache
def _sources_of(module: str) -> str:
    """Return a digest of a module's whole package, or of its file if it is a top-level module."""
    package = sys.modules.get(module.partition(".")[0])
    file = getattr(package, "__file__", None)
    if file is None:
        return ""
    path = Path(file)
    files = [path]
    if path.name == "__init__.py":
        files = []
        # `rglob` would not follow links to folders.
        for folder, _, names in os.walk(path.parent, followlinks=True):
            if not folder.endswith("__pycache__"):
                files += [Path(folder, name) for name in names]
    digest = hashlib.sha256()
    for each in sorted(files):
        content = each.read_bytes()
        digest.update(f"{each.relative_to(path.parent)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
