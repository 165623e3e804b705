"""Functions that search a range for a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    NO_REFERENCE,
    NOT_AVAILABLE,
    VALUE,
    FormulaError,
    Grid,
    check,
    grid_of,
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


def _near_position(target: Any, line: Sequence[Any], *, falling: bool = False) -> int:
    """Return the last value's position that does not exceed the target, in a sorted line."""
    target = check(scalar(target))
    key, last = ordering(target, target), -1
    for k, value in enumerate(line):
        own = ordering(value, target)
        if value is None or own[0] != key[0]:
            continue
        if own < key if falling else own > key:
            break
        last = k
    if last < 0:
        raise FormulaError(NOT_AVAILABLE)
    return last


def _lookup(target: Any, grid: Grid, index: Any, near: Any = True, *, down: bool) -> Any:
    at = to_int(index) - 1
    if at < 0 or at >= (grid.width if down else grid.height):
        raise FormulaError(NO_REFERENCE if at >= 0 else VALUE)
    place = (
        _near_position(target, grid.line(down=down))
        if to_truth(near)
        else _exact_position(target, grid, down=down)
    )
    return grid.cells.get((place, at) if down else (at, place))


def _match(target: Any, grid: Grid, kind: Any = 1.0) -> float:
    way, down = to_number(kind), grid.width == 1
    if not down and grid.height != 1:
        raise FormulaError(NOT_AVAILABLE)
    if way == 0:
        return float(_exact_position(target, grid, down=down) + 1)
    return float(_near_position(target, grid.line(down=down), falling=way < 0) + 1)


def _index(grid: Any, row: Any = 0.0, column: Any = 0.0) -> Any:
    grid, down, across = grid_of(grid), to_int(row), to_int(column)
    if grid.height == 1 and grid.width > 1 and not across:
        down, across = 1, down
    if not (0 <= down <= grid.height and 0 <= across <= grid.width):
        raise FormulaError(NO_REFERENCE)
    rows = [down - 1] if down else range(grid.height)
    columns = [across - 1] if across else range(grid.width)
    if len(rows) == len(columns) == 1:
        return grid.cells.get((rows[0], columns[0]))
    return Grid.of([[grid.cells.get((r, c)) for c in columns] for r in rows])


def _any_position(target: Any, grid: Grid, mode: int, search: int) -> int:
    """Return a value's position in a row or column, as in XLOOKUP.

    Mode 0 is an exact match, -1 or 1 the next smaller or larger value otherwise, 2 wildcards. A
    negative `search` starts at the end.
    """
    down = grid.width == 1
    if not down and grid.height != 1:
        raise FormulaError(VALUE)
    line = list(enumerate(grid.line(down=down)))
    line = line[::-1] if search < 0 else line
    target = check(scalar(target))
    key = match_key("" if target is None else target)
    if mode == 2 and isinstance(target, str):
        place = _first_like(target, line)
    elif search > 0:
        place = grid.positions(down=down).get(key)
    else:
        place = next((k for k, v in line if v is not None and match_key(v) == key), None)
    if place is not None:
        return place
    order = ordering(target, target)
    others = [(ordering(value, target), k) for k, value in line if value is not None]
    others = [(own, k) for own, k in others if own[0] == order[0]]
    if mode == -1 and (smaller := [pair for pair in others if pair[0] < order]):
        return max(smaller, key=lambda pair: pair[0])[1]
    if mode == 1 and (larger := [pair for pair in others if pair[0] > order]):
        return min(larger, key=lambda pair: pair[0])[1]
    raise FormulaError(NOT_AVAILABLE)


def _xlookup(
    target: Any,
    searched: Grid,
    results: Grid,
    missing: Any = None,
    mode: Any = 0.0,
    search: Any = 1.0,
) -> Any:
    down = searched.width == 1
    if (searched.height != results.height) if down else (searched.width != results.width):
        raise FormulaError(VALUE)
    try:
        place = _any_position(target, searched, to_int(mode or 0.0), to_int(search))
    except FormulaError as stop:
        if stop.error == NOT_AVAILABLE and missing is not None:
            return missing
        raise
    line = results.line(down=not down, at=place)
    if len(line) == 1:
        return line[0]
    return Grid.of([line] if down else [[value] for value in line])


def _xmatch(target: Any, searched: Grid, mode: Any = 0.0, search: Any = 1.0) -> float:
    return float(_any_position(target, searched, to_int(mode), to_int(search)) + 1)


def _sorted_lookup(target: Any, searched: Grid, results: Any = None) -> Any:
    down = searched.height >= searched.width
    line = searched.line(down=down)
    place = _near_position(target, line)
    if isinstance(results, Grid):
        return results.line(down=results.width == 1)[place]
    return searched.line(down=down, at=(searched.width if down else searched.height) - 1)[place]


LOOKUPS: dict[str, Callable[..., Any]] = {
    "VLOOKUP": partial(_lookup, down=True),
    "HLOOKUP": partial(_lookup, down=False),
    "LOOKUP": _sorted_lookup,
    "MATCH": _match,
    "INDEX": _index,
    "XLOOKUP": _xlookup,
    "XMATCH": _xmatch,
}
