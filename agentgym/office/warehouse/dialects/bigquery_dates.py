"""Rewrites of GoogleSQL's date and time functions for DuckDB."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from agentgym.office.warehouse.dialects.trees import NOW, Node, duck, library
from agentgym.text.tools import ToolError

_PARTS = {
    "DAYOFWEEK": "extract(dow FROM {0}) + 1", "ISOWEEK": "extract(week FROM {0})",
    "DATE": "CAST({0} AS DATE)", "TIME": "CAST({0} AS TIME)", "DAYOFYEAR": "extract(doy FROM {0})",
    "MICROSECOND": "extract(microseconds FROM {0}) % 1000000", "MILLISECOND": "extract(milliseconds FROM {0}) % 1000",
}  # fmt: skip
# Days on which a week may start, by DuckDB number.
_DAYS = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")
# A format element; SQLGlot turns `%e` into `%-d`.
_ELEMENT = re.compile(r"%(?:Ez|E[0-9*]S|E4Y|-?[A-Za-z%])")
# DuckDB spells these differently in output; it parses all except the textual ones.
_SPELLED = {
    "%R": "%H:%M", "%h": "%b", "%E4Y": "%Y", "%n": "\n", "%t": "\t", "%x": "%m/%d/%y", "%X": "%H:%M:%S",
    "%r": "%I:%M:%S %p", "%E3S": "%S.%g",
}  # fmt: skip
# DuckDB cannot write these; SQLGlot turns `%e` into `%-d`.
_NOT_WRITTEN = frozenset(("%e", "%-d", "%k", "%l", "%P", "%s", "%Q", "%C", "%Ez", "%z", "%Z"))
# DuckDB parses these under another name.
_READ = {**_SPELLED, "%e": "%-d", "%k": "%-H", "%l": "%-I", "%Ez": "%z"}


def _first_day(unit: Node) -> str:
    """Return a week unit's first day; empty for other units."""
    if isinstance(unit, exp.WeekStart):
        return str(unit.this.name.upper())
    return {"WEEK": "SUNDAY", "ISOWEEK": "MONDAY"}.get(unit.name.upper(), "")


def _extract(node: Node) -> Node:
    if isinstance(node.this, exp.WeekStart) or node.this.name.upper() == "WEEK":
        day = _DAYS.index(_first_day(node.this))
        # As in strftime, days before the first such day are in week 0.
        return duck(
            f"(extract(doy FROM {{0}}) + 6 - (extract(dow FROM {{0}}) + 7 - {day}) % 7) // 7",
            node.expression,
        )
    part = node.this.name.upper()
    return duck(_PARTS[part], node.expression) if part in _PARTS else node


def _now(text: str) -> Callable[[Node], Node]:
    def change(node: Node) -> Node:
        return duck(
            text, node.this if isinstance(node.this, exp.Expression) else exp.Literal.string("UTC")
        )

    return change


def _trunc(kind: str) -> Callable[[Node], Node]:
    def change(node: Node) -> Node:
        item, unit, zone = node.this, node.args["unit"], node.args.get("zone")
        if isinstance(item, exp.Literal):
            item = exp.Cast(this=item, to=exp.DataType.build(kind, dialect="duckdb"))
        if zone:
            item = duck("timezone({0}, {1})", zone, item)
        if day := _first_day(unit):
            # Days after Monday, DuckDB's first day of the week.
            shift = (_DAYS.index(day) - 1) % 7
            cut = library("cut_week", exp.Literal.number(shift), item)
        else:
            cut = library("cut", exp.Literal.string(unit.name), item)
        return duck("timezone({0}, {1})", zone, cut) if zone else cut

    return change


def _as_date(node: Node) -> Node:
    """DATE_ADD and similar functions return a DATE, DuckDB a timestamp."""
    if isinstance(node.parent, exp.Cast) and node.parent.to.is_type("date"):
        return node
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DATE"))


def _between_moments(node: Node) -> Node:
    """TIMESTAMP_DIFF counts whole units, DuckDB's date_diff unit boundaries."""
    return duck(f"date_sub('{node.args['unit'].name}', {{1}}, {{0}})", node.this, node.expression)


def _written(node: Node) -> Node:
    """Format a date or time."""
    style, zone = node.args["format"], node.args.get("zone") or exp.Literal.string("UTC")
    item = node.this
    if isinstance(item, exp.TsOrDsToTime):
        item = duck("DATE '1970-01-01' + CAST({0} AS TIME)", item.this)
    elif isinstance(item, exp.TsOrDsToTimestamp):
        item = duck("timezone({0}, CAST({1} AS TIMESTAMPTZ))", zone, item.this)
    if isinstance(style, exp.Literal):
        style = exp.Literal.string(_ELEMENT.sub(_spelled, style.name))
    return duck("strftime({0}, {1})", item, style)


def _spelled(match: re.Match[str]) -> str:
    if match[0] in _NOT_WRITTEN:
        raise ToolError(
            f"not supported: {match[0]} in a format; use EXTRACT, or another element such as %d"
        )
    return _SPELLED.get(match[0], match[0])


def _read(node: Node) -> Node:
    """Parse a time with a format; PARSE_TIMESTAMP returns UTC."""
    style, zone = node.args["format"], node.args.get("zone") or exp.Literal.string("UTC")
    offset = False
    if isinstance(style, exp.Literal):
        text = _ELEMENT.sub(lambda match: _READ.get(match[0], match[0]), style.name)
        style.replace(exp.Literal.string(text))
        offset = "%z" in text
    # An offset in the text determines the time.
    node = node.copy()
    node.set("zone", None)
    return node if offset or not isinstance(node, exp.StrToTime) else duck(
        "timezone({0}, {1})", zone, node
    )  # fmt: skip


def _string(node: Node) -> Node:
    if node.args.get("zone") is not None:
        raise ToolError("not supported: STRING with a time zone; use FORMAT_TIMESTAMP")
    return library("text", node.this)


def _from_epoch(node: Node) -> Node:
    """TIMESTAMP_MILLIS and TIMESTAMP_MICROS return UTC times, DuckDB's functions local ones."""
    return duck("timezone('UTC', {0})", node) if node.args.get("scale") else node


DATE_REWRITES: dict[type, Callable[[Node], Node]] = {
    exp.Extract: _extract,
    exp.CurrentTimestamp: _now(NOW),
    exp.CurrentDatetime: _now(f"timezone({{0}}, {NOW})"),
    exp.CurrentDate: _now(f"CAST(timezone({{0}}, {NOW}) AS DATE)"),
    exp.CurrentTime: _now(f"CAST(timezone({{0}}, {NOW}) AS TIME)"),
    exp.DateTrunc: _trunc("DATE"),
    exp.TimestampTrunc: _trunc("TIMESTAMPTZ"),
    exp.DatetimeTrunc: _trunc("TIMESTAMP"),
    exp.DateAdd: _as_date,
    exp.DateSub: _as_date,
    exp.DateFromUnixDate: _as_date,
    exp.TimestampDiff: _between_moments,
    exp.TimeToStr: _written,
    exp.StrToTime: _read,
    exp.StrToDate: _read,
    exp.ParseTime: _read,
    exp.ParseDatetime: _read,
    exp.String: _string,
    exp.UnixToTime: _from_epoch,
}
