"""Read untrusted zip archives in memory with size limits."""

from __future__ import annotations

import functools
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Mapping

from agentgym.text.tools import ToolError, echo

# Maximum archive size in bytes. Archives of application papers are far smaller.
MAX_BYTES = 2**20
# Maximum unpacked size in bytes, to protect against zip bombs.
MAX_UNPACKED = 4 * 2**20

_LIMIT = "limit exceeded: the archive is too large: "
# Exceptions that zipfile raises for damaged, encrypted or unsupported archives.
_BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError, LookupError, RuntimeError, EOFError, OSError,
)  # fmt: skip


@functools.lru_cache(maxsize=64)
def read_archive(data: bytes) -> Mapping[str, bytes]:
    """Return the archive's files by path; folder paths end with a slash.

    Raise ToolError if the archive is unreadable or too large, or contains a path twice.
    """
    if len(data) > MAX_BYTES:
        raise ToolError(f"{_LIMIT}the maximum is {MAX_BYTES} bytes, got {len(data)}")
    files: dict[str, bytes] = {}
    left = MAX_UNPACKED
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                if name in files:
                    raise ToolError(f"invalid argument: {echo(name)} is in the archive twice")
                with archive.open(name) as stream:
                    files[name] = stream.read(left + 1)
                left -= len(files[name])
                if left < 0:
                    raise ToolError(f"{_LIMIT}the maximum unpacked size is {MAX_UNPACKED} bytes")
    except _BROKEN as error:
        name = type(error).__name__
        raise ToolError(f"invalid argument: not a readable zip archive: {name}") from None
    return files
