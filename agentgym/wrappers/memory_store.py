"""Commands of the memory tool on text files under `/memories`, independent of storage.

A state maps canonical paths to texts. Directories are the proper prefixes of its paths, so none is
empty. A command is planned against a state and yields at most one edit, which is applied
atomically.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, TypeAlias

from agentgym.text.tools import ToolError, echo

ROOT = "/memories"
# More than notes need, and few enough for any file system.
MAX_DEPTH = 8

# The limit of common file systems, in UTF-8.
MAX_NAME_BYTES = 255

_MAX_PATH_CHARS = 4_096  # normalising some texts takes quadratic time
_VIEW_DEPTH = 2  # the directory, its entries and their entries
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Write:
    """Set the text of a file, existing or not."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a file, or a directory with its contents."""

    path: str


@dataclass(frozen=True, slots=True)
class Move:
    """Rename a file or directory to a free path."""

    path: str
    target: str


Files: TypeAlias = Mapping[str, str]
FileEdit: TypeAlias = Write | Delete | Move
Plan: TypeAlias = tuple[FileEdit | None, str]


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits of a memory. A memory that already exceeds one, such as a folder on disk, must not
    grow.

    Attributes:
        file_chars: Maximum characters per file.
        total_chars: Maximum characters of all files.
        files: Maximum number of files.
    """

    file_chars: int
    total_chars: int
    files: int

    def check(self, before: Files, edit: Write) -> None:
        """Raise if a change exceeds a limit.

        Raises:
            ToolError: The change exceeds the named limit.
        """
        current, chars, total = (
            len(before.get(edit.path, "")),
            len(edit.text),
            sum(map(len, before.values())),
        )
        if chars > max(self.file_chars, current):
            raise ToolError(
                f"{echo(edit.path)} would be {chars} characters long, at most {self.file_chars} "
                "are allowed; "
                "shorten the text or spread it over several files"
            )
        if edit.path not in before and len(before) >= self.files:
            raise ToolError(
                f"the memory holds {len(before)} files, at most {self.files} are allowed; add to a "
                "file or delete one"
            )
        if chars > current and total - current + chars > self.total_chars:
            raise ToolError(
                f"the memory would hold {total - current + chars} characters, at most "
                f"{self.total_chars} are allowed; "
                "shorten or delete what is no longer needed"
            )


def canonical(path: str) -> str:
    """Return the canonical form of a path in the memory.

    Raises:
        ToolError: The path is outside the memory or contains a forbidden name.
    """
    if len(path) > _MAX_PATH_CHARS:
        raise ToolError(
            f"the path {echo(path)} is too long; use a short one such as {ROOT}/notes.md"
        )
    path_in_full = posixpath.normpath(unicodedata.normalize("NFC", path))
    names = path_in_full.split("/")[2:]
    objections = {
        "contains '..'; write it in full": ".." in path.split("/"),
        "contains a backslash; separate names by /": "\\" in path,
        "contains a control character, a line separator or a lone surrogate": any(
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in path
        ),
        f"is not in the memory; paths begin with {ROOT}/": path.startswith("//")
        or not f"{path_in_full}/".startswith(f"{ROOT}/"),
        f"has more than {MAX_DEPTH} names below {ROOT}; use fewer directories": len(names)
        > MAX_DEPTH,
        f"has a name of more than {MAX_NAME_BYTES} bytes; shorten it": any(
            len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES for name in names
        ),
    }
    for objection, applies in objections.items():
        if applies:
            raise ToolError(f"the path {echo(path)} {objection}")
    return path_in_full


def run(files: Files, command: str, arguments: Mapping[str, Any], limits: MemoryLimits) -> Plan:
    """Plan a command.

    Args:
        files: The state.
        command: `view`, `create`, `str_replace`, `insert`, `delete` or `rename`.
        arguments: The command's arguments, with the right types.
        limits: The limits of the memory.

    Returns:
        The edit, or None for a view, and the answer after the edit.

    Raises:
        ToolError: The command cannot be executed.
    """
    method, takes = _COMMANDS[command]
    missing = [name for name in takes if name not in arguments and name != "view_range"]
    if missing or arguments.keys() - set(takes):
        what = ", ".join(f"{name} (optional)" if name == "view_range" else name for name in takes)
        wrong = [f"{name} is missing" for name in missing] + [
            f"{name} is not one of them" for name in arguments if name not in takes
        ]
        raise ToolError(f"{command} takes {what}: {', '.join(wrong)}")
    checked = {
        name: canonical(value) if name.endswith("path") else value
        for name, value in arguments.items()
    }
    for name in ("file_text", "old_str", "new_str", "insert_text"):
        if _UNSTORABLE.search(checked.get(name, "")):
            raise ToolError(f"{name} contains NUL or a lone surrogate; leave it out")
    edit, answer = method(files, **checked)
    if isinstance(edit, Write):
        limits.check(files, edit)
    return edit, answer


def apply_edit(files: Files, edit: FileEdit | None) -> Files:
    """Return the state after an edit, without changing the given one."""
    match edit:
        case Write(path, text):
            return {**files, path: text}
        case Delete(path):
            return {name: text for name, text in files.items() if not within(name, path)}
        case Move(path, target):
            return {
                target + name[len(path) :] if within(name, path) else name: text
                for name, text in files.items()
            }
    return files


def within(path: str, top: str) -> bool:
    """Report whether a path is a file or directory, or lies inside it."""
    return path == top or path.startswith(f"{top}/")


def _is_directory(files: Files, path: str) -> bool:
    return path == ROOT or any(name.startswith(f"{path}/") for name in files)


def _text(files: Files, path: str) -> str:
    if path in files:
        return files[path]
    if _is_directory(files, path):
        raise ToolError(
            f"{echo(path)} is a directory, not a file; view it to see which files there are"
        )
    raise ToolError(f"there is no {echo(path)}; view {ROOT} to see what there is")


def _check_present(files: Files, path: str, verb: str) -> None:
    if path == ROOT:
        raise ToolError(f"{ROOT} itself cannot be {verb}; name a file or a directory in it")
    if path not in files and not _is_directory(files, path):
        raise ToolError(f"there is no {echo(path)} to be {verb}; view {ROOT} to see what there is")


def _check_above(files: Files, path: str) -> None:
    for name in files:
        if path.startswith(f"{name}/"):
            raise ToolError(
                f"{echo(name)} is a file, so nothing can be below it; choose another path"
            )


def _view(files: Files, path: str, view_range: Sequence[int] | None = None) -> Plan:
    if not _is_directory(files, path):
        return None, _numbered(path, _text(files, path), view_range)
    if view_range is not None:
        raise ToolError(f"{echo(path)} is a directory, view_range is for files; leave it out")
    return None, _listing(files, path)


def _listing(files: Files, path: str) -> str:
    """List a directory and two levels of its contents, sorted by name."""
    sizes: dict[str, list[int]] = {}
    for name, text in files.items():
        if within(name, path):
            inner = name[len(path) + 1 :].split("/")
            shown = [f"{'/'.join((path, *inner[:depth]))}/" for depth in range(len(inner))] + [name]
            for each in shown[: _VIEW_DEPTH + 1]:
                sizes.setdefault(each, []).append(len(text))
    rows = sorted(sizes.items(), key=lambda item: item[0].rstrip("/").split("/"))
    return (
        "\n".join(
            f"{name} ({f'files: {len(each)}, ' if name.endswith('/') else ''}characters: "
            f"{sum(each)})"
            for name, each in rows
        )
        or f"{path}/ is empty"
    )


def _numbered(path: str, text: str, view_range: Sequence[int] | None) -> str:
    lines = StringIO(text).readlines()
    first, last = 1, len(lines)
    if view_range is not None:
        if len(view_range) != 2 or any(type(number) is not int for number in view_range):
            raise ToolError(
                f"view_range must be two line numbers [first, last], got {echo(view_range)}"
            )
        first, last = view_range[0], len(lines) if view_range[1] == -1 else view_range[1]
        if not 1 <= first <= last <= len(lines):
            raise ToolError(
                f"view_range must be within [1, {len(lines)}], first <= last, or last = -1 for the "
                f"end; got {echo(view_range)}; "
                f"{echo(path)} has {len(lines)} lines"
            )
    if not lines:
        return f"{path} is an empty file"
    shown = "".join(
        f"{number}\t{line}" for number, line in enumerate(lines[first - 1 : last], first)
    )
    return f"{path}, lines {first} to {last} of {len(lines)}:\n{shown}"


def _create(files: Files, path: str, file_text: str) -> Plan:
    if _is_directory(files, path):
        raise ToolError(f"{echo(path)} is a directory; name a file in it")
    _check_above(files, path)
    return Write(
        path, file_text
    ), f"{'overwrote' if path in files else 'created'} {path} (characters: {len(file_text)})"


def _str_replace(files: Files, path: str, old_str: str, new_str: str) -> Plan:
    text = _text(files, path)
    if not old_str:
        raise ToolError("old_str is empty; give the text to be replaced, or use insert to add text")
    start = text.find(old_str)
    if start < 0:
        raise ToolError(f"{echo(path)} does not contain old_str; view it and copy the text exactly")
    line = text.count("\n", 0, start) + 1
    if (again := text.find(old_str, start + 1)) >= 0:
        raise ToolError(
            f"old_str must occur once in {echo(path)}, but begins at line {line} and again at line "
            f"{text.count(chr(10), 0, again) + 1}; include more of the text around it"
        )
    return Write(
        path, text[:start] + new_str + text[start + len(old_str) :]
    ), f"replaced at line {line} of {path}"


def _insert(files: Files, path: str, insert_line: int, insert_text: str) -> Plan:
    lines = StringIO(_text(files, path)).readlines()  # only a line feed ends a line
    if type(insert_line) is not int or not 0 <= insert_line <= len(lines):
        raise ToolError(
            f"insert_line must be in [0, {len(lines)}], the line of {echo(path)} to insert after, "
            f"got {echo(insert_line)}"
        )
    if not insert_text:
        raise ToolError("insert_text is empty; give the text to insert")
    before, after = "".join(lines[:insert_line]), "".join(lines[insert_line:])
    start = "\n" if before and not before.endswith("\n") else ""
    end = "\n" if after and not insert_text.endswith("\n") else ""
    return Write(
        path, f"{before}{start}{insert_text}{end}{after}"
    ), f"inserted after line {insert_line} of {path}"


def _delete(files: Files, path: str) -> Plan:
    _check_present(files, path, "deleted")
    return Delete(path), f"deleted {path} (files: {sum(within(name, path) for name in files)})"


def _rename(files: Files, old_path: str, new_path: str) -> Plan:
    _check_present(files, old_path, "renamed")
    if within(new_path, old_path):
        raise ToolError(
            f"{echo(new_path)} is {echo(old_path)} itself or in it; choose another path"
        )
    if new_path in files or _is_directory(files, new_path):
        raise ToolError(
            f"there is a {echo(new_path)} already; delete it first or choose another path"
        )
    _check_above(files, new_path)
    edit = Move(old_path, new_path)
    for name in apply_edit(files, edit):
        canonical(name)  # the contents of a directory may end up too deep
    return edit, f"renamed {old_path} to {new_path}"


_COMMANDS: Mapping[str, tuple[Callable[..., Plan], Sequence[str]]] = {
    "view": (_view, ("path", "view_range")),
    "create": (_create, ("path", "file_text")),
    "str_replace": (_str_replace, ("path", "old_str", "new_str")),
    "insert": (_insert, ("path", "insert_line", "insert_text")),
    "delete": (_delete, ("path",)),
    "rename": (_rename, ("old_path", "new_path")),
}
