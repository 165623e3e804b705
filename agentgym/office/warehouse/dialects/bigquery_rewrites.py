"""Rewrites of GoogleSQL that SQLGlot does not translate for DuckDB."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from agentgym.office.warehouse.dialects.bigquery_dates import DATE_REWRITES
from agentgym.office.warehouse.dialects.trees import COMMON_REWRITES, Node, duck, library
from agentgym.office.warehouse.tables import quote
from agentgym.text.tools import ToolError

# SQLGlot does not know these; DuckDB has them with the same meaning.
FUNCTIONS = frozenset(
    "error bit_count ascii chr array_reverse array_first array_last unicode cbrt ieee_divide".split()
)


def _cast(node: Node) -> Node:
    if isinstance(node.this, exp.Literal) and node.this.is_int:
        return node
    if node.args.get("format"):
        raise ToolError("not supported: CAST with FORMAT; use FORMAT_DATE or FORMAT_TIMESTAMP")
    if node.to.this == exp.DType.BIGINT:
        return library("try_whole" if isinstance(node, exp.TryCast) else "whole", node.this)
    return library("text", node.this) if node.to.this == exp.DType.TEXT else node


def _type(node: Node) -> Node:
    if node.this == exp.DType.DECIMAL and not node.expressions:
        return exp.DataType.build("DECIMAL(38, 9)", dialect="duckdb")
    if node.this == exp.DType.BIGDECIMAL:
        return exp.DataType.build("DECIMAL(38, 18)", dialect="duckdb")
    if node.this in (exp.DType.TEXT, exp.DType.VARCHAR) and node.expressions:
        return exp.DataType.build("VARCHAR", dialect="duckdb")
    return node


def _without_limit(node: Node) -> Node:
    limit = node.find(exp.Limit)
    if limit is not None and limit.find_ancestor(exp.AggFunc) is node:
        raise ToolError("not supported: LIMIT within an aggregate; limit a subquery")
    return node


def _ignore_nulls(node: Node) -> Node:
    """DuckDB knows IGNORE NULLS in window functions only."""
    if isinstance(node.this, exp.ArrayAgg):
        raise ToolError("not supported: ARRAY_AGG with IGNORE NULLS; filter with WHERE")
    return node


def _array(node: Node) -> Node:
    """The first struct names the fields of all."""
    first = node.expressions[0] if node.expressions else None
    if not isinstance(first, exp.Struct) or not all(map(_has_name, first.expressions)):
        return node
    labels = [
        field.this if isinstance(field, exp.PropertyEQ) else field.args["alias"]
        for field in first.expressions
    ]
    for item in node.expressions[1:]:
        plain = isinstance(item, (exp.Tuple, exp.Struct)) and len(item.expressions) == len(labels)
        if plain and not any(map(_has_name, item.expressions)):
            fields = [
                exp.PropertyEQ(this=label.copy(), expression=value)
                for label, value in zip(labels, item.expressions, strict=True)
            ]
            item.replace(exp.Struct(expressions=fields))
    return node


def _has_name(field: Node) -> bool:
    return isinstance(field, (exp.PropertyEQ, exp.Alias))


def _struct(node: Node) -> Node:
    """Build a struct without names, or a ROW in an INSERT."""
    if any(map(_has_name, node.expressions)) or not node.find_ancestor(exp.Insert):
        return node
    return exp.Anonymous(this="ROW", expressions=node.expressions)


def _unnest(node: Node) -> Node:
    """Unnest an array of structs into a column per field."""
    array, offset = node.expressions[0], node.args.get("offset")
    structs = (
        isinstance(array, exp.Array)
        and array.expressions
        and isinstance(array.expressions[0], exp.Struct)
    )
    if not (structs or offset) or not isinstance(node.parent, (exp.From, exp.Join)):
        return node
    alias = node.args.get("alias")
    columns = alias.columns if alias else []
    label = columns[0].name if columns else alias.name if alias and alias.this else "unnested"
    item = "unnest({0}, max_depth := 2)" if structs else f"unnest({{0}}) AS {quote(label)}"
    number = f", generate_subscripts({{0}}, 1) - 1 AS {quote(offset.name)}" if offset else ""
    select = duck(f"(SELECT {item}{number})", array).find(exp.Select)
    # `x` alone must refer to the item, not the record.
    outer = label if structs else f"{label} and its place"
    return exp.Subquery(
        this=select, alias=exp.TableAlias(this=exp.to_identifier(outer, quoted=True))
    )


def _pivot(node: Node) -> Node:
    if not node.args.get("unpivot"):
        raise ToolError("not supported: PIVOT; use an aggregate with IF per column")
    return node


def _literal(node: Node) -> Node:
    """Make a number with a point a FLOAT64 (DuckDB: a decimal), except in an inserted row."""
    holder = node.parent.parent if isinstance(node.parent, exp.Neg) else node.parent
    if (
        node.is_string
        or node.is_int
        or isinstance(holder, (exp.DataTypeParam, exp.Tuple, exp.Cast))
    ):
        return node
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DOUBLE", dialect="duckdb"))


def _insert_row(node: Node) -> Node:
    if isinstance(node.this, exp.Var) and node.this.name.upper() == "ROW":
        node.set("this", exp.Star())
    return node


def _substring(node: Node) -> Node:
    """Start at the first character if the position precedes it."""
    return library("part", node.this, node.args["start"], node.args.get("length"))


def _by_name(node: Node) -> Node:
    """Call a function that both SQLGlot and DuckDB lack."""
    return library("ieee", *node.expressions) if node.name.lower() == "ieee_divide" else node


REWRITES: dict[type, Callable[[Node], Node]] = {
    exp.Div: lambda node: library("div", node.this, node.expression),
    exp.Mod: lambda node: library("modulo", node.this, node.expression),
    exp.IntDiv: lambda node: library("quotient", node.this, node.expression),
    **COMMON_REWRITES,
    **DATE_REWRITES,
    exp.Substring: _substring,
    exp.Anonymous: _by_name,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.DataType: _type,
    exp.ArrayAgg: _without_limit,
    exp.IgnoreNulls: _ignore_nulls,
    exp.GroupConcat: _without_limit,
    exp.Array: _array,
    exp.Struct: _struct,
    exp.Unnest: _unnest,
    exp.Pivot: _pivot,
    exp.Literal: _literal,
    exp.Format: lambda node: exp.Anonymous(
        this="printf", expressions=[library("style", node.this), *node.expressions]
    ),
    exp.SafeFunc: lambda node: exp.Anonymous(this="TRY", expressions=[node.this]),
    exp.SessionUser: lambda node: exp.Literal.string("user@example.com"),
    exp.Insert: _insert_row,
}
