"""DuckDB macros, in schema `lib`, for warehouse functions that DuckDB lacks.

The macros are strings, so the engine can create macros without importing SQLGlot.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
MACROS: Mapping[str, tuple[str, ...]] = {
    dialect: (*_DATA[dialect], *_DATA["common"]) for dialect in ("bigquery", "snowflake")
}

# DuckDB functions that reveal details of the process. For most of these functions, the name alone
# is a call, as in `SELECT user`.
HIDDEN: Mapping[str, str] = _DATA["hidden"]
