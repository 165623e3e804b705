"""No regular expression of the package takes quadratic time on any text.

The test searches for three pattern shapes that take quadratic time; apart from rare cases, all
others are linear.
"""

from __future__ import annotations

import ast
import importlib
import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import agentgym

PACKAGE = Path(agentgym.__file__).parent
MANY = 256  # larger repeat limits count as unlimited
ALPHABET = string.printable + "é\u0301漢│\u00a0"
SEARCHES = ("search", "findall", "finditer", "sub", "subn", "split")
REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT)
EXEMPT = {  # file and name of a pattern: the reason why it is linear
    ("envs/agentlongbench/scoring.py", "_TAG"): "matched up to the last end only",
    ("oracles/teams.py", "_STATE"): "matched up to the last end only",
    ("office/files/terminal.py", "_PIECE"): "in lines of at most 2,048 characters",
    (
        "office/warehouse/scripting/parser.py",
        "_TOKEN",
    ): "what is not closed goes to the end",
    ("envs/lore/document_world.py", "_TASK"): "each beginning holds the end of the one before",
}

Nodes = Sequence[tuple[Any, Any]]


def letters(nodes: Nodes, first: bool = False) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for node in nodes:
        found |= _of(*node, first)
        if first and not nullable(node):
            break
    return found


def _of(op: Any, value: Any, first: bool) -> frozenset[str]:
    if op in (*REPEATS, ops.POSSESSIVE_REPEAT):
        return letters(value[2], first)
    if op is ops.SUBPATTERN:
        return letters(value[3], first)
    if op is ops.ATOMIC_GROUP:
        return letters(value, first)
    if op is ops.BRANCH:
        return frozenset().union(*(letters(branch, first) for branch in value[1]))
    if op in (ops.LITERAL, ops.NOT_LITERAL, ops.IN, ops.ANY):
        return frozenset(c for c in ALPHABET if _takes(op, value, c))
    return frozenset()


def _takes(op: Any, value: Any, character: str) -> bool:
    if op is ops.ANY:
        return character != "\n"
    if op is ops.LITERAL:
        return ord(character) == value
    if op is ops.NOT_LITERAL:
        return ord(character) != value
    negated = value[0][0] is ops.NEGATE
    inside = any(
        (kind is ops.LITERAL and ord(character) == item)
        or (kind is ops.RANGE and item[0] <= ord(character) <= item[1])
        or (kind is ops.CATEGORY and re.match(_CATEGORIES[item], character) is not None)
        for kind, item in value
    )
    return inside != negated


