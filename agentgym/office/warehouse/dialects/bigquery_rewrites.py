"""Rewrites of GoogleSQL expressions that SQLGlot does not translate to DuckDB's dialect."""

from __future__ import annotations

import re

from sqlglot import exp

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
from agentgym.text.tools import ToolError

# Functions unknown to SQLGlot that have the same meaning in DuckDB.
FUNCTIONS = frozenset(
    "error bit_count ascii chr array_reverse array_first array_last unicode cbrt".split()
)

_PARTS = {
    "DAYOFWEEK": "extract(dow FROM {0}) + 1", "ISOWEEK": "extract(week FROM {0})",
    "WEEK": "CAST(strftime({0}, '%U') AS BIGINT)", "DAYOFYEAR": "extract(doy FROM {0})",
    "DATE": "CAST({0} AS DATE)", "TIME": "CAST({0} AS TIME)",
    "MICROSECOND": "extract(microseconds FROM {0}) % 1000000", "MILLISECOND": "extract(milliseconds FROM {0}) % 1000",
}  # fmt: skip
# Possible first days of a week, starting with DuckDB's default.
_DAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_WEEKS = {"WEEK": "SUNDAY", "ISOWEEK": "MONDAY"}
# Format elements with the same meaning in DuckDB, after SQLGlot has expanded `%F` and others.
_ELEMENTS = frozenset(f"%{letter}" for letter in "AaBbdHIjMmpSUuWwYy%") | {"%f", "%-d"}
_ELEMENT = re.compile(r"%-?.?", re.DOTALL)


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
        return duck_type("DECIMAL(38, 9)")
    if node.this == exp.DType.BIGDECIMAL:
        return duck_type("DECIMAL(38, 18)")
    if node.this in (exp.DType.TEXT, exp.DType.VARCHAR) and node.expressions:
        return duck_type("VARCHAR")
    return node


def _pivot(node: Node) -> Node:
    if not node.args.get("unpivot"):
        raise ToolError("not supported: PIVOT; use an aggregate with IF for each column")
    return node


def _literal(node: Node) -> Node:
    """Cast a decimal literal to FLOAT64, except in inserted rows; DuckDB would use DECIMAL."""
    holder = node.parent.parent if isinstance(node.parent, exp.Neg) else node.parent
    if (
        node.is_string
        or node.is_int
        or isinstance(holder, (exp.DataTypeParam, exp.Tuple, exp.Cast))
    ):
        return node
    return exp.Cast(this=node.copy(), to=duck_type("DOUBLE"))


def _insert_row(node: Node) -> Node:
    if isinstance(node.this, exp.Var) and node.this.name.upper() == "ROW":
        node.set("this", exp.Star())
    return node


def _substring(node: Node) -> Node:
    """Support start positions before the first character of a string."""
    return library("part", node.this, node.args["start"], node.args.get("length"))


def _extract(node: Node) -> Node:
    if isinstance(node.this, exp.WeekStart):
        raise ToolError("not supported: EXTRACT of WEEK(day); use WEEK or ISOWEEK")
    part = node.this.name.upper()
    if part in _PARTS:
        return duck(_PARTS[part], node.expression)
    return node


def _now(text: str) -> Rewrite:
    def change(node: Node) -> Node:
        zone = node.this if isinstance(node.this, exp.Expression) else exp.Literal.string("UTC")
        return duck(text, zone)

    return change


def _trunc(kind: str) -> Rewrite:
    def change(node: Node) -> Node:
        item, unit = node.this, node.args["unit"]
        if node.args.get("zone"):
            raise ToolError("not supported: truncation in a time zone; use DATETIME(time, zone)")
        if isinstance(item, exp.Literal):
            item = exp.Cast(this=item, to=duck_type(kind))
        is_week = isinstance(unit, exp.WeekStart)
        day = unit.this.name.upper() if is_week else _WEEKS.get(unit.name.upper())
        if day is None:
            return library("cut", exp.Literal.string(unit.name), item)
        return library("cut_week", exp.Literal.number(_DAYS.index(day)), item)

    return change


