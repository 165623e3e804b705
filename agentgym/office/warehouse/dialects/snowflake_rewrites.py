"""Rewrites of Snowflake expressions that SQLGlot does not translate to DuckDB's dialect."""

from __future__ import annotations

import re

from sqlglot import Dialect, exp

from agentgym.office.warehouse.dialects.trees import (
    COMMON_REWRITES,
    NOW,
    Node,
    Rewrite,
    duck,
    duck_type,
    library,
    refuse,
)
from agentgym.text.tools import ToolError, echo

FUNCTIONS = frozenset("bit_count ascii chr contains degrees radians cbrt factorial".split())

# Integer types, which all have 38 digits in Snowflake.
_WIDE = {exp.DType.INT, exp.DType.SMALLINT, exp.DType.TINYINT}
_TEXT = {exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR}


_refuse_json = refuse(
    "semi-structured data (VARIANT, OBJECT, ARRAY); use columns, LISTAGG and SPLIT_PART"
)


def _type(node: Node) -> Node:
    if node.this in (exp.DType.VARIANT, exp.DType.OBJECT, exp.DType.ARRAY):
        return _refuse_json(node)
    if node.this in _WIDE:
        return duck_type("BIGINT")
    if node.this in _TEXT and node.expressions:
        return duck_type("VARCHAR")
    return node


def _cast(node: Node) -> Node:
    kind = node.to.this
    if isinstance(node.this, exp.Literal) and node.this.is_string and kind not in _TEXT:
        return node
    if kind in _TEXT:
        return library("text", node.this)
    if isinstance(node, exp.TryCast) or kind not in (exp.DType.BIGINT, *_WIDE):
        return node
    return library("whole", node.this)


def _values(node: Node) -> Node:
    """Name the unnamed columns of VALUES: COLUMN1, COLUMN2 and so on."""
    alias = node.args.get("alias")
    if (alias and alias.columns) or isinstance(node.parent, exp.Insert):
        return node
    first, width = node.expressions[0], 1
    if isinstance(first, exp.Tuple):
        width = len(first.expressions)
    columns = [exp.to_identifier(f"COLUMN{k}", quoted=True) for k in range(1, width + 1)]
    name = exp.to_identifier(alias.name if alias else "VALUES", quoted=True)
    node.set("alias", exp.TableAlias(this=name, columns=columns))
    return node


def _to_char(node: Node) -> Node:
    style = node.args.get("format")
    if style is None:
        return library("text", node.this)
    if not isinstance(style, exp.Literal) or not re.search("[YMDH]", style.name, re.I):
        raise ToolError(
            f"invalid argument: the format {echo(style.sql('snowflake'))} is not supported; use "
            "a date format"
        )
    lower_style = exp.Literal.string(style.name.lower())
    match: Node = Dialect.get_or_raise("snowflake").format_time(lower_style)
    arguments = [library("moment", node.this), exp.Literal.string(match.name)]
    return exp.Anonymous(this="strftime", expressions=arguments)


def _add(sign: str) -> Rewrite:
    def change(node: Node) -> Node:
        unit = node.args["unit"].name.upper() if node.args.get("unit") else "DAY"
        span = duck(f"{{0}} * INTERVAL {sign}1 {unit}", node.expression)
        if unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"):
            return duck("{0} + {1}", library("moment", node.this), span)
        return library("later", node.this, span)

    return change


def _diff(node: Node) -> Node:
    """Cast literal operands, which may be strings, to TIMESTAMP."""
    for key in ("this", "expression"):
        if isinstance(node.args[key], exp.Literal):
            kind = duck_type("TIMESTAMP")
            node.set(key, exp.Cast(this=node.args[key], to=kind))
    return node


def _extract(node: Node) -> Node:
    """Convert EPOCH, the seconds since 1970, to a whole number."""
    if node.this.name.upper() == "EPOCH":
        return duck("CAST({0} AS BIGINT)", node.copy())
    return node


def _shift(node: Node) -> Node:
    """Preserve the type DATE when adding days, weeks, months or years."""
    span, units = node.expression, ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
    if (
        not isinstance(span, exp.Interval)
        or span.args.get("unit") is None
        or span.args["unit"].name.upper().rstrip("S") not in units
    ):
        return node
    if isinstance(node, exp.Sub):
        span = exp.Neg(this=span)
    return library("later", node.this, span)


def _trunc(node: Node) -> Node:
    return library("cut", exp.Literal.string(node.args["unit"].name), node.this)


def _now(text: str) -> Rewrite:
    return lambda node: duck(text)


REWRITES: dict[type, Rewrite] = {
    **COMMON_REWRITES,
    exp.Div: lambda node: library("div", node.this, node.expression),
    exp.Mod: lambda node: library("modulo", node.this, node.expression),
    exp.DataType: _type,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Values: _values,
    **dict.fromkeys(
        (
            *(exp.Array, exp.ArrayAgg, exp.ArrayContains, exp.ArrayToString, exp.Bracket),
            *(exp.Explode, exp.JSONExtract, exp.ObjectAgg, exp.ParseJSON, exp.Split),
            *(exp.SplitToTable, exp.Struct, exp.Typeof),
        ),
        _refuse_json,
    ),
    exp.Xor: lambda node: duck(
        "CAST({0} AS BOOLEAN) <> CAST({1} AS BOOLEAN)", node.this, node.expression
    ),
    exp.Extract: _extract,
    exp.Add: _shift,
    exp.Sub: _shift,
    exp.ToChar: _to_char,
    exp.DateAdd: _add(""),
    exp.DateSub: _add("-"),
    exp.TimestampAdd: _add(""),
    exp.DateDiff: _diff,
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _trunc,
    exp.CurrentTimestamp: lambda node: duck(
        f"timezone('UTC', {NOW})" if node.args.get("sysdate") else NOW
    ),
    exp.CurrentDate: _now(f"CAST({NOW} AS DATE)"),
    **dict.fromkeys(
        (exp.CurrentTime, exp.Localtime), _now(f"CAST(timezone('UTC', {NOW}) AS TIME)")
    ),
    exp.Systimestamp: _now(NOW),
}
