"""DuckDB macros, in schema `lib`, for warehouse functions that DuckDB lacks.

They are plain text, so the engine can create them without loading SQLGlot.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

RECURSIONS = 4  # sequences that count rounds; a statement's fifth and later recursions share one

# Maximum work of a statement: rows visited or created (20 ns each), rows of windows that visit all
# rows for each, texts and arrays over a thousand characters or items created (or letter pairs
# compared), the same beyond 65,536, compared pairs of short texts (a microsecond each), and
# pattern matching in units of 256 steps (for short texts and patterns) or 65,536 steps. A step, one
# instruction of the pattern at one character, takes up to 15 ns.
_COUNTED = {
    "rows": 50_000_000,
    "framed": 20_000,
    "long": 20_000,
    "huge": 1_000,
    "compared": 4_000_000,
    "matched": 2_000_000,
    "searched": 5_000,
}

# Sequences end at these counts; the recursion rounds are the published limits.
COUNTERS: Mapping[str, Mapping[str, int]] = {
    dialect: {**_COUNTED, **{f"steps{k}": rounds for k in range(RECURSIONS)}}
    for dialect, rounds in {"bigquery": 500, "snowflake": 100}.items()
}

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# Later macros may call earlier ones.
MACROS: Mapping[str, tuple[str, ...]] = {
    dialect: (*_DATA[dialect], *_DATA["common"]) for dialect in ("bigquery", "snowflake")
}


# DuckDB functions that reveal its process. DuckDB calls most of them when a name is not a column,
# quoted or not, as in `SELECT user`. The episode's time is in a variable.
HIDDEN: Mapping[str, str] = {
    **{
        name: name
        for name in ("current_catalog", "current_database", "current_date", "current_role", "current_schema",
                     "current_schemas", "current_user", "now", "session_user", "today", "transaction_timestamp",
                     "user", "version")
    },
    "current_localtime": "localtime",
    "current_localtimestamp": "localtimestamp",
    "get_current_time": "current_time",
    "get_current_timestamp": "current_timestamp",
}  # fmt: skip


@functools.cache
def copies_of_arguments(name: str) -> tuple[int, ...]:
    """Return the maximum number of occurrences of each argument in a macro's expansion."""
    copies: tuple[int, ...] = ()
    for macro in (*_DATA["common"], *_DATA["bigquery"], *_DATA["snowflake"]):
        if macro.startswith(f"{name}("):
            words = [
                parameter.split()[0]
                for parameter in macro[len(name) + 1 : macro.index(")")].split(",")
            ]
            bodies = [
                part.partition(" AS ")[2] for part in re.split(r", (?=\([^()]*\) AS )", macro)
            ]
            counts = (
                max(1, *(len(re.findall(rf"\b{word}\b", body)) for body in bodies))
                for word in words
            )
            copies = tuple(map(max, zip_longest(copies, counts, fillvalue=1)))
    return copies
