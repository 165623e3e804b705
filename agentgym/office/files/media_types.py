"""The media types of files, by their names."""

from __future__ import annotations

import functools
import mimetypes

BYTES = "application/octet-stream"
"""The type of a file of which nothing is known."""


_types = functools.cache(mimetypes.MimeTypes)
"""The library's own table, without the files of the machine."""


def media_type(name: str) -> str:
    """Return the type of a file with this name."""
    return _types().guess_type(name)[0] or BYTES
