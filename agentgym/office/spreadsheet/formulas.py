"""Syntax and references of spreadsheet formulas."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from agentgym.office.spreadsheet.cell_values import NAME, SYNTAX, CellError
from agentgym.office.spreadsheet.cells import parse_area, quote_title, split_sheet

Node: TypeAlias = tuple[Any, ...]
"""A parsed formula: `("value", value)`, `("reference", sheet, area)`, `("call", name, arguments)` or
`("operation", sign, operand, …)`.
"""

MAX_DEPTH = 40  # maximum nesting, because the parser is recursive

_END = r"\$?[A-Za-z]{1,3}(?:\$?[1-9][0-9]{0,6})?"
_REFERENCE = (
    r"(?:(?:'(?:[^']|'')+'|[A-Za-z_][\w.]*)!)?"
    rf"(?:\$?[A-Za-z]{{1,3}}\$?[1-9][0-9]{{0,6}}(?::{_END})?|\$?[A-Za-z]{{1,3}}:\$?[A-Za-z]{{1,3}}|\$?[1-9][0-9]{{0,6}}:\$?[1-9][0-9]{{0,6}})(?![\w(])"
)
_TOKEN = re.compile(
    rf"""(?P<space>\s+)|(?P<text>"(?:[^"]|"")*")|(?P<reference>{_REFERENCE})|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<error>\#(?:REF!|DIV/0!|N/A|NAME\?|VALUE!|NUM!|ERROR!))|(?P<name>[A-Za-z_][\w.]*)|(?P<sign><=|>=|<>|[-+*/^&=<>(),;%{}])|(?P<bad>.)""",
    re.DOTALL,
)
# Precedence: operators with higher numbers bind more tightly.
_BINARY = {
    **dict.fromkeys(("=", "<>", "<", ">", "<=", ">="), 1),
    "&": 2,
    "+": 3,
    "-": 3,
    "*": 4,
    "/": 4,
    "^": 6,
}


class _Syntax(Exception):
    pass


def tokens(formula: str) -> Iterator[tuple[str, str]]:
    """Yield each token's kind (`bad` if invalid) and text; `formula` starts after the `=`."""
    at = 0
    while match := _TOKEN.match(formula, at):
        yield match.lastgroup or "", match.group()
        at = match.end()


@functools.lru_cache(maxsize=4096)
def parse(formula: str) -> Node:
    """Return the syntax tree of a formula that starts with `=`, or `#ERROR!` if it is invalid."""
    try:
        visible = [token for token in tokens(formula[1:]) if token[0] != "space"]
        return _Parser(visible).whole()
    except _Syntax:
        return ("value", SYNTAX)


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._left = [*tokens, ("end", "")][::-1]
        self._depth = 0

    @property
    def _next(self) -> tuple[str, str]:
        return self._left[-1]

    def whole(self) -> Node:
        node = self._binary(0)
        if self._next[0] != "end":
            raise _Syntax
        return node

    def _take(self, *signs: str) -> bool:
        if self._next[1] not in signs:
            return False
        self._left.pop()
        return True

    def _binary(self, least: int) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Syntax
        node = self._unary()
        while _BINARY.get(self._next[1], 0) > least:
            _, sign = self._left.pop()
            node = ("operation", sign, node, self._binary(_BINARY[sign]))
        self._depth -= 1
        return node

    def _unary(self) -> Node:
        _, sign = self._next
        if self._take("-", "+"):
            # A unary sign binds more tightly than a power: -2^2 is 4.
            return ("operation", sign, self._binary(_BINARY["^"]))
        node = self._atom()
        while self._take("%"):
            node = ("operation", "%", node)
        return node

    def _atom(self) -> Node:
        match self._left.pop():
            case "number", text:
                return ("value", float(text))
            case "text", text:
                return ("value", text[1:-1].replace('""', '"'))
            case "error", text:
                return ("value", CellError(text))
            case "reference", text:
                title, rest = split_sheet(text)
                return ("reference", title and title.lower(), parse_area(rest))
            case "name", text:
                return self._named(text.upper())
            case "sign", "(":
                node = self._binary(0)
                if self._take(")"):
                    return node
        raise _Syntax

    def _named(self, name: str) -> Node:
        if self._take("("):
            return ("call", name, self._arguments())
        return ("value", {"TRUE": True, "FALSE": False}.get(name, NAME))

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        while not self._take(")"):
            if arguments and not self._take(",", ";"):
                raise _Syntax
            if self._next[1] in (",", ";", ")"):
                arguments.append(("value", None))
            else:
                arguments.append(self._binary(0))
        return arguments


def parts_of(node: Node) -> Iterator[Node]:
    """Yield all nodes of a syntax tree, without recursion, because trees may be deep."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        if node[0] == "call":
            waiting += node[2]
        elif node[0] == "operation":
            waiting += node[2:]


def retitle(formula: str, old: str, new: str) -> str:
    """Replace the old sheet title in the references of a formula."""
    parts = ["="]
    for kind, text in tokens(formula[1:]):
        title, rest = split_sheet(text)
        if kind != "reference" or title is None:
            parts.append(text)
            continue
        if title.lower() == old.lower():
            title = new
        parts.append(f"{quote_title(title)}!{rest}")
    return "".join(parts)
