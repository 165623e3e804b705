"""Syntax and references of spreadsheet formulas."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from agentgym.office.spreadsheet.cell_values import SYNTAX, CellError
from agentgym.office.spreadsheet.cells import (
    Area,
    parse_area,
    quote_title,
    split_sheet,
)

Node: TypeAlias = tuple[Any, ...]
"""A parsed formula: its kind, then its parts."""

MAX_DEPTH = 40  # levels of brackets, arguments and right operands, over which parsing recurses

_END = r"\$?[A-Za-z]{1,3}(?:\$?[1-9][0-9]{0,6})?"
_REFERENCE = (
    r"(?:(?:'(?:[^']|'')+'|[A-Za-z_][\w.]*)!)?"
    rf"(?:\$?[A-Za-z]{{1,3}}\$?[1-9][0-9]{{0,6}}(?::{_END})?|\$?[A-Za-z]{{1,3}}:\$?[A-Za-z]{{1,3}}|\$?[1-9][0-9]{{0,6}}:\$?[1-9][0-9]{{0,6}})(?![\w(])"
)
_TOKEN = re.compile(
    rf"""(?P<space>\s+)|(?P<text>"(?:[^"]|"")*")|(?P<reference>{_REFERENCE})|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<fault>\#(?:REF!|DIV/0!|N/A|NAME\?|VALUE!|NUM!|ERROR!))|(?P<name>[A-Za-z_][\w.]*)|(?P<sign><=|>=|<>|[-+*/^&=<>(),;%{}])|(?P<bad>.)""",
    re.DOTALL,
)
# Precedence; higher numbers bind more tightly, and a sign most tightly.
_BINARY = {
    "=": 1,
    "<>": 1,
    "<": 1,
    ">": 1,
    "<=": 1,
    ">=": 1,
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
    """Yield each token's kind, `bad` if invalid, and text; `formula` lacks the `=`."""
    at = 0
    while match := _TOKEN.match(formula, at):
        yield match.lastgroup or "", match.group()
        at = match.end()


@functools.lru_cache(maxsize=4096)
def parse(formula: str) -> Node:
    """Return the tree of a formula that starts with `=`; `("fault", "#ERROR!")` if it cannot be
    parsed.
    """
    try:
        return _Parser([token for token in tokens(formula[1:]) if token[0] != "space"]).whole()
    except _Syntax:
        return ("fault", SYNTAX)


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._left = [*tokens, ("end", "")][::-1]
        self._depth = 0

    def whole(self) -> Node:
        node = self._binary(0)
        if self._left[-1][0] != "end":
            raise _Syntax
        return node

    def _take(self, sign: str) -> bool:
        if self._left[-1] == ("sign", sign):
            self._left.pop()
            return True
        return False

    def _binary(self, least: int) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Syntax
        node = self._unary()
        while self._left[-1][0] == "sign" and _BINARY.get(self._left[-1][1], 0) > least:
            sign = self._left.pop()[1]
            node = ("binary", sign, node, self._binary(_BINARY[sign]))
        self._depth -= 1
        return node

    def _unary(self) -> Node:
        if self._left[-1] in (("sign", "-"), ("sign", "+")):
            # A sign binds more tightly than a power: -2^2 is 4.
            return ("unary", self._left.pop()[1], self._binary(_BINARY["^"]))
        node = self._atom()
        while self._take("%"):
            node = ("unary", "%", node)
        return node

    def _atom(self) -> Node:
        match self._left.pop():
            case "number", text:
                return ("value", float(text))
            case "text", text:
                return ("value", text[1:-1].replace('""', '"'))
            case "fault", text:
                return ("fault", CellError(text))
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
        if not self._take("("):
            return ("value", name == "TRUE") if name in ("TRUE", "FALSE") else ("name", name)
        return ("call", name, self._arguments())

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        while not self._take(")"):
            if arguments and not (self._take(",") or self._take(";")):
                raise _Syntax
            is_empty = self._left[-1] in (("sign", ","), ("sign", ";"), ("sign", ")"))
            arguments.append(("value", None) if is_empty else self._binary(0))
        return arguments


def parts_of(node: Node) -> Iterator[Node]:
    """Yield a tree's parts without recursion: `1+1+…` is as deep as long."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        match node[0]:
            case "call":
                waiting += reversed(node[2])
            case "unary" | "binary":
                waiting += reversed(node[2:])


def references(node: Node) -> Iterator[tuple[str | None, Area]]:
    """Yield the areas that a tree refers to."""
    return ((part[1], part[2]) for part in parts_of(node) if part[0] == "reference")


def rewrite(formula: str, change: Callable[[str | None, str], str]) -> str:
    """Replace each reference by `change(sheet, rest)`; texts stay."""
    return "=" + "".join(
        change(*split_sheet(text)) if kind == "reference" else text
        for kind, text in tokens(formula[1:])
    )


def retitle(old: str, new: str, named: str | None, rest: str) -> str:
    """Update a reference (`named` sheet, `rest`) after a sheet was renamed."""
    if named is None:
        return rest
    return f"{quote_title(new if named.lower() == old.lower() else named)}!{rest}"
