"""The files of the workspace, with the tools of the MCP project's filesystem server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal

from agentgym.office.files.media_types import media_type
from agentgym.office.files.patterns import Patterns
from agentgym.office.files.textedit import EditOperation, apply_edits, show_diff
from agentgym.office.files.workspace import ROOT
from agentgym.office.server import Server
from agentgym.text.tools import ToolError, echo, tool

MAX_READ_CHARS = 2_000_000
"""Characters of one reading: more than any context window holds."""
MAX_MEDIA_BYTES = 2 * 2**20
"""Bytes of one picture or sound; base64 makes a third more of them."""


class Filesystem(Server):
    """Reads and changes files under `/workspace`; relative paths start there."""

    name: ClassVar[str] = "filesystem"

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
        """Read a file as text, in whole or only its first or last lines.

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
        # No text has more lines than characters, and no list can have any number of them.
        if head := min(head or 0, len(text) + 1):
            text = "\n".join(text.split("\n", head)[:head])
        elif tail := min(tail or 0, len(text) + 1):
            text = "\n".join(text.rsplit("\n", tail)[-tail:])
        if len(text) > MAX_READ_CHARS:
            raise ToolError(
                f"limit exceeded: {len(text)} characters, at most {MAX_READ_CHARS} can be read at "
                "once; use head or tail"
            )
        return text

    @tool
    def read_media_file(self, path: str) -> dict[str, Any]:
        """Read a picture, a sound or any other file as base64 with its MIME type.

        Args:
            path: The file.
        """
        data = self.context.files.read(path)
        if len(data) > MAX_MEDIA_BYTES:
            raise ToolError(
                f"limit exceeded: {len(data)} bytes, at most {MAX_MEDIA_BYTES} can be read as media"
            )
        kind = media_type(path)
        encoded = base64.b64encode(data).decode("ascii")
        family = kind.partition("/")[0]
        if family in ("image", "audio"):
            return {"type": family, "data": encoded, "mimeType": kind}
        uri = f"file://{self.context.files.resolve(path)}"
        return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": encoded}}

    @tool
    def read_multiple_files(self, paths: list[str]) -> str:
        """Read several text files; one that cannot be read does not keep the others from being read.

        Args:
            paths: The files.
        """
        if not paths:
            raise ToolError("invalid argument: paths must name at least one file")
        parts, room = [], MAX_READ_CHARS
        for path in paths:
            try:
                text = self._text(path)
                if len(text) > room:
                    raise ToolError(
                        f"limit exceeded: at most {MAX_READ_CHARS} characters can be read at once"
                    )
                parts.append(f"{path}:\n{text}\n")
                room -= len(text)
            except ToolError as error:
                parts.append(f"{path}: Error - {error}")
        return "\n---\n".join(parts)

    @tool
    def write_file(self, path: str, content: str) -> str:
        """Make a file, or replace all that is in it; its directory must be there.

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
        """Replace passages of a text file and show what changes as a diff.

        Args:
            path: The file.
            edits: Replacements, made in this order. The old text must be in the file, apart from the indentation of its lines.
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
        """Make a directory and those above it; one that is there stays as it is.

        Args:
            path: The directory.
        """
        self.context.clock.tick()
        self.context.files.mkdir(path)
        return f"Successfully created directory {path}"

    @tool
    def list_directory(self, path: str) -> str:
        """List what is in a directory, each name with [FILE] or [DIR].

        Args:
            path: The directory.
        """
        return "\n".join(
            f"{'[DIR]' if folder else '[FILE]'} {name}" for name, _, folder in self._entries(path)
        )

    @tool
    def list_directory_with_sizes(self, path: str, sortBy: Literal["name", "size"] = "name") -> str:
        """List what is in a directory with sizes.

        Args:
            path: The directory.
            sortBy: By name, or the largest first.
        """
        entries = [
            (name, 0 if folder else self.context.files.size(full), folder)
            for name, full, folder in self._entries(path)
        ]
        if sortBy == "size":
            entries.sort(key=lambda entry: -entry[1])
        lines = [
            f"{'[DIR]' if d else '[FILE]'} {name:<30} {'' if d else _size(size):>10}".rstrip()
            for name, size, d in entries
        ]
        folders = sum(folder for *_, folder in entries)
        return "\n".join(
            [
                *lines,
                "",
                f"Total: {len(entries) - folders} files, {folders} directories",
                f"Combined size: {_size(sum(size for _, size, _ in entries))}",
            ]
        )

    @tool
    def directory_tree(self, path: str, excludePatterns: list[str] = []) -> str:  # noqa: B006 - the schema tells it, and nothing changes it
        """Show a directory with all that is in it as JSON: name, type, and the children of directories.

        Args:
            path: The directory.
            excludePatterns: Glob patterns of what to leave out; a plain name leaves it out wherever it is.
        """
        patterns = [each for pattern in excludePatterns for each in _anywhere(pattern)]
        return json.dumps(self._tree(path, "", Patterns(patterns)), indent=2, ensure_ascii=False)

    @tool
    def move_file(self, source: str, destination: str) -> str:
        """Move or rename a file or directory; nothing may be at the new path.

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
            path: Where to look.
            pattern: Matched against paths relative to there.
            excludePatterns: Glob patterns of what to leave out.
        """
        included, excluded = Patterns([pattern]), Patterns(excludePatterns)
        paths = [
            full for relative, full in self._below(path, "", excluded) if included.match(relative)
        ]
        return "\n".join(paths) or "No matches found"

    @tool
    def get_file_info(self, path: str) -> str:
        """Show size, times, type and permissions of a file or directory.

        Args:
            path: The file or directory.
        """
        files = self.context.files
        modified = files.modified(path)
        folder = files.is_dir(path)
        facts = {
            "size": str(_FOLDER_BYTES if folder else files.size(path)),
            "created": _date(modified if folder else files.file(path).created),
            "modified": _date(modified),
            "accessed": _date(modified),
            "isDirectory": json.dumps(folder),
            "isFile": json.dumps(not folder),
            "permissions": "755" if folder else "644",
        }
        return "\n".join(f"{name}: {fact}" for name, fact in facts.items())

    @tool
    def list_allowed_directories(self) -> str:
        """List the directories that can be used, with all that is in them."""
        return f"Allowed directories:\n{ROOT}"

    def _text(self, path: str) -> str:
        return self.context.files.read(path).decode("utf-8", "replace")

    def _check_folder(self, full: str) -> None:
        folder = full.rpartition("/")[0]
        if full != ROOT and not self.context.files.is_dir(folder):
            raise ToolError(f"not found: there is no directory {echo(folder)}")

    def _entries(self, path: str) -> list[tuple[str, str, bool]]:
        """Name, canonical path and whether it is a directory, of all that is in a directory."""
        full, files = self.context.files.resolve(path), self.context.files
        return [
            (name, f"{full}/{name}", files.is_dir(f"{full}/{name}")) for name in files.names(path)
        ]

    def _tree(self, path: str, above: str, excluded: Patterns) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "type": "directory",
                "children": self._tree(full, f"{above}{name}/", excluded),
            }
            if folder
            else {"name": name, "type": "file"}
            for name, full, folder in self._entries(path)
            if not excluded.match(f"{above}{name}")
        ]

    def _below(self, path: str, above: str, excluded: Patterns) -> Iterator[tuple[str, str]]:
        """Relative and canonical path of all below a directory; what is excluded hides what is in
        it.
        """
        for name, full, folder in self._entries(path):
            relative = f"{above}{name}"
            if not excluded.match(relative):
                yield relative, full
                if folder:
                    yield from self._below(full, f"{relative}/", excluded)


_FOLDER_BYTES = 4_096
"""The size of a directory on a usual file system of Linux."""


def _anywhere(pattern: str) -> Sequence[str]:
    return (pattern,) if "*" in pattern else (pattern, f"**/{pattern}", f"**/{pattern}/**")


def _size(size: int) -> str:
    """Return a number of bytes in words: `14 B`, `2.93 KB`."""
    if size < 2**10:
        return f"{size} B"
    return f"{size / 2**10:.2f} KB" if size < 2**20 else f"{size / 2**20:.2f} MB"


def _date(moment: datetime) -> str:
    return moment.strftime("%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)")
