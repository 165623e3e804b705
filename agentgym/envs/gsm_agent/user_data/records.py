"""Read JSON lines from users and collect all mistakes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from os import environ, getpid
from pathlib import Path
from typing import Any

_BOM = b"\xef\xbb\xbf"
_MOST_REPORTED = 50  # maximum number of mistakes in an error message


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A JSON object with its position in a file."""

    where: str
    fields: Mapping[str, Any]
    mistakes: list[str]

    def text(self, name: str) -> str:
        """Return a string field; record a mistake if the field is missing or invalid."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value.strip():
            self.refuse(name, "a non-empty string")
            return ""
        if value != value.encode(errors="ignore").decode():
            self.refuse(name, "valid Unicode")
        return value

    def texts(self, name: str, *, required: bool = False) -> tuple[str, ...]:
        """Return a field that is a list of strings; record a mistake if the field is invalid."""
        value = self.fields.get(name)
        if value is None and not required:
            return ()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self.refuse(name, "a list of strings")
            return ()
        return tuple(value)

    def name(self, name: str) -> str:
        """Return an id field, which is a string or an integer."""
        value = self.fields.get(name)
        return str(value) if type(value) is int else self.text(name)

    def refuse(self, name: str, expected: str) -> None:
        """Record that a field is missing or does not have the expected value."""
        found = f"got {self.fields[name]!r:.100}" if name in self.fields else "it is missing"
        self.mistakes.append(f"{self.where}, field {name}: expected {expected}, {found}")


def read_records(
    path: Path, mistakes: list[str], *, may_be_empty: bool = False
) -> Iterator[InputRecord]:
    """Read JSON objects, one per line."""
    try:
        # `splitlines` would also split at characters that JSON allows in strings.
        lines = path.read_bytes().removeprefix(_BOM).split(b"\n")
    except OSError as error:
        mistakes.append(f"{path.name}: expected a file ({error.strerror})")
        return
    if not may_be_empty and not any(line.strip() for line in lines):
        mistakes.append(f"{path.name}: expected JSON lines, the file is empty")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        try:
            fields = json.loads(line.decode())
        except UnicodeDecodeError as error:
            mistakes.append(f"{where}: expected UTF-8 ({error.reason} at byte {error.start})")
        except (ValueError, RecursionError) as error:
            mistakes.append(f"{where}: expected a JSON object ({error})")
        else:
            if isinstance(fields, dict):
                yield InputRecord(where, fields, mistakes)
            else:
                mistakes.append(f"{where}: expected a JSON object, got {fields!r:.100}")


def raise_any(path: Path, mistakes: Sequence[str]) -> None:
    """Raise a ValueError that lists all mistakes, if there are any."""
    if mistakes:
        rest = len(mistakes) - _MOST_REPORTED
        listed = "; ".join(mistakes[:_MOST_REPORTED])
        if rest > 0:
            listed += f"; and {rest} more"
        raise ValueError(f"{path} contains {len(mistakes)} mistakes: {listed}")


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON objects, one per line."""
    path.write_text(_json_lines(records), encoding="utf-8", newline="\n")


def _json_lines(records: Iterable[Any]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def keep_dataset(data: Any) -> str:
    """Return the path of the data; a dataset is first copied to a folder.

    The rows of a `datasets.Dataset`, a `DatasetDict` or a list of mappings are copied to a folder
    in the user's cache. The folder is named after a hash of the rows, so equal rows share a folder.
    Other values raise ValueError.
    """
    if isinstance(data, str | Path):
        return str(data)
    parts = data
    if not isinstance(data, Mapping):
        parts = {str(getattr(data, "split", None) or "data"): data}
    files = {}
    for name, rows in parts.items():
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
            raise ValueError(
                f"data must be a path, a dataset or a dict of datasets, got {data!r:.100}"
            )
        try:
            files[name] = _json_lines(rows)
        except TypeError as error:
            raise ValueError(f"data must contain rows of JSON values ({error})") from error
    digest = sha256(json.dumps(files).encode()).hexdigest()[:16]
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "agentgym" / f"data-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / f"{name}.jsonl"
        if not path.exists():
            # Write to a temporary file, because another process may read the final file.
            part = path.with_suffix(f".{getpid()}")
            part.write_text(text, encoding="utf-8", newline="\n")
            part.replace(path)
    return str(folder)
