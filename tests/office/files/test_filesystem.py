"""Filesystem server: patterns and edits. Other tests are in `recorded/filesystem.txt`."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agentgym.office.files.filesystem import Patterns
from agentgym.office.files.textedit import EditOperation, apply_edits, show_diff
from agentgym.text.tools import ToolError, tools_of


class Client:
    def __init__(self, server: Any) -> None:
        self.server = server

    def __call__(self, name: str, /, **arguments: Any) -> Any:
        return tools_of(self.server)[name](arguments)

    def refused(self, name: str, /, **arguments: Any) -> str:
        with pytest.raises(ToolError) as caught:
            self(name, **arguments)
        return str(caught.value)


def test_edits_of_texts() -> None:
    assert apply_edits("a a", [EditOperation(oldText="a", newText="b")]) == "b a"
    assert (
        apply_edits("a\r\nb".replace("\r\n", "\n"), [EditOperation(oldText="a\r\nb", newText="c")])
        == "c"
    )
    assert (
        apply_edits("if x:\n\ty()\n", [EditOperation(oldText="    y()", newText="    z()")])
        == "if x:\n\tz()\n"
    )
    deeper = apply_edits(
        "  if a:\n    b\n", [EditOperation(oldText="if a:\n  b", newText="if a:\n  c\n    d")]
    )
    assert deeper == "  if a:\n  c\n    d\n"
    assert "\\ No newline at end of file" in show_diff("a", "a\n", "f")
    assert show_diff("```\n", "x\n", "f").startswith("````diff\n")
    rng = random.Random(1)
    many = [str(rng.randrange(150)) for _ in range(6_000)]
    assert show_diff("\n".join(many), "\n".join(sorted(many)), "f")
    with pytest.raises(ToolError, match="limit exceeded"):
        show_diff("\n" * 30_000, "", "f")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.txt", ["a.txt", ".txt"], ["b/a.txt", "a.txtx", "A.TXT"]),
        ("**/*.txt", ["a.txt", "b/a.txt", "b/c/a.txt"], ["a.md"]),
        ("b/**", ["b/a", "b/c/a", "b"], ["a", "c/b/a"]),
        ("**", ["a", "a/b"], []),
        ("b/**/d", ["b/d", "b/c/d", "b/c/c/d"], ["b/c", "d"]),
        ("[ab]?", ["ax", "by"], ["cx", "a", "a/"]),
        ("a", ["a"], ["b/a", "ab"]),
        ("{a,b}", ["{a,b}"], ["a"]),
        ("", [""], ["a"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], other: list[str]) -> None:
    patterns = Patterns([pattern])
    assert [path for path in matching + other if patterns.match(path)] == matching


@pytest.mark.parametrize("pattern", ["*" * 200, "**/" * 80, "*a" * 100 + "b", "[" * 200])
def test_patterns_never_backtrack(pattern: str) -> None:
    """A backtracking matcher would not terminate here."""
    assert isinstance(Patterns([pattern]).match("/".join(["a" * 200] * 30)), bool)


def test_patterns_are_limited() -> None:
    with pytest.raises(ToolError, match="limit exceeded"):
        Patterns(["x" * 300])
