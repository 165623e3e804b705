"""Cell references in A1 notation: `B2`, `B2:D9`, `A:F`, `2:5`, `A2:F`, `'My sheet'!B2`."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from agentgym.text.tools import ToolError, echo

# A column, a row or both; the lookahead demands at least one of them.
_PART = re.compile(r"(?=\$*[A-Za-z0-9])\$?([A-Za-z]{0,3})\$?((?:[1-9][0-9]{0,6})?)")
_PLAIN_TITLE = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle of cells. Bounds are inclusive and count from 1; `None` means unbounded."""

    top: int
    left: int
    bottom: int | None
    right: int | None

    @property
    def height(self) -> int:
        return (self.bottom or 0) - self.top + 1

    @property
    def width(self) -> int:
        return (self.right or 0) - self.left + 1

    def __str__(self) -> str:
        first = f"{column_name(self.left)}{self.top}"
        last = f"{column_name(self.right or 0)}{self.bottom or ''}"
        return first if first == last else f"{first}:{last}"


@functools.lru_cache(maxsize=1_024)  # sheets share few columns
def column_name(number: int) -> str:
    """Convert a column number to letters: 1 is A, 27 is AA."""
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def column_number(letters: str) -> int:
    """Convert column letters to a number: A is 1, AA is 27."""
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number


def parse_area(text: str) -> Area:
    """Parse a reference without a sheet title."""
    area = _area_or_none(text)
    if area is None:
        raise ToolError(
            f"invalid argument: {echo(text)} is not a range; examples: B2, A1:D9, A2:F, A:F, 2:5"
        )
    return area


def _area_or_none(text: str) -> Area | None:
    parts = text.split(":")
    spots = []
    for part in parts:
        match = _PART.fullmatch(part.strip())
        if match is not None:
            row, column = int(match[2] or 0), column_number(match[1])
            spots.append((row or None, column or None))
    if len(parts) > 2 or len(spots) < len(parts):
        return None
    (top, left), (bottom, right) = spots[0], spots[-1]
    if (top is None or left is None) and len(spots) == 1:
        return None
    if (left is None) != (right is None) or (top is None and bottom is not None):
        return None
    if top is not None and bottom is not None and top > bottom:
        top, bottom = bottom, top
    if left is not None and right is not None and left > right:
        left, right = right, left
    return Area(top or 1, left or 1, bottom, right)


def parse_cell(text: str) -> tuple[int, int]:
    """Parse the row and column of a cell, counted from 1."""
    area = _area_or_none(text)
    if area is None or (area.top, area.left) != (area.bottom, area.right):
        raise ToolError(f"invalid argument: {echo(text)} must be a single cell, such as B2")
    return area.top, area.left


def split_sheet(reference: str) -> tuple[str | None, str]:
    """Split a reference into the sheet title, or None, and the area."""
    title, mark, rest = reference.rpartition("!")
    if not mark:
        return None, reference
    if len(title) > 1 and title[0] == title[-1] == "'":
        title = title[1:-1].replace("''", "'")
    return title, rest


def quote_title(title: str) -> str:
    """Quote a sheet title unless it is a plain word."""
    if _PLAIN_TITLE.fullmatch(title):
        return title
    doubled = title.replace("'", "''")
    return f"'{doubled}'"
