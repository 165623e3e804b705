"""The language of the function QUERY, parsed: `select B, sum(C) where A > 1 group by B`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from agentgym.envs.loca.servers.spreadsheet.cell_values import (
    VALUE,
    FormulaError,
    SerialDate,
    serial,
)

Tree: TypeAlias = tuple[Any, ...]
"""A parsed part: `("column", name)`, `("value", value)`, `("call", name, arguments)`, or the name of
an operator and its operands.
"""

AGGREGATES = frozenset({"avg", "count", "max", "min", "sum"})
_MAX_CHARS = 4_000
"""Characters of a query."""
_MAX_DEPTH = 30
"""Levels of brackets, whose parsing and computing recurse."""
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<column>`[^`]*`)|(?P<number>\d+\.?\d*|\.\d+)|(?P<word>\w+)|(?P<sign><=|>=|<>|!=|[-+*/(),=<>]))""",
)
_CLAUSES = ("select", "where", "group by", "pivot", "order by", "limit", "offset", "label")
_MATCHING = ("contains", "starts with", "ends with", "matches", "like")
_DATE_FORMS = {"date": ("%Y-%m-%d",), "datetime": ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M")}


@dataclass(slots=True)
class Query:
    """A parsed query.

    Attributes:
        select: The columns of the result; None for all.
        where: The condition of the rows, if any.
        group: The columns of which equal rows make a group.
        pivot: The columns whose values become columns.
        order: Columns and whether they rise.
        limit: The most rows, if given.
        offset: Rows that are left out at the beginning.
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


def parse_query(text: str) -> Query:
    """Parse a query.

    Raises:
        FormulaError: It is none.
    """
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

    def whole(self) -> Query:
        query = Query()
        for clause in _CLAUSES:
            if self._take(*clause.split()):
                getattr(self, f"_{clause.split()[0]}")(query)
        if self._left[-1][0] != "end":
            raise FormulaError(VALUE)
        return query

    def _take(self, *words: str) -> bool:
        """Take words or signs if they come next."""
        ahead = [token[1].lower() for token in self._left[: -len(words) - 1 : -1]]
        if ahead != list(words) or any(
            token[0] in ("text", "column") for token in self._left[-len(words) :]
        ):
            return False
        del self._left[-len(words) :]
        return True

    def _list(self, item: Callable[[], Any]) -> list[Any]:
        items = [item()]
        while self._take(","):
            items.append(item())
        return items

    def _select(self, query: Query) -> None:
        if not self._take("*"):
            query.select = self._list(self._sum)

    def _where(self, query: Query) -> None:
        query.where = self._any()

    def _group(self, query: Query) -> None:
        query.group = self._list(self._sum)

    def _pivot(self, query: Query) -> None:
        query.pivot = self._list(self._sum)

    def _order(self, query: Query) -> None:
        query.order = self._list(
            lambda: (self._sum(), not self._take("desc") and (self._take("asc") or True))
        )

    def _limit(self, query: Query) -> None:
        query.limit = self._count()

    def _offset(self, query: Query) -> None:
        query.offset = self._count()

    def _label(self, query: Query) -> None:
        query.labels = dict(self._list(lambda: (self._sum(), self._text())))

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

    def _any(self) -> Tree:
        node = self._all()
        while self._take("or"):
            node = ("or", node, self._all())
        return node

    def _all(self) -> Tree:
        node = self._condition()
        while self._take("and"):
            node = ("and", node, self._condition())
        return node

    def _condition(self) -> Tree:
        self._deeper()
        if self._take("not"):
            node: Tree = ("not", self._condition())
        elif self._left[-1] == ("sign", "(") and self._is_condition():
            self._left.pop()
            node = self._any()
            self._close()
        else:
            node = self._comparison()
        self._depth -= 1
        return node

    def _is_condition(self) -> bool:
        """Return whether the bracket that comes next holds a condition, and not a number."""
        depth = 0
        for kind, text in reversed(self._left):
            depth += (text == "(") - (text == ")") if kind == "sign" else 0
            if kind == "sign" and text in ("=", "<", ">", "<=", ">=", "<>", "!="):
                return True
            if kind == "word" and text.lower() in (
                "is",
                "not",
                "contains",
                "starts",
                "ends",
                "matches",
                "like",
            ):
                return True
            if depth == 0:
                return False
        return False

    def _comparison(self) -> Tree:
        left = self._sum()
        if self._take("is", "not", "null"):
            return ("not", ("null", left))
        if self._take("is", "null"):
            return ("null", left)
        for words in _MATCHING:
            if self._take(*words.split()):
                return (words, left, self._sum())
        for sign in ("<=", ">=", "<>", "!=", "=", "<", ">"):
            if self._take(sign):
                return ("<>" if sign == "!=" else sign, left, self._sum())
        return left

    def _sum(self) -> Tree:
        node = self._product()
        while self._left[-1] in (("sign", "+"), ("sign", "-")):
            node = (self._left.pop()[1], node, self._product())
        return node

    def _product(self) -> Tree:
        node = self._factor()
        while self._left[-1] in (("sign", "*"), ("sign", "/")):
            node = (self._left.pop()[1], node, self._factor())
        return node

    def _factor(self) -> Tree:
        kind, text = self._left.pop()
        word = text.lower()
        if kind == "text":
            return ("value", text[1:-1])
        if kind == "number":
            return ("value", float(text))
        if kind == "column":
            return ("column", text[1:-1].upper())
        if (kind, text) == ("sign", "-"):
            return ("-", ("value", 0.0), self._factor_below())
        if (kind, text) == ("sign", "("):
            node: Tree = self._nested(self._sum)
            self._close()
            return node
        if kind == "word":
            return self._word(text, word)
        raise FormulaError(VALUE)

    def _word(self, text: str, word: str) -> Tree:
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

    def _factor_below(self) -> Tree:
        factor: Tree = self._nested(self._factor)
        return factor

    def _nested(self, part: Callable[[], Any]) -> Any:
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
    """Return the names of the columns in trees."""
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
