"""Evaluation of spreadsheet formulas with bounded work, never as code.

An engine such as IronCalc would not fit: here a step limit keeps any formula from stalling an
episode, TODAY and NOW use the episode's clock, and results are equal on every machine and library
version, as rewards require.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from agentgym.office.spreadsheet.cell_values import (
    CYCLE,
    NAME,
    NO_REFERENCE,
    NUMBER,
    SYNTAX,
    VALUE,
    CellError,
    FormulaError,
    Grid,
    SerialDate,
    grid_of,
)
from agentgym.office.spreadsheet.cells import Area
from agentgym.office.spreadsheet.formulas import Node, parse, parts_of, references
from agentgym.office.spreadsheet.functions.forms import FORMS
from agentgym.office.spreadsheet.functions.operators import (
    at,
    guarded,
    operate,
    plain,
    size_of,
)
from agentgym.office.spreadsheet.functions.registry import (
    ARRAY_CONTEXTS,
    ARRAY_RESULTS,
    FUNCTIONS,
    MATCHING,
    SINGLES,
)
from agentgym.text import reply_work

# Cells visited or created and formula parts computed per change, which take less than a second.
MAX_STEPS = 500_000

# Steps per call for one cell of a range, besides visiting the cell.
_CALL_STEPS = 5
MAX_LEVELS = 80  # twice a formula's depth: a call takes two levels

Spot: TypeAlias = tuple[str, int, int]
"""Lower-case sheet title, row and column of a cell."""
Results: TypeAlias = dict[str, dict[tuple[int, int], Any]]
"""Values by lower-case sheet title, then by row and column."""


@dataclass(frozen=True, slots=True)
class SheetCells:
    """A sheet's size and cells as entered, by row and column; arrays expand into them."""

    lines: dict[int, dict[int, Any]]
    height: int = 1000
    width: int = 26


@dataclass(frozen=True, slots=True)
class FormulaScope:
    """The position of a part of a formula.

    Attributes:
        array: Whether operators and functions apply to each cell of a range.
    """

    sheet: str
    row: int
    column: int
    array: bool = False


class _Missing(Exception):
    """Raised when a formula needs uncomputed cells."""

    def __init__(self, spots: Sequence[Spot]) -> None:
        self.spots = spots


