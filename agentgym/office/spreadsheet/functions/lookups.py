"""Functions that search a range for a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    NO_REFERENCE,
    NOT_AVAILABLE,
    VALUE,
    FormulaError,
    Grid,
    check,
    match_key,
    ordering,
    scalar,
    to_int,
    to_number,
    to_truth,
)
from agentgym.office.spreadsheet.functions.aggregates import condition


def _exact_position(target: Any, grid: Grid, *, down: bool) -> int:
    """Return a value's position from 0; `*` and `?` are wildcards."""
    target = check(scalar(target))
    target = "" if target is None else target
    if isinstance(target, str) and any(sign in target for sign in "*?~"):
        place = _first_like(target, enumerate(grid.line(down=down)))
    else:
        place = grid.positions(down=down).get(match_key(target))
    if place is None:
        raise FormulaError(NOT_AVAILABLE)
    return place


def _first_like(pattern: str, line: Iterable[tuple[int, Any]]) -> int | None:
    test = condition(f"={pattern}")
    return next((k for k, value in line if isinstance(value, str) and test(value)), None)


def _near_position(target: Any, line: Sequence[Any]) -> int:
    """Return the last value's position that does not exceed the target, in a sorted line."""
    target = check(scalar(target))
    key, last = ordering(target, target), -1
    for k, value in enumerate(line):
        own = ordering(value, target)
        if value is None or own[0] != key[0]:
            continue
        if own > key:
            break
        last = k
    if last < 0:
        raise FormulaError(NOT_AVAILABLE)
    return last


def _lookup(target: Any, grid: Grid, index: Any, near: Any = True) -> Any:
    at = to_int(index) - 1
    if at < 0 or at >= grid.width:
        raise FormulaError(NO_REFERENCE if at >= 0 else VALUE)
    if to_truth(near):
        place = _near_position(target, grid.line(down=True))
    else:
        place = _exact_position(target, grid, down=True)
    return grid.cells.get((place, at))


def _match(target: Any, grid: Grid, kind: Any = 1.0) -> float:
    way, down = to_number(kind), grid.width == 1
    if way < 0 or (not down and grid.height != 1):
        raise FormulaError(NOT_AVAILABLE)
    if way == 0:
        return float(_exact_position(target, grid, down=down) + 1)
    return float(_near_position(target, grid.line(down=down)) + 1)


def _index(grid: Grid, row: Any = 0.0, column: Any = 0.0) -> Any:
    down, across = to_int(row), to_int(column)
    if grid.height == 1 and not across:
        down, across = 1, down
    if grid.height == 1:
        down = down or 1
    if grid.width == 1:
        across = across or 1
    if not (down and across):
        raise FormulaError(VALUE)  # a whole row or column
    if not (0 < down <= grid.height and 0 < across <= grid.width):
        raise FormulaError(NO_REFERENCE)
    return grid.cells.get((down - 1, across - 1))


LOOKUPS: dict[str, Callable[..., Any]] = {
    "VLOOKUP": _lookup,
    "MATCH": _match,
    "INDEX": _index,
}
