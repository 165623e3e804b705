"""Formulas of spreadsheets: parsed once, computed with a bound on the work, never run as code.

The language is that of cells: numbers, texts, truth values, errors, references, operators and the
functions of the module `functions`; any other function is `#NAME?`, as in a spreadsheet. There are
no array formulas.

It is an evaluator of our own and not a spreadsheet engine such as IronCalc, for three reasons. The
work of one reading is bounded in steps, so that no formula of a policy can stop an episode; TODAY
and NOW tell the clock of the episode; and a result is the same on every machine and with every
version of a library, as rewards need it.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from agentgym.envs.loca.servers.spreadsheet.cell_values import (
    CYCLE,
    DIVISION,
    MAX_TEXT,
    NAME,
    NO_REFERENCE,
    NUMBER,
    SYNTAX,
    VALUE,
    CellError,
    Grid,
    SerialDate,
    number,
    ordering,
    scalar,
    text_of,
)
from agentgym.envs.loca.servers.spreadsheet.cells import (
    Area,
    column_name,
    column_number,
    parse_area,
    quote_title,
    split_sheet,
)
from agentgym.envs.loca.servers.spreadsheet.functions import call

Node: TypeAlias = tuple[Any, ...]
"""A parsed formula: what it is, then its parts."""

MAX_DEPTH = 40
"""Levels of a formula, whose parsing and computing recurse: brackets, arguments, right sides."""
MAX_STEPS = 500_000
"""Cells that are looked at for one reading of a sheet, less than a second; formulas beyond are
`#ERROR!`.
"""

_END = r"\$?[A-Za-z]{1,3}(?:\$?[1-9][0-9]{0,6})?"
_REFERENCE = (
    r"(?:(?:'(?:[^']|'')+'|[A-Za-z_][\w.]*)!)?"
    rf"(?:\$?[A-Za-z]{{1,3}}\$?[1-9][0-9]{{0,6}}(?::{_END})?|\$?[A-Za-z]{{1,3}}:\$?[A-Za-z]{{1,3}}|\$?[1-9][0-9]{{0,6}}:\$?[1-9][0-9]{{0,6}})(?![\w(])"
)
_TOKEN = re.compile(
    rf"""(?P<space>\s+)|(?P<text>"(?:[^"]|"")*")|(?P<reference>{_REFERENCE})|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<fault>\#(?:REF!|DIV/0!|N/A|NAME\?|VALUE!|NUM!))|(?P<name>[A-Za-z_][\w.]*)|(?P<sign><=|>=|<>|[-+*/^&=<>(),;%])"""
)
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
"""The precedence of each operator; one of a higher number binds closer, and a sign closest."""
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip


class _Syntax(Exception):
    pass


def tokens(formula: str) -> Iterator[tuple[str, str]]:
    """Return kind and text of each token of a formula without its `=`; what is none has the kind
    `bad`.
    """
    at = 0
    while at < len(formula):
        match = _TOKEN.match(formula, at)
        yield (match.lastgroup or "", match.group()) if match else ("bad", formula[at])
        at = match.end() if match else at + 1


