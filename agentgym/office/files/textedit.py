"""Text replacements and their diffs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from agentgym.text.tools import ToolError, echo

MAX_EDIT_CHARS = 2_000_000  # limited, because each edit copies the text
MAX_DIFF_LINES = 20_000  # a diff may take quadratic time


class EditOperation(TypedDict):
    """One replacement."""

    oldText: Annotated[str, Field(description="Text to replace.")]
    newText: Annotated[str, Field(description="Text in its place.")]


def apply_edits(text: str, edits: Sequence[EditOperation]) -> str:
    """Apply the edits in order; each edit replaces the first occurrence of `oldText`.

    Without an exact match, whitespace around lines is ignored, and new lines are indented like
    the old lines. Raises `ToolError` if `oldText` is empty or not found, or if a text is too long.
    """
    for edit in edits:
        old = edit["oldText"].replace("\r\n", "\n")
        new = edit["newText"].replace("\r\n", "\n")
        if not old:
            raise ToolError("invalid argument: oldText must not be empty")
        if max(len(text), len(new)) > MAX_EDIT_CHARS:
            raise ToolError(
                f"limit exceeded: a text of more than {MAX_EDIT_CHARS} characters cannot be edited"
            )
        if old in text:
            text = text.replace(old, new, 1)
        else:
            text = _replace_lines(text, old, new)
    return text


def _replace_lines(text: str, old: str, new: str) -> str:
    lines, passage = text.split("\n"), old.split("\n")
    bare = "\n".join(["", *map(str.strip, lines), ""])
    at = bare.find("\n".join(["", *map(str.strip, passage), ""]))
    if at < 0:
        raise ToolError(f"not found: the file does not contain {echo(old)}; nothing was changed")
    first = bare.count("\n", 0, at)
    indented = _indent(new.split("\n"), passage, _space(lines[first]))
    lines[first : first + len(passage)] = indented
    return "\n".join(lines)


def _indent(new: Sequence[str], old: Sequence[str], space: str) -> list[str]:
    lines = [space + new[0].lstrip()]
    for k, line in enumerate(new[1:], 1):
        before = len(_space(old[k])) if k < len(old) else 0
        depth = len(_space(line))
        if before and depth:
            line = space + " " * max(0, depth - before) + line.lstrip()  # noqa: PLW2901
        lines.append(line)
    return lines


def _space(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def show_diff(old: str, new: str, name: str) -> str:
    """Return a unified diff in a code fence, or raise `ToolError` for too many lines."""
    before, after = _lines(old), _lines(new)
    if max(len(before), len(after)) > MAX_DIFF_LINES:
        raise ToolError(
            f"limit exceeded: a file of more than {MAX_DIFF_LINES} lines cannot be edited; "
            "rewrite it with write_file"
        )
    hunks = difflib.unified_diff(
        before, after, f"{name}\toriginal", f"{name}\tmodified", n=_CONTEXT, lineterm=""
    )
    text = "\n".join([f"Index: {name}", "=" * 67, *hunks])
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}diff\n{text}\n{fence}\n\n"


_CONTEXT = 4  # context lines, as published


def _lines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    if last:
        lines.append(f"{last}\n\\ No newline at end of file")
    return lines
