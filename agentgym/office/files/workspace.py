"""The files of an office: a file system in memory, which no path leads out of, with quotas.

It has files and directories and nothing else, so no symlink, device or mount can be in it. Code
that needs real files gets a copy in a sandbox, and what is there in the end comes back (`become`),
regular files and directories only.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agentgym.text.tools import ToolError, echo

ROOT = "/workspace"
"""The directory of the files, as a policy sees it; relative paths start here."""

MAX_FILES = 5_000
"""Files and directories: a listing looks at all of them."""
MAX_FILE_BYTES = 32 * 2**20
"""Bytes of one file."""
MAX_TOTAL_BYTES = 128 * 2**20
"""Bytes of all files: they are in memory, and each snapshot refers to them."""
MAX_PATH_CHARS = 1_024
"""Characters of a path, with room below the 4096 bytes of Linux for the sandbox's own directory."""
MAX_NAME_BYTES = 255
"""Bytes of a name, as on Linux."""
MAX_DEPTH = 32
"""Directories within each other: walks recurse."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of files before a clock is set."""


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A file: its bytes and when it was made and last written (UTC)."""

    data: bytes
    created: datetime
    modified: datetime

    def __deepcopy__(self, memo: object) -> WorkspaceFile:
        return self  # nothing in it can change


def _epoch() -> datetime:
    return _EPOCH


class Workspace:
    """Files by path. All methods take a path as a policy may write it, and refuse with `ToolError`
    before anything changes.

    Attributes:
        clock: Returns the time that files are stamped with.
    """

    def __init__(self) -> None:
        self.clock: Callable[[], datetime] = _epoch
        self._files: dict[str, WorkspaceFile] = {}
        self._folders: dict[str, datetime] = {ROOT: _EPOCH}
        self._bytes = 0

    def undo_point(self) -> Callable[[], None]:
        """Return a function that returns the files to what they are now; their bytes are shared."""
        return functools.partial(
            vars(self).update,
            _files=self._files.copy(),
            _folders=self._folders.copy(),
            _bytes=self._bytes,
        )

    def version(self) -> object:
        """Return what is equal later as long as nothing has changed."""
        return self._files.copy(), self._folders.copy()

    def resolve(self, path: str) -> str:
        """Return the canonical form of a path, which begins with `/workspace`.

        Raises:
            ToolError: It leads elsewhere, or no file can be called that.
        """
        if (
            "\0" in path
            or len(path) > MAX_PATH_CHARS
            or any("\ud800" <= sign <= "\udfff" for sign in path)
        ):
            raise ToolError(
                f"invalid argument: {echo(path)} is no path: at most {MAX_PATH_CHARS} characters, "
                "no NUL, no lone surrogate"
            )
        full = "/" + posixpath.normpath(posixpath.join(ROOT, path)).lstrip("/")
        if not within(full, ROOT):
            raise ToolError(
                f"permission denied: {echo(path)} is outside of {ROOT}; only paths in it can be "
                "used"
            )
        names = full.split("/")
        if len(names) > MAX_DEPTH + 2 or any(len(name.encode()) > MAX_NAME_BYTES for name in names):
            raise ToolError(
                f"invalid argument: {echo(path)} is too deep or has a name that is too long"
            )
        return full

    def exists(self, path: str) -> bool:
        """Tell if there is a file or a directory at a path."""
        full = self.resolve(path)
        return full in self._files or full in self._folders

    def is_file(self, path: str) -> bool:
        """Tell if there is a file at a path."""
        return self.resolve(path) in self._files

    def is_dir(self, path: str) -> bool:
        """Tell if there is a directory at a path."""
        return self.resolve(path) in self._folders

    def file(self, path: str) -> WorkspaceFile:
        """Return a file with its times.

        Raises:
            ToolError: There is no file at the path.
        """
        full = self.resolve(path)
        if full in self._files:
            return self._files[full]
        if full in self._folders:
            raise ToolError(f"invalid argument: {echo(path)} is a directory, not a file")
        raise ToolError(f"not found: there is no file {echo(path)}")

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        return self.file(path).data

    def read_text(self, path: str) -> str:
        """Return the text of a file in UTF-8.

        Raises:
            ToolError: There is no file at the path, or it is not text.
        """
        try:
            return self.read(path).decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(f"invalid argument: {echo(path)} is not a text file in UTF-8") from None

    def write(self, path: str, data: bytes | str) -> str:
        """Make or replace a file, with the directories above it; the canonical path."""
        full = self.resolve(path)
        content = data.encode("utf-8", "strict") if isinstance(data, str) else bytes(data)
        if full in self._folders:
            raise ToolError(
                f"conflict: {echo(path)} is a directory; it cannot be written as a file"
            )
        old = self._files.get(full)
        total = self._bytes + len(content) - (len(old.data) if old else 0)
        if len(content) > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES:
            raise ToolError(
                f"limit exceeded: no room for {len(content)} bytes: {MAX_FILE_BYTES} a file and "
                f"{MAX_TOTAL_BYTES} in all are allowed"
            )
        self._add_folders(self._missing_above(full), files=old is None)
        now = self.clock()
        self._files[full] = WorkspaceFile(content, old.created if old else now, now)
        self._bytes = total
        return full

    def mkdir(self, path: str) -> str:
        """Make a directory with those above it; one that is there stays. The canonical path."""
        full = self.resolve(path)
        if full in self._files:
            raise ToolError(f"conflict: {echo(path)} is a file; it cannot be made a directory")
        self._add_folders([*self._missing_above(full), *([] if full in self._folders else [full])])
        return full

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all in it."""
        full = self._there(path)
        if full == ROOT:
            raise ToolError(f"permission denied: {ROOT} itself cannot be removed")
        self._bytes -= self.size(path)
        self._files = {k: file for k, file in self._files.items() if not within(k, full)}
        self._folders = {k: made for k, made in self._folders.items() if not within(k, full)}

    def move(self, path: str, target: str) -> str:
        """Give a file or directory another path, at which there is nothing; the new canonical
        path.
        """
        full, there = self._there(path), self._free(target)
        if within(there, full):
            raise ToolError(f"invalid argument: {echo(path)} cannot be moved into itself")
        self._add_folders(self._missing_above(there))
        tables: tuple[dict[str, Any], ...] = (self._files, self._folders)
        for table in tables:
            for name in [name for name in table if within(name, full)]:
                table[there + name[len(full) :]] = table.pop(name)
        return there

    def copy(self, path: str, target: str) -> str:
        """Copy a file to a path at which there is nothing; the new canonical path."""
        data = self.file(path).data
        return self.write(self._free(target), data)

    def names(self, path: str = ROOT) -> list[str]:
        """Return the names in a directory, in order of their characters.

        Raises:
            ToolError: There is no directory at the path.
        """
        full = self.resolve(path)
        if full not in self._folders:
            raise ToolError(f"not found: there is no directory {echo(path)}")
        return sorted(
            name[len(full) + 1 :]
            for name in (*self._files, *self._folders)
            if name.rpartition("/")[0] == full
        )

    def walk(self, path: str = ROOT) -> Iterator[str]:
        """Return the canonical paths of all files under a directory (or of the file itself), in
        order.
        """
        full = self._there(path)
        return iter(sorted(name for name in self._files if within(name, full)))

    def folders(self, path: str = ROOT) -> Iterator[str]:
        """Return the canonical paths of a directory and of all directories under it, in order."""
        full = self._there(path)
        return iter(sorted(name for name in self._folders if within(name, full)))

    def modified(self, path: str) -> datetime:
        """Return the time at which a file was last written, or a directory was made."""
        full = self._there(path)
        return self._files[full].modified if full in self._files else self._folders[full]

    def size(self, path: str = ROOT) -> int:
        """Return the bytes of a file, or of all files under a directory."""
        full = self._there(path)
        return sum(len(self._files[name].data) for name in self._files if within(name, full))

    def become(self, entries: Mapping[str, bytes | None]) -> list[str]:
        """Hold these files and nothing else. A file with the same bytes keeps its times.

        Args:
            entries: The bytes of each file by its path, None for a directory.

        Returns:
            The paths of what was left out, because no file can be called that or for want of room.
        """
        fresh, skipped = Workspace(), []
        fresh.clock = self.clock
        for name, data in entries.items():
            try:
                full = fresh.mkdir(name) if data is None else fresh.write(name, data)
            except (ToolError, UnicodeError):
                skipped.append(name)
                continue
            old = self._files.get(full)
            if old is not None and data is not None:
                fresh._files[full] = (
                    old if data == old.data else WorkspaceFile(data, old.created, self.clock())
                )
        self._files, self._bytes = fresh._files, fresh._bytes
        self._folders = {
            name: self._folders.get(name, created) for name, created in fresh._folders.items()
        }
        return skipped

    def _there(self, path: str) -> str:
        full = self.resolve(path)
        if full not in self._files and full not in self._folders:
            raise ToolError(f"not found: there is no file or directory {echo(path)}")
        return full

    def _free(self, path: str) -> str:
        if self.exists(path):
            raise ToolError(f"conflict: there is something at {echo(path)} already")
        return self.resolve(path)

    def _missing_above(self, full: str) -> list[str]:
        missing = []
        above = posixpath.dirname(full)
        while above not in self._folders and len(above) >= len(ROOT):
            if above in self._files:
                raise ToolError(f"conflict: {echo(above)} is a file, so nothing can be in it")
            missing.append(above)
            above = posixpath.dirname(above)
        return missing[::-1]

    def _add_folders(self, names: Sequence[str], *, files: int = 0) -> None:
        """Make directories, if there is room for them and for some new files."""
        if len(self._files) + len(self._folders) + len(names) + files > MAX_FILES:
            raise ToolError(
                f"limit exceeded: no room for more than {MAX_FILES} files and directories"
            )
        self._folders.update(dict.fromkeys(names, self.clock()))


def within(name: str, full: str) -> bool:
    """Return whether a canonical path is another one, or below it."""
    return name == full or name.startswith(f"{full}/")
