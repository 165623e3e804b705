"""Line-based files, plain or with one zstd frame per line (`.zst`).

Because frames are independent, individual lines can be read, appended and removed. `zstd -d`,
pandas and DuckDB can read the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

ENDING = ".zst"
# The first bytes of a zstd frame (RFC 8878, section 3.1.1).
_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK = 1 << 16
# At this level, files are 10% smaller than at level 3, and a 44 kB line takes 0.3 ms longer.
_LEVEL = 9


@dataclass(frozen=True, slots=True)
class Chunk:
    """Line of a plain file, or frame of a compressed file, from byte `start` up to byte `end`. For
    a damaged frame, `lines` contains the raw bytes.
    """

    start: int
    end: int
    lines: tuple[bytes, ...]


def is_compressed(path: Path) -> bool:
    """Report whether a file's name indicates compression."""
    return path.suffix == ENDING


def encode_lines(path: Path, lines: Iterable[bytes]) -> bytes:
    """Encode lines, including their line endings, for a file."""
    if not is_compressed(path):
        return b"".join(lines)
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    return b"".join(map(compressor.compress, lines))


def read_chunks(path: Path, begin: int = 0) -> Iterator[Chunk]:
    """Yield a file's chunks, starting at a chunk boundary and omitting an incomplete last chunk."""
    with path.open("rb") as file:
        file.seek(begin)
        if is_compressed(path):
            yield from _frames(file)
            return
        for line in file:
            if line.endswith(b"\n"):
                yield Chunk(begin, begin + len(line), (line,))
                begin += len(line)


def read_chunk(path: Path, start: int, end: int) -> Chunk:
    """Return a file's chunk at the given position."""
    with path.open("rb") as file:
        file.seek(start)
        lines, known_end = _read_frame(file) if is_compressed(path) else ((), 0)
        if not known_end:
            file.seek(start)
            lines = (file.read(end - start),)
    return Chunk(start, end, lines)


def torn_at(path: Path) -> int:
    """Return the start of an incomplete last chunk, or the file size if all chunks are complete."""
    if is_compressed(path):
        return max((chunk.end for chunk in read_chunks(path)), default=0)
    with path.open("rb") as file:
        keep, block = file.seek(0, os.SEEK_END), 1 << 16
        while keep and not _ends_line(file, keep):
            start = max(0, keep - block)
            file.seek(start)
            keep = start + file.read(keep - start).rfind(b"\n") + 1
        return keep


def _ends_line(file: IO[bytes], position: int) -> bool:
    file.seek(position - 1)
    return file.read(1) == b"\n"


def _frames(file: IO[bytes]) -> Iterator[Chunk]:
    while True:
        start = file.tell()
        lines, end = _read_frame(file)
        if not end:
            # Another frame may follow a damaged frame, but nothing follows a truncated frame.
            file.seek(start)
            data = file.read()
            length = data.find(_MAGIC, 1)
            if length < 0:
                return
            lines, end = (data[:length],), start + length
        yield Chunk(start, end, lines)
        file.seek(end)


def _read_frame(file: IO[bytes]) -> tuple[tuple[bytes, ...], int]:
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    try:
        while not decompressor.eof:
            if not (block := file.read(_BLOCK)):
                return (), 0
            parts.append(decompressor.decompress(block))
    except zstandard.ZstdError:
        return (), 0
    end = file.tell() - len(decompressor.unused_data)
    return tuple(b"".join(parts).splitlines(keepends=True)), end
