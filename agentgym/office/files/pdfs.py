"""PDF files: written from lines, boxes and tables, the same bytes each time, and read back as
text.
"""

from __future__ import annotations

import functools
import logging
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Self
from xml.sax.saxutils import escape

from agentgym.office.files.pdf_blocks import Block, Box, PdfTable, Text, as_text
from agentgym.office.files.pdf_pages import (
    BLANK,
    LEADING,
    MARGIN,
    PADDING,
    fill_frame,
    set_page,
)
from agentgym.office.libraries import pdf_library
from agentgym.text.tools import ToolError

MAX_PAGES = 500
"""Pages of a file: reading one takes milliseconds."""

MAX_WORK = 200_000
"""Work of reading a file: words and numbers of its pages, `_FORM_WORK` for each form, and tenths of
the bytes of pages and fonts. A page of text takes some hundreds; this much takes about three
seconds of a processor.
"""

_FORM_WORK = 10_000
"""Work of a form that a page draws: it may hold megabytes without a word."""

_STREAM_BYTES = 4 * 2**20
"""Bytes of a stream when it is unpacked; a page of text has some thousands."""

_CACHED_BYTES = 2**20
"""A larger file is read anew each time, so that the cache stays below 64 MiB."""


_WRITTEN = 1_024
"""Written files whose texts are known without reading them: more than a state of 1M tokens has."""

_written_texts: dict[bytes, tuple[str, ...]] = {}
"""The texts of the pages of files that were written lately, the same as reading them gives; threads
share them.
"""
_written_lock = threading.Lock()


def write_pdf(pages: Sequence[Sequence[Block]], title: str = "") -> bytes:
    """Return the bytes of a PDF file in A4; the same for the same arguments.

    Args:
        pages: The blocks of each page from top to bottom. What does not fit on a page goes on to a
            page of its own.
        title: The title in the file's metadata.

    Raises:
        ValueError: A text has a sign that the standard fonts lack.
        ImportError: reportlab is not installed.
    """
    size = pdf_library("reportlab.lib.pagesizes").A4
    layouts = [layout for blocks in pages if (layout := set_page(blocks, size))]
    if not layouts or len(layouts) < len(pages):
        return _build_pdf(pages, title)
    bold = next((k for k, layout in enumerate(layouts) if layout.bold), len(layouts))
    frame = _page_frame(title, len(layouts), bold)
    data = fill_frame(frame, [layout.content for layout in layouts])
    with _written_lock:
        _written_texts[data] = tuple(layout.text for layout in layouts)
        if len(_written_texts) > _WRITTEN:
            del _written_texts[next(iter(_written_texts))]
    return data


@functools.lru_cache(maxsize=64)
def _page_frame(title: str, count: int, bold: int) -> bytes:
    """Return a file with some pages whose content does not matter, except that the page of the index
    `bold` is the first one with bold letters: fonts are numbered when they are used.
    """
    return _build_pdf([[Text("text", bold=k == bold)] for k in range(count)], title)


def _build_pdf(pages: Sequence[Sequence[Block]], title: str) -> bytes:
    """Return a file that reportlab has laid out."""
    platypus = pdf_library("reportlab.platypus")
    story: list[Any] = []
    for blocks in pages:
        story += [platypus.PageBreak()] if story else []
        story += [_flowable(platypus, block) for block in blocks] or [platypus.Spacer(1, 1)]
    buffer = BytesIO()
    margins = dict.fromkeys(("leftMargin", "rightMargin", "topMargin", "bottomMargin"), MARGIN)
    size = pdf_library("reportlab.lib.pagesizes").A4
    platypus.SimpleDocTemplate(
        buffer, pagesize=size, title=title, author="", invariant=1, **margins
    ).build(story)
    return buffer.getvalue()


def _flowable(platypus: Any, block: Block) -> Any:
    if isinstance(block, PdfTable):
        cells = [[_check_encoding(cell) for cell in row] for row in block.rows]
        grid = [
            ("GRID", (0, 0), (-1, -1), 0.5, "black"),
            ("FONT", (0, 0), (-1, 0), "Helvetica-Bold"),
        ]
        return platypus.Table(cells, style=grid, spaceBefore=PADDING, spaceAfter=PADDING)
    if isinstance(block, Box):
        frame = [("BOX", (0, 0), (-1, -1), 1.5, "black")]
        text = _paragraph(platypus, Text(block.text, 15, bold=True, align="center"))
        return platypus.Table([[text]], style=frame, spaceBefore=PADDING, spaceAfter=PADDING)
    if not block:
        return platypus.Spacer(1, BLANK)
    return _paragraph(platypus, as_text(block))


