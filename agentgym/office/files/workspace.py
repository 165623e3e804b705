"""In-memory file system of an office, with quotas and without symlinks or devices.

A program runs in a sandbox on a copy of the files; regular files and directories are read back.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agentgym.text.tools import ToolError, echo

ROOT = "/workspace"  # the base of relative paths

MAX_FILES = 5_000  # a listing scans every entry
MAX_FILE_BYTES = 32 * 2**20
MAX_TOTAL_BYTES = 128 * 2**20  # files stay in memory
# Below Linux's limit of 4096 bytes, because sandbox paths are longer.
MAX_PATH_CHARS = 1_024
MAX_NAME_BYTES = 255  # as on Linux
MAX_DEPTH = 32  # walks are recursive

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # timestamp of files until the clock is set


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A file's bytes with its creation and modification times in UTC."""

    data: bytes
    created: datetime
    modified: datetime

    def __deepcopy__(self, memo: object) -> WorkspaceFile:
        return self  # immutable, so not copied


def _epoch() -> datetime:
    return _EPOCH


class Workspace:
    """Files by path. Methods check paths and limits, and raise `ToolError` before any change."""

    def __init__(self) -> None:
        self.clock: Callable[[], datetime] = _epoch
        # A datetime is the creation time of a directory.
        self._entries: dict[str, WorkspaceFile | datetime] = {ROOT: _EPOCH}
        self._bytes = 0

    def undo_point(self) -> Callable[[], None]:
        """Return a function that restores the current files."""
        entries = self._entries.copy()
        return functools.partial(vars(self).update, _entries=entries, _bytes=self._bytes)

    def version(self) -> object:
        """Return a value that changes if and only if the state changes."""
        return self._entries.copy()

    def resolve(self, path: str) -> str:
        """Return a path's canonical form under `/workspace`."""
        if len(path) > MAX_PATH_CHARS or re.search("[\0\ud800-\udfff]", path):
            raise ToolError(
                f"invalid argument: {echo(path)} is not a valid path; use at most {MAX_PATH_CHARS} "
                "characters, without NUL or lone surrogates"
            )
        full = "/" + posixpath.normpath(posixpath.join(ROOT, path)).lstrip("/")
        if not within(full, ROOT):
            raise ToolError(
                f"permission denied: {echo(path)} is outside of {ROOT}; use paths inside that "
                "directory"
            )
        names = full.split("/")
        has_long_name = any(len(name.encode()) > MAX_NAME_BYTES for name in names)
        if len(names) > MAX_DEPTH + 2 or has_long_name:
            raise ToolError(
                f"invalid argument: {echo(path)} is too deep or has a name that is too long"
            )
        return full

    def exists(self, path: str) -> bool:
        """Return whether a path is a file or directory."""
        return self.resolve(path) in self._entries

    def is_file(self, path: str) -> bool:
        """Return whether a path is a file."""
        return isinstance(self._entries.get(self.resolve(path)), WorkspaceFile)

    def is_dir(self, path: str) -> bool:
        """Return whether a path is a directory."""
        return isinstance(self._entries.get(self.resolve(path)), datetime)

    def file(self, path: str) -> WorkspaceFile:
        """Return a file's bytes and times."""
        entry = self._entries.get(self.resolve(path))
        if isinstance(entry, WorkspaceFile):
            return entry
        if entry is None:
            raise ToolError(f"not found: there is no file {echo(path)}")
        raise ToolError(f"invalid argument: {echo(path)} is a directory, not a file")

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        return self.file(path).data

    def read_text(self, path: str) -> str:
        """Return the text of a UTF-8 file."""
        try:
            return self.read(path).decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(f"invalid argument: {echo(path)} is not a text file in UTF-8") from None

    def write(self, path: str, data: bytes | str) -> str:
        """Write a file, creating missing directories; return the canonical path."""
        full = self.resolve(path)
        content = data.encode("utf-8", "strict") if isinstance(data, str) else bytes(data)
        old = self._entries.get(full)
        if isinstance(old, datetime):
            raise ToolError(f"conflict: {echo(path)} is a directory; use another path for the file")
        total = self._bytes + len(content) - (len(old.data) if old else 0)
        if len(content) > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES:
            raise ToolError(
                f"limit exceeded: no room for {len(content)} bytes; the limits are "
                f"{MAX_FILE_BYTES} bytes per file and {MAX_TOTAL_BYTES} bytes in total"
            )
        self._add_folders(self._missing_above(full), files=old is None)
        now = self.clock()
        self._entries[full] = WorkspaceFile(content, old.created if old else now, now)
        self._bytes = total
        return full

    def mkdir(self, path: str) -> str:
        """Create missing directories and return the canonical path."""
        full = self.resolve(path)
        if self.is_file(full):
            raise ToolError(f"conflict: {echo(path)} is a file; use another path for the directory")
        if full not in self._entries:
            self._add_folders([*self._missing_above(full), full])
        return full

    def remove(self, path: str) -> None:
        """Remove a file, or a directory and its contents."""
        full = self._there(path)
        if full == ROOT:
            raise ToolError(f"permission denied: {ROOT} itself cannot be removed")
        self._bytes -= self.size(path)
        for name in self._inside(full):
            del self._entries[name]

    def move(self, path: str, target: str) -> str:
        """Move a file or directory to an unused path; return the new canonical path."""
        full, there = self._there(path), self.resolve(target)
        if self.exists(there):
            raise ToolError(f"conflict: {echo(target)} already exists")
        if within(there, full):
            raise ToolError(f"invalid argument: {echo(path)} cannot be moved into itself")
        self._add_folders(self._missing_above(there))
        for name in self._inside(full):
            self._entries[there + name[len(full) :]] = self._entries.pop(name)
        return there

    def names(self, path: str = ROOT) -> list[str]:
        """Return the sorted names of a directory's entries."""
        full = self.resolve(path)
        if not self.is_dir(full):
            raise ToolError(f"not found: there is no directory {echo(path)}")
        names = []
        for entry in self._entries:
            folder, _, name = entry.rpartition("/")
            if folder == full:
                names.append(name)
        return sorted(names)

    def walk(self, path: str = ROOT) -> list[str]:
        """Return the sorted canonical paths of files below a path."""
        return self._inside(self._there(path), WorkspaceFile)

    def folders(self, path: str = ROOT) -> list[str]:
        """Return the canonical paths of a directory and its subdirectories, sorted."""
        return self._inside(self._there(path), datetime)

    def modified(self, path: str) -> datetime:
        """Return a file's modification time or a directory's creation time."""
        entry = self._entries[self._there(path)]
        return entry.modified if isinstance(entry, WorkspaceFile) else entry

    def size(self, path: str = ROOT) -> int:
        """Return the bytes of a file, or of all files below a directory."""
        return sum(len(self.read(name)) for name in self.walk(path))

    def become(self, entries: Mapping[str, bytes | None]) -> list[str]:
        """Replace all files; return the paths that are invalid or exceed a limit.

        A file with unchanged contents keeps its times. Entries that map to None are directories.
        """
        fresh, skipped = Workspace(), []
        fresh.clock = self.clock
        for name, data in entries.items():
            try:
                fresh.mkdir(name) if data is None else fresh.write(name, data)
            except (ToolError, UnicodeError):
                skipped.append(name)
        for name, old in self._entries.items():
            new = fresh._entries.get(name)
            if isinstance(new, WorkspaceFile) and isinstance(old, WorkspaceFile):
                modified = old.modified if new.data == old.data else new.modified
                fresh._entries[name] = WorkspaceFile(new.data, old.created, modified)
            elif isinstance(new, datetime) and isinstance(old, datetime):
                fresh._entries[name] = old
        self._entries, self._bytes = fresh._entries, fresh._bytes
        return skipped

    def _there(self, path: str) -> str:
        full = self.resolve(path)
        if full not in self._entries:
            raise ToolError(f"not found: there is no file or directory {echo(path)}")
        return full

    def _missing_above(self, full: str) -> list[str]:
        missing = []
        above = posixpath.dirname(full)
        while above not in self._entries:
            missing.append(above)
            above = posixpath.dirname(above)
        if self.is_file(above):
            raise ToolError(f"conflict: {echo(above)} is a file, not a directory")
        return missing[::-1]

    def _add_folders(self, names: Sequence[str], *, files: int = 0) -> None:
        if len(self._entries) + len(names) + files > MAX_FILES:
            raise ToolError(
                f"limit exceeded: no room for more than {MAX_FILES} files and directories"
            )
        self._entries |= dict.fromkeys(names, self.clock())

    def _inside(self, full: str, kind: type = object) -> list[str]:
        paths = []
        for path, entry in self._entries.items():
            if within(path, full) and isinstance(entry, kind):
                paths.append(path)
        return sorted(paths)


def within(name: str, full: str) -> bool:
    """Return whether the canonical path `name` equals or is below the canonical path `full`."""
    return name == full or name.startswith(f"{full}/")
