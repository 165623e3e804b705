"""Fast page layout, byte-identical to reportlab's, which takes milliseconds per page.

Reportlab still lays out pages that overflow and texts that need special treatment.
"""

from __future__ import annotations

import base64
import functools
import itertools
import math
import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from agentgym.office.files.pdf_blocks import Block, Box, PdfTable, Text, as_text
from agentgym.office.libraries import pdf_library

LEADING = 1.3  # multiple of the font size
BLANK = 11.0  # height of a blank line in points
PADDING = 6.0  # points around tables and boxes; also reportlab's padding in frames and cells
MARGIN = 56.0  # points between the page edge and the frame

_INDENT = 80.0  # with fewer free points beside a box or table, PDF readers may omit the space
_EDGE = MARGIN + PADDING
# Reportlab's defaults for table cells.
_CELL_SIZE, _CELL_LEADING, _CELL_BOTTOM = 10.0, 12.0, 3.0
_CELL_BASE = _CELL_BOTTOM + _CELL_LEADING - _CELL_SIZE
_CELL_HEIGHT = _CELL_LEADING + 2 * _CELL_BOTTOM
_SHRINKAGE = 0.05  # share of each space that reportlab removes to fit one more word
_SHORT = 1e-8  # tolerance in points for overlong lines
# Characters that reportlab drops, changes or breaks lines at.
_SPECIAL = re.compile(r"[\0-\x1f\x7f\xa0\xad<>]|  |^ | $|^$")
_ESCAPED = re.compile(rb"[()\\\x80-\xff]")
_STREAM = re.compile(rb"/Length \d+\n>>\nstream\n.*?endstream", re.DOTALL)
_OBJECT = re.compile(rb"^\d+ 0 obj$", re.MULTILINE)


class PageLayout(NamedTuple):
    """A PDF content stream, its text, and whether it uses bold letters."""

    content: bytes
    text: str
    bold: bool


class _Special(Exception):
    """Raised if reportlab must do the layout."""


def set_page(blocks: Sequence[Block], size: tuple[float, float]) -> PageLayout | None:
    """Lay out a page, or return None if reportlab must do it."""
    page = _Page(*size)
    try:
        for block in blocks:
            page.add(block)
    except (_Special, UnicodeEncodeError):  # reportlab reports unsupported characters
        return None
    return PageLayout(page.content(), "".join(page.texts), page.bold) if page.texts else None


def fill_frame(frame: bytes, contents: Sequence[bytes]) -> bytes:
    """Replace the page contents of a file that reportlab wrote."""
    filled = iter(base64.a85encode(zlib.compress(content)) for content in contents)

    def stream(_: re.Match[bytes]) -> bytes:
        data = next(filled) + b"~>"
        return b"/Length %d\n>>\nstream\n%sendstream" % (len(data), data)

    body, _, trailer = frame.partition(b"xref\n")
    body = _STREAM.sub(stream, body)
    table = [b"%010d 00000 n \n" % match.start() for match in _OBJECT.finditer(body)]
    head, _, rest = trailer.partition(b" f \n")
    rest = rest[rest.index(b"trailer") : rest.index(b"startxref\n")]
    end = b"startxref\n%d\n%%%%EOF\n" % len(body)
    return b"".join((body, b"xref\n", head, b" f \n", *table, rest, end))


