"""The QUERY function: selects, groups and sorts a range's rows."""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    COMPARISONS,
    NOT_AVAILABLE,
    VALUE,
    FormulaError,
    Grid,
    SerialDate,
    check,
    is_number,
    text_of,
    to_int,
    to_moment,
    to_text,
)
from agentgym.office.spreadsheet.cells import column_name
from agentgym.office.spreadsheet.functions.arrays import compare
from agentgym.office.spreadsheet.functions.texts import expression
from agentgym.office.spreadsheet.query_language import (
    AGGREGATES,
    ParsedQuery,
    Tree,
    columns_of,
    parse_query,
)

Row = Sequence[Any]

# Operator names in a computed column's header.
_NAMES = {"+": "sum", "-": "difference", "*": "product", "/": "quotient"}


def query(data: Any, statement: Any = "", headers: Any = None) -> Grid:
    """Return a query's result, or raise `FormulaError` if it is invalid or empty without a header.

    Args:
        data: A range, with columns named by letter, or an array, with Col1, Col2 and so on.
        statement: The query.
        headers: Header rows in the data; guessed if omitted or negative.
    """
    if not isinstance(data, Grid):
        raise FormulaError(VALUE)
    rows = data.rows()
    while rows and all(value is None for value in rows[-1]):
        rows.pop()
    count = -1 if headers is None else to_int(headers)
    count = _guess_headers(rows) if count < 0 else min(count, len(rows))
    result = _Table(data, rows[:count], rows[count:]).run(parse_query(to_text(statement)))
    if not result:
        raise FormulaError(NOT_AVAILABLE)
    return Grid(len(result), max(map(len, result)), Grid.of(result).cells)


def _guess_headers(rows: Sequence[Row]) -> int:
    """Return 1 if the first row contains only texts and a later row another type."""
    return int(
        len(rows) > 1
        and all(value is None or type(value) is str for value in rows[0])
        and any(value is not None and type(value) is not str for row in rows[1:] for value in row)
    )


def _kind(value: Any) -> str:
    if isinstance(value, SerialDate):
        return "date"
    return "truth" if isinstance(value, bool) else "number" if is_number(value) else "text"


class _Table:
    """A query's data; `data` is the range, for its column names."""

    def __init__(self, data: Grid, headers: Sequence[Row], rows: Sequence[Row]) -> None:
        left = data.origin[1] if data.origin else None
        self._names = [
            column_name(left + k) if left is not None else f"COL{k + 1}" for k in range(data.width)
        ]
        self._places = {name: k for k, name in enumerate(self._names)}
        self._headers = [
            " ".join(text_of(row[k]) for row in headers if row[k] is not None)
            for k in range(data.width)
        ]
        self._rows = [list(row) for row in rows]
        for k in range(data.width):
            self._unify(k)

    def _unify(self, place: int) -> None:
        """Clear a column's cells that differ in kind from the majority."""
        kinds = Counter(_kind(row[place]) for row in self._rows if row[place] is not None)
        if len(kinds) > 1:
            [(kind, _)] = kinds.most_common(1)
            for row in self._rows:
                if _kind(row[place]) != kind:
                    row[place] = None

    def run(self, query: ParsedQuery) -> list[list[Any]]:
        """Return the result's rows, with any header."""
        select = query.select or [("column", name) for name in self._names]
        order = [tree for tree, _ in query.order]
        trees = [*select, *query.group, *query.pivot, *order, *query.labels]
        if not columns_of([*trees, *([query.where] if query.where else [])]) <= self._places.keys():
            raise FormulaError(VALUE)
        rows = [
            row for row in self._rows if query.where is None or self.value(query.where, row) is True
        ]
        if query.pivot:
            return self._pivoted(query, select, rows)
        if query.group or any(map(_is_aggregate, [*select, *order])):
            groups = self._groups(query, select, rows)
        else:
            groups = [[row] for row in rows]
        for tree, rising in reversed(query.order):
            groups.sort(
                key=lambda group: cmp_to_key(_order)(self._group_value(tree, group)),
                reverse=not rising,
            )
        labels = [self._label(tree, query) for tree in select]
        body = [[self._group_value(tree, group) for tree in select] for group in query.part(groups)]
        return [labels, *body] if any(labels) else body

    def _label(self, tree: Tree, query: ParsedQuery) -> str:
        return query.labels[tree] if tree in query.labels else self._header(tree)

    def _header(self, tree: Tree) -> str:
        match tree:
            case "column", name:
                return self._headers[self._places[name]]
            case "value", value:
                return text_of(value)
            case "call", name, parts if name in AGGREGATES:
                return f"{name} {self._header(parts[0])}".strip()
            case "call", name, parts:
                return f"{name}({','.join(map(self._header, parts))})"
        return f"{_NAMES[tree[0]]}({self._header(tree[1])},{self._header(tree[2])})"

    def _groups(
        self, query: ParsedQuery, select: Sequence[Tree], rows: list[list[Any]]
    ) -> list[list[list[Any]]]:
        for tree in select:
            if not _is_aggregate(tree) and tree not in query.group and columns_of([tree]):
                raise FormulaError(VALUE)
        if not query.group:
            return [rows]
        groups = self._split(rows, query.group)
        return [groups[key] for key in sorted(groups, key=cmp_to_key(_order_all))]

    def _pivoted(
        self, query: ParsedQuery, select: Sequence[Tree], rows: list[list[Any]]
    ) -> list[list[Any]]:
        sums = [tree for tree in select if _is_aggregate(tree)]
        keys = [tree for tree in select if not _is_aggregate(tree)]
        if query.order or not sums:
            raise FormulaError(VALUE)
        groups = self._groups(query, keys, rows)
        values = sorted(self._split(rows, query.pivot), key=cmp_to_key(_order_all))
        labels = [self._label(tree, query) for tree in keys]
        for value in values:
            name = ",".join(map(text_of, value))
            labels += [
                name if len(sums) == 1 else f"{name} {self._label(tree, query)}" for tree in sums
            ]
        body = []
        for group in groups:
            parts = self._split(group, query.pivot)
            cells = [
                self._group_value(tree, parts[value]) if value in parts else None
                for value in values
                for tree in sums
            ]
            body.append([*(self._group_value(tree, group) for tree in keys), *cells])
        return [labels, *query.part(body)]

    def _split(
        self, rows: Sequence[list[Any]], trees: Sequence[Tree]
    ) -> dict[tuple[Any, ...], list[list[Any]]]:
        groups: dict[tuple[Any, ...], list[list[Any]]] = {}
        for row in rows:
            groups.setdefault(tuple(self.value(tree, row) for tree in trees), []).append(row)
        return groups

    def _group_value(self, tree: Tree, group: Sequence[Row]) -> Any:
        if tree[0] == "call" and tree[1] in AGGREGATES and len(tree[2]) == 1:
            values = [self.value(tree[2][0], row) for row in group]
            return _aggregate(tree[1], [value for value in values if value is not None])
        if not _is_aggregate(tree):
            return self.value(tree, group[0]) if group else None
        if tree[0] == "call":
            raise FormulaError(VALUE)
        return _arithmetic(tree[0], *(self._group_value(part, group) for part in tree[1:]))

    def value(self, tree: Tree, row: Row) -> Any:
        kind = tree[0]
        match kind:
            case "column":
                return row[self._places[tree[1]]]
            case "value":
                return tree[1]
            case "call":
                return _call(tree[1], [self.value(part, row) for part in tree[2]])
            case "and":
                return self.value(tree[1], row) is True and self.value(tree[2], row) is True
            case "or":
                return self.value(tree[1], row) is True or self.value(tree[2], row) is True
            case "not":
                return self.value(tree[1], row) is not True
            case "null":
                return self.value(tree[1], row) is None
        left, right = self.value(tree[1], row), self.value(tree[2], row)
        if kind in _NAMES:
            return _arithmetic(kind, left, right)
        if kind in COMPARISONS:
            return _compared(kind, left, right)
        return _matches(kind, left, right)


