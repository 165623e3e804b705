"""Values on their way into DuckDB and out of it, and the records of a result."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias

MAX_BYTES = 1 << 20
"""Bytes of JSON that the records of one result may have: more than any context window holds."""

_to_json = json.JSONEncoder(ensure_ascii=False).encode  # made once: each takes long to make

View: TypeAlias = tuple[Sequence[str], Sequence[Sequence[Any]]]
"""Columns and records of a view of the information schema."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of DuckDB: its kind, and the names and types of its parts."""

    id: str
    children: tuple[tuple[str, ValueType], ...]

    @classmethod
    def of(cls, shape: tuple[str, Sequence[Any]]) -> ValueType:
        """Return the type that is written as plain data."""
        return cls(shape[0], tuple((name, cls.of(part)) for name, part in shape[1]))


@dataclass(slots=True)
class Rows:
    """The result of a query: names and DuckDB types of the columns, and records of plain JSON
    values.

    Attributes:
        total: The number of records; more than `records` has where it was cut.
        too_long: Whether records were left out for their length.
    """

    names: list[str]
    types: list[str]
    records: list[list[Any]]
    total: int
    too_long: bool = False

    def objects(self) -> list[dict[str, Any]]:
        """Return the records by name of column."""
        return [dict(zip(self.names, record, strict=True)) for record in self.records]


@dataclass(slots=True)
class ConversionResult:
    """The effect of a statement.

    Attributes:
        kind: Its kind: SELECT, INSERT, CREATE_TABLE, …
        rows: The records, of a query.
        counts: The numbers of records that were inserted, updated and deleted.
        target: The table that it changed.
        message: A sentence about it, if there is one.
    """

    kind: str
    rows: Rows | None = None
    counts: dict[str, int] = field(default_factory=dict)
    target: tuple[str, str] | None = None
    message: str = ""


def fit(rows: Rows) -> tuple[list[dict[str, Any]], str]:
    """Return the records that a result can hold, and a line about those that it cannot."""
    retained = rows.objects()
    if len(_to_json(retained).encode()) > MAX_BYTES:  # with what separates them, so maybe not all
        retained = list(_first_rows(retained))
    if len(retained) == rows.total:
        return retained, ""
    why = (
        f"a result holds at most {MAX_BYTES} bytes"
        if rows.too_long or len(retained) < len(rows.records)
        else "of the limit on their number"
    )
    return retained, (
        f"Only the first {len(retained)} of {rows.total} rows are shown, because {why}; use "
        "LIMIT and OFFSET.\n"
    )


def _first_rows(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the records that have at most `MAX_BYTES` together."""
    size = 0
    for row in rows:
        size += len(_to_json(row).encode())
        if size > MAX_BYTES:
            return
        yield row


def pack_values(values: Sequence[Any]) -> str:
    """Return the values of a column as a JSON array."""
    kinds = set(map(type, values))
    if kinds <= {str, int, float, type(None)} and all(
        isfinite(value) for value in values if type(value) is float
    ):
        return json.dumps(values, ensure_ascii=False)
    return json.dumps(list(map(_text, values)), ensure_ascii=False)


def _text(value: Any) -> str | None:
    """Return a value of a task as text that DuckDB casts to the type of its column."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return (
            value.astimezone(UTC).isoformat(sep=" ") if value.tzinfo else value.isoformat(sep=" ")
        )
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return "".join(f"\\x{byte:02X}" for byte in value)
    return str(value)


def to_plain(kind: ValueType, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column of a type as plain JSON."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return values
    if kinds <= {date, type(None)}:
        return [None if value is None else value.isoformat() for value in values]
    return list(map(converter(kind), values))


_PLAIN = frozenset({str, int, bool, type(None)})
"""Types that are plain JSON already."""


def converter(kind: ValueType) -> Callable[[Any], Any]:
    """Return the function that makes plain JSON of the values of a type: dates in ISO 8601, moments
    in UTC, decimals without loss.
    """
    if kind.id in ("list", "array"):
        item = converter(kind.children[0][1])
        return lambda value: None if value is None else [item(each) for each in value]
    if kind.id == "struct":
        fields = {name: converter(child) for name, child in kind.children}
        return lambda value: (
            None
            if value is None
            else {name: convert(value[name]) for name, convert in fields.items()}
        )
    zone = "Z" if "time zone" in kind.id else ""
    return lambda value: _to_jsonable(value, zone)


def _to_jsonable(value: Any, zone: str) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return (
            value
            if value - value == 0
            else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
        )
    if isinstance(value, (date, time)):
        return value.isoformat() + zone
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _to_jsonable(item, "") for key, item in value.items()}
    return _number(value)


def _number(value: Any) -> Any:
    """Return a decimal as a JSON number where its digits survive that, as text otherwise; anything
    else as text.
    """
    if not isinstance(value, Decimal):
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else format(value, "f").rstrip("0")
