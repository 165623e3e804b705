"""The values of cells, as formulas work on them.

A value is a number, a text, a truth value, `None` for an empty cell, a `CellError`, a `SerialDate`
(a date as a number of days), a `Grid` or, within a formula, a `Lambda`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

DAY_ZERO = datetime(1899, 12, 30)
"""The day that spreadsheets count days from."""
MAX_TEXT = 50_000
"""Characters of a cell, as in Google Sheets."""


class CellError(str):
    """An error as the value of a cell, such as `#DIV/0!`."""

    __slots__ = ()


class SerialDate(float):
    """A date and time: days since 30 December 1899."""

    __slots__ = ()


DIVISION, VALUE, NAME, NUMBER = (
    CellError("#DIV/0!"),
    CellError("#VALUE!"),
    CellError("#NAME?"),
    CellError("#NUM!"),
)
NOT_AVAILABLE, NO_REFERENCE, SYNTAX = CellError("#N/A"), CellError("#REF!"), CellError("#ERROR!")
CYCLE = NO_REFERENCE
"""The value of a formula that depends on itself, as in Google Sheets."""


class FormulaError(Exception):
    """Raised to end the computation of a function with an error as its value."""

    def __init__(self, error: CellError) -> None:
        super().__init__(error)
        self.error = error


@dataclass(slots=True)
class Grid:
    """Values in rows and columns; `cells` holds the filled ones by row and column from 0.

    Attributes:
        height: Rows.
        width: Columns.
        cells: The values.
        origin: Row and column, from 1, of the first cell of a range; None for computed values.
        columns: Positions in columns and rows that were searched, see `positions`.
    """

    height: int
    width: int
    cells: dict[tuple[int, int], Any] = field(default_factory=dict)
    origin: tuple[int, int] | None = None
    columns: dict[tuple[bool, int], dict[Any, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> Grid:
        """Return the grid of rows of values; at least one cell, that is empty."""
        cells = {
            (r, c): value
            for r, row in enumerate(rows)
            for c, value in enumerate(row)
            if value is not None
        }
        return cls(max(1, len(rows)), max(1, *map(len, rows)) if rows else 1, cells)

    def rows(self) -> list[list[Any]]:
        """Return all values, empty ones as None."""
        return [self.line(down=False, at=k) for k in range(self.height)]

    def line(self, *, down: bool, at: int = 0) -> list[Any]:
        """Return a column (`down`) or a row."""
        if down:
            return [self.cells.get((k, at)) for k in range(self.height)]
        return [self.cells.get((at, k)) for k in range(self.width)]

    def positions(self, *, down: bool, at: int = 0) -> dict[Any, int]:
        """Return the first position of each value of a column (`down`) or a row, as `match_key`
        writes it; made once, since the same range is often searched for one value after the other.
        """
        if (down, at) not in self.columns:
            line = enumerate(self.line(down=down, at=at))
            found: dict[Any, int] = {}
            for k, value in line:
                if value is not None:
                    found.setdefault(match_key(value), k)
            self.columns[down, at] = found
        return self.columns[down, at]


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function that a formula defines.

    Attributes:
        names: Its parameters.
        body: Its tree.
        scope: The values of other names where it was defined.
    """

    names: tuple[str, ...]
    body: Any
    scope: Any


def match_key(value: Any) -> Any:
    """Return the key under which equal values are found: capitals do not count, a truth value is
    no number.
    """
    if isinstance(value, str):
        return value.lower()
    return (value,) if isinstance(value, bool) else float(value)


def serial(moment: datetime) -> float:
    """Return a moment as a number of days; its zone does not matter."""
    return (moment.replace(tzinfo=None) - DAY_ZERO) / timedelta(days=1)


def scalar(value: Any) -> Any:
    """Return the one value that a range of one cell stands for; a larger range has none."""
    if isinstance(value, Grid):
        return value.cells.get((0, 0)) if (value.height, value.width) == (1, 1) else VALUE
    return value


def number(value: Any) -> Any:
    """Return a value as a number, or an error."""
    value = scalar(value)
    if value is None:
        return 0.0
    if isinstance(value, CellError):
        return value
    if isinstance(value, (bool, int, float)):
        return float(value)
    try:
        return (
            float(value)
            if re.fullmatch(r"\s*[-+]?[0-9.]+(?:[eE][-+]?[0-9]{1,3})?\s*", value)
            else VALUE
        )
    except ValueError:
        return VALUE


def text_of(value: Any) -> str:
    """Return a value as a cell shows it."""
    value = scalar(value)
    if isinstance(value, SerialDate):
        return _date_text(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool):
        return {None: "", True: "TRUE", False: "FALSE"}[value]
    whole = float(value)
    if whole.is_integer() and abs(whole) < 1e15:
        return str(int(whole))
    text = f"{whole:.10g}"
    return text if "e" not in text else re.sub(r"e([+-])0*", r"E\1", text)


def _date_text(value: float) -> str:
    try:
        moment = DAY_ZERO + timedelta(days=float(value))
    except OverflowError:
        return str(float(value))
    day = f"{moment.month}/{moment.day}/{moment.year}"
    return day if float(value).is_integer() else f"{day} {moment.hour}:{moment:%M:%S}"


def ordering(value: Any, other: Any) -> tuple[int, Any]:
    """Return the sort key of a value: numbers come before texts, texts before truth values;
    capitals do not count.

    An empty cell counts as the empty value of the other one's type: 0, no text or FALSE.
    """
    if value is None:
        value = "" if isinstance(other, str) else False if isinstance(other, bool) else 0
    if isinstance(value, bool):
        return 2, value
    return (1, value.lower()) if isinstance(value, str) else (0, float(value))
