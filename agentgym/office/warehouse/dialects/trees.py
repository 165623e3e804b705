"""Helpers for SQL syntax trees, and rewrites that both dialects use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp

from agentgym.office.warehouse.engine import Column, TableName
from agentgym.text.tools import ToolError

# Nodes are untyped, because SQLGlot's classes declare few attributes.
Node: TypeAlias = Any
Rewrite: TypeAlias = Callable[[Node], Node]


def swap(node: Node, new: Node) -> None:
    """Replace a node without visiting all siblings."""
    parent, key, place = node.parent, node.arg_key, node.index
    if place is None or not isinstance(parent.args[key], list):
        node.replace(new)
        return
    parent.args[key][place] = new
    new.parent, new.arg_key, new.index = parent, key, place
    node.parent, node.arg_key, node.index = None, None, None


def is_cte(table: exp.Table) -> bool:
    """Return whether a table name refers to a common table expression."""
    if table.args.get("db") or not table.name:
        return False
    child: Any = table
    while (parent := child.parent) is not None:
        if isinstance(parent, exp.With):
            seen = parent.expressions
            place = next((k for k, each in enumerate(seen) if each is child), len(seen))
            visible = seen if parent.args.get("recursive") else seen[:place]
        else:
            holder = parent.args.get("with_")
            visible = [] if holder is None or holder is child else holder.expressions
        if any(each.alias.lower() == table.name.lower() for each in visible):
            return True
        child = parent
    return False


def set_name(table: exp.Table, name: TableName, alias: str = "") -> None:
    """Replace a table's name with the name that DuckDB uses for the table."""
    table.set("this", exp.to_identifier(name[1], quoted=True))
    table.set("db", exp.to_identifier(name[0], quoted=True))
    table.set("catalog", None)
    if alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def comment_in(properties: Any) -> str:
    """Return the comment (in BigQuery, the description) in a statement's properties."""
    for item in properties.expressions if properties else []:
        if isinstance(item, exp.SchemaCommentProperty):
            return str(item.this.name)
        if isinstance(item, exp.Property) and item.name.lower() == "description":
            value = item.args["value"]
            return "" if isinstance(value, exp.Null) else str(value.name)
    return ""


def only_comment(properties: exp.Properties) -> str:
    """Return the comment in a statement's properties; reject other properties."""
    for item in properties.expressions:
        described = isinstance(item, exp.Property) and item.name.lower() == "description"
        if not described and not isinstance(item, exp.SchemaCommentProperty):
            raise ToolError(
                f"not supported: {item.sql()[:60]}; only a comment (or description) can be set"
            )
    return comment_in(properties)


NOW = "CAST(getvariable('now') AS TIMESTAMPTZ)"  # the episode's current time


def duck_type(name: str) -> exp.DataType:
    """Return a DuckDB type."""
    return exp.DataType.build(name, dialect="duckdb")


def library(name: str, *arguments: Any) -> exp.Anonymous:
    """Return a call to a macro in the schema `lib`."""
    given = [argument for argument in arguments if argument is not None]
    return exp.Anonymous(this=f"lib.{name}", expressions=given)


def duck(text: str, *parts: Any) -> Node:
    """Parse DuckDB SQL, with the syntax trees `parts` in place of {0}, {1} and so on."""
    names = [f"__part{k}" for k in range(len(parts))]
    tree = exp.Paren(this=sqlglot.parse_one(text.format(*names), read="duckdb"))
    for column in list(tree.find_all(exp.Column)):
        if column.name in names and not column.table:
            column.replace(parts[names.index(column.name)])
    return tree


def default_name(column: Column) -> str | None:
    """Return the default value of a column as SQL in the warehouse's dialect."""
    return column.default and column.default.replace(NOW, "CURRENT_TIMESTAMP()")


def refuse(what: str, part: str = "") -> Rewrite:
    """Return a rewrite that rejects expressions; if `part` is given, only expressions with it."""

    def change(node: Node) -> Node:
        if part and not node.args.get(part):
            return node
        raise ToolError(f"not supported: {what}")

    return change


COMMON_REWRITES: dict[type, Rewrite] = {
    exp.ByteLength: lambda node: library("bytes_in", node.this),
    **dict.fromkeys(
        (exp.Rand, exp.Randn, exp.Randstr, exp.Uuid, exp.TableSample),
        refuse("random values; choose them in the statement"),
    ),
    exp.ApproxDistinct: lambda node: exp.Count(this=exp.Distinct(expressions=[node.this])),
}