_CATEGORIES = {
    ops.CATEGORY_DIGIT: r"\d", ops.CATEGORY_NOT_DIGIT: r"\D", ops.CATEGORY_SPACE: r"\s",
    ops.CATEGORY_NOT_SPACE: r"\S", ops.CATEGORY_WORD: r"\w", ops.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def unlimited(node: tuple[Any, Any]) -> bool:
    return node[0] in REPEATS and node[1][1] > MANY


def nullable(node: tuple[Any, Any]) -> bool:
    op, value = node
    if op in (*REPEATS, ops.POSSESSIVE_REPEAT):
        return value[0] == 0 or all(map(nullable, value[2]))
    if op is ops.SUBPATTERN:
        return all(map(nullable, value[3]))
    if op is ops.BRANCH:
        return any(all(map(nullable, branch)) for branch in value[1])
    return op in (ops.AT, ops.ASSERT, ops.ASSERT_NOT)


def flat(nodes: Nodes) -> list[tuple[Any, Any]]:
    opened: list[tuple[Any, Any]] = []
    for op, value in nodes:
        opened += flat(value[3]) if op is ops.SUBPATTERN else [(op, value)]
    return opened


def branches(nodes: Nodes) -> Iterator[list[tuple[Any, Any]]]:
    opened = flat(nodes)
    for place, (op, value) in enumerate(opened):
        if op is ops.BRANCH:
            for branch in value[1]:
                yield from branches([*opened[:place], *branch, *opened[place + 1 :]])
            return
    yield opened


def faults(pattern: str, flags: int, method: str) -> Iterator[str]:
    parsed = parser.parse(pattern, flags)
    tree = list(parsed)
    if parsed.state.flags & re.DOTALL:
        tree = _with_dots(tree)
    for way in list(branches(tree))[:500]:
        yield from _neighbours(way, method)
        if method in SEARCHES:
            yield from _starts(way)


def _with_dots(nodes: Any) -> Any:
    if isinstance(nodes, (list, parser.SubPattern)):
        return [_with_dots(node) for node in nodes]
    if not isinstance(nodes, tuple):
        return nodes
    if nodes and nodes[0] is ops.ANY:
        return (ops.IN, [(ops.RANGE, (0, 0x10FFFF))])
    return tuple(_with_dots(item) for item in nodes)


def _neighbours(way: Nodes, method: str) -> Iterator[str]:
    for place, node in enumerate(way):
        if not unlimited(node):
            continue
        for later, other in enumerate(way[place + 1 :], place + 1):
            rest = way[later + 1 :]
            fails = method == "fullmatch" or not all(map(nullable, rest))
            if unlimited(other) and fails and letters([node]) & letters([other], first=True):
                yield f"repeats {place} and {later} share characters"
            if not nullable(other) or other[0] is ops.ASSERT_NOT:
                break


def _starts(way: Nodes) -> Iterator[str]:
    guarded = False
    before: list[tuple[Any, Any]] = []
    for place, node in enumerate(way):
        if node[0] in (ops.AT, ops.ASSERT, ops.ASSERT_NOT) and not before:
            guarded = True
        rest = way[place + 1 :]
        runs = unlimited(node) or (node[0] is ops.POSSESSIVE_REPEAT and node[1][1] > MANY)
        if runs and not guarded and not all(map(nullable, rest)):
            needed = [letters([each]) for each in before if not nullable(each)]
            if all(each & letters([node]) for each in needed):
                yield f"repeat {place} is tried again from {'each place' if not needed else 'each beginning'}"
        if node[0] not in (ops.AT, ops.ASSERT, ops.ASSERT_NOT):
            before.append(node)


def patterns() -> Iterator[tuple[str, str, str, int, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        file = str(path.relative_to(PACKAGE))
        source = path.read_text(encoding="utf-8")
        if "re." not in source or file.startswith(("training", "sandboxes")):
            continue
        module = importlib.import_module(
            ".".join(("agentgym", *path.relative_to(PACKAGE).with_suffix("").parts))
        )
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                for method in (*SEARCHES, "match", "fullmatch"):
                    if re.search(rf"\b{name}\.{method}\(", source):
                        yield file, name, value.pattern, value.flags, method
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(
                    ast.Attribute(ast.Name("re"), method), [ast.Constant(str(text)), *_]
                ) if method != "compile":
                    yield file, str(node.lineno), text, _flags(ast.unparse(node)), method


def _flags(call: str) -> int:
    names = {"re.I": re.I, "re.S": re.S, "re.DOTALL": re.S, "re.M": re.M}
    return sum({flag for name, flag in names.items() if name in call})


def test_no_pattern_takes_quadratic_time() -> None:
    found = [
        f"{file} {name} {method}: {fault}: {pattern}"
        for file, name, pattern, flags, method in patterns()
        if (file, name) not in EXEMPT
        for fault in {*faults(pattern, flags, method)}
    ]
    assert found == []


SLOW = [
    (r"\s+and\s+|[,;|\n]", "split"),
    (r"([\w-]+)\.pdf", "findall"),
    (r"([^\s<>]+@[^\s<>]+)>?$", "findall"),
    (r"(?s)<answer>(.*?)</answer>", "findall"),
    (r"%?\s*[A-Za-z ]*\.?", "fullmatch"),
    (r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", "fullmatch"),
    (r"```python[ \t]*\n?\s*([a-z]+)", "fullmatch"),
    (r"^([│ ]*)(\S+)(?: \((.+)\)|(?<=/))$", "match"),
    (r"(?:Purchaser|Seller): .*?([\w.]+@mcp\.com)", "search"),
    (r"full name is ([^.]+)\.", "findall"),
    (r"[^\s\d]*+\d\S*", "sub"),
    (r"\[([^|\]]+) \| ([^\]]+)\]", "findall"),
]
QUICK = [
    (r"(?<!\s)\s+and\s+|[,;|\n]", "split"),
    (r"(?<![\w-])([\w-]+)\.pdf", "findall"),
    (r"%?\s*+[A-Za-z ]*+\.?", "fullmatch"),
    (r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", "fullmatch"),
    (r"<[^<>]*>", "sub"),
    (r"[a-z0-9]+", "findall"),
    (r"full name is ([^.]{1,200})\.", "findall"),
    (r"```python\s*([a-z]+)", "fullmatch"),
]


@pytest.mark.parametrize(("pattern", "method"), SLOW)
def test_slow_patterns_are_found(pattern: str, method: str) -> None:
    assert [*faults(pattern, 0, method)]


@pytest.mark.parametrize(("pattern", "method"), QUICK)
def test_quick_patterns_pass(pattern: str, method: str) -> None:
    assert [*faults(pattern, 0, method)] == []
