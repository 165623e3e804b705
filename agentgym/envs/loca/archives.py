"""Read untrusted zip archives in memory with size limits."""

from __future__ import annotations

import functools
import io
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping

from agentgym.text.tools import ToolError, echo

# Maximum archive size in bytes. Archives of application papers are far smaller.
MAX_BYTES = 2**20
# Maximum unpacked size in bytes, to protect against zip bombs.
MAX_UNPACKED = 4 * 2**20
# Maximum number of entries, since many empty files would slow the check down.
MAX_ENTRIES = 500

_LIMIT = "limit exceeded: the archive is too large: "
# Exceptions that zipfile raises for damaged, encrypted or unsupported archives.
_BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError, LookupError, RuntimeError, EOFError, OSError,
)  # fmt: skip


def read_archive(data: bytes) -> Mapping[str, bytes]:
    """Return the archive's files by path; folder paths end with a slash.

    Raise ToolError if the archive is unreadable or too large, or has an unsafe path.
    """
    if len(data) > MAX_BYTES:
        raise ToolError(f"{_LIMIT}the maximum is {MAX_BYTES} bytes, got {len(data)}")
    return _read(data)


@functools.lru_cache(maxsize=64)
def _read(data: bytes) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {}
    left = MAX_UNPACKED
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise ToolError(f"{_LIMIT}the maximum is {MAX_ENTRIES} entries, got {len(entries)}")
            for entry in entries:
                _check(entry, files)
                with archive.open(entry) as stream:
                    files[entry.filename] = stream.read(left + 1)
                left -= len(files[entry.filename])
                if left < 0:
                    raise ToolError(f"{_LIMIT}the maximum unpacked size is {MAX_UNPACKED} bytes")
    except _BROKEN as error:
        name = type(error).__name__
        raise ToolError(f"invalid argument: not a readable zip archive: {name}") from None
    return files


def _check(entry: zipfile.ZipInfo, files: Mapping[str, bytes]) -> None:
    parts = entry.filename.removesuffix("/").split("/")
    fault = ""
    if "\\" in entry.filename or not {"", ".", ".."}.isdisjoint(parts):
        fault = "leads out of the archive"
    elif entry.filename in files:
        fault = "is in the archive twice"
    elif stat.S_ISLNK(entry.external_attr >> 16):
        fault = "is a link"
    if fault:
        raise ToolError(f"invalid argument: the path {echo(entry.filename)} {fault}")
