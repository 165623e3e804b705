"""Formula evaluation with bounded work; formulas are never executed as code.

Existing libraries do not limit the length of strings: in Formualizer 0.13, a short chain of
`=A1&A1` crashes the process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from agentgym.office.spreadsheet.cell_values import (
    CYCLE,
    NAME,
    NO_REFERENCE,
    SYNTAX,
    CellError,
    SerialDate,
    is_formula,
    serial,
)
from agentgym.office.spreadsheet.cells import Area
from agentgym.office.spreadsheet.formulas import Node, parse, parts_of, tokens
from agentgym.office.spreadsheet.functions import (
    FUNCTIONS,
    TAKE_ERRORS,
    FormulaError,
    Grid,
    apply,
    operate,
    single,
)
from agentgym.text import reply_work
from agentgym.text.tools import ToolError, echo

# Maximum cells and formula parts to evaluate per change; the evaluation takes under a second.
MAX_STEPS = 500_000

Spot: TypeAlias = tuple[str, int, int]
"""Lower-case sheet title, row and column of a cell."""
Results: TypeAlias = dict[str, dict[tuple[int, int], Any]]
"""Values by lower-case sheet title, then by row and column."""
Lines: TypeAlias = Mapping[int, Mapping[int, Any]]
"""Cells by row and column, in order."""
Formulas: TypeAlias = dict[int, dict[int, Node]]
"""Parsed formulas by row and column."""


@dataclass(frozen=True, slots=True)
class SheetCells:
    """The size of a sheet, and the cells as entered."""

    lines: Lines
    height: int = 1000
    width: int = 26


class Evaluator:
    """Computes each formula of a spreadsheet once."""

    def __init__(self, load: Callable[[str], SheetCells | None], now: datetime) -> None:
        self._load = functools.cache(load)
        self._functions = {**FUNCTIONS, "TODAY": lambda: SerialDate(serial(now) // 1)}
        self._known: dict[Spot, Any] = {}
        self._opened: set[Spot] = set()
        self._grids: dict[tuple[str, Area], Grid] = {}
        self._formulas: dict[str, Formulas] = {}  # by sheet
        self._steps = 0

    def results(self, sheets: Iterable[str]) -> Results:
        """Return the results of all formulas in the sheets."""
        for sheet in sheets:
            if (source := self._load(sheet)) is not None:
                self._formulas[sheet] = _formulas_of(source.lines)
        results: Results = {}
        for sheet, lines in self._formulas.items():
            results[sheet] = {}
            for row, cells in lines.items():
                for column in cells:
                    results[sheet][row, column] = self._evaluate((sheet, row, column))
        reply_work.spend(self._steps / MAX_STEPS)
        return results

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise FormulaError(SYNTAX)

    def _evaluate(self, start: Spot) -> Any:
        waiting = [start]
        while waiting:
            spot = waiting[-1]
            if spot in self._known:
                waiting.pop()
            elif spot in self._opened:
                self._known[spot] = self._result(spot)
            else:
                self._opened.add(spot)
                for need in self._needs(spot):
                    if need in self._opened:
                        # A formula that depends on itself, even indirectly, is a cycle.
                        self._known[need] = CYCLE
                    else:
                        waiting.append(need)
        return self._known[start]

    def _needs(self, spot: Spot) -> list[Spot]:
        needs = []
        try:
            for part in parts_of(self._node(spot)):
                if part[0] != "reference":
                    continue
                sheet = part[1] or spot[0]
                for row, column, _ in self._within(self._formulas.get(sheet, {}), part[2]):
                    need = (sheet, row, column)
                    if need not in self._known:
                        needs.append(need)
        except FormulaError:
            return []  # another attempt would reach the work limit again
        return needs

    def _node(self, spot: Spot) -> Node:
        return self._formulas[spot[0]][spot[1]][spot[2]]

    def _within(self, lines: Lines, area: Area) -> Iterator[tuple[int, int, Any]]:
        last = max(lines, default=0)
        rows = range(area.top, min(last, area.bottom or last) + 1)
        self._spend(len(rows))
        for row in rows:
            cells = lines.get(row, {})
            self._spend(len(cells))
            for column, cell in cells.items():
                if area.left <= column <= (area.right or column):
                    yield row, column, cell

    def _result(self, spot: Spot) -> Any:
        try:
            value = apply(single, self._compute(self._node(spot), spot[0]))
        except FormulaError as stop:
            return stop.error
        return 0.0 if value is None else value

    def _compute(self, node: Node, sheet: str) -> Any:
        self._spend(2)
        match node[0]:
            case "value":
                return node[1]
            case "reference":
                return self._area(node[1] or sheet, node[2])
            case "call":
                return self._call(node[1], node[2], sheet)
        return self._operations(node, sheet)

    def _operations(self, node: Node, sheet: str) -> Any:
        operations = []
        while node[0] == "operation":
            operations.append((node[1], node[3:]))
            node = node[2]
        self._spend(len(operations))
        value = self._compute(node, sheet)
        for sign, others in reversed(operations):
            operands = [self._compute(each, sheet) for each in others]
            value = apply(operate, sign, value, *operands)
            self._spend(_text_steps(value))
        return value

    def _area(self, sheet: str, area: Area) -> Any:
        if (sheet, area) in self._grids:
            self._spend(len(self._grids[sheet, area].cells) // 4)
            return self._grids[sheet, area]
        source = self._load(sheet)
        if source is None:
            return NO_REFERENCE
        height = (area.bottom or source.height) - area.top + 1
        width = (area.right or source.width) - area.left + 1
        grid = Grid(max(1, height), max(1, width), {})
        for row, column, cell in self._within(source.lines, area):
            value = self._known[sheet, row, column] if is_formula(cell) else _typed_value(cell)
            grid.cells[row - area.top, column - area.left] = value
        self._grids[sheet, area] = grid
        return grid

    def _call(self, name: str, parts: Iterable[Node], sheet: str) -> Any:
        arguments = [self._compute(part, sheet) for part in parts]
        for argument in arguments:
            if isinstance(argument, CellError) and name not in TAKE_ERRORS:
                return argument
            if isinstance(argument, Grid):
                self._spend((argument.height + argument.width) // 4)
        if name not in self._functions:
            return NAME
        value = apply(self._functions[name], *arguments)
        self._spend(_text_steps(value))
        return value


def _formulas_of(lines: Lines) -> Formulas:
    formulas: Formulas = {}
    for row, cells in lines.items():
        for column, cell in cells.items():
            if is_formula(cell):
                formulas.setdefault(row, {})[column] = parse(cell["f"])
    return formulas


def _typed_value(cell: Any) -> Any:
    if not isinstance(cell, dict):
        return cell
    if cell.get("k") == "date":
        return SerialDate(cell["v"])
    return cell["v"]


def _text_steps(value: Any) -> int:
    return len(value) // 100 if isinstance(value, str) else 0


def check_supported(formula: str) -> None:
    """Raise `ToolError` for an array or an unsupported function."""
    if ("sign", "{") in tokens(formula[1:]):
        raise ToolError("not supported: array literals; use a range of cells")
    for part in parts_of(parse(formula)):
        if part[0] == "call" and part[1] not in FUNCTIONS and part[1] != "TODAY":
            raise ToolError(
                f"not supported: the function {echo(part[1])}; use other functions, or enter the "
                "value itself"
            )
