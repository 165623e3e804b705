"""Filesystem server with the tools of the MCP reference server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Literal

from agentgym.office.files.media_types import media_type
from agentgym.office.files.textedit import EditOperation, apply_edits, show_diff
from agentgym.office.files.workspace import MAX_FILE_BYTES, ROOT
from agentgym.office.server import Server
from agentgym.text.tools import ToolError, echo, tool

MAX_PATTERN_CHARS = 256  # bounds the matching time
MAX_PATTERNS = 100  # each pattern is matched against every path


class Filesystem(Server):
    """File operations under `/workspace`, the base of relative paths."""

    name = "filesystem"

    @tool
    def read_file(self, path: str, tail: int | None = None, head: int | None = None) -> str:
        """Read a text file. Deprecated: use read_text_file.

        Args:
            path: The file.
            tail: Only this many lines from its end.
            head: Only this many lines from its start.
        """
        return self.read_text_file(path, tail, head)

    @tool
    def read_text_file(self, path: str, tail: int | None = None, head: int | None = None) -> str:
        """Read a text file, or only its first or last lines.

        Args:
            path: The file.
            tail: Only this many lines from its end.
            head: Only this many lines from its start.
        """
        if tail and head:
            raise ToolError("invalid argument: give head or tail, not both")
        if (tail or 0) < 0 or (head or 0) < 0:
            raise ToolError("invalid argument: head and tail must be at least 0")
        text = self._text(path)
        # `split` accepts only 64-bit integers, but models may pass larger numbers.
        most = len(text) + 1
        if head:
            text = "\n".join(text.split("\n", min(head, most))[:head])
        elif tail:
            text = "\n".join(text.rsplit("\n", min(tail, most))[-tail:])
        return text

    @tool
    def read_media_file(self, path: str) -> dict[str, Any]:
        """Read an image, audio file or any other file as base64 with its MIME type.

        Args:
            path: The file.
        """
        data = self.context.files.read(path)
        kind = media_type(path)
        encoded = base64.b64encode(data).decode("ascii")
        family = kind.partition("/")[0]
        if family in ("image", "audio"):
            return {"type": family, "data": encoded, "mimeType": kind}
        uri = f"file://{self.context.files.resolve(path)}"
        return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": encoded}}

    @tool
    def read_multiple_files(self, paths: list[str]) -> str:
        """Read several text files; a file that cannot be read is reported without failing the call.

        Args:
            paths: The files.
        """
        if not paths:
            raise ToolError("invalid argument: paths must name at least one file")
        parts, room = [], MAX_FILE_BYTES
        for path in paths:
            try:
                parts.append(f"{path}:\n{self._text(path)}\n")
            except ToolError as error:
                parts.append(f"{path}: Error - {error}")
            room -= len(parts[-1])
            if room < 0:  # a call may name a large file many times
                raise ToolError(
                    f"limit exceeded: a call can read at most {MAX_FILE_BYTES} characters; "
                    "read fewer files"
                )
        return "\n---\n".join(parts)

    @tool
    def write_file(self, path: str, content: str) -> str:
        """Create or overwrite a file; its directory must exist.

        Args:
            path: The file.
            content: The text.
        """
        full = self.context.files.resolve(path)
        self._check_folder(full)
        self.context.clock.tick()
        self.context.files.write(full, content)
        return f"Successfully wrote to {path}"

    @tool
    def edit_file(self, path: str, edits: list[EditOperation], dryRun: bool = False) -> str:
        """Replace passages of a text file and return the changes as a diff.

        Args:
            path: The file.
            edits: Replacements, applied in order. The old text must match the file, except for indentation.
            dryRun: Only show the diff.
        """
        old = self.context.files.read_text(path).replace("\r\n", "\n")
        new = apply_edits(old, edits)
        diff = show_diff(old, new, self.context.files.resolve(path))
        if not dryRun:
            self.context.clock.tick()
            self.context.files.write(path, new)
        return diff

    @tool
    def create_directory(self, path: str) -> str:
        """Create a directory and its parents; an existing directory is left unchanged.

        Args:
            path: The directory.
        """
        self.context.clock.tick()
        self.context.files.mkdir(path)
        return f"Successfully created directory {path}"

    @tool
    def list_directory(self, path: str) -> str:
        """List the entries of a directory, each marked [FILE] or [DIR].

        Args:
            path: The directory.
        """
        lines = []
        for name, _, is_folder in self._entries(path):
            kind = "[DIR]" if is_folder else "[FILE]"
            lines.append(f"{kind} {name}")
        return "\n".join(lines)

    @tool
    def list_directory_with_sizes(self, path: str, sortBy: Literal["name", "size"] = "name") -> str:
        """List the entries of a directory with their sizes.

        Args:
            path: The directory.
            sortBy: By name, or by size with the largest first.
        """
        entries = []
        for name, full, is_folder in self._entries(path):
            size = 0 if is_folder else self.context.files.size(full)
            entries.append((name, size, is_folder))
        if sortBy == "size":
            entries.sort(key=lambda entry: -entry[1])
        lines = []
        for name, size, is_folder in entries:
            if is_folder:
                lines.append(f"[DIR] {name:<30}".rstrip())
            else:
                lines.append(f"[FILE] {name:<30} {_size(size):>10}")
        folders = sum(is_folder for _, _, is_folder in entries)
        total = sum(size for _, size, _ in entries)
        lines += [
            "",
            f"Total: {len(entries) - folders} files, {folders} directories",
            f"Combined size: {_size(total)}",
        ]
        return "\n".join(lines)

    @tool
    def directory_tree(self, path: str, excludePatterns: list[str] = []) -> str:  # noqa: B006 - the schema tells it, and nothing changes it
        """Show a directory tree as JSON: name, type, and the children of directories.

        Args:
            path: The directory.
            excludePatterns: Glob patterns to leave out; a plain name is left out at any depth.
        """
        patterns: list[str] = []
        for pattern in excludePatterns:
            patterns.append(pattern)
            if "*" not in pattern:
                patterns.append(f"**/{pattern}")
        children: dict[str, list[Any]] = {"": []}  # by path of the directory
        for relative, full in self._below(path, "", Patterns(patterns)):
            above, _, name = relative.rpartition("/")
            entry: dict[str, Any] = {"name": name, "type": "file"}
            if self.context.files.is_dir(full):
                children[relative] = []
                entry |= {"type": "directory", "children": children[relative]}
            children[above].append(entry)
        return json.dumps(children[""], indent=2, ensure_ascii=False)

    @tool
    def move_file(self, source: str, destination: str) -> str:
        """Move or rename a file or directory; the destination must not exist.

        Args:
            source: The file or directory.
            destination: Its new path.
        """
        self._check_folder(self.context.files.resolve(destination))
        self.context.files.move(source, destination)
        return f"Successfully moved {source} to {destination}"

    @tool
    def search_files(self, path: str, pattern: str, excludePatterns: list[str] = []) -> str:  # noqa: B006 - the schema tells it, and nothing changes it
        """Find files and directories by a glob pattern: `*.csv` in the directory itself, `**/*.csv` at any depth.

        Args:
            path: The directory to search.
            pattern: Matched against paths relative to that directory.
            excludePatterns: Glob patterns to leave out.
        """
        included, excluded = Patterns([pattern]), Patterns(excludePatterns)
        paths = []
        for relative, full in self._below(path, "", excluded):
            if included.match(relative):
                paths.append(full)
        return "\n".join(paths) or "No matches found"

    @tool
    def get_file_info(self, path: str) -> str:
        """Show size, timestamps, type and permissions of a file or directory.

        Args:
            path: The file or directory.
        """
        files = self.context.files
        modified = files.modified(path)
        is_folder = files.is_dir(path)
        size, created, permissions = _FOLDER_BYTES, modified, "755"
        if not is_folder:
            size, created, permissions = files.size(path), files.file(path).created, "644"
        facts = {
            "size": size,
            "created": _date(created),
            "modified": _date(modified),
            "accessed": _date(modified),  # access times are not recorded
            "isDirectory": json.dumps(is_folder),
            "isFile": json.dumps(not is_folder),
            "permissions": permissions,
        }
        return "\n".join(f"{name}: {fact}" for name, fact in facts.items())

    @tool
    def list_allowed_directories(self) -> str:
        """List the directories that are accessible, including their subdirectories."""
        return f"Allowed directories:\n{ROOT}"

    def _text(self, path: str) -> str:
        return self.context.files.read(path).decode("utf-8", "replace")

    def _check_folder(self, full: str) -> None:
        folder = full.rpartition("/")[0]
        if full != ROOT and not self.context.files.is_dir(folder):
            raise ToolError(f"not found: there is no directory {echo(folder)}")

    def _entries(self, path: str) -> Iterator[tuple[str, str, bool]]:
        files = self.context.files
        folder = files.resolve(path)
        for name in files.names(path):
            full = f"{folder}/{name}"
            yield name, full, files.is_dir(full)

    def _below(self, path: str, above: str, excluded: Patterns) -> Iterator[tuple[str, str]]:
        for name, full, folder in self._entries(path):
            relative = f"{above}{name}"
            if not excluded.match(relative):
                yield relative, full
                if folder:
                    yield from self._below(full, f"{relative}/", excluded)


_FOLDER_BYTES = 4_096  # as on Linux


def _size(size: int) -> str:
    if size < 2**10:
        return f"{size} B"
    if size < 2**20:
        return f"{size / 2**10:.2f} KB"
    return f"{size / 2**20:.2f} MB"


def _date(moment: datetime) -> str:
    return moment.strftime("%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)")


class Patterns:
    """Glob patterns: `*` and `?` match within a name, `**` across directories.

    A path matches if it matches at least one of the patterns.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [pattern.split("/") for pattern in patterns]
        longest = max(map(len, patterns), default=0)
        if longest > MAX_PATTERN_CHARS or len(patterns) > MAX_PATTERNS:
            raise ToolError(
                f"limit exceeded: at most {MAX_PATTERNS} patterns with {MAX_PATTERN_CHARS} "
                f"characters are allowed, got {len(patterns)} with up to {longest}"
            )

    def match(self, path: str) -> bool:
        """Return whether a relative path matches any pattern."""
        names = path.split("/")
        return any(_match(names, pattern) for pattern in self._patterns)


def _match(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match in polynomial time by computing where each prefix of the pattern can end."""
    ends = {0}
    for part in pattern:
        if not ends:
            return False
        if part == "**":  # any number of names, even none
            ends = set(range(min(ends), len(names) + 1))
            continue
        starts = ends - {len(names)}
        ends = {start + 1 for start in starts if fnmatchcase(names[start], part)}
    return len(names) in ends