@functools.lru_cache(maxsize=4096)
def parse(formula: str) -> Node:
    """The tree of a formula that begins with `=`; `("fault", "#ERROR!")` where it cannot be
    read.
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
            sign = self._left.pop()[1]
            # A sign binds closer than a power: -2^2 is 4.
            return ("unary", sign, self._binary(_BINARY["^"]))
        node = self._atom()
        while self._take("%"):
            node = ("unary", "%", node)
        return node

    def _atom(self) -> Node:
        kind, text = self._left.pop()
        if kind == "number":
            return ("value", float(text))
        if kind == "text":
            return ("value", text[1:-1].replace('""', '"'))
        if kind == "fault":
            return ("fault", CellError(text))
        if kind == "reference":
            title, rest = split_sheet(text)
            return ("reference", title, parse_area(rest))
        if kind == "name":
            return self._named(text.upper())
        if (kind, text) == ("sign", "("):
            node = self._binary(0)
            if self._take(")"):
                return node
        raise _Syntax

    def _named(self, name: str) -> Node:
        if not self._take("("):
            return ("value", name == "TRUE") if name in ("TRUE", "FALSE") else ("fault", NAME)
        arguments: list[Node] = []
        while not self._take(")"):
            if arguments and not (self._take(",") or self._take(";")):
                raise _Syntax
            empty = self._left[-1] in (("sign", ","), ("sign", ";"), ("sign", ")"))
            arguments.append(("value", None) if empty else self._binary(0))
        return ("call", name, arguments)


def references(node: Node) -> Iterator[tuple[str | None, Area]]:
    """Return the areas that a tree refers to, from left to right.

    It does not recurse: `1+1+…` is a tree as deep as it is long.
    """
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node[0] == "reference":
            yield node[1], node[2]
        parts = node[2] if node[0] == "call" else node[2:]
        waiting += [part for part in reversed(parts) if isinstance(part, tuple)]


class Evaluator:
    """The values of cells with formulas, each computed once.

    Args:
        load: Gives the cells of the sheet with a title, by row and column, or None where there is
            no such sheet.
        now: The time of TODAY and NOW.
    """

    def __init__(
        self, load: Callable[[str], Mapping[int, Mapping[int, Any]] | None], now: datetime
    ) -> None:
        self._load = functools.cache(load)
        self._now = now
        self._known: dict[tuple[str, int, int], Any] = {}
        self._grids: dict[tuple[str, Area], Grid] = {}
        self._steps = 0

    def value(self, sheet: str, row: int, column: int) -> Any:
        """Return the value of a cell."""
        start = (sheet, row, column)
        waiting = [start]
        open_cells: set[tuple[str, int, int]] = set()
        while waiting:
            spot = waiting[-1]
            formula = self._formula(spot)
            if spot in self._known or formula is None:
                waiting.pop()
                continue
            missing = [] if spot in open_cells else list(self._missing(spot[0], parse(formula)))
            open_cells.add(spot)
            if missing:
                cycle = [need for need in missing if need in open_cells]
                self._known.update(dict.fromkeys(cycle, CYCLE))
                waiting += [need for need in missing if need not in open_cells]
                continue
            self._known[spot] = self._cell_result(spot[0], parse(formula))
            waiting.pop()
        return self._read(start)

    def _formula(self, spot: tuple[str, int, int]) -> str | None:
        cell = (self._load(spot[0]) or {}).get(spot[1], {}).get(spot[2])
        return cell["f"] if isinstance(cell, dict) and "f" in cell else None

    def _missing(self, sheet: str, node: Node) -> Iterator[tuple[str, int, int]]:
        """Return the cells with formulas that a tree needs and whose values are not known yet."""
        for title, area in references(node):
            if (title or sheet, area) in self._grids:
                continue
            lines = self._load(title or sheet) or {}
            for row, column, cell in self._cells(lines, area):
                spot = (title or sheet, row, column)
                if isinstance(cell, dict) and "f" in cell and spot not in self._known:
                    yield spot

    def _cells(
        self, lines: Mapping[int, Mapping[int, Any]], area: Area
    ) -> Iterator[tuple[int, int, Any]]:
        """Return the filled cells of an area, by row and column."""
        near = area.bottom is not None and area.bottom - area.top < len(lines)
        rows = range(area.top, (area.bottom or 0) + 1) if near else sorted(lines)
        self._steps += len(rows)
        for row in rows:
            if self._steps > MAX_STEPS:
                return
            if (
                row not in lines
                or row < area.top
                or (area.bottom is not None and row > area.bottom)
            ):
                continue
            columns = sorted(
                column
                for column in lines[row]
                if column >= area.left and (area.right is None or column <= area.right)
            )
            self._steps += len(columns)
            for column in columns:
                yield row, column, lines[row][column]

    def _read(self, spot: tuple[str, int, int]) -> Any:
        if spot in self._known:
            return self._known[spot]
        cell = (self._load(spot[0]) or {}).get(spot[1], {}).get(spot[2])
        if isinstance(cell, dict):
            return SerialDate(cell["v"]) if cell.get("k") == "date" else cell.get("v", CYCLE)
        return cell

    def _cell_result(self, sheet: str, node: Node) -> Any:
        result = scalar(self._compute(sheet, node))
        return 0.0 if result is None else result

    def _compute(self, sheet: str, node: Node) -> Any:
        self._steps += 1
        if self._steps > MAX_STEPS:
            return SYNTAX
        kind = node[0]
        if kind in ("value", "fault"):
            return node[1]
        if kind == "reference":
            return self._area(node[1] or sheet, node[2])
        if kind == "call":
            return call(
                node[1],
                [functools.partial(self._compute, sheet, part) for part in node[2]],
                self._now,
            )
        return self._operations(sheet, node)

    def _operations(self, sheet: str, node: Node) -> Any:
        """Compute the operators of a tree along its left side, which is as long as the formula, from
        the inside out.
        """
        operations = []
        while node[0] in ("binary", "unary"):
            operations.append((node[1], node[3:]))
            node = node[2]
        self._steps += len(operations) - 1
        value = self._compute(sheet, node)
        for sign, others in reversed(operations):
            operands = [
                scalar(operand)
                for operand in (value, *(self._compute(sheet, part) for part in others))
            ]
            faults = [operand for operand in operands if isinstance(operand, CellError)]
            value = faults[0] if faults else _operate(sign, *operands)
        return value

    def _area(self, sheet: str, area: Area) -> Grid | CellError:
        if (sheet, area) in self._grids:
            self._steps += len(self._grids[sheet, area].cells) // 4
            return self._grids[sheet, area]
        lines = self._load(sheet)
        if lines is None:
            return NO_REFERENCE
        bottom = max(lines, default=area.top) if area.bottom is None else area.bottom
        widest = max((max(cells) for cells in lines.values() if cells), default=area.left)
        right = widest if area.right is None else area.right
        grid = Grid(max(1, bottom - area.top + 1), max(1, right - area.left + 1))
        for row, column, _ in self._cells(lines, area):
            grid.cells[row - area.top, column - area.left] = self._read((sheet, row, column))
        self._grids[sheet, area] = grid
        return grid


def _operate(sign: str, *operands: Any) -> Any:
    if sign == "&":
        joined = "".join(map(text_of, operands))
        return joined if len(joined) <= MAX_TEXT else VALUE
    if sign in _COMPARE:
        left, right = operands
        return _COMPARE[sign](ordering(left, right), ordering(right, left))
    numbers = [number(operand) for operand in operands]
    faults = [value for value in numbers if isinstance(value, CellError)]
    if faults:
        return faults[0]
    result = _arithmetic(sign, *numbers)
    dates = [isinstance(operand, SerialDate) for operand in operands]
    is_date = (
        sign in "+-"
        and (dates == [True, False] or (dates == [False, True] and sign == "+"))
        and isinstance(result, float)
    )
    return SerialDate(result) if is_date else result


def _arithmetic(sign: str, left: float, right: float | None = None) -> Any:
    if right is None:
        return {"%": left / 100, "-": -left, "+": left}[sign]
    if sign == "/":
        return left / right if right else DIVISION
    if sign == "^":
        try:
            power = left**right
        except (OverflowError, ZeroDivisionError):
            return NUMBER
        return NUMBER if isinstance(power, complex) else power
    result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return result if math.isfinite(result) else NUMBER


def rewrite(formula: str, change: Callable[[str | None, str], str]) -> str:
    """Return a formula with each reference replaced by what `change` makes of its sheet and the
    rest of it; texts in it stay.
    """
    parts = [
        change(*split_sheet(text)) if kind == "reference" else text
        for kind, text in tokens(formula[1:])
    ]
    return "=" + "".join(parts)


def shift(reference: str, axis: str, start: int, count: int) -> str:
    """Return a reference after rows or columns were inserted before number `start`, or taken out
    from there on.

    Args:
        reference: Without its sheet.
        axis: `row` or `column`.
        start: The first of them.
        count: How many; below 0 for taking out. A reference to nothing but these becomes `#REF!`.
    """
    ends = [list(_END_PARTS.fullmatch(end).groups()) for end in reference.split(":")]  # type: ignore[union-attr]  # all are such
    part = 3 if axis == "row" else 1
    numbers = [int(end[3] or 0) if axis == "row" else column_number(end[1]) for end in ends]
    if not numbers[0]:
        return reference
    first, last, after = numbers[0], numbers[-1] or OPEN, start + max(0, -count)
    if count < 0 and start <= first and last < after:
        return "#REF!"
    first = first if first < start else first + count if first >= after else start
    last = last if last < start else last + count if last >= after else start - 1
    for end, place in zip(ends, (first, last), strict=False):
        if end[part]:
            end[part] = str(place) if axis == "row" else column_name(place)
    return ":".join(map("".join, ends))


OPEN = 10**9
"""Beyond any row and column: where an open range ends."""
_END_PARTS = re.compile(r"(\$?)([A-Za-z]*)(\$?)([0-9]*)")


def with_sheet(title: str | None, rest: str) -> str:
    """Return a reference with its sheet, if it names one."""
    return rest if title is None else f"{quote_title(title)}!{rest}"
