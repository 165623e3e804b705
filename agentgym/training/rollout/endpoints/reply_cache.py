"""Disk cache of API answers for repeated runs."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any


class ReplyCache:
    """Cache with one file per answer, shared by any number of processes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def get(self, key: str) -> Any | None:
        """Return the answer for a key, or None."""
        if not self.folder:
            return None
        try:
            return json.loads(self._file(key).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None

    def put(self, key: str, answer: Any) -> None:
        """Store an answer."""
        if not self.folder:
            return
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Use a unique name, because another process may be writing the same file.
        with NamedTemporaryFile(
            "w", encoding="utf-8", dir=file.parent, suffix=".new", delete=False
        ) as part:
            json.dump(answer, part)
        Path(part.name).replace(file)

    def _file(self, key: str) -> Path:
        return Path(self.folder) / key[:2] / f"{key[2:]}.json"
