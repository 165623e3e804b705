"""Functions that return arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    NOT_AVAILABLE,
    NUMBER,
    VALUE,
    CellError,
    FormulaError,
    Grid,
    grid_of,
    match_key,
    ordering,
    to_int,
    to_number,
    to_truth,
)

# Maximum cells of SEQUENCE, which needs no input of that size.
_MAX_MADE = 100_000


def _some_rows(rows: Sequence[Sequence[Any]]) -> Grid:
    if not rows:
        raise FormulaError(NOT_AVAILABLE)
    return Grid.of(rows)


def _filter(source: Any, *conditions: Any) -> Grid:
    grid = grid_of(source)
    down = all(
        grid_of(each).width == 1 and grid_of(each).height == grid.height for each in conditions
    )
    lines = grid.rows() if down else [grid.line(down=True, at=k) for k in range(grid.width)]
    tests = [grid_of(each).line(down=down) for each in conditions]
    if not conditions or any(len(test) != len(lines) for test in tests):
        raise FormulaError(VALUE)
    kept = [
        line
        for line, *answers in zip(lines, *tests, strict=True)
        if all(answer and not isinstance(answer, str) for answer in answers)
    ]
    chosen = _some_rows(kept)
    return chosen if down else transpose(chosen)


def transpose(source: Any) -> Grid:
    """Transpose a grid."""
    grid = grid_of(source)
    return Grid(grid.width, grid.height, {(c, r): value for (r, c), value in grid.cells.items()})


def compare(first: Any, second: Any) -> int:
    """Compare values in SORT's order: numbers, texts, booleans."""
    if isinstance(first, CellError) or isinstance(second, CellError):
        return isinstance(first, CellError) - isinstance(second, CellError)
    one, other = ordering(first, second), ordering(second, first)
    return (one > other) - (one < other)


def sort_rows(rows: list[list[Any]], keys: Sequence[tuple[Sequence[Any], bool]]) -> list[list[Any]]:
    """Sort rows by (value per row, direction) keys; empty values come last."""
    order = list(range(len(rows)))
    for values, rising in reversed(keys):
        filled = [k for k in order if values[k] is not None]
        filled.sort(key=lambda k: cmp_to_key(compare)(values[k]), reverse=not rising)
        order = [*filled, *(k for k in order if values[k] is None)]
    return [rows[k] for k in order]


def _sort_keys(grid: Grid, arguments: Sequence[Any]) -> list[tuple[list[Any], bool]]:
    """Read pairs of a column (number or range) and its direction."""
    keys = []
    for at in range(0, len(arguments), 2):
        column = arguments[at]
        rising = at + 1 >= len(arguments) or to_truth(arguments[at + 1])
        if isinstance(column, Grid) and 1 < column.height == grid.height:
            keys.append((column.line(down=True), rising))
            continue
        place = to_int(column.cells.get((0, 0)) if isinstance(column, Grid) else column)
        if not 1 <= place <= grid.width:
            raise FormulaError(VALUE)
        keys.append((grid.line(down=True, at=place - 1), rising))
    return keys


def _sort(source: Any, *arguments: Any) -> Grid:
    grid = grid_of(source)
    return _some_rows(sort_rows(grid.rows(), _sort_keys(grid, arguments or (1.0, True))))


def _key(value: Any) -> Any:
    return None if value is None else match_key(value)


def _unique(source: Any, by_column: Any = False, once: Any = False) -> Grid:
    grid = transpose(source) if to_truth(by_column) else grid_of(source)
    groups: dict[Any, list[Any]] = {}
    for row in grid.rows():
        key = tuple(value if isinstance(value, str) else _key(value) for value in row)
        groups.setdefault(key, []).append(row)
    chosen = _some_rows(
        [same[0] for same in groups.values() if not to_truth(once) or len(same) == 1]
    )
    return transpose(chosen) if to_truth(by_column) else chosen


def _sequence(rows: Any, columns: Any = 1.0, start: Any = 1.0, step: Any = 1.0) -> Grid:
    height, width = to_int(rows), to_int(columns)
    if height < 1 or width < 1 or height * width > _MAX_MADE:
        raise FormulaError(NUMBER)
    first, by = to_number(start), to_number(step)
    cells = {
        (row, column): first + by * (row * width + column)
        for row in range(height)
        for column in range(width)
    }
    return Grid(height, width, cells)


def _column(*sources: Any) -> Grid:
    return Grid.of(
        [[value] for source in sources for row in grid_of(source).rows() for value in row]
    )


ARRAYS: dict[str, Callable[..., Any]] = {
    "FILTER": _filter,
    "SORT": _sort,
    "UNIQUE": _unique,
    "TRANSPOSE": transpose,
    "SEQUENCE": _sequence,
    "FLATTEN": _column,
}
