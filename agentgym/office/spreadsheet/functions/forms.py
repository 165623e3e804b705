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
    scalar,
    serial,
    to_truth,
)

if TYPE_CHECKING:
    from agentgym.office.spreadsheet.evaluation import Evaluator
    from agentgym.office.spreadsheet.formulas import Node

    Parts = Sequence[Node]


def _single(evaluator: Evaluator, part: Node, sheet: str) -> Any:
    return scalar(evaluator.compute(part, sheet))


def _if(evaluator: Evaluator, parts: Parts, sheet: str) -> Any:
    test, yes, *no = parts
    if len(no) > 1:
        return VALUE
    if to_truth(_single(evaluator, test, sheet)):
        return evaluator.compute(yes, sheet)
    return evaluator.compute(no[0], sheet) if no else False


def _ifs(evaluator: Evaluator, parts: Parts, sheet: str) -> Any:
    if len(parts) % 2:
        return VALUE
    for test, result in zip(parts[::2], parts[1::2], strict=True):
        if to_truth(_single(evaluator, test, sheet)):
            return evaluator.compute(result, sheet)
    return NOT_AVAILABLE


def _if_error(evaluator: Evaluator, parts: Parts, sheet: str) -> Any:
    value, *other = parts
    if len(other) > 1:
        return VALUE
    result = _attempt(evaluator, value, sheet)
    if not isinstance(result, CellError):
        return result
    return evaluator.compute(other[0], sheet) if other else ""


def _attempt(evaluator: Evaluator, part: Node, sheet: str) -> Any:
    """Return a part's value, or the error that ends its evaluation."""
    try:
        return _single(evaluator, part, sheet)
    except FormulaError as stop:
        return stop.error


def _is(test: Callable[[Any], bool], evaluator: Evaluator, parts: Parts, sheet: str) -> Any:
    if len(parts) != 1:
        return VALUE
    return test(_attempt(evaluator, parts[0], sheet))


def _clock(evaluator: Evaluator, parts: Parts, sheet: str, *, day: bool) -> Any:
    moment = serial(evaluator.now)
    return VALUE if parts else SerialDate(moment // 1 if day else moment)


# Each receives the evaluator, its arguments' trees and their sheet.
FORMS: dict[str, Callable[[Evaluator, Parts, str], Any]] = {
    "IF": _if,
    "IFS": _ifs,
    "IFERROR": _if_error,
    "ISBLANK": partial(_is, lambda value: value is None),
    "ISNUMBER": partial(_is, is_number),
    "ISTEXT": partial(
        _is, lambda value: isinstance(value, str) and not isinstance(value, CellError)
    ),
    "ISERROR": partial(_is, lambda value: isinstance(value, CellError)),
    "TODAY": partial(_clock, day=True),
    "NOW": partial(_clock, day=False),
}