class Evaluator:
    """The results of one spreadsheet's formulas, each computed once."""

    def __init__(self, load: Callable[[str], SheetCells | None], now: datetime) -> None:
        self._load = functools.cache(load)
        self.now = now
        self._known: dict[Spot, Any] = {}
        self._expanded: list[Spot] = []
        self._opened: dict[Spot, int] = {}
        self._grids: dict[tuple[str, Area], Grid] = {}
        self._read_areas: list[tuple[str, Area]] = []
        self._formulas: dict[str, dict[int, dict[int, Node]]] = {}
        self._pending: dict[str, list[tuple[int, int]]] = {}
        self._first_column: dict[str, int] = {}
        self._steps = self._depth = 0

    def results(self, sheets: Iterable[str]) -> Results:
        """Return all formulas' results, including expanded arrays."""
        for sheet in sheets:
            self._find_formulas(sheet)
        pending = [(sheet, *place) for sheet, places in self._pending.items() for place in places]
        formulas = [
            (sheet, row, column)
            for sheet, lines in self._formulas.items()
            for row, cells in lines.items()
            for column in cells
        ]
        for spot in (*pending, *formulas):
            self._evaluate(spot)
        results: Results = {}
        for (sheet, row, column), value in self._known.items():
            results.setdefault(sheet, {})[row, column] = value
        for sheet, row, column in self._expanded:
            results.setdefault(sheet, {})[row, column] = self._sheet(sheet).lines[row][column]
        reply_work.spend(self._steps / MAX_STEPS)
        return results

    def _find_formulas(self, sheet: str) -> None:
        formulas: dict[int, dict[int, Node]] = {}
        pending = []
        for row, cells in self._sheet(sheet).lines.items():
            for column, cell in cells.items():
                if isinstance(cell, dict) and "f" in cell:
                    node = parse(cell["f"])
                    formulas.setdefault(row, {})[column] = node
                    if _may_expand(node):
                        pending.append((row, column))
        self._formulas[sheet], self._pending[sheet] = formulas, sorted(pending)
        self._first_column[sheet] = min((column for _, column in pending), default=MAX_STEPS)

    def _sheet(self, title: str) -> SheetCells:
        sheet = self._load(title)
        if sheet is None:
            raise FormulaError(NO_REFERENCE)
        return sheet

    def spend(self, steps: int) -> None:
        """Count work; raise `FormulaError` above the limit per change."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise FormulaError(SYNTAX)

    # The order of computation.

    def _evaluate(self, start: Spot) -> None:
        waiting = [start]
        while waiting:
            spot = waiting[-1]
            if spot in self._known:
                waiting.pop()
                continue
            node = self._formulas[spot[0]][spot[1]][spot[2]]
            try:
                if spot not in self._opened:
                    self._opened[spot] = len(self._read_areas)
                    self._require([(title or spot[0], area) for title, area in references(node)])
                value = self._result(spot, node)
            except _Missing as missing:
                # A formula that waits for itself, possibly through others, becomes a cycle
                # error.
                self._known |= {need: CYCLE for need in missing.spots if need in self._opened}
                waiting += [need for need in missing.spots if need not in self._opened]
                continue
            except FormulaError as stop:
                value = stop.error
            self._known[spot] = value
            waiting.pop()

    def _require(self, areas: Iterable[tuple[str, Area]]) -> None:
        """Raise `_Missing` if cells are not computed yet."""
        missing: list[Spot] = []
        for sheet, area in areas:
            if (sheet, area) not in self._grids:
                cells = self._within(self._formulas.get(sheet, {}), area)
                spots = [(sheet, row, column) for row, column, _ in cells]
                missing += [spot for spot in spots if spot not in self._known]
                missing += self._pending_before(sheet, area)
        if missing:
            raise _Missing(missing)

    def _pending_before(self, sheet: str, area: Area) -> Iterator[Spot]:
        """Yield formulas above and left of an area's end that may expand into it."""
        pending = self._pending.get(sheet, [])
        while pending and (sheet, *pending[0]) in self._known:
            pending.pop(0)
        if area.right is not None and area.right < self._first_column.get(sheet, 0):
            return
        for row, column in pending:
            if area.bottom is not None and row > area.bottom:
                break
            self.spend(1)
            spot = (sheet, row, column)
            if (area.right is None or column <= area.right) and not (
                spot in self._known or spot in self._opened
            ):
                yield spot

    def _within(
        self, lines: Mapping[int, Mapping[int, Any]], area: Area
    ) -> Iterator[tuple[int, int, Any]]:
        near = area.bottom is not None and area.bottom - area.top < len(lines)
        rows = range(area.top, (area.bottom or 0) + 1) if near else sorted(lines)
        self.spend(len(rows))
        for row in rows:
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
            self.spend(len(columns))
            for column in columns:
                yield row, column, lines[row][column]

    def _result(self, spot: Spot, node: Node) -> Any:
        """Return a formula's value, expanding arrays down and right."""
        scope = FormulaScope(*spot)
        value = self.compute(node, scope)
        if isinstance(value, Grid) and _may_expand(node):
            self._expand(spot, value)
            value = value.cells.get((0, 0))
        value = self.single(value, scope)
        if value is None:
            return 0.0 if node[0] != "call" or node[1] not in ARRAY_RESULTS else ""
        return plain(value)

    def _expand(self, spot: Spot, grid: Grid) -> None:
        sheet, top, left = spot
        cells, bottom, right = self._sheet(sheet), top + grid.height - 1, left + grid.width - 1
        self.spend(grid.height * grid.width)
        if (
            bottom > cells.height
            or right > cells.width
            or any(
                left <= column <= right and (row, column) != (top, left)
                for row in range(top, bottom + 1)
                for column in cells.lines.get(row, {})
            )
        ):
            raise FormulaError(NO_REFERENCE)
        if (grid.height, grid.width) != (1, 1) and any(
            title == sheet and _overlap(area, spot, bottom, right)
            for title, area in self._read_areas[self._opened[spot] :]
        ):
            raise FormulaError(CYCLE)
        for (row, column), value in grid.cells.items():
            if (row, column) != (0, 0) and value is not None:
                cells.lines.setdefault(top + row, {})[left + column] = plain(value)
                self._expanded.append((sheet, top + row, left + column))

    # Computation of a tree.

    def compute(self, node: Node, scope: FormulaScope) -> Any:
        """Return a tree's value."""
        if self._depth >= MAX_LEVELS:
            raise FormulaError(NUMBER)
        self.spend(2)
        self._depth += 1
        try:
            return self._value(node, scope)
        finally:
            self._depth -= 1

    def _value(self, node: Node, scope: FormulaScope) -> Any:
        match node[0]:
            case "value" | "fault":
                return node[1]
            case "reference":
                return self.area(node[1] or scope.sheet, node[2])
            case "name":
                return NAME
            case "call":
                return self.call(node[1], node[2], scope)
            case "array":
                return self._array(node, scope)
        return self._operations(node, scope)

    def _array(self, node: Node, scope: FormulaScope) -> Grid:
        inner, items = replace(scope, array=True), iter(node[2])
        bands: list[list[list[Any]]] = []
        for width in node[1]:
            parts = [grid_of(self.compute(next(items), inner)) for _ in range(width)]
            if len({part.height for part in parts}) > 1:
                raise FormulaError(VALUE)
            self.spend(sum(part.height * part.width for part in parts))
            lines = zip(*(part.rows() for part in parts), strict=True)
            bands.append([[*itertools.chain(*line)] for line in lines])
        if len({len(band[0]) for band in bands}) > 1:
            raise FormulaError(VALUE)
        return Grid.of([*itertools.chain(*bands)])

    def _operations(self, node: Node, scope: FormulaScope) -> Any:
        """Compute operators from the inside out along the left side, which may be long."""
        operations = []
        while node[0] in ("binary", "unary"):
            operations.append((node[1], node[3:]))
            node = node[2]
        self.spend(len(operations) - 1)
        value = self.compute(node, scope)
        for sign, others in reversed(operations):
            operands = (value, *(self.compute(part, scope) for part in others))
            value = self.lift(guarded(functools.partial(operate, sign)), operands, scope)
            self.spend(size_of(value))
        return value

    def area(self, sheet: str, area: Area) -> Grid:
        """Return an area's values, or raise `FormulaError`."""
        if (sheet, area) in self._grids:
            self.spend(len(self._grids[sheet, area].cells) // 4)
            return self._grids[sheet, area]
        cells = self._sheet(sheet)
        self._require([(sheet, area)])
        bottom = cells.height if area.bottom is None else area.bottom
        right = cells.width if area.right is None else area.right
        grid = Grid(
            max(1, bottom - area.top + 1), max(1, right - area.left + 1), {}, (area.top, area.left)
        )
        for row, column, cell in self._within(cells.lines, area):
            grid.cells[row - area.top, column - area.left] = self._read((sheet, row, column), cell)
        self._grids[sheet, area] = grid
        self._read_areas.append((sheet, area))
        return grid

    def _read(self, spot: Spot, cell: Any) -> Any:
        if spot in self._known:
            return self._known[spot]
        if isinstance(cell, dict):
            return SerialDate(cell["v"]) if cell.get("k") == "date" else cell.get("v", CYCLE)
        return cell

    def call(self, name: str, parts: Sequence[Node], scope: FormulaScope) -> Any:
        """Return a function's value, including errors."""
        try:
            if name in FORMS:
                return guarded(FORMS[name])(self, parts, scope)
            if name not in FUNCTIONS:
                return NAME
            inner = replace(scope, array=True) if name in ARRAY_CONTEXTS else scope
            arguments = [self.compute(part, inner) for part in parts]
            for argument in arguments:
                if isinstance(argument, CellError):
                    return argument
            self._spend_on(name, arguments)
            function = FUNCTIONS[name]
            if name in MATCHING:
                function = functools.partial(self._match, function)
            value = self.lift(guarded(function), arguments, inner, SINGLES.get(name, ()))
            self.spend(size_of(value))
            return value
        except FormulaError as stop:
            return stop.error

    def _spend_on(self, name: str, arguments: Sequence[Any]) -> None:
        """Charge ranges' lines in advance, or all cells if the function makes an array."""
        for argument in arguments:
            if isinstance(argument, Grid):
                whole = name in ARRAY_RESULTS and name not in SINGLES
                lines = argument.height + argument.width
                self.spend(argument.height * argument.width // 2 if whole else lines // 4)

    def lift(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        scope: FormulaScope,
        singles: Iterable[int] | None = None,
    ) -> Any:
        """Call a scalar function per cell in array context, otherwise once on `single` values."""
        places = range(len(arguments)) if singles is None else singles
        grids = [k for k in places if k < len(arguments) and isinstance(arguments[k], Grid)]
        if not grids:
            return function(*arguments)
        if not scope.array:
            return function(
                *(
                    self.single(value, scope) if k in grids else value
                    for k, value in enumerate(arguments)
                )
            )
        return self._map(function, arguments, grids)

    def _match(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a regular expression function, charging its texts' characters."""
        self.spend(sum(len(value) for value in arguments if isinstance(value, str)) // 8)
        return function(*arguments)

    def _map(
        self, function: Callable[..., Any], arguments: Sequence[Any], grids: Sequence[int]
    ) -> Grid:
        """Call a function per cell of some arguments; row results add all cells, as in SPLIT."""
        height = max(arguments[k].height for k in grids)
        width = max(arguments[k].width for k in grids)
        others = [v for k, v in enumerate(arguments) if k not in grids and isinstance(v, Grid)]
        steps = _CALL_STEPS + sum(len(grid.cells) // 4 for grid in others)
        rows: list[list[Any]] = []
        for row in range(height):
            self.spend(width * steps)
            rows.append([])
            for column in range(width):
                value = function(
                    *(
                        at(value, row, column) if k in grids else value
                        for k, value in enumerate(arguments)
                    )
                )
                rows[-1] += value.line(down=False) if isinstance(value, Grid) else [value]
        return Grid.of(rows)

    def single(self, value: Any, scope: FormulaScope) -> Any:
        """Return a range's cell in the formula's row or column, or an array's first."""
        if not isinstance(value, Grid):
            return value
        if value.origin is None or (value.height, value.width) == (1, 1):
            return value.cells.get((0, 0))
        row, column = scope.row - value.origin[0], scope.column - value.origin[1]
        if value.width == 1 and 0 <= row < value.height:
            return value.cells.get((row, 0))
        if value.height == 1 and 0 <= column < value.width:
            return value.cells.get((0, column))
        return VALUE


def _may_expand(node: Node) -> bool:
    return any(
        part[0] == "array" or (part[0] == "call" and part[1] in ARRAY_RESULTS)
        for part in parts_of(node)
    )


def _overlap(area: Area, spot: Spot, bottom: int, right: int) -> bool:
    return (
        area.top <= bottom
        and area.left <= right
        and (area.bottom is None or spot[1] <= area.bottom)
        and (area.right is None or spot[2] <= area.right)
    )
