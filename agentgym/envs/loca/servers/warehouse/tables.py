"""The catalogue of a warehouse: what there is of schemas, tables and columns, and how DuckDB is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

TableName: TypeAlias = tuple[str, str]
"""Schema and name of a table; the schema is that of the engine, such as `ab_testing` or `SALES.PUBLIC`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its DuckDB type, and what is declared of it."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    comment: str = ""
    key: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table or, with the SQL of its query, a view.

    Attributes:
        columns: Its columns in order.
        data: For each column a JSON array of its values as DuckDB casts them to text.
        rows: How many records it has.
        comment: What is said of it.
        view: The query of a view, in the SQL of DuckDB.
        needs: The tables that the query reads.
        created: When it was made.
    """

    columns: tuple[Column, ...]
    data: tuple[str, ...] = ()
    rows: int = 0
    comment: str = ""
    view: str = ""
    needs: tuple[TableName, ...] = ()
    created: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema: what is said of it, when it was made, and what else its server notes."""

    comment: str = ""
    created: str = ""
    notes: str = ""


def declare(column: Column) -> str:
    """A column as DuckDB is to make it; keys are not enforced, as in the warehouses."""
    default = f" DEFAULT {column.default}" if column.default else ""
    return f"{quote(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}{default}"


def unpacked(columns: Sequence[Column]) -> str:
    """The columns of a SELECT that gives the records whose values are in one parameter a column, as JSON."""
    return ", ".join(f"CAST(unnest(from_json(${k}, '[\"VARCHAR\"]')) AS {column.type})" for k, column in enumerate(columns, 1))


def quote(name: str) -> str:
    """A name as DuckDB reads it."""
    return '"' + name.replace('"', '""') + '"'


def path(name: TableName) -> str:
    """The name of a table as DuckDB reads it."""
    return f"{quote(name[0])}.{quote(name[1])}"


def fields_of(value: Any) -> list[Any]:
    """The values of a record of the catalogue, which JSON can hold."""
    return [getattr(value, name) for name in value.__slots__]


def table_of(values: Sequence[Any]) -> Table:
    """The table whose fields these are."""
    columns, data, rows, comment, view, needs, created = values
    column_list = tuple(Column(*column) for column in columns)
    return Table(column_list, tuple(data), rows, comment, view, tuple(map(tuple, needs)), created)
