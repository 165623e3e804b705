"""Functions that reduce ranges to one value: sums, counts and criteria."""

from __future__ import annotations

import fnmatch
import math
import re
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    COMPARISONS,
    MAX_TEXT,
    VALUE,
    CellError,
    FormulaError,
    Grid,
    check,
    flat,
    is_number,
    limited,
    match_key,
    number,
    numbers,
    scalar,
    text_of,
    to_text,
    to_truth,
)

_CONDITION = re.compile(r"(<=|>=|<>|=|<|>)?(.*)", re.DOTALL)


def condition(criterion: Any) -> Callable[[Any], bool]:
    """Return a criterion's predicate, such as for `">5"`, `"a*"` or `7`."""
    criterion = check(scalar(criterion))
    if not isinstance(criterion, str):
        return lambda value: value is not None and not isinstance(value, str) and value == criterion
    sign, rest = _CONDITION.fullmatch(criterion).groups()  # type: ignore[union-attr]  # it matches anything
    as_number = number(rest) if rest.strip() else VALUE
    if not isinstance(as_number, CellError):
        relation = COMPARISONS[sign or "="]
        return lambda value: relation(float(value), as_number) if is_number(value) else sign == "<>"
    if sign in (None, "=", "<>"):
        return _text_condition(rest.lower(), same=sign != "<>")
    return lambda value: isinstance(value, str) and COMPARISONS[sign](value.lower(), rest.lower())


def _text_condition(text: str, *, same: bool) -> Callable[[Any], bool]:
    """Match, or reject (`same` false), a text with the wildcards `*` and `?`."""
    pattern = re.sub(r"~([*?])", r"[\1]", text.replace("[", "[[]"))
    return lambda value: (
        fnmatch.fnmatchcase(text_of(value).lower(), pattern) == same
        and not (same and text and value is None)
    )


def _matching_places(pairs: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the positions at which all (range, criterion) pairs hold."""
    if (
        len(pairs) % 2
        or not all(isinstance(grid, Grid) for grid in pairs[::2])
        or len({(grid.height, grid.width) for grid in pairs[::2]}) != 1
    ):
        raise FormulaError(VALUE)
    first: Grid = pairs[0]
    tests = [
        (grid, condition(criterion))
        for grid, criterion in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    places: Any = ((row, column) for row in range(first.height) for column in range(first.width))
    if any(
        not test(None) for _, test in tests
    ):  # non-empty cells suffice, far fewer than an open range contains
        places = sorted({spot for grid, _ in tests for spot in grid.cells})
    elif first.height * first.width > MAX_TEXT:
        raise FormulaError(VALUE)
    return [spot for spot in places if all(test(grid.cells.get(spot)) for grid, test in tests)]


def _matching_numbers(pairs: Sequence[Any], summed: Any) -> list[float]:
    chosen = _matching_places(pairs)
    values = (summed.cells.get(spot) for spot in chosen) if isinstance(summed, Grid) else ()
    return [
        float(check(value)) for value in values if is_number(value) or isinstance(value, CellError)
    ]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _join(between: Any, *values: Any) -> str:
    return limited(to_text(between).join(to_text(value) for value in flat(values)))


def _join_filled(between: Any, skip: Any, *values: Any) -> str:
    texts = [text for value in flat(values) if (text := to_text(value)) or not to_truth(skip)]
    return _join(between, *texts)


def _distinct(arguments: Sequence[Any]) -> float:
    return float(len({match_key(value) for value in flat(arguments) if value not in (None, "")}))


# Functions of whole ranges.
AGGREGATES: dict[str, Callable[..., Any]] = {
    "SUM": lambda *a: math.fsum(numbers(a)),
    "AVERAGE": lambda *a: _mean(numbers(a)),
    "COUNT": lambda *a: float(sum(map(is_number, flat(a)))),
    "COUNTA": lambda *a: float(sum(v is not None for v in flat(a))),
    "COUNTBLANK": lambda a: float(a.height * a.width - sum(v != "" for v in a.cells.values())),
    "COUNTUNIQUE": lambda *a: _distinct(a),
    "MIN": lambda *a: min(numbers(a), default=0.0),
    "MAX": lambda *a: max(numbers(a), default=0.0),
    "MEDIAN": lambda *a: statistics.median(numbers(a)),
    "COUNTIF": lambda grid, wanted: float(len(_matching_places([grid, wanted]))),
    "COUNTIFS": lambda *pairs: float(len(_matching_places(pairs))),
    "SUMIF": lambda grid, wanted, summed=None: math.fsum(
        _matching_numbers([grid, wanted], summed or grid)
    ),
    "SUMIFS": lambda summed, *pairs: math.fsum(_matching_numbers(pairs, summed)),
    "AVERAGEIF": lambda grid, wanted, summed=None: _mean(
        _matching_numbers([grid, wanted], summed or grid)
    ),
    "AVERAGEIFS": lambda summed, *pairs: _mean(_matching_numbers(pairs, summed)),
    "AND": lambda *a: all(to_truth(v) for v in flat(a)),
    "OR": lambda *a: any(to_truth(v) for v in flat(a)),
    "CONCATENATE": partial(_join, ""),
    "TEXTJOIN": _join_filled,
}
