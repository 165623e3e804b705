"""Functions that evaluate arguments lazily or take errors as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agentgym.office.spreadsheet.cell_values import (
    NO_REFERENCE,
    NOT_AVAILABLE,
    VALUE,
    CellError,
    FormulaError,
    Grid,
    SerialDate,
    flat,
    is_number,
    match_key,
    serial,
    to_int,
    to_text,
    to_truth,
)
from agentgym.office.spreadsheet.cells import Area, parse_area, split_sheet
from agentgym.text.tools import ToolError

if TYPE_CHECKING:
    from agentgym.office.spreadsheet.evaluation import Evaluator, FormulaScope
    from agentgym.office.spreadsheet.formulas import Node

    Parts = Sequence[Node]


def _single(evaluator: Evaluator, part: Node, scope: FormulaScope) -> Any:
    return evaluator.single(evaluator.compute(part, scope), scope)


def _if(evaluator: Evaluator, parts: Parts, scope: FormulaScope) -> Any:
    test, yes, *no = parts
    if len(no) > 1:
        return VALUE
    decision = evaluator.compute(test, scope)
    if isinstance(decision, Grid) and scope.array:
        choices = [evaluator.compute(part, scope) for part in (yes, *no)]
        return evaluator.lift(_choose, [decision, *choices], scope)
    if to_truth(evaluator.single(decision, scope)):
        return evaluator.compute(yes, scope)
    return evaluator.compute(no[0], scope) if no else False


def _choose(truth: Any, yes: Any, no: Any = False) -> Any:
    try:
        return yes if to_truth(truth) else no
    except FormulaError as stop:
        return stop.error


def _ifs(evaluator: Evaluator, parts: Parts, scope: FormulaScope) -> Any:
    if len(parts) % 2:
        return VALUE
    if scope.array:  # from last to first, so earlier pairs win
        value: Any = NOT_AVAILABLE
        for test, result in reversed(list(zip(parts[::2], parts[1::2], strict=True))):
            operands = [evaluator.compute(test, scope), evaluator.compute(result, scope), value]
            value = evaluator.lift(_choose, operands, scope)
        return value
    for test, result in zip(parts[::2], parts[1::2], strict=True):
        if to_truth(_single(evaluator, test, scope)):
            return evaluator.compute(result, scope)
    return NOT_AVAILABLE


def _switch(evaluator: Evaluator, parts: Parts, scope: FormulaScope) -> Any:
    value = _single(evaluator, parts[0], scope)
    if isinstance(value, CellError) or len(parts) < 3:
        return value if isinstance(value, CellError) else VALUE
    for case, result in zip(parts[1::2], parts[2::2], strict=False):
        if _same(value, _single(evaluator, case, scope)):
            return evaluator.compute(result, scope)
    return evaluator.compute(parts[-1], scope) if len(parts) % 2 == 0 else NOT_AVAILABLE


def _same(value: Any, other: Any) -> bool:
    if value is None or other is None:
        return value in (None, "") and other in (None, "")
    return bool(match_key(value) == match_key(other))


def _choose_part(evaluator: Evaluator, parts: Parts, scope: FormulaScope) -> Any:
    place = to_int(_single(evaluator, parts[0], scope))
    return evaluator.compute(parts[place], scope) if 1 <= place < len(parts) else VALUE


def _if_error(
    evaluator: Evaluator, parts: Parts, scope: FormulaScope, error: CellError | None = None
) -> Any:
    """Return a value, or a replacement for one error or, by default, any."""
    value, *other = parts
    if len(other) > 1:
        return VALUE

    def is_bad(each: Any) -> bool:
        return isinstance(each, CellError) and error in (None, each)

    result = _attempt(evaluator, value, scope)
    if not any(map(is_bad, flat([result]))):
        return result
    substitute = evaluator.compute(other[0], scope) if other else ""
    if not isinstance(result, Grid):
        return substitute
    whole = replace(scope, array=True)
    return evaluator.lift(lambda a, b: b if is_bad(a) else a, [result, substitute], whole)


def _attempt(evaluator: Evaluator, part: Node, scope: FormulaScope) -> Any:
    """Return a part's value, or the error that ends its evaluation."""
    try:
        value = evaluator.compute(part, scope)
    except FormulaError as stop:
        return stop.error
    return (
        value
        if scope.array or not isinstance(value, Grid) or value.origin is None
        else evaluator.single(value, scope)
    )


