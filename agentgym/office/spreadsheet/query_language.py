"""Parser of the QUERY language: `select B, sum(C) where A > 1 group by B`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from agentgym.office.spreadsheet.cell_values import (
    VALUE,
    FormulaError,
    SerialDate,
    serial,
)

Tree: TypeAlias = tuple[Any, ...]
"""A parsed part: `("column", name)`, `("value", value)`, `("call", name, arguments)`, or an
operator name and its operands.
"""

PartT = TypeVar("PartT")

AGGREGATES = frozenset({"avg", "count", "max", "min", "sum"})
# Maximum characters of a query.
_MAX_CHARS = 4_000
# Parsing and evaluation recurse per bracket.
_MAX_DEPTH = 30
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<column>`[^`]*`)|(?P<number>\d+\.?\d*|\.\d+)|(?P<word>\w+)|(?P<sign><=|>=|<>|!=|[-+*/(),=<>]))""",
)
_MATCHING = ("contains", "starts with", "ends with", "matches", "like")
_RELATIONS = ("<=", ">=", "<>", "!=", "=", "<", ">")
_DATE_FORMS = {"date": ("%Y-%m-%d",), "datetime": ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M")}


@dataclass(slots=True)
class ParsedQuery:
    """A parsed query.

    Attributes:
        select: Result columns; None for all.
        group: Columns whose equal rows form a group.
        pivot: Columns whose values become columns.
        order: Columns and whether they are ascending.
        labels: Headers by column.
    """

    select: list[Tree] | None = None
    where: Tree | None = None
    group: list[Tree] = field(default_factory=list)
    pivot: list[Tree] = field(default_factory=list)
    order: list[tuple[Tree, bool]] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0
    labels: dict[Tree, str] = field(default_factory=dict)

    def part(self, rows: list[PartT]) -> list[PartT]:
        """Apply limit and offset."""
        return rows[self.offset :][: self.limit]


def parse_query(text: str) -> ParsedQuery:
    """Parse a query; raise `FormulaError` if it is invalid."""
    if len(text) > _MAX_CHARS:
        raise FormulaError(VALUE)
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise FormulaError(VALUE)
            tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            at = match.end()
        self._left = [*tokens, ("end", "")][::-1]
        self._depth = 0

    def whole(self) -> ParsedQuery:
        query = ParsedQuery()
        if self._take("select") and not self._take("*"):
            query.select = self._list(self._sum)
        if self._take("where"):
            query.where = self._any()
        if self._take("group", "by"):
            query.group = self._list(self._sum)
        if self._take("pivot"):
            query.pivot = self._list(self._sum)
        if self._take("order", "by"):
            query.order = self._list(self._sorted)
        if self._take("limit"):
            query.limit = self._count()
        if self._take("offset"):
            query.offset = self._count()
        if self._take("label"):
            query.labels = dict(self._list(lambda: (self._sum(), self._text())))
        if self._left[-1][0] != "end":
            raise FormulaError(VALUE)
        return query

    def _take(self, *words: str) -> bool:
        """Consume words or signs if they come next."""
        ahead = [token[1].lower() for token in self._left[: -len(words) - 1 : -1]]
        if ahead != list(words) or any(
            token[0] in ("text", "column") for token in self._left[-len(words) :]
        ):
            return False
        del self._left[-len(words) :]
        return True

    def _list(self, item: Callable[[], PartT]) -> list[PartT]:
        items = [item()]
        while self._take(","):
            items.append(item())
        return items

    def _sorted(self) -> tuple[Tree, bool]:
        return self._sum(), self._take("asc") or not self._take("desc")

    def _count(self) -> int:
        kind, text = self._left.pop()
        if kind != "number" or "." in text:
            raise FormulaError(VALUE)
        return int(text)

    def _text(self) -> str:
        kind, text = self._left.pop()
        if kind != "text":
            raise FormulaError(VALUE)
        return text[1:-1]

    def _chain(self, part: Callable[[], Tree], *operators: str) -> Tree:
        node = part()
        while operator := next(filter(self._take, operators), None):
            node = (operator, node, part())
        return node

    def _any(self) -> Tree:
        return self._chain(self._all, "or")

    def _all(self) -> Tree:
        return self._chain(self._condition, "and")

    def _condition(self) -> Tree:
        self._deeper()
        if self._take("not"):
            node: Tree = ("not", self._condition())
        elif self._is_condition() and self._take("("):
            node = self._any()
            self._close()
        else:
            node = self._comparison()
        self._depth -= 1
        return node

    def _is_condition(self) -> bool:
        """Return whether the next bracket contains a condition, not a number."""
        depth = 0
        for kind, text in reversed(self._left):
            depth += (text == "(") - (text == ")") if kind == "sign" else 0
            if depth == 0:
                return False
            if (kind == "sign" and text in _RELATIONS) or (
                kind == "word"
                and text.lower() in ("is", "not", "contains", "starts", "ends", "matches", "like")
            ):
                return True
        return False

    def _comparison(self) -> Tree:
        left = self._sum()
        if self._take("is", "not", "null"):
            return ("not", ("null", left))
        if self._take("is", "null"):
            return ("null", left)
        for operator in (*_MATCHING, *_RELATIONS):
            if self._take(*operator.split()):
                return ("<>" if operator == "!=" else operator, left, self._sum())
        return left

    def _sum(self) -> Tree:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Tree:
        return self._chain(self._factor, "*", "/")

    def _factor(self) -> Tree:
        match self._left.pop():
            case "text", text:
                return ("value", text[1:-1])
            case "number", text:
                return ("value", float(text))
            case "column", text:
                return ("column", text[1:-1].upper())
            case "sign", "-":
                return ("-", ("value", 0.0), self._nested(self._factor))
            case "sign", "(":
                node = self._nested(self._sum)
                self._close()
                return node
            case "word", text:
                return self._word(text)
        raise FormulaError(VALUE)

    def _word(self, text: str) -> Tree:
        word = text.lower()
        if word in ("true", "false"):
            return ("value", word == "true")
        if word in (*_DATE_FORMS, "timestamp", "timeofday") and self._left[-1][0] == "text":
            return ("value", _moment(word, self._text()))
        if not self._take("("):
            return ("column", text.upper())
        arguments = [] if self._take(")") else self._nested(lambda: self._list(self._sum))
        if arguments:
            self._close()
        return ("call", word, tuple(arguments))

    def _nested(self, part: Callable[[], PartT]) -> PartT:
        self._deeper()
        node = part()
        self._depth -= 1
        return node

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise FormulaError(VALUE)

    def _close(self) -> None:
        if not self._take(")"):
            raise FormulaError(VALUE)


def _moment(kind: str, text: str) -> SerialDate:
    for form in _DATE_FORMS.get(kind, _DATE_FORMS["datetime"]):
        try:
            return SerialDate(serial(datetime.strptime(text, form)))
        except ValueError:
            continue
    raise FormulaError(VALUE)


def columns_of(trees: Sequence[Tree]) -> set[str]:
    """Return the column names in trees."""
    names: set[str] = set()
    waiting = list(trees)
    while waiting:
        tree = waiting.pop()
        if tree[0] == "column":
            names.add(tree[1])
        elif tree[0] == "call":
            waiting += tree[2]
        elif tree[0] != "value":
            waiting += tree[1:]
    return names
