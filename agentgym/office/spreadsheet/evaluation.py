"""Evaluation of spreadsheet formulas with bounded work, never as code.

An engine such as IronCalc would not fit: here a step limit keeps any formula from stalling an
episode, TODAY and NOW use the episode's clock, and results are equal on every machine and library
version, as rewards require.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from agentgym.office.spreadsheet.cell_values import (
    CYCLE,
    NAME,
    NO_REFERENCE,
    NUMBER,
    SYNTAX,
    CellError,
    FormulaError,
    Grid,
    SerialDate,
    scalar,
)
from agentgym.office.spreadsheet.cells import Area
from agentgym.office.spreadsheet.formulas import Node, parse, parts_of, references, tokens
from agentgym.office.spreadsheet.functions.aggregates import AGGREGATES
from agentgym.office.spreadsheet.functions.forms import FORMS
from agentgym.office.spreadsheet.functions.lookups import LOOKUPS
from agentgym.office.spreadsheet.functions.operators import guarded, operate, plain, size_of
from agentgym.office.spreadsheet.functions.scalars import SCALARS
from agentgym.text import reply_work
from agentgym.text.tools import ToolError, echo

# Functions that compute all their arguments first.
FUNCTIONS: dict[str, Callable[..., Any]] = {**SCALARS, **AGGREGATES, **LOOKUPS}

# Cells visited and formula parts computed per change, which take less than a second.
MAX_STEPS = 500_000

MAX_LEVELS = 80  # twice a formula's depth: a call takes two levels

Spot: TypeAlias = tuple[str, int, int]
"""Lower-case sheet title, row and column of a cell."""
Results: TypeAlias = dict[str, dict[tuple[int, int], Any]]
"""Values by lower-case sheet title, then by row and column."""


@dataclass(frozen=True, slots=True)
class SheetCells:
    """A sheet's size and cells as entered, by row and column."""

    lines: dict[int, dict[int, Any]]
    height: int = 1000
    width: int = 26


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
        self._opened: set[Spot] = set()
        self._grids: dict[tuple[str, Area], Grid] = {}
        self._formulas: dict[str, dict[int, dict[int, Node]]] = {}
        self._steps = self._depth = 0

    def results(self, sheets: Iterable[str]) -> Results:
        """Return all formulas' results."""
        for sheet in sheets:
            self._find_formulas(sheet)
        for sheet, lines in self._formulas.items():
            for row, cells in lines.items():
                for column in cells:
                    self._evaluate((sheet, row, column))
        results: Results = {}
        for (sheet, row, column), value in self._known.items():
            results.setdefault(sheet, {})[row, column] = value
        reply_work.spend(self._steps / MAX_STEPS)
        return results

    def _find_formulas(self, sheet: str) -> None:
        formulas: dict[int, dict[int, Node]] = {}
        for row, cells in self._sheet(sheet).lines.items():
            for column, cell in cells.items():
                if isinstance(cell, dict) and "f" in cell:
                    formulas.setdefault(row, {})[column] = parse(cell["f"])
        self._formulas[sheet] = formulas

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
                    self._opened.add(spot)
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
        if missing:
            raise _Missing(missing)

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
        """Return a formula's value."""
        value = scalar(self.compute(node, spot[0]))
        if value is None:
            return "" if node[:2] == ("call", "INDEX") else 0.0
        return plain(value)

    # Computation of a tree.

    def compute(self, node: Node, sheet: str) -> Any:
        """Return a tree's value."""
        if self._depth >= MAX_LEVELS:
            raise FormulaError(NUMBER)
        self.spend(2)
        self._depth += 1
        try:
            return self._value(node, sheet)
        finally:
            self._depth -= 1

    def _value(self, node: Node, sheet: str) -> Any:
        match node[0]:
            case "value" | "fault":
                return node[1]
            case "reference":
                return self.area(node[1] or sheet, node[2])
            case "name":
                return NAME
            case "call":
                return self.call(node[1], node[2], sheet)
        return self._operations(node, sheet)

    def _operations(self, node: Node, sheet: str) -> Any:
        """Compute operators from the inside out along the left side, which may be long."""
        operations = []
        while node[0] in ("binary", "unary"):
            operations.append((node[1], node[3:]))
            node = node[2]
        self.spend(len(operations) - 1)
        value = self.compute(node, sheet)
        apply = guarded(operate)
        for sign, others in reversed(operations):
            operands = [value, *(self.compute(part, sheet) for part in others)]
            value = apply(sign, *map(scalar, operands))
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
        grid = Grid(max(1, bottom - area.top + 1), max(1, right - area.left + 1), {})
        for row, column, cell in self._within(cells.lines, area):
            grid.cells[row - area.top, column - area.left] = self._read((sheet, row, column), cell)
        self._grids[sheet, area] = grid
        return grid

    def _read(self, spot: Spot, cell: Any) -> Any:
        if spot in self._known:
            return self._known[spot]
        if isinstance(cell, dict):
            return SerialDate(cell["v"]) if cell.get("k") == "date" else cell.get("v", CYCLE)
        return cell

    def call(self, name: str, parts: Sequence[Node], sheet: str) -> Any:
        """Return a function's value, including errors."""
        try:
            if name in FORMS:
                return guarded(FORMS[name])(self, parts, sheet)
            arguments = [self.compute(part, sheet) for part in parts]
            for argument in arguments:
                if isinstance(argument, CellError):
                    return argument
                if isinstance(argument, Grid):
                    self.spend((argument.height + argument.width) // 4)
            value = guarded(FUNCTIONS.get(name, _unknown))(*arguments)
            self.spend(size_of(value))
            return value
        except FormulaError as stop:
            return stop.error


def _unknown(*arguments: Any) -> CellError:
    return NAME


def check_supported(formula: str) -> None:
    """Raise `ToolError` for a formula with an array or a function that is not computed.

    Its error value would look like a mistake in the formula.
    """
    if ("sign", "{") in tokens(formula[1:]):
        raise ToolError("not supported: arrays are not computed here; use a range of cells")
    for part in parts_of(parse(formula)):
        if part[0] == "call" and part[1] not in FORMS and part[1] not in FUNCTIONS:
            raise ToolError(
                f"not supported: {echo(part[1])} is not computed here; use other functions, or "
                "enter the value itself"
            )