class _Page:
    """A page during layout, from top to bottom."""

    def __init__(self, width: float, height: float) -> None:
        self._width = width - 2 * _EDGE
        self._y = height - _EDGE
        self._space = -1.0  # below the last block; negative at the page top
        self._parts = ["1 0 0 1 0 0 cm  BT /F1 12 Tf 14.4 TL ET"]
        self._next_line = (math.inf, 0.0)  # height and font size
        self.texts: list[str] = []
        self.bold = False

    def content(self) -> bytes:
        return "\n".join((*self._parts, " \n")).encode("latin-1")

    def add(self, block: Block) -> None:
        if isinstance(block, PdfTable):
            self._add_table(block)
        elif isinstance(block, Box):
            self._add_box(block)
        elif block == "":
            self._place(BLANK, [])
        else:
            self._add_text(as_text(block))

    def _place(
        self,
        height: float,
        parts: Sequence[str],
        x: float = _EDGE,
        space: float = 0.0,
    ) -> float:
        """Place content with space around it and return its bottom."""
        before = max(space - self._space, 0.0) if self._space >= 0 else 0.0
        y = self._y - (height + before)
        if y < _EDGE:
            raise _Special
        self._parts += ("q", f"1 0 0 1 {_number(x)} {_number(y)} cm", *parts, "Q")
        self._y, self._space = y - space, space
        return float(_number(y))

    def _add_text(self, text: Text) -> None:
        if text.align != "left":
            raise _Special
        lines = _break_lines(text.text, text.size, text.bold, self._width)
        leading = LEADING * text.size
        height = len(lines) * leading
        shown = " ".join(line.shown() for line in lines)
        y = self._place(height, _text_parts(height - text.size, text, leading, shown))
        below = float(_number(height - text.size))
        for _ in lines:  # sum as PDF readers do: the last digit may matter
            below -= float(_number(leading))
        self._next_line = below + y, text.size
        self.texts += [f"{line.text}\n" for line in lines]
        self.bold |= text.bold

    def _add_box(self, box: Box) -> None:
        text = Text(box.text, 15, bold=True, align="center")
        leading = LEADING * text.size
        rest = self._width - 2 * PADDING - _text_width(_check(box.text), text.size, text.bold)
        if rest < _INDENT or "&" in box.text:
            raise _Special
        indent = _number(0.5 * rest)
        shown = f"{indent} 0 Td ({_escape(box.text)}) Tj T* -{indent} 0 Td"
        parts = [
            "q",
            "0 0 0 rg",
            "BT /F1 10 Tf 12 TL ET",
            "q",
            f"1 0 0 1 {_number(PADDING)} {_number(_CELL_BOTTOM)} cm",
            *_text_parts(leading - text.size, text, leading, shown),
            "Q",
            *_frame_parts((0.0, self._width), (leading + 2 * _CELL_BOTTOM, 0.0), 1.5),
            "Q",
        ]
        y = self._place(leading + 2 * _CELL_BOTTOM, parts, space=PADDING)
        self._note_cells([box.text], is_beside=bool(self.texts))
        self._next_line = y + _CELL_BOTTOM - text.size, text.size

    def _add_table(self, table: PdfTable) -> None:
        rows = [[_check(cell) for cell in row] for row in table.rows]
        if not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
            raise _Special
        widths = map(_column_width, zip(*rows, strict=True))
        columns = list(itertools.accumulate(widths, initial=0.0))
        if columns[-1] > self._width - _INDENT:
            raise _Special
        height = len(rows) * _CELL_HEIGHT
        parts = ["q", "0 0 0 rg"]
        for number, row in enumerate(rows):
            if number == 0:
                parts.append("BT /F2 10 Tf 12 TL ET")  # the header is bold
            elif number == 1:
                parts.append("BT /F1 10 Tf 12 TL ET")
            y = height - (number + 1) * _CELL_HEIGHT + _CELL_BASE
            for x, cell in zip(columns, row, strict=False):
                place = f"1 0 0 1 {_number(x + PADDING)} {_number(y)} Tm"
                parts.append(f"BT {place} ({_escape(cell)}) Tj T* ET")
        heights = [height - number * _CELL_HEIGHT for number in range(len(rows) + 1)]
        parts += [*_frame_parts(columns, heights, 0.5), "Q"]
        x = _EDGE + 0.5 * (self._width - columns[-1])
        bottom = self._place(height, parts, x, PADDING)
        near, size = self._next_line
        first = float(_number(height - _CELL_HEIGHT + _CELL_BASE)) + bottom
        is_beside = abs(first - near) <= 0.8 * min(size, _CELL_SIZE)
        self._note_cells([*itertools.chain(*rows)], is_beside=is_beside)
        self._next_line = bottom + _CELL_BASE - _CELL_LEADING, _CELL_SIZE

    def _note_cells(self, cells: Sequence[str], *, is_beside: bool) -> None:
        """PDF readers put a space before a first cell level with the next line."""
        self.texts += [f"{cell}\n" for cell in cells]
        if is_beside:
            self.texts[-len(cells)] = f" {cells[0]}\n"
        self.bold = True


