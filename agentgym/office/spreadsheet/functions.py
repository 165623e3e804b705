"""Operators and functions of spreadsheet formulas.

A value is a number, a string, a boolean, `None` for an empty cell, a `CellError`, a `SerialDate`
or a `Grid`.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    DIVISION,
    MAX_TEXT,
    NO_REFERENCE,
    NOT_AVAILABLE,
    NUMBER,
    VALUE,
    CellError,
    SerialDate,
    parse_input,
    text_of,
)

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": operator.pow,
}
_MAX_AREA = 50_000  # maximum cells to compare with a criterion that also matches empty cells
_CONDITION = re.compile(r"(<=|>=|<>|=|<|>)?(.*)", re.DOTALL)


class FormulaError(Exception):
    """Raised to stop evaluating a function, operator or formula; `error` becomes the result."""

    def __init__(self, error: CellError) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of a range; `cells` maps (row, column), counted from 0, to values."""

    height: int
    width: int
    cells: dict[tuple[int, int], Any]


def single(value: Any) -> Any:
    """Return a value, or the value of a one-cell range; raise `FormulaError` for cell errors."""
    if isinstance(value, Grid):
        is_cell = (value.height, value.width) == (1, 1)
        value = value.cells.get((0, 0)) if is_cell else VALUE
    if isinstance(value, CellError):
        raise FormulaError(value)
    return value


