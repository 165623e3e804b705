"""Arguments of functions as numbers, texts and truth values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from agentgym.envs.loca.servers.spreadsheet.cell_input import parse
from agentgym.envs.loca.servers.spreadsheet.cell_values import (
    DAY_ZERO,
    MAX_TEXT,
    VALUE,
    CellError,
    FormulaError,
    Grid,
    number,
    scalar,
    text_of,
)


def flat(arguments: Sequence[Any]) -> Iterator[Any]:
    """Return all filled values of arguments, ranges row by row."""
    for argument in arguments:
        if isinstance(argument, Grid):
            yield from argument.cells.values()
        else:
            yield argument


def is_number(value: Any) -> bool:
    """Return whether a value is a number; a truth value is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numbers(arguments: Sequence[Any]) -> list[float]:
    """Return the numbers of arguments; texts and truth values in ranges do not count, an argument
    itself must be a number.
    """
    values: list[float] = []
    for argument in arguments:
        if isinstance(argument, Grid):
            cells = argument.cells.values()
            values += [float(value) for value in cells if is_number(check(value))]
        else:
            values.append(to_number(argument))
    return values


def check(value: Any) -> Any:
    """Return a value that is no error.

    Raises:
        FormulaError: It is one.
    """
    if isinstance(value, CellError):
        raise FormulaError(value)
    return value


def to_number(value: Any) -> float:
    """Return a value as a number; a text as if it was typed in."""
    converted = number(value)
    if isinstance(converted, CellError) and type(value) is str:
        cell = parse(value.strip())
        if isinstance(cell, dict) and is_number(cell.get("v")):
            converted = cell["v"]
    return float(check(converted))


def to_int(value: Any) -> int:
    """Return a value as a whole number, without its fraction."""
    return int(to_number(value))


def to_text(value: Any) -> str:
    """Return a value as a text."""
    return text_of(check(scalar(value)))


def limited(text: str) -> str:
    """Return a text that fits into a cell."""
    if len(text) > MAX_TEXT:
        raise FormulaError(VALUE)
    return text


def to_truth(value: Any) -> bool:
    """Return a value as a truth value."""
    value = check(scalar(value))
    if isinstance(value, str):
        if value.upper() not in ("TRUE", "FALSE", ""):
            raise FormulaError(VALUE)
        return value.upper() == "TRUE"
    return bool(value)


def to_moment(value: Any) -> datetime:
    """Return a date, or the text of one, as a moment."""
    return DAY_ZERO + timedelta(days=to_number(value))