def _check(text: str) -> str:
    """Return a text that reportlab shows unchanged, or raise."""
    if _SPECIAL.search(text):
        raise _Special
    return text


def _text_parts(y: float, text: Text, leading: float, shown: str) -> list[str]:
    font = f"/{'F2' if text.bold else 'F1'} {_number(text.size)} Tf"
    start, lines = f"BT 1 0 0 1 0 {_number(y)} Tm", f"{_number(leading)} TL"
    if "&" not in text.text:
        return ["q", "0 0 0 rg", f"{start} {font} {lines} {shown} ET", "Q"]
    if text.text.count("&") > 1 or shown.count(" Tj T*") > 1 or " Tw " in shown:
        raise _Special
    return ["q", f"{start} {lines} {font} 0 0 0 rg {shown} ET", "Q"]


def _frame_parts(xs: Sequence[float], ys: Sequence[float], width: float) -> list[str]:
    right, top = _number(xs[-1]), _number(ys[0])
    across = [f"n 0 {_number(y)} m {right} {_number(y)} l S" for y in ys]
    down = [f"n {_number(x)} 0 m {_number(x)} {top} l S" for x in xs]
    lines = [across[0], across[-1], down[0], down[-1], *across[1:-1], *down[1:-1]]
    return ["q", "1 J", "1 j", "0 0 0 RG", f"{_number(width)} w", *lines, "Q"]


def _column_width(cells: Sequence[str]) -> float:
    widths = (_text_width(cell, _CELL_SIZE, not number) for number, cell in enumerate(cells))
    return max(widths) + 2 * PADDING


class _Line(NamedTuple):
    """A line and the extra points per space, negative if squeezed."""

    text: str
    spacing: float

    def shown(self) -> str:
        text = f"({_escape(self.text)}) Tj T*"
        return f"{_number(self.spacing)} Tw {text} 0 Tw" if self.spacing else text


def _break_lines(text: str, size: float, bold: bool, width: float) -> list[_Line]:
    space = _text_width(" ", size, bold)
    lines: list[tuple[float, list[str]]] = []
    line: list[str] = []
    used = -space
    for word in _check(text).split(" "):
        own = _text_width(word, size, bold)
        if own > width:
            raise _Special
        if used + space + own <= width + _SHRINKAGE * space * len(line):
            line.append(word)
            used = used + space + own
        else:
            lines.append((width - used, line))
            line, used = [word], own
    lines.append((width - used, line))
    broken = []
    for rest, words in lines:
        is_squeezed = rest <= -_SHORT
        spacing = rest / (len(words) - 1) if is_squeezed else 0.0
        broken.append(_Line(" ".join(words), spacing))
    return broken


@functools.lru_cache(maxsize=4_096)
def _text_width(text: str, size: float, bold: bool) -> float:
    widths = _glyph_widths("Helvetica-Bold" if bold else "Helvetica")
    return sum(map(widths.__getitem__, text.encode("cp1252"))) * 0.001 * size


@functools.cache
def _glyph_widths(font: str) -> list[int]:
    return list(pdf_library("reportlab.pdfbase.pdfmetrics").getFont(font).widths)


@functools.lru_cache(maxsize=4_096)
def _number(value: float) -> str:
    return str(pdf_library("reportlab.lib.rl_accel").fp_str(value))


def _escape(text: str) -> str:
    return _ESCAPED.sub(_escaped, text.encode("cp1252")).decode("ascii")


def _escaped(match: re.Match[bytes]) -> bytes:
    sign = match[0]
    if sign[0] >= 0x80:
        return b"\\%03o" % sign[0]  # an octal escape keeps the file ASCII
    return b"\\" + sign
