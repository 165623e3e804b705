"""Read JSON lines from users and collect all mistakes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from os import environ, getpid
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from agentgym.envs.reading import describe_faults

STRICT = ConfigDict(strict=True, extra="allow")
"""The configuration of row types, which may have further fields."""
Text = Annotated[str, Field(pattern=r"\S")]
"""A string that is not blank."""
Id = Annotated[Text, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""An id; integers become strings."""

_BOM = b"\xef\xbb\xbf"
_MOST_REPORTED = 50  # maximum number of mistakes in an error message


def read_records(
    path: Path, rows: TypeAdapter[Any], mistakes: list[str], *, may_be_empty: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield the position and the fields of each valid row, and record all mistakes.

    The file contains one JSON object per line.
    """
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
            fields = rows.validate_json(line)
        except ValidationError as error:
            for fault in describe_faults(error):
                mistakes.append(f"{where}, {fault}")
        else:
            yield where, fields


def raise_any(path: Path, mistakes: Sequence[str]) -> None:
    """Raise a ValueError that lists the first mistakes, if there are any."""
    if mistakes:
        listed = "; ".join(mistakes[:_MOST_REPORTED])
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
