"""Commands of the memory tool.

A state maps canonical paths to contents; every proper prefix of a path is a directory.
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
MAX_DEPTH = 8  # maximum directory depth, safe on all file systems
MAX_NAME_BYTES = 255  # UTF-8 bytes; the limit of common file systems
_MAX_PATH_CHARS = 4_096  # normalising some strings takes quadratic time
_VIEW_DEPTH = 2  # levels below the directory
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")

Files: TypeAlias = Mapping[str, str]
Result: TypeAlias = tuple[Files, str]


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits of a memory; a memory that already exceeds a limit must not grow."""

    file_chars: int
    total_chars: int
    files: int

    def check(self, before: Files, after: Files, path: str) -> None:
        """Raise `ToolError` if the new text of a file exceeds a limit."""
        current, chars = len(before.get(path, "")), len(after[path])
        total = sum(map(len, after.values()))
        if chars > max(self.file_chars, current):
            raise ToolError(
                f"{echo(path)} may have at most {self.file_chars} characters, got {chars}; "
                "shorten the text or split it into several files"
            )
        if path not in before and len(before) >= self.files:
            raise ToolError(
                f"the memory has {len(before)} files, but at most {self.files} are allowed; "
                "extend or delete a file"
            )
        if chars > current and total > self.total_chars:
            raise ToolError(
                f"the memory may contain at most {self.total_chars} characters, got {total}; "
                "shorten or delete files"
            )


def canonical(path: str) -> str:
    """Return the canonical form of a path; raise ToolError for a path outside the memory."""
    if len(path) > _MAX_PATH_CHARS:
        raise ToolError(
            f"the path {echo(path)} is too long; use a short path such as {ROOT}/notes.md"
        )
    full = posixpath.normpath(unicodedata.normalize("NFC", path))
    names = full.split("/")[2:]
    longest = max((len(name.encode("utf-8", "surrogatepass")) for name in names), default=0)
    objection = ""
    if ".." in path.split("/"):
        objection = "must not contain '..'; write the full path"
    elif "\\" in path:
        objection = "contains a backslash; separate names by /"
    elif {"Cc", "Cs", "Zl", "Zp"} & set(map(unicodedata.category, path)):
        objection = "contains a control character, a line separator or a lone surrogate"
    elif path.startswith("//") or not f"{full}/".startswith(f"{ROOT}/"):
        objection = f"is not in the memory; paths begin with {ROOT}/"
    elif len(names) > MAX_DEPTH:
        objection = f"has more than {MAX_DEPTH} names below {ROOT}; use fewer directories"
    elif longest > MAX_NAME_BYTES:
        objection = f"has a name of more than {MAX_NAME_BYTES} bytes; shorten it"
    if objection:
        raise ToolError(f"the path {echo(path)} {objection}")
    return full


def run(files: Files, command: str, arguments: Mapping[str, Any], limits: MemoryLimits) -> Result:
    """Run a command; return the new state and the tool result, or raise ToolError."""
    method, takes = _COMMANDS[command]
    missing = [name for name in takes if name not in arguments and name != "view_range"]
    if missing or arguments.keys() - set(takes):
        what = ", ".join(takes).replace("view_range", "view_range (optional)")
        wrong = [f"{name} is missing" for name in missing]
        wrong += [f"{name} is not one of them" for name in arguments if name not in takes]
        raise ToolError(f"{command} takes {what}: {', '.join(wrong)}")
    checked = dict(arguments)
    for name in arguments:
        if name.endswith("path"):
            checked[name] = canonical(arguments[name])
    for name in ("file_text", "old_str", "new_str", "insert_text"):
        if _UNSTORABLE.search(checked.get(name, "")):
            raise ToolError(f"{name} must not contain NUL or lone surrogates")
    after, answer = method(files, **checked)
    if command in ("create", "str_replace", "insert"):
        limits.check(files, after, checked["path"])
    return after, answer


def within(path: str, top: str) -> bool:
    """Report whether `path` equals `top` or lies inside it."""
    return path == top or path.startswith(f"{top}/")


def _is_directory(files: Files, path: str) -> bool:
    return path == ROOT or any(name.startswith(f"{path}/") for name in files)


def _text(files: Files, path: str) -> str:
    if path in files:
        return files[path]
    if _is_directory(files, path):
        raise ToolError(
            f"{echo(path)} is a directory, not a file; view the directory to list its files"
        )
    raise ToolError(f"there is no {echo(path)}; view {ROOT} to list all files")


def _check_present(files: Files, path: str, verb: str) -> None:
    if path == ROOT:
        raise ToolError(f"{ROOT} itself cannot be {verb}; name a file or directory inside it")
    if path not in files and not _is_directory(files, path):
        raise ToolError(f"there is no {echo(path)}; view {ROOT} to list all files")


def _check_above(files: Files, path: str) -> None:
    for name in files:
        if path.startswith(f"{name}/"):
            raise ToolError(f"{echo(name)} is a file, not a directory; choose another path")


def _view(files: Files, path: str, view_range: Sequence[int] | None = None) -> Result:
    if not _is_directory(files, path):
        return files, _numbered(path, _text(files, path), view_range)
    if view_range is not None:
        raise ToolError(f"{echo(path)} is a directory; omit view_range, which is for files only")
    return files, _listing(files, path)


