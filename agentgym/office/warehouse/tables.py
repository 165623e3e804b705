"""Catalogue of a warehouse: schemas, tables and columns, and the names in DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

TableName: TypeAlias = tuple[str, str]
"""Schema and name of a table; the schema is the engine's, such as `ab_testing` or `SALES.PUBLIC`.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """Name, DuckDB type and declared properties of a column."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    comment: str = ""
    key: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of a table; `data` contains a JSON array per column."""

    columns: tuple[Column, ...]
    data: tuple[str, ...] = ()
    rows: int = 0
    comment: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """Properties of a schema; `notes` is the location in BigQuery."""

    comment: str = ""
    created: str = ""
    notes: str = ""


def declare(column: Column) -> str:
    """Return a DuckDB column declaration without keys, which warehouses do not enforce."""
    words = [quote(column.name), column.type]
    if not column.nullable:
        words.append("NOT NULL")
    if column.default:
        words.append(f"DEFAULT {column.default}")
    return " ".join(words)


def quote(name: str) -> str:
    """Quote a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def path(name: TableName) -> str:
    """Return the qualified name of a table in DuckDB."""
    return f"{quote(name[0])}.{quote(name[1])}"