def _is(
    test: Callable[[Any], bool], evaluator: Evaluator, parts: Parts, scope: FormulaScope
) -> Any:
    if len(parts) != 1:
        return VALUE
    return evaluator.lift(test, [_attempt(evaluator, parts[0], scope)], scope)


def _array_formula(evaluator: Evaluator, parts: Parts, scope: FormulaScope) -> Any:
    [part] = parts
    value = evaluator.compute(part, replace(scope, array=True))
    return replace(value, origin=None) if isinstance(value, Grid) else value


def _indirect(evaluator: Evaluator, parts: Parts, scope: FormulaScope) -> Any:
    title, rest = split_sheet(to_text(_single(evaluator, parts[0], scope)))
    try:
        return evaluator.area(title.lower() if title else scope.sheet, parse_area(rest))
    except ToolError:
        return NO_REFERENCE


def _offset(evaluator: Evaluator, parts: Parts, scope: FormulaScope) -> Any:
    base, *rest = parts
    if base[0] != "reference" or not 2 <= len(rest) <= 4:
        return VALUE
    area: Area = base[2]
    sizes = [_single(evaluator, part, scope) for part in rest]
    top, left = area.top + to_int(sizes[0]), area.left + to_int(sizes[1])
    closed = area if area.bottom and area.right else area.clip(1000, 26)
    height = to_int(sizes[2]) if len(sizes) > 2 and sizes[2] is not None else closed.height
    width = to_int(sizes[3]) if len(sizes) > 3 and sizes[3] is not None else closed.width
    if top < 1 or left < 1 or height < 1 or width < 1:
        return NO_REFERENCE
    moved = Area(top, left, top + height - 1, left + width - 1)
    return evaluator.area(base[1] or scope.sheet, moved)


def _number_of(evaluator: Evaluator, parts: Parts, scope: FormulaScope, *, row: bool) -> Any:
    if not parts:
        return float(scope.row if row else scope.column)
    grid = evaluator.compute(parts[0], scope)
    if not isinstance(grid, Grid) or grid.origin is None:
        return VALUE
    first, count = (grid.origin[0], grid.height) if row else (grid.origin[1], grid.width)
    if count == 1 or not scope.array:
        return float(first)
    evaluator.spend(count)
    numbers = [float(first + k) for k in range(count)]
    return Grid.of([[number] for number in numbers] if row else [numbers])


def _clock(evaluator: Evaluator, parts: Parts, scope: FormulaScope, *, day: bool) -> Any:
    moment = serial(evaluator.now)
    return VALUE if parts else SerialDate(moment // 1 if day else moment)


# Each receives the evaluator, its arguments' trees and their scope.
FORMS: dict[str, Callable[[Evaluator, Parts, FormulaScope], Any]] = {
    "IF": _if,
    "IFS": _ifs,
    "SWITCH": _switch,
    "CHOOSE": _choose_part,
    "IFERROR": _if_error,
    "IFNA": partial(_if_error, error=NOT_AVAILABLE),
    "ISBLANK": partial(_is, lambda value: value is None),
    "ISNUMBER": partial(_is, is_number),
    "ISTEXT": partial(
        _is, lambda value: isinstance(value, str) and not isinstance(value, CellError)
    ),
    "ISNONTEXT": partial(
        _is, lambda value: not isinstance(value, str) or isinstance(value, CellError)
    ),
    "ISLOGICAL": partial(_is, lambda value: isinstance(value, bool)),
    "ISDATE": partial(_is, lambda value: isinstance(value, SerialDate)),
    "ISERROR": partial(_is, lambda value: isinstance(value, CellError)),
    "ISERR": partial(_is, lambda value: isinstance(value, CellError) and value != NOT_AVAILABLE),
    "ISNA": partial(_is, lambda value: value == NOT_AVAILABLE and isinstance(value, CellError)),
    "NA": lambda evaluator, parts, scope: NOT_AVAILABLE,
    "TRUE": lambda evaluator, parts, scope: True,
    "FALSE": lambda evaluator, parts, scope: False,
    "ARRAYFORMULA": _array_formula,
    "INDIRECT": _indirect,
    "OFFSET": _offset,
    "ROW": partial(_number_of, row=True),
    "COLUMN": partial(_number_of, row=False),
    "TODAY": partial(_clock, day=True),
    "NOW": partial(_clock, day=False),
}
