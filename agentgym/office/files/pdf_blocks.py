"""Building blocks of PDF pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, wrapped to the page width; `size` is in points."""

    text: str
    size: float = 11
    bold: bool = False
    align: Literal["left", "center", "right"] = "left"


@dataclass(frozen=True, slots=True)
class Box:
    """Large bold text in a frame, such as an invoice's status."""

    text: str


@dataclass(frozen=True, slots=True)
class PdfTable:
    """A table with grid lines; the first row is the header."""

    rows: Sequence[Sequence[str]]


Block: TypeAlias = str | Text | Box | PdfTable
"""A part of a page; a plain `str` is a `Text`, an empty one a blank line."""


def as_text(block: str | Text) -> Text:
    """Convert a plain string to a `Text`."""
    return Text(block) if isinstance(block, str) else block
