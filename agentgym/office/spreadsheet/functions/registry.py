"""The functions available to formulas, and how they treat ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentgym.office.spreadsheet.cell_values import to_truth
from agentgym.office.spreadsheet.functions.aggregates import AGGREGATES
from agentgym.office.spreadsheet.functions.dates import DATES
from agentgym.office.spreadsheet.functions.lookups import LOOKUPS
from agentgym.office.spreadsheet.functions.math_functions import MATH
from agentgym.office.spreadsheet.functions.texts import TEXTS

# Aliases of functions.
_OTHER_NAMES = {
    "CEILING.MATH": "CEILING",
    "FLOOR.MATH": "FLOOR",
    "PERCENTILE.INC": "PERCENTILE",
    "QUARTILE.INC": "QUARTILE",
    "RANK.EQ": "RANK",
    "STDEV.P": "STDEVP",
    "STDEV.S": "STDEV",
    "UNICHAR": "CHAR",
    "UNICODE": "CODE",
    "VAR.P": "VARP",
    "VAR.S": "VAR",
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **MATH,
    **TEXTS,
    **DATES,
    **AGGREGATES,
    **LOOKUPS,
    "NOT": lambda a: not to_truth(a),
}
FUNCTIONS |= {name: FUNCTIONS[other] for name, other in _OTHER_NAMES.items()}
"""Functions that compute all their arguments first; a name here is one that spreadsheets have."""

_SINGLES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys((*MATH, *TEXTS, *DATES, "NOT")),
    **dict.fromkeys(("VLOOKUP", "HLOOKUP"), (0, 2, 3)),
    "MATCH": (0, 2),
    "RANK": (0,),
    **dict.fromkeys(
        ("LARGE", "SMALL", "PERCENTILE", "QUARTILE", "COUNTIF", "SUMIF", "AVERAGEIF"), (1,)
    ),
    "INDEX": (1, 2),
    "COUNTIFS": tuple(range(1, 60, 2)),
    **dict.fromkeys(("SUMIFS", "AVERAGEIFS", "MINIFS", "MAXIFS"), tuple(range(2, 60, 2))),
}
# Positions of scalar arguments, None for all; without an entry, ranges are allowed everywhere.
SINGLES: Mapping[str, tuple[int, ...] | None] = {
    **_SINGLES,
    **{name: _SINGLES[other] for name, other in _OTHER_NAMES.items() if other in _SINGLES},
}
