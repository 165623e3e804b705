"""The parts of the pages of PDF files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; it breaks into lines where it is too long.

    Attributes:
        text: What it says.
        size: Of the letters, in points.
        bold: Whether the letters are.
        align: Where its lines stand.
    """

    text: str
    size: float = 11
    bold: bool = False
    align: Literal["left", "center", "right"] = "left"


@dataclass(frozen=True, slots=True)
class Box:
    """Large bold text in a frame, such as the status of an invoice."""

    text: str


@dataclass(frozen=True, slots=True)
class PdfTable:
    """Rows of cells with lines around them; the first row is the head."""

    rows: Sequence[Sequence[str]]


Block: TypeAlias = str | Text | Box | PdfTable
"""A part of a page; a `str` is a `Text`, an empty one a blank line."""


def as_text(block: str | Text) -> Text:
    """Return a paragraph, which may be given as its text."""
    return Text(block) if isinstance(block, str) else block
