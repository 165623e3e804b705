"""Tables of the shop, and a new shop's settings and first records.

Order and item totals are whole cents, which add up exactly. Product prices stay text,
because the API shows them as written. Fields that no query uses are in the JSON column `details`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TABLES: str = _DATA["tables"]
# Label and description by group of settings.
GROUPS: Mapping[str, list[str]] = _DATA["groups"]


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value)
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _insert(table: str, record: Mapping[str, object]) -> str:
    values = ", ".join(map(_literal, record.values()))
    return f"INSERT INTO {table} ({', '.join(record)}) VALUES ({values});"


def _statements() -> Iterator[str]:
    for table, records in _DATA["records"].items():
        for record in records:
            yield _insert(table, record)
    for line in _DATA["settings"].splitlines():
        group, key, label, kind, default, *choices = line.split("|")
        options = {name: name for name in choices[0].split(",")} if choices else {}
        yield _insert(
            "settings",
            {
                "id": key,
                "group_id": group,
                "label": label,
                "type": kind,
                "default_value": default,
                "value": default,
                "options": options,
            },
        )


PRESETS = "\n".join(_statements())  # SQL that fills the tables of a new shop
