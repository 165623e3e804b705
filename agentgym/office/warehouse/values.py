"""Query results, and conversion of values and types between the warehouses and DuckDB."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias

from agentgym.office.store import Row
from agentgym.text.tools import ToolError
from agentgym.text.validation import check_choice

MAX_BYTES = 1 << 20  # maximum JSON size of a result, larger than any context window

to_json = json.JSONEncoder(ensure_ascii=False).encode  # reused, because creating an encoder is slow

# Columns and records of an information schema view.
View: TypeAlias = tuple[Sequence[str], Sequence[Sequence[Any]]]


@dataclass(slots=True)
class Rows:
    """The result of a query: column names, records of JSON values, and the number of all records."""

    names: list[str]
    records: list[list[Any]]
    total: int

    def objects(self) -> list[Row]:
        """Return the records as dicts, with column names as keys."""
        return [dict(zip(self.names, record, strict=True)) for record in self.records]


@dataclass(slots=True)
class ConversionResult:
    """A statement's kind (SELECT, INSERT, CREATE_TABLE, …), rows, and row counts by action."""

    kind: str
    rows: Rows | None = None
    counts: dict[str, int] = field(default_factory=dict)
    target: tuple[str, str] | None = None
    message: str = ""


def fit(rows: Rows, limit: int) -> tuple[list[Row], str]:
    """Return the records that fit into a result, and a note about omitted records."""
    retained: list[Row] = []
    size = 0
    for row in rows.objects():
        size += len(to_json(row).encode())
        if size > MAX_BYTES:
            break
        retained.append(row)
    if len(retained) == rows.total:
        return retained, ""
    why = f"a result holds at most {MAX_BYTES} bytes"
    if len(retained) == limit:
        why = "of the limit on their number"
    return retained, (
        f"Only the first {len(retained)} of {rows.total} rows are shown, because {why}; use "
        "LIMIT and OFFSET.\n"
    )


def pack_values(values: Sequence[Any]) -> str:
    """Return the values of a column as a JSON array."""
    kinds = set(map(type, values))
    if kinds <= {str, int, float, type(None)} and all(
        isfinite(value) for value in values if type(value) is float
    ):
        return to_json(values)
    return to_json(list(map(_text, values)))


def pack_columns(rows: Sequence[Sequence[Any]], width: int) -> list[str]:
    """Convert rows to one JSON array per column."""
    if not rows:
        return ["[]"] * width
    return list(map(pack_values, zip(*rows, strict=True)))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        return moment.isoformat(sep=" ")
    if isinstance(value, (list, dict)):
        return to_json(value)
    if isinstance(value, bytes):
        return "".join(f"\\x{byte:02X}" for byte in value)
    return str(value)


def to_plain(kind: str, values: Sequence[Any]) -> Sequence[Any]:
    """Convert a column to JSON values: ISO 8601 dates, UTC times, exact decimals."""
    if set(map(type, values)) <= _PLAIN:
        return values
    zone = "Z" if "TIMESTAMP WITH TIME ZONE" in kind else ""
    if zone and re.search("TIMESTAMP(?! WITH TIME ZONE)", kind):
        raise ToolError("not supported: times with and without a time zone in one value")
    return [_to_jsonable(value, zone) for value in values]


_PLAIN = frozenset({str, int, bool, type(None)})


def _to_jsonable(value: Any, zone: str) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        infinite = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return infinite.get(repr(value), value)
    if isinstance(value, datetime):
        return value.isoformat() + zone
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (list, tuple)):
        return [_to_jsonable(item, zone) for item in value]
    if isinstance(value, dict):
        return {str(key): _to_jsonable(item, zone) for key, item in value.items()}
    return _number(value)


def _number(value: Any) -> Any:
    if not isinstance(value, Decimal):
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    if Decimal(repr(float(value))) == value:
        return float(value)
    return format(value, "f").rstrip("0")


_FROM_BIGQUERY = {
    "INT64": "BIGINT",
    "FLOAT64": "DOUBLE",
    "STRING": "VARCHAR",
    "BOOL": "BOOLEAN",
    "DATE": "DATE",
    "TIME": "TIME",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP WITH TIME ZONE",
    "NUMERIC": "DECIMAL(38,9)",
    "BIGNUMERIC": "DECIMAL(38,18)",
    "BYTES": "BLOB",
    "JSON": "JSON",
}

_SNOWFLAKE = {
    "BIGINT": "NUMBER(38,0)",
    "INTEGER": "NUMBER(38,0)",
    "HUGEINT": "NUMBER(38,0)",
    "SMALLINT": "NUMBER(38,0)",
    "UBIGINT": "NUMBER(38,0)",
    "DOUBLE": "FLOAT",
    "FLOAT": "FLOAT",
    "VARCHAR": "VARCHAR(16777216)",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIME": "TIME(9)",
    "TIMESTAMP": "TIMESTAMP_NTZ(9)",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP_LTZ(9)",
    "BLOB": "BINARY(8388608)",
    '"NULL"': "VARCHAR(16777216)",
}
_FROM_SNOWFLAKE = {
    "NUMBER": "DECIMAL(38,0)",
    "INTEGER": "BIGINT",
    "FLOAT": "DOUBLE",
    "VARCHAR": "VARCHAR",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP WITH TIME ZONE",
    "BINARY": "BLOB",
}


def from_bigquery(name: str) -> str:
    """Return the DuckDB type for a BigQuery type, or raise `ValueError`."""
    if name.upper().startswith("ARRAY<"):
        return f"{from_bigquery(name[6:-1])}[]"
    check_choice("type", name.upper(), list(_FROM_BIGQUERY))
    return _FROM_BIGQUERY[name.upper()]


def snowflake_type(duck_name: str) -> str:
    """Return the Snowflake type for a DuckDB type."""
    if duck_name.startswith("DECIMAL"):
        return duck_name.replace("DECIMAL", "NUMBER")
    return "ARRAY" if duck_name.endswith("[]") else _SNOWFLAKE.get(duck_name, duck_name)


def snowflake_bare(duck_name: str) -> str:
    """Return the Snowflake type for a DuckDB type, without precision."""
    name = snowflake_type(duck_name).partition("(")[0]
    return "TEXT" if name == "VARCHAR" else name


def from_snowflake(name: str) -> str:
    """Return the DuckDB type for a Snowflake type, or raise `ValueError`."""
    base, bracket, rest = name.upper().partition("(")
    if base == "NUMBER" and bracket:
        return f"DECIMAL({rest}"
    check_choice("type", base, list(_FROM_SNOWFLAKE))
    return _FROM_SNOWFLAKE[base]