def _as_date(node: Node) -> Node:
    """Cast to DATE, because DuckDB's DATE_ADD and similar functions return a timestamp."""
    if isinstance(node.parent, exp.Cast) and node.parent.to.is_type("date"):
        return node
    return exp.Cast(this=node.copy(), to=duck_type("DATE"))


def _between_moments(node: Node) -> Node:
    """Count whole units, as TIMESTAMP_DIFF does; DuckDB's date_diff counts unit boundaries."""
    return duck(f"date_sub('{node.args['unit'].name}', {{1}}, {{0}})", node.this, node.expression)


def _check_format(node: Node) -> None:
    style = node.args["format"]
    elements = _ELEMENT.findall(style.name) if isinstance(style, exp.Literal) else ["an expression"]
    for element in elements:
        if element not in _ELEMENTS:
            raise ToolError(f"not supported: {element} in a format; use elements such as %d or %H")
    if node.args.get("zone"):
        raise ToolError("not supported: a format with a time zone; use DATETIME(time, zone)")


def _written(node: Node) -> Node:
    _check_format(node)
    item, style = node.this, node.args["format"]
    if "%-d" in style.name:  # SQLGlot's spelling of `%e`, which pads with a space
        raise ToolError("not supported: %e in a format; use %d")
    if isinstance(item, exp.TsOrDsToTime):
        item = duck("DATE '1970-01-01' + CAST({0} AS TIME)", item.this)
    elif isinstance(item, exp.TsOrDsToTimestamp):
        item = duck("timezone('UTC', CAST({0} AS TIMESTAMPTZ))", item.this)
    return duck("strftime({0}, {1})", item, style)


def _read(node: Node) -> Node:
    """Parse a time in the given format; the result of PARSE_TIMESTAMP is in UTC."""
    _check_format(node)
    if isinstance(node, exp.StrToTime):
        return duck("timezone('UTC', {0})", node.copy())
    return node


def _string(node: Node) -> Node:
    if node.args.get("zone") is not None:
        raise ToolError("not supported: STRING with a time zone; use DATETIME(time, zone)")
    return library("text", node.this)


def _from_epoch(node: Node) -> Node:
    """Convert the results of TIMESTAMP_MILLIS and TIMESTAMP_MICROS to UTC."""
    if node.args.get("scale"):
        return duck("timezone('UTC', {0})", node.copy())
    return node


REWRITES: dict[type, Rewrite] = {
    **COMMON_REWRITES,
    exp.Div: lambda node: library("div", node.this, node.expression),
    exp.Mod: lambda node: library("modulo", node.this, node.expression),
    exp.IntDiv: lambda node: library("quotient", node.this, node.expression),
    exp.Extract: _extract,
    exp.CurrentTimestamp: lambda node: duck(NOW),
    exp.CurrentDatetime: _now(f"timezone({{0}}, {NOW})"),
    exp.CurrentDate: _now(f"CAST(timezone({{0}}, {NOW}) AS DATE)"),
    exp.CurrentTime: _now(f"CAST(timezone({{0}}, {NOW}) AS TIME)"),
    exp.DateTrunc: _trunc("DATE"),
    exp.TimestampTrunc: _trunc("TIMESTAMPTZ"),
    exp.DatetimeTrunc: _trunc("TIMESTAMP"),
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.DateFromUnixDate), _as_date),
    exp.TimestampDiff: _between_moments,
    exp.TimeToStr: _written,
    **dict.fromkeys((exp.StrToTime, exp.StrToDate, exp.ParseTime, exp.ParseDatetime), _read),
    exp.String: _string,
    exp.UnixToTime: _from_epoch,
    exp.Substring: _substring,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.DataType: _type,
    # DuckDB supports IGNORE NULLS only in window functions.
    exp.IgnoreNulls: refuse("IGNORE NULLS; filter with WHERE"),
    exp.Unnest: refuse("WITH OFFSET; use GENERATE_ARRAY for the positions", "offset"),
    exp.Pivot: _pivot,
    exp.Literal: _literal,
    exp.Format: lambda node: exp.Anonymous(
        this="printf", expressions=[node.this, *node.expressions]
    ),
    exp.SafeFunc: lambda node: exp.Anonymous(this="TRY", expressions=[node.this]),
    exp.Insert: _insert_row,
}
