"""A shell on the workspace and edits of its files by rows, with the tools of
terminal-controller.
"""

from __future__ import annotations

import io
import json
import posixpath
from collections.abc import Sequence
from typing import Any, ClassVar

from agentgym.envs.loca.servers.files.shell import check_seconds, run_on
from agentgym.envs.loca.servers.files.workspace import MAX_FILE_BYTES, ROOT
from agentgym.envs.loca.servers.server import Server
from agentgym.sandboxes.namespaces import BASH
from agentgym.tools import ToolError, echo, tool

MAX_HISTORY = 50
"""Commands that are remembered, as in the published server."""
MAX_READ_CHARS = 2_000_000
"""Characters of one reading: more than any context window holds."""
MAX_LINES = 100_000
"""Rows of a file that is edited by rows; it bounds the time of a call."""


class Terminal(Server):
    """Runs commands in a sandbox (see `agentgym.sandboxes.workbench`), in which there is the
    workspace and no network.

    What a command did to files stays done if it then fails or is stopped, as on a real machine.
    Commands share files and the current directory, nothing else; processes end with the command
    that started them. Rows of files count from 0.
    """

    name: ClassVar[str] = "terminal"

    @tool
    def execute_command(self, command: str, timeout: int = 30) -> str:
        """Run a command with bash in the current directory and show what it prints.

        There is no network, no /proc and so no process substitution. The clock is that of the office; while a command
        runs, it goes on only by what is slept.

        Args:
            command: The command line.
            timeout: Seconds that it may run, at most 120.
        """
        check_seconds(timeout)
        outcome, lost = run_on(self.context, [BASH, "-c", command], self._directory(), timeout)
        success = outcome.code == 0
        entry = {
            "time": self.context.clock.now().isoformat(),
            "command": command,
            "success": success,
        }
        self.session["history"] = [*self.session.get("history", []), entry][-MAX_HISTORY:]
        parts = [f"Command {'executed successfully' if success else 'execution failed'}\n"]
        parts += (
            [f"Output:\n{outcome.stdout}"]
            if outcome.stdout
            else ["Command had no output."]
            if success
            else []
        )
        parts += (
            [f"{'Warnings/Info' if success else 'Error'}:\n{outcome.stderr}"]
            if outcome.stderr
            else []
        )
        parts += [f"The command was {outcome.stopped}."] if outcome.stopped else []
        parts += [lost] if lost else []
        parts += [] if success or outcome.stopped else [f"Return code: {outcome.code}"]
        return "\n".join(parts)

    @tool
    def get_command_history(self, count: int = 10) -> str:
        """List the commands that were run last.

        Args:
            count: How many of them.
        """
        if count < 1:
            raise ToolError(f"invalid argument: count must be at least 1, got {echo(count)}")
        entries = self.session.get("history", [])[-count:]
        if not entries:
            return "No command execution history."
        lines = (
            f"{k}. [{'✓' if e['success'] else '✗'}] {e['time']}: {e['command']}"
            for k, e in enumerate(entries, 1)
        )
        return "\n".join([f"Recent {len(entries)} command history:\n", *lines])

    @tool
    def get_current_directory(self) -> str:
        """Show the current directory."""
        return self._directory()

    @tool
    def change_directory(self, path: str) -> str:
        """Make another directory the current one."""
        full = self._path(path)
        self.context.files.names(full)
        self.session["directory"] = full
        return f"Switched to directory: {full}"

    @tool
    def list_directory(self, path: str | None = None) -> str:
        """List what is in a directory.

        Args:
            path: The directory; the current one by default.
        """
        full, files = self._path(path or ""), self.context.files
        names = files.names(full)
        folders = [f"📁 {name}/" for name in names if files.is_dir(f"{full}/{name}")]
        others = [f"📄 {name}" for name in names if files.is_file(f"{full}/{name}")]
        if not names:
            return f"Directory '{full}' is empty"
        parts = [
            "\n".join([title, *group])
            for title, group in (("Directories:", folders), ("Files:", others))
            if group
        ]
        return "\n\n".join([f"Contents of directory '{full}':", *parts])

    @tool
    def write_file(self, path: str, content: str, mode: str = "overwrite") -> str:
        """Write text to a file; it then ends with a newline.

        Args:
            path: The file.
            content: The text.
            mode: `overwrite`, or `append` to add to what is there.
        """
        if mode not in ("overwrite", "append"):
            raise ToolError(f"invalid argument: mode must be overwrite or append, got {echo(mode)}")
        full = self._path(path)
        before = (
            self.context.files.read(full)
            if mode == "append" and self.context.files.is_file(full)
            else b""
        )
        self._write(full, before + _with_newline(content).encode())
        return (
            f"Successfully wrote {self.context.files.size(full)} bytes to '{path}' in {mode} mode."
        )

    @tool
    def read_file(
        self,
        path: str,
        start_row: int | None = None,
        end_row: int | None = None,
        as_json: bool = False,
    ) -> str:
        """Read a text file or some of its rows.

        Args:
            path: The file.
            start_row: The first row, or the only one if there is no end_row.
            end_row: The last row.
            as_json: Whether to check that the file is JSON, and to show it with indentation.
        """
        lines = _split(self.context.files.read(self._path(path)).decode("utf-8", "replace"))
        if start_row is None:
            text = "".join(lines)
            if as_json:
                text = _indent_json(text)
        elif as_json:
            raise ToolError(
                "invalid argument: as_json goes with the whole file only, not with rows"
            )
        else:
            last = start_row if end_row is None else end_row
            if not 0 <= start_row <= last or start_row >= len(lines):
                rows = f"{echo(start_row)} to {echo(last)}"
                raise ToolError(
                    f"invalid argument: there are no rows {rows}; the file has {len(lines)} rows"
                )
            text = "".join(
                f"Line {k}: {line}" for k, line in enumerate(lines[start_row : last + 1], start_row)
            )
        if len(text) > MAX_READ_CHARS:
            raise ToolError(
                f"limit exceeded: at most {MAX_READ_CHARS} characters can be read at once; read "
                "some rows"
            )
        return text

    @tool
    def insert_file_content(
        self, path: str, content: str, row: int | None = None, rows: list[Any] | None = None
    ) -> str:
        """Insert lines into a file, which is made if it is not there.

        Args:
            path: The file.
            content: The lines.
            row: The row that they begin at; at the end of the file by default.
            rows: Several rows as they are before, to insert them at each.
        """
        full = self._path(path)
        lines = (
            [_with_newline(line) for line in self._lines(path)]
            if self.context.files.exists(full)
            else []
        )
        targets = _rows(row, rows)
        places = sorted([len(lines)] if targets is None else targets, reverse=True)
        _check_room(len(_with_newline(content)) * len(places))
        for k in places:
            lines += ["\n"] * (k - len(lines))
            lines[k:k] = [_with_newline(content)]
        self._write(full, "".join(lines))
        if targets is None:
            return f"Successfully appended content to '{path}'."
        return f"Successfully inserted content at rows {places} in '{path}'."

    @tool
    def delete_file_content(
        self,
        path: str,
        row: int | None = None,
        rows: list[Any] | None = None,
        substring: str | None = None,
    ) -> str:
        """Delete rows of a file, or a text in them; all that is in the file if there are neither rows nor a text.

        Args:
            path: The file.
            row: The row.
            rows: Several rows; those that the file does not have are passed over.
            substring: Delete only this text, in the rows or else in the whole file.
        """
        lines = self._lines(path)
        if substring is not None:
            changed = self._replace(path, lines, _rows(row, rows), substring, "")
            return (
                f"Successfully removed '{substring}' from {len(changed)} rows ({changed}) in "
                f"'{path}'."
            )
        targets = _rows(row, rows)
        if targets is None:
            self._write(self._path(path), "")
            return f"Successfully cleared all content from '{path}'."
        deleted = _present(targets, lines)
        self._write(
            self._path(path), "".join(line for k, line in enumerate(lines) if k not in deleted)
        )
        return f"Successfully deleted {len(deleted)} rows ({deleted}) from '{path}'."

    @tool
    def update_file_content(
        self,
        path: str,
        content: str,
        row: int | None = None,
        rows: list[Any] | None = None,
        substring: str | None = None,
    ) -> str:
        """Put other text in place of rows of a file, or of a text in them; of the whole file if there are neither.

        Args:
            path: The file.
            content: The new text. If it has several lines and there are several rows, each row gets the next line.
            row: The row.
            rows: Several rows; those that the file does not have are passed over.
            substring: Replace only this text, in the rows or else in the whole file.
        """
        lines = self._lines(path)
        targets = _rows(row, rows)
        if substring is not None:
            changed = self._replace(path, lines, targets, substring, content)
            return f"Successfully updated substring in {len(changed)} rows ({changed}) in '{path}'."
        if targets is None:
            self._write(self._path(path), _with_newline(content))
            return f"Successfully updated all content in '{path}'."
        present = _present(targets, lines)
        new = _split(_with_newline(content)) if len(present) > 1 else [_with_newline(content)]
        _check_room(max(map(len, new), default=0) * len(present))
        for k, number in enumerate(present):
            lines[number] = new[k % len(new)] if new else "\n"
        self._write(self._path(path), "".join(lines))
        return f"Successfully updated {len(present)} rows ({present}) in '{path}'."

    def _directory(self) -> str:
        directory: str = self.session.get("directory", ROOT)
        if not self.context.files.is_dir(directory):
            raise ToolError(
                f"not found: the current directory {echo(directory)} is gone; change to another"
            )
        return directory

    def _path(self, path: str) -> str:
        """Return the canonical path of one that may be relative to the current directory."""
        return self.context.files.resolve(
            posixpath.join(self._directory(), path) if not path.startswith("/") else path
        )

    def _lines(self, path: str) -> list[str]:
        lines = _split(self.context.files.read_text(self._path(path)))
        if len(lines) > MAX_LINES:
            raise ToolError(
                f"limit exceeded: the file has {len(lines)} rows, at most {MAX_LINES} can be "
                "edited so"
            )
        return lines

    def _write(self, full: str, content: str | bytes) -> None:
        self.context.clock.tick()
        self.context.files.write(full, content)

    def _replace(
        self, path: str, lines: list[str], rows: Sequence[int] | None, old: str, new: str
    ) -> list[int]:
        """Put a text in place of another in some rows, or in all; the rows that had it."""
        if not old:
            raise ToolError("invalid argument: substring must not be empty")
        changed = [
            k
            for k in (range(len(lines)) if rows is None else _present(rows, lines))
            if old in lines[k]
        ]
        if not changed:
            raise ToolError(f"not found: {echo(old)} is in none of the rows")
        _check_room(sum(lines[k].count(old) for k in changed) * len(new))
        for k in changed:
            line = lines[k].replace(old, new)
            lines[k] = _with_newline(line) if lines[k].endswith("\n") else line
        self._write(self._path(path), "".join(lines))
        return changed