def apply(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function and return the result; exceptions become cell errors."""
    try:
        value = function(*arguments)
    except FormulaError as stop:
        return stop.error
    except ZeroDivisionError:
        return DIVISION
    except (OverflowError, InvalidOperation):
        return NUMBER
    except (AttributeError, LookupError, TypeError, ValueError):
        return VALUE  # wrong number or type of arguments
    if isinstance(value, complex):
        return NUMBER
    if isinstance(value, float) and not math.isfinite(value):
        return NUMBER
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return VALUE
    return value


def _number(value: Any) -> float:
    value = single(value)
    if isinstance(value, str):
        cell = parse_input(value.strip())
        if not isinstance(cell, dict) or not _is_number(cell.get("v")):
            raise FormulaError(VALUE)
        value = cell["v"]
    return float(value or 0)


def _text(value: Any) -> str:
    return text_of(single(value))


def _truth(value: Any) -> bool:
    value = single(value)
    if isinstance(value, str):
        return {"TRUE": True, "FALSE": False}[value.upper()]
    return bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _flat(arguments: Sequence[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, Grid):
            yield from argument.cells.values()
        else:
            yield argument


def _numbers(arguments: Sequence[Any]) -> list[float]:
    """Return the numbers in the arguments; ignore other values in ranges."""
    values: list[float] = []
    for argument in arguments:
        if isinstance(argument, Grid):
            values += [float(v) for v in map(single, argument.cells.values()) if _is_number(v)]
        else:
            values.append(_number(argument))
    return values


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def operate(sign: str, *operands: Any) -> Any:
    """Apply an operator."""
    values = [single(operand) for operand in operands]
    if sign == "&":
        return "".join(map(text_of, values))
    if sign in _COMPARISONS:
        left, right = values
        return _COMPARISONS[sign](_ordering(left, right), _ordering(right, left))
    first, *others = map(_number, values)
    if others:
        result = _ARITHMETIC[sign](first, *others)
    else:
        result = {"%": first / 100, "-": -first, "+": first}[sign]
    dates = sum(isinstance(value, SerialDate) for value in values)
    if dates == 1 and sign in "+-":
        return SerialDate(result)
    return result


def _ordering(value: Any, other: Any) -> tuple[int, Any]:
    """Return a sort key: numbers before strings before booleans.

    An empty cell counts as the zero value of `other`'s type.
    """
    if value is None:
        value = type(other)() if isinstance(other, (str, bool)) else 0
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, str):
        return 1, value.lower()
    return 0, float(value)


def _condition(criterion: Any) -> Callable[[Any], bool]:
    criterion = single(criterion)
    if not isinstance(criterion, str):
        return lambda value: value is not None and not isinstance(value, str) and value == criterion
    sign, rest = _CONDITION.fullmatch(criterion).groups()  # type: ignore[union-attr]  # it matches anything
    relation = _COMPARISONS[sign or "="]
    amount = apply(_number, rest) if rest.strip() else VALUE
    if not isinstance(amount, CellError):
        return lambda value: relation(float(value), amount) if _is_number(value) else sign == "<>"
    text = rest.lower()
    if sign in (None, "=", "<>"):
        return _text_condition(text, same=sign != "<>")
    return lambda value: isinstance(value, str) and relation(value.lower(), text)


def _text_condition(text: str, *, same: bool) -> Callable[[Any], bool]:
    pattern = re.sub(r"~([*?])", r"[\1]", text.replace("[", "[[]"))
    return lambda value: (
        fnmatch.fnmatchcase(text_of(value).lower(), pattern) == same
        and not (same and text and value is None)
    )


def _matching(pairs: Sequence[Any]) -> list[tuple[int, int]]:
    height, width = pairs[0].height, pairs[0].width
    filled: set[tuple[int, int]] = set()
    tests = []
    for grid, criterion in zip(pairs[::2], pairs[1::2], strict=True):
        if (grid.height, grid.width) != (height, width):
            raise FormulaError(VALUE)
        tests.append((grid.cells, _condition(criterion)))
        filled.update(grid.cells)
    # Empty cells are compared only if they can match.
    places = sorted(filled)
    if all(test(None) for _, test in tests):
        if height * width > _MAX_AREA:
            raise FormulaError(VALUE)
        places = list(itertools.product(range(height), range(width)))
    matching = []
    for spot in places:
        if all(test(cells.get(spot)) for cells, test in tests):
            matching.append(spot)
    return matching


def _chosen(summed: Any, pairs: Sequence[Any]) -> list[float]:
    cells = summed.cells
    chosen = {spot: cells[spot] for spot in _matching(pairs) if spot in cells}
    return _numbers([Grid(1, 1, chosen)])


def _place(target: Any, grid: Grid, near: bool) -> int:
    """Return the row of `target` in the first column.

    With `near`, the column is sorted, and the row is that of the last value not above `target`.
    """
    target = single(target)
    key = _ordering(target, target)
    last = None
    for k in range(grid.height):
        value = grid.cells.get((k, 0))
        own = _ordering(value, target)
        if value is None or own[0] != key[0]:
            continue
        if own == key and not near and target is not None:
            return k
        if own > key and near:
            break
        last = k
    if last is None or not near:
        raise FormulaError(NOT_AVAILABLE)
    return last


def _lookup(target: Any, grid: Grid, index: Any, near: Any = True) -> Any:
    at = int(_number(index)) - 1
    if at < 0 or at >= grid.width:
        raise FormulaError(NO_REFERENCE if at >= 0 else VALUE)
    row = _place(target, grid, _truth(near))
    return grid.cells.get((row, at))


def _if(test: Any, yes: Any, no: Any = False) -> Any:
    return yes if _truth(test) else no


def _if_error(value: Any, other: Any = "") -> Any:
    return other if isinstance(apply(single, value), CellError) else value


def _round(value: Any, digits: Any = 0.0) -> float:
    places = int(_number(digits))
    if abs(places) > 20:
        raise FormulaError(NUMBER)
    # Decimal arithmetic rounds the displayed digits: ROUND(-1.005, 2) is -1.01.
    exact = Decimal(repr(_number(value))).scaleb(places)
    return float(exact.to_integral_value(ROUND_HALF_UP).scaleb(-places))


def _concatenate(*arguments: Any) -> str:
    whole = ""
    for value in _flat(arguments):
        whole += _text(value)
        if len(whole) > MAX_TEXT:
            raise FormulaError(VALUE)
    return whole


TAKE_ERRORS = frozenset(("IF", "IFERROR"))  # other functions propagate errors

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "SUM": lambda *a: math.fsum(_numbers(a)),
    "AVERAGE": lambda *a: _mean(_numbers(a)),
    "COUNT": lambda *a: float(sum(map(_is_number, _flat(a)))),
    "COUNTA": lambda *a: float(sum(value is not None for value in _flat(a))),
    "MIN": lambda *a: min(_numbers(a), default=0.0),
    "MAX": lambda *a: max(_numbers(a), default=0.0),
    "COUNTIF": lambda grid, wanted: float(len(_matching([grid, wanted]))),
    "COUNTIFS": lambda *pairs: float(len(_matching(pairs))),
    "SUMIF": lambda grid, wanted, summed=None: math.fsum(_chosen(summed or grid, [grid, wanted])),
    "SUMIFS": lambda summed, *pairs: math.fsum(_chosen(summed, pairs)),
    "AVERAGEIF": lambda grid, wanted, summed=None: _mean(_chosen(summed or grid, [grid, wanted])),
    "IF": _if,
    "IFERROR": _if_error,
    "AND": lambda *a: all(map(_truth, _flat(a))),
    "OR": lambda *a: any(map(_truth, _flat(a))),
    "NOT": lambda a: not _truth(a),
    "ABS": lambda a: abs(_number(a)),
    "INT": lambda a: float(math.floor(_number(a))),
    "MOD": lambda a, b: _number(a) % _number(b),
    "ROUND": _round,
    "VLOOKUP": _lookup,
    "CONCATENATE": _concatenate,
    "LEN": lambda a: float(len(_text(a))),
    "TRIM": lambda a: " ".join(_text(a).split()),
    "UPPER": lambda a: _text(a).upper(),
    "LOWER": lambda a: _text(a).lower(),
}
