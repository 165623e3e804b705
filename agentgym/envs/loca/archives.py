"""Read untrusted zip archives in memory with size limits; nothing is unpacked to disk."""

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

# Maximum archive size in bytes, far above the size of an application.
MAX_BYTES = 2**20
# Maximum unpacked size in bytes; stops zip bombs.
MAX_UNPACKED = 4 * 2**20
# Maximum number of entries; many empty files would slow the check down.
MAX_ENTRIES = 500

_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ValueError,
    LookupError,
    RuntimeError,
    EOFError,
    OSError,
)


def read_archive(data: bytes) -> Mapping[str, bytes]:
    """Return the files of an archive by path; folder paths end with a slash and have no bytes.

    Raises:
        ToolError: The archive is invalid, encrypted or too large, or a path leaves it, is
            duplicated or is a link.
    """
    if len(data) > MAX_BYTES:
        raise ToolError(
            f"limit exceeded: an archive has at most {MAX_BYTES} bytes here, got {len(data)}"
        )
    return _read(data)


@functools.lru_cache(maxsize=64)
def _read(data: bytes) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {}
    left = MAX_UNPACKED
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise ToolError(
                    f"limit exceeded: an archive has at most {MAX_ENTRIES} entries here, got "
                    f"{len(entries)}"
                )
            for entry in entries:
                _check(entry, files)
                with archive.open(entry) as stream:
                    files[entry.filename] = stream.read(left + 1)
                left -= len(files[entry.filename])
                if left < 0:
                    raise ToolError(
                        f"limit exceeded: the files of an archive have at most {MAX_UNPACKED} "
                        "bytes here"
                    )
    except _BROKEN as error:
        raise ToolError(
            f"invalid argument: not a readable zip archive: {type(error).__name__}"
        ) from None
    return files


def _check(entry: zipfile.ZipInfo, files: Mapping[str, bytes]) -> None:
    parts = entry.filename.removesuffix("/").split("/")
    if "\\" in entry.filename or any(part in ("", ".", "..") for part in parts):
        raise ToolError(
            f"invalid argument: the path {echo(entry.filename)} leads out of the archive"
        )
    if entry.filename in files:
        raise ToolError(
            f"invalid argument: the path {echo(entry.filename)} is in the archive twice"
        )
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise ToolError(f"invalid argument: {echo(entry.filename)} in the archive is a link")