def _split(text: str) -> list[str]:
    """Return the lines of a text with their ends, which become newlines."""
    return io.StringIO(text, newline=None).readlines()


def _with_newline(line: str) -> str:
    return line if not line or line.endswith("\n") else f"{line}\n"


def _indent_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=4, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"invalid argument: the file is not JSON: {error}") from None


def _rows(row: int | None, rows: list[Any] | None) -> list[int] | None:
    """Return the rows that a call names, None if it names none."""
    numbers = rows if rows is not None else None if row is None else [row]
    if numbers is not None and not all(
        type(number) is int and 0 <= number < MAX_LINES for number in numbers
    ):
        raise ToolError(
            f"invalid argument: rows are whole numbers from 0 to {MAX_LINES - 1}, got "
            f"{echo(numbers)}"
        )
    return numbers


def _present(rows: Sequence[int], lines: Sequence[str]) -> list[int]:
    """Return those of some rows that there are, each once, in order."""
    present = sorted({number for number in rows if number < len(lines)})
    if not present:
        raise ToolError(
            f"invalid argument: none of the rows is there; the file has {len(lines)} rows"
        )
    return present


def _check_room(characters: int) -> None:
    if characters > MAX_FILE_BYTES:
        raise ToolError(f"limit exceeded: the file would become longer than {MAX_FILE_BYTES} bytes")
