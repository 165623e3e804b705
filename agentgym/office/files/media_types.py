"""Media types of files, determined by file name."""

from __future__ import annotations

import functools
import mimetypes

BYTES = "application/octet-stream"  # unknown file type


# Use only the built-in table, because system tables differ between machines.
_types = functools.cache(mimetypes.MimeTypes)


def media_type(name: str) -> str:
    """Return the media type for a file name."""
    return _types().guess_type(name)[0] or BYTES