def _listing(files: Files, path: str) -> str:
    sizes: dict[str, list[int]] = {}
    for name, text in files.items():
        if within(name, path):
            *folders, _ = name[len(path) + 1 :].split("/")
            shown = [f"{path}/"]
            for folder in folders:
                shown.append(f"{shown[-1]}{folder}/")
            for each in [*shown, name][: _VIEW_DEPTH + 1]:
                sizes.setdefault(each, []).append(len(text))
    rows = sorted(sizes.items(), key=lambda item: item[0].rstrip("/").split("/"))
    lines = []
    for name, lengths in rows:
        count = f"files: {len(lengths)}, " if name.endswith("/") else ""
        lines.append(f"{name} ({count}characters: {sum(lengths)})")
    return "\n".join(lines) or f"{path}/ is empty"


def _numbered(path: str, text: str, view_range: Sequence[int] | None) -> str:
    lines = StringIO(text).readlines()
    first, last = 1, len(lines)
    if view_range is not None:
        if len(view_range) != 2 or any(type(number) is not int for number in view_range):
            raise ToolError(
                f"view_range must be two line numbers [first, last], got {echo(view_range)}"
            )
        first, last = view_range
        if last == -1:
            last = len(lines)
        if not 1 <= first <= last <= len(lines):
            raise ToolError(
                f"view_range must be within [1, {len(lines)}], with first <= last, or last = -1 "
                f"for the end, got {echo(view_range)}; "
                f"{echo(path)} has {len(lines)} lines"
            )
    if not lines:
        return f"{path} is an empty file"
    numbered = enumerate(lines[first - 1 : last], first)
    shown = "".join(f"{number}\t{line}" for number, line in numbered)
    return f"{path}, lines {first} to {last} of {len(lines)}:\n{shown}"


def _create(files: Files, path: str, file_text: str) -> Result:
    if _is_directory(files, path):
        raise ToolError(f"{echo(path)} is a directory; name a file inside it")
    _check_above(files, path)
    did = "overwrote" if path in files else "created"
    return {**files, path: file_text}, f"{did} {path} (characters: {len(file_text)})"


def _str_replace(files: Files, path: str, old_str: str, new_str: str) -> Result:
    text = _text(files, path)
    if not old_str:
        raise ToolError("old_str is empty; give the text to replace, or use insert to add text")
    start = text.find(old_str)
    if start < 0:
        raise ToolError(f"{echo(path)} does not contain old_str; view it and copy the text exactly")
    line = text.count("\n", 0, start) + 1
    if (again := text.find(old_str, start + 1)) >= 0:
        raise ToolError(
            f"old_str must occur once in {echo(path)}, but occurs in line {line} and again in line "
            f"{text.count(chr(10), 0, again) + 1}; include more of the surrounding text"
        )
    after = text[:start] + new_str + text[start + len(old_str) :]
    return {**files, path: after}, f"replaced at line {line} of {path}"


def _insert(files: Files, path: str, insert_line: int, insert_text: str) -> Result:
    lines = StringIO(_text(files, path)).readlines()  # only a line feed ends a line
    if type(insert_line) is not int or not 0 <= insert_line <= len(lines):
        raise ToolError(
            f"insert_line must be in [0, {len(lines)}] for {echo(path)}, got {echo(insert_line)}"
        )
    if not insert_text:
        raise ToolError("insert_text is empty; give the text to insert")
    before, after = "".join(lines[:insert_line]), "".join(lines[insert_line:])
    start = "\n" if before and not before.endswith("\n") else ""
    end = "\n" if after and not insert_text.endswith("\n") else ""
    text = f"{before}{start}{insert_text}{end}{after}"
    return {**files, path: text}, f"inserted after line {insert_line} of {path}"


def _delete(files: Files, path: str) -> Result:
    _check_present(files, path, "deleted")
    left = {name: text for name, text in files.items() if not within(name, path)}
    return left, f"deleted {path} (files: {len(files) - len(left)})"


def _rename(files: Files, old_path: str, new_path: str) -> Result:
    _check_present(files, old_path, "renamed")
    if within(new_path, old_path):
        raise ToolError(
            f"{echo(new_path)} must not be {echo(old_path)} or inside it; choose another path"
        )
    if new_path in files or _is_directory(files, new_path):
        raise ToolError(f"{echo(new_path)} already exists; delete it first or choose another path")
    _check_above(files, new_path)
    after: dict[str, str] = {}
    for name, text in files.items():
        moved = new_path + name[len(old_path) :] if within(name, old_path) else name
        after[canonical(moved)] = text  # moved files may become nested too deeply
    return after, f"renamed {old_path} to {new_path}"


_COMMANDS: Mapping[str, tuple[Callable[..., Result], Sequence[str]]] = {
    "view": (_view, ("path", "view_range")),
    "create": (_create, ("path", "file_text")),
    "str_replace": (_str_replace, ("path", "old_str", "new_str")),
    "insert": (_insert, ("path", "insert_line", "insert_text")),
    "delete": (_delete, ("path",)),
    "rename": (_rename, ("old_path", "new_path")),
}
