"""Write PDF files reproducibly, and extract the text of PDF files."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Self, TypeAlias
from xml.sax.saxutils import escape

from agentgym.office.libraries import pdf_library
from agentgym.text import reply_work
from agentgym.text.tools import ToolError

MAX_PAGES = 500  # reading a page takes a few milliseconds

# About three CPU seconds. A word, a number, or ten bytes of a page or font cost one unit.
MAX_WORK = 200_000

_FORM_WORK = 10_000  # a form object may be megabytes long without containing words

# Maximum decompressed size of a stream; a page of text takes a few kilobytes.
_STREAM_BYTES = 4 * 2**20

_CACHED_BYTES = 2**16  # keeps the cache below 64 MiB
_CACHED_FILES = 1_024

_LEADING = 1.3  # line height as a multiple of the font size
_BLANK = 11.0  # in points
_PADDING = 6.0  # in points
_MARGIN = 56.0  # in points


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, wrapped to the page width; `size` is in points."""

    text: str
    size: float = 11
    bold: bool = False


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


def write_pdf(pages: Sequence[Sequence[Block]], title: str = "") -> bytes:
    """Return an A4 PDF file; equal arguments give equal bytes.

    Blocks that do not fit continue on a new page. Raises ValueError for characters that the
    standard fonts lack.
    """
    platypus = pdf_library("reportlab.platypus")
    story: list[Any] = []
    for blocks in pages:
        if story:
            story.append(platypus.PageBreak())
        # Reportlab drops empty pages.
        story += [_flowable(platypus, block) for block in blocks] or [platypus.Spacer(1, 1)]
    buffer = BytesIO()
    margins = dict.fromkeys(("leftMargin", "rightMargin", "topMargin", "bottomMargin"), _MARGIN)
    size = pdf_library("reportlab.lib.pagesizes").A4
    platypus.SimpleDocTemplate(
        buffer, pagesize=size, title=title, author="", invariant=1, **margins
    ).build(story)
    return buffer.getvalue()


def _flowable(platypus: Any, block: Block) -> Any:
    if isinstance(block, PdfTable):
        cells = [list(map(_check_encoding, row)) for row in block.rows]
        grid = [
            ("GRID", (0, 0), (-1, -1), 0.5, "black"),
            ("FONT", (0, 0), (-1, 0), "Helvetica-Bold"),
        ]
        return platypus.Table(cells, style=grid, spaceBefore=_PADDING, spaceAfter=_PADDING)
    if isinstance(block, Box):
        frame = [("BOX", (0, 0), (-1, -1), 1.5, "black")]
        text = _paragraph(platypus, Text(block.text, 15, bold=True), alignment=1)
        return platypus.Table([[text]], style=frame, spaceBefore=_PADDING, spaceAfter=_PADDING)
    if not block:
        return platypus.Spacer(1, _BLANK)
    return _paragraph(platypus, Text(block) if isinstance(block, str) else block)


def _paragraph(platypus: Any, text: Text, alignment: int = 0) -> Any:
    style = pdf_library("reportlab.lib.styles").ParagraphStyle(
        "text",
        fontName="Helvetica-Bold" if text.bold else "Helvetica",
        fontSize=text.size,
        leading=_LEADING * text.size,
        alignment=alignment,
    )
    return platypus.Paragraph(escape(_check_encoding(text.text)), style)


def _check_encoding(text: str) -> str:
    try:
        text.encode("cp1252")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the standard PDF fonts lack the character {text[error.start]!r} (in {text!r}); use "
            "Latin letters"
        ) from None
    return text


def read_pdf(data: bytes) -> tuple[str, ...]:
    """Return the text of each page; raise `ToolError` if the file is not a PDF."""
    read = _read if len(data) <= _CACHED_BYTES else _read.__wrapped__
    texts, share = read(data)
    reply_work.spend(share)
    return texts


@functools.lru_cache(maxsize=_CACHED_FILES)
def _read(data: bytes) -> tuple[tuple[str, ...], float]:
    work = _Work()
    limits = {
        "stream_parsing_work_maximum_count": work,
        "xform_maximum_invocations_per_extraction": work,
        "zlib_maximum_output_length": _STREAM_BYTES,
        "lzw_maximum_output_length": _STREAM_BYTES,
        "run_length_maximum_output_length": _STREAM_BYTES,
    }
    with guarded(), pdf_library("pypdf").apply_configuration(**limits):
        texts = [work.read(page) for page in open_pdf(data).pages]
    plain = [text.encode("utf-8", "replace").decode("utf-8").replace("\0", "") for text in texts]
    return tuple(plain), work.spent / MAX_WORK


class _Work:
    """Work budget of a PDF file, passed to pypdf as a limit that decreases during reading."""

    def __init__(self) -> None:
        self.spent = 0

    def __sub__(self, words: int) -> Self:
        self.spent += words
        return self

    def __lt__(self, other: int) -> bool:
        return MAX_WORK - self.spent < other

    def __le__(self, forms: int) -> bool:
        self.spent += _FORM_WORK
        return self.spent > MAX_WORK

    def read(self, page: Any) -> str:
        contents = page.get_contents()
        fonts = _follow(page, "/Resources", "/Font")
        streams = [contents, *(_follow(fonts, font, "/ToUnicode") for font in fonts or ())]
        # pypdf parses the page and the character map of each font.
        self.spent += 10 * len(streams)
        for stream in streams:
            if stream is not None:
                self.spent += len(stream.get_data()) // 10
            self._check()
        try:
            return str(page.extract_text())
        finally:
            self._check()  # this error replaces any error from pypdf

    def _check(self) -> None:
        if self.spent > MAX_WORK:
            reply_work.spend(1.0)
            raise ToolError(
                "limit exceeded: the PDF file is too complex to be read; split it into smaller files"
            )


def _follow(value: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key].get_object()
    return value


def open_pdf(data: bytes) -> Any:
    """Open a file with pypdf; raise `ToolError` for too many pages. Call it inside `guarded`."""
    reader = pdf_library("pypdf").PdfReader(BytesIO(data))
    if len(reader.pages) > MAX_PAGES:
        raise ToolError(
            f"limit exceeded: a PDF file may have at most {MAX_PAGES} pages, got "
            f"{len(reader.pages)}"
        )
    return reader


@contextmanager
def guarded() -> Iterator[None]:
    """Convert pypdf's errors on malformed files to `ToolError`."""
    # pypdf's warnings quote the contents of files.
    logger = logging.getLogger("pypdf")
    logger.addHandler(_NO_OUTPUT)
    logger.propagate = False
    try:
        yield
    except (ToolError, ImportError, MemoryError):
        raise
    except Exception as error:
        raise ToolError(
            f"invalid argument: the file cannot be read as PDF: {type(error).__name__}: "
            f"{str(error)[:200]}"
        ) from error
    finally:
        logger.propagate = True


_NO_OUTPUT = logging.NullHandler()
