"""Terminal output without control characters, since models write most of the printed text."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_KEPT = "\n\t"
# Escape sequences start with a control character (Cc), bidi overrides are format characters (Cf),
# and lone surrogates (Cs) cannot be encoded.
_HIDDEN = ("Cc", "Cf", "Cs")
# Joiners connect the parts of an emoji and cannot hide or reorder text.
_JOINERS = "\u200c\u200d"


def printable(text: str) -> str:
    """Escape control characters as in Python source."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char in _KEPT or char in _JOINERS or unicodedata.category(char) not in _HIDDEN:
        return char
    return char.encode("unicode_escape").decode("ascii")


class PlainStream:
    """Text stream that escapes control characters.

    The attribute `rich_proxied_file` gives the library `rich` access to the original stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write a text."""
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Escape control characters in all output of a `with` block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_plain, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _plain(stream: Any) -> Any:
    return stream if isinstance(stream, PlainStream) else PlainStream(stream)


class PlainConsole(Console):
    """Console that escapes control characters in text and tables, and ignores markup.

    The console's own colours and cursor movements still work.
    """

    def __init__(self, *, width: int | None = None) -> None:
        super().__init__(width=width, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    @property
    def file(self) -> IO[str]:
        file = super().file
        while hasattr(file, "rich_proxied_file"):
            file = file.rich_proxied_file
        return file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file