def _paragraph(platypus: Any, text: Text) -> Any:
    style = pdf_library("reportlab.lib.styles").ParagraphStyle(
        "text",
        fontName="Helvetica-Bold" if text.bold else "Helvetica",
        fontSize=text.size,
        leading=LEADING * text.size,
        alignment={"left": 0, "center": 1, "right": 2}[text.align],
    )
    return platypus.Paragraph(escape(_check_encoding(text.text)), style)


def _check_encoding(text: str) -> str:
    try:
        text.encode("cp1252")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the standard fonts of PDF have no {text[error.start]!r} (in {text!r}); write it in "
            "Latin letters"
        ) from None
    return text


def read_pdf(data: bytes) -> tuple[str, ...]:
    """Return the text of each page.

    Raises:
        ToolError: It cannot be read as a PDF file.
        ImportError: pypdf is not installed.
    """
    if (texts := _written_texts.get(data)) is not None:
        return texts
    return _read(data) if len(data) <= _CACHED_BYTES else _read.__wrapped__(data)


@functools.lru_cache(maxsize=64)
def _read(data: bytes) -> tuple[str, ...]:
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
    return tuple(
        text.encode("utf-8", "replace").decode("utf-8").replace("\0", "") for text in texts
    )


class _Work:
    """Work that is left for reading a file.

    pypdf bounds the words of each content stream and the forms of each page by numbers; with this
    in the place of both, all streams and pages of a file, which may show the same long content
    again and again, draw on one account.
    """

    def __init__(self) -> None:
        self._rest = MAX_WORK

    def __sub__(self, words: int) -> Self:
        """Take words of a content stream from what is left."""
        self._rest -= words
        return self

    def __lt__(self, other: int) -> bool:
        """Report whether less is left than `other`."""
        return self._rest < other

    def __le__(self, forms: int) -> bool:
        """Report whether no further form may be drawn, and take one from what is left."""
        self._rest -= _FORM_WORK
        return self._rest < 0

    def read(self, page: Any) -> str:
        """Return the text of a page.

        Raises:
            ToolError: The file takes more work than `MAX_WORK`.
        """
        contents = page.get_contents()
        fonts = _follow(page, "/Resources", "/Font")
        streams = [contents, *(_follow(fonts, font, "/ToUnicode") for font in fonts or ())]
        # Each font is measured too, and its widths are read.
        self._rest -= 10 * len(streams)
        for stream in streams:
            self._rest -= len(stream.get_data()) // 10 if stream is not None else 0
            self._check()
        try:
            return str(page.extract_text())
        finally:
            self._check()  # pypdf has errors of its own for this, and leaves out what a form says

    def _check(self) -> None:
        if self._rest < 0:
            raise ToolError(
                "limit exceeded: the pages of the PDF file hold too much to be read; extract some "
                "of them into a file of their own"
            )


def _follow(value: Any, *keys: str) -> Any:
    """Return the object behind some keys of dictionaries; None if there is none."""
    for key in keys:
        value = value[key].get_object() if isinstance(value, dict) and key in value else None
    return value


def open_pdf(data: bytes) -> Any:
    """Return a reader of pypdf; it and all that is done with it belong into a block that is
    `guarded`.

    Raises:
        ToolError: There are too many pages.
        ImportError: pypdf is not installed.
    """
    reader = pdf_library("pypdf").PdfReader(BytesIO(data))
    if len(reader.pages) > MAX_PAGES:
        raise ToolError(
            f"limit exceeded: the PDF file has {len(reader.pages)} pages, at most {MAX_PAGES} can "
            "be read"
        )
    return reader


@contextmanager
def guarded() -> Iterator[None]:
    """A block in which whatever pypdf stumbles over, in a file that may hold anything, is a refused
    call.

    Raises:
        ToolError: A file cannot be read as PDF.
        ImportError: pypdf is not installed.
    """
    errors = pdf_library("pypdf.errors")
    try:
        with _QUIET:
            yield
    except (
        errors.PyPdfError,
        errors.DependencyError,
        zlib.error,
        struct.error,
        *_STUMBLES,
    ) as error:
        raise ToolError(
            f"invalid argument: the file cannot be read as PDF: {type(error).__name__}: "
            f"{str(error)[:200]}"
        ) from None


class _Quiet:
    """Block in which pypdf logs nothing: its warnings quote files that a model wrote, and would go
    to the host's standard error. Threads may share it.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._logger = logging.getLogger("pypdf")
        self._handler = logging.NullHandler()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._propagated = self._logger.propagate
                self._logger.propagate = False
                self._logger.addHandler(self._handler)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._logger.removeHandler(self._handler)
                self._logger.propagate = self._propagated


_QUIET = _Quiet()

_STUMBLES = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    OSError,
    EOFError,
)
"""Errors of Python that pypdf lets pass, for files that are broken."""
