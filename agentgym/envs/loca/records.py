"""Type aliases for records and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

# A row, a JSON object or a database record.
Record: TypeAlias = dict[str, Any]
# Values by name, which the receiver must not modify.
Fields: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Fields]
# The cells of a table, row by row.
Grid: TypeAlias = Sequence[Sequence[Any]]
