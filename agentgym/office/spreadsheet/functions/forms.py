"""Functions that evaluate arguments lazily or take errors as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from agentgym.office.spreadsheet.cell_values import (
    NOT_AVAILABLE,
    VALUE,
    CellError,
    FormulaError,
    SerialDate,
    is_number,
    serial,
    to_truth,
)

if TYPE_CHECKING:
    from agentgym.office.spreadsheet.evaluation import Evaluator, Spot
    from agentgym.office.spreadsheet.formulas import Node

    Parts = Sequence[Node]


def _single(evaluator: Evaluator, part: Node, spot: Spot) -> Any:
    return evaluator.single(evaluator.compute(part, spot), spot)


def _if(evaluator: Evaluator, parts: Parts, spot: Spot) -> Any:
    test, yes, *no = parts
    if len(no) > 1:
        return VALUE
    if to_truth(_single(evaluator, test, spot)):
        return evaluator.compute(yes, spot)
    return evaluator.compute(no[0], spot) if no else False


def _ifs(evaluator: Evaluator, parts: Parts, spot: Spot) -> Any:
    if len(parts) % 2:
        return VALUE
    for test, result in zip(parts[::2], parts[1::2], strict=True):
        if to_truth(_single(evaluator, test, spot)):
            return evaluator.compute(result, spot)
    return NOT_AVAILABLE


def _if_error(
    evaluator: Evaluator, parts: Parts, spot: Spot, error: CellError | None = None
) -> Any:
    """Return a value, or a replacement for one error or, by default, any."""
    value, *other = parts
    if len(other) > 1:
        return VALUE
    result = _attempt(evaluator, value, spot)
    if not isinstance(result, CellError) or error not in (None, result):
        return result
    return evaluator.compute(other[0], spot) if other else ""


def _attempt(evaluator: Evaluator, part: Node, spot: Spot) -> Any:
    """Return a part's value, or the error that ends its evaluation."""
    try:
        return _single(evaluator, part, spot)
    except FormulaError as stop:
        return stop.error


def _is(test: Callable[[Any], bool], evaluator: Evaluator, parts: Parts, spot: Spot) -> Any:
    if len(parts) != 1:
        return VALUE
    return test(_attempt(evaluator, parts[0], spot))


def _clock(evaluator: Evaluator, parts: Parts, spot: Spot, *, day: bool) -> Any:
    moment = serial(evaluator.now)
    return VALUE if parts else SerialDate(moment // 1 if day else moment)


# Each receives the evaluator, its arguments' trees and their cell.
FORMS: dict[str, Callable[[Evaluator, Parts, Spot], Any]] = {
    "IF": _if,
    "IFS": _ifs,
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
    "NA": lambda evaluator, parts, spot: NOT_AVAILABLE,
    "TRUE": lambda evaluator, parts, spot: True,
    "FALSE": lambda evaluator, parts, spot: False,
    "TODAY": partial(_clock, day=True),
    "NOW": partial(_clock, day=False),
}