def _is_aggregate(tree: Tree) -> bool:
    if tree[0] in ("column", "value"):
        return False
    if tree[0] == "call":
        return tree[1] in AGGREGATES or any(map(_is_aggregate, tree[2]))
    return any(map(_is_aggregate, tree[1:]))


def _order(first: Any, second: Any) -> int:
    """Compare values; empty ones come first."""
    if first is None or second is None:
        return (first is not None) - (second is not None)
    if isinstance(first, str) and isinstance(second, str):
        return (first > second) - (first < second)
    return compare(first, second)


def _order_all(first: Sequence[Any], second: Sequence[Any]) -> int:
    return next((way for pair in zip(first, second, strict=True) if (way := _order(*pair))), 0)


def _aggregate(name: str, values: list[Any]) -> Any:
    if name == "count":
        return float(len(values))
    if not values:
        return None
    if name in ("min", "max"):
        key = cmp_to_key(_order)
        return min(values, key=key) if name == "min" else max(values, key=key)
    if not all(map(is_number, values)):
        raise FormulaError(VALUE)
    total = math.fsum(values)
    return total if name == "sum" else total / len(values)


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if not is_number(left) or not is_number(right):
        raise FormulaError(VALUE)
    if sign == "/":
        return left / right if right else None
    return {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right)


def _compared(sign: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return sign == "<>" and left is not right
    if isinstance(left, str) != isinstance(right, str) or isinstance(left, bool) != isinstance(
        right, bool
    ):
        return sign == "<>"
    return COMPARISONS[sign](left, right)


def _matches(kind: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    whole, part = text_of(left), text_of(right)
    match kind:
        case "contains":
            return part in whole
        case "starts with":
            return whole.startswith(part)
        case "ends with":
            return whole.endswith(part)
        case "like":
            part = re.escape(part).replace("%", ".*").replace("_", ".")
    return expression(f"(?s)(?:{part})").fullmatch(whole) is not None


def _call(name: str, arguments: Sequence[Any]) -> Any:
    if name not in _FUNCTIONS or len(arguments) != (2 if name == "datediff" else 1):
        raise FormulaError(VALUE)
    if any(argument is None for argument in arguments):
        return None
    return _FUNCTIONS[name](*map(check, arguments))


# Scalar functions of queries.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "upper": lambda a: text_of(a).upper(),
    "lower": lambda a: text_of(a).lower(),
    "year": lambda a: float(to_moment(a).year),
    "month": lambda a: float(to_moment(a).month - 1),  # 0 is January, as in the service
    "day": lambda a: float(to_moment(a).day),
    "quarter": lambda a: float((to_moment(a).month + 2) // 3),
    "dayofweek": lambda a: float((to_moment(a).weekday() + 1) % 7 + 1),
    "hour": lambda a: float(to_moment(a).hour),
    "minute": lambda a: float(to_moment(a).minute),
    "second": lambda a: float(to_moment(a).second),
    "todate": lambda a: SerialDate(math.floor(float(a))),
    "datediff": lambda a, b: float((to_moment(a).date() - to_moment(b).date()).days),
}
