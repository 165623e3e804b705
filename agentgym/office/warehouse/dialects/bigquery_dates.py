"""Rewrites of GoogleSQL's date and time functions for DuckDB."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from agentgym.office.warehouse.dialects.trees import NOW, Node, duck, library
from agentgym.text.tools import ToolError, echo

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
# DuckDB cannot write these, of a local time {0} that is {1} in UTC.
_WRITTEN = {
    **dict.fromkeys(("%e", "%-d"), "lpad(strftime({0}, '%-d'), 2, ' ')"),
    "%k": "lpad(strftime({0}, '%-H'), 2, ' ')",
    "%l": "lpad(strftime({0}, '%-I'), 2, ' ')",
    "%P": "lower(strftime({0}, '%p'))",
    "%s": "CAST(CAST(epoch({0}) AS BIGINT) AS VARCHAR)",
    "%Q": "CAST(extract(quarter FROM {0}) AS VARCHAR)",
    "%C": "lpad(CAST(extract(year FROM {0}) // 100 AS VARCHAR), 2, '0')",
    "%Ez": "lib.zone_offset({0}, {1}, ':')",
    "%z": "lib.zone_offset({0}, {1}, '')",
    "%Z": "'UTC' || regexp_replace(regexp_replace(lib.zone_offset({0}, {1}, ':'), '^([+-])0', '\\1'), '^[+-]0:00$|:00$', '')",
}
# DuckDB parses these under another name.
_READ = {**_SPELLED, "%e": "%-d", "%k": "%-H", "%l": "%-I", "%Ez": "%z"}
_CAST_ELEMENT = re.compile(r'MONTH|MON|MM|MI|YYYY|YY|DAY|DY|DDD|DD|HH24|HH12|HH|SS|[AP]M|"[^"]*"|[^A-Z]', re.I)  # fmt: skip
# CAST format elements.
_CAST_SPELLED = {
    "MONTH": "%B", "MON": "%b", "MM": "%m", "MI": "%M", "YYYY": "%Y", "YY": "%y", "DAY": "%A", "DY": "%a", "DDD": "%j",
    "DD": "%d", "HH24": "%H", "HH12": "%I", "HH": "%I", "SS": "%S", "AM": "%p", "PM": "%p",
}  # fmt: skip


# No date needs as many parts, each of which is parsed and calls a function.
_MOST_PIECES = 100


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
    """Format a date or time, element by element where DuckDB lacks one."""
    style, zone = node.args["format"], node.args.get("zone") or exp.Literal.string("UTC")
    item, local, utc = node.this, "x", "x"
    if isinstance(item, exp.TsOrDsToTime):
        item = duck("DATE '1970-01-01' + CAST({0} AS TIME)", item.this)
    elif isinstance(item, exp.TsOrDsToTimestamp):
        item = exp.Cast(
            this=item.this.copy(), to=exp.DataType.build("TIMESTAMPTZ", dialect="duckdb")
        )
        local, utc = "timezone({1}, x)", "timezone('UTC', x)"
    pieces = _pieces(style.name) if isinstance(style, exp.Literal) else ["strftime({0}, {{2}})"]
    return _of_one(_joined(pieces, local, utc), item, zone, style)


def _joined(pieces: list[str], local: str, utc: str) -> str:
    if len(pieces) > _MOST_PIECES:
        raise ToolError(
            f"invalid argument: a format has at most {_MOST_PIECES} parts that DuckDB cannot write "
            f"at once, got {len(pieces)}; put texts together with CONCAT"
        )
    return " || ".join(piece.format(local, utc) for piece in pieces)


def _of_one(text: str, item: Node, *others: Node) -> Node:
    """Return the SQL of an item `x`, expanded once, and of parts {1}, {2} and so on."""
    return duck(f"list_transform([{{0}}], lambda x: {text})[1]", item, *others)


def _pieces(style: str) -> list[str]:
    """Return the SQL of a format's parts for a local time {0} and the same in UTC {1}."""
    pieces, plain = list[str](), ""
    for part in re.split(f"({_ELEMENT.pattern})", style):
        if part in _WRITTEN:
            pieces += [_strftime(plain)] * bool(plain) + [_WRITTEN[part]]
            plain = ""
        else:
            plain += _SPELLED.get(part, part)
    return [*pieces, _strftime(plain)] if plain or not pieces else pieces


def _strftime(style: str) -> str:
    # Doubled for each use as a template.
    text = re.sub("([{}])", r"\1\1\1\1", style.replace("'", "''"))
    return f"strftime({{0}}, '{text}')"


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


def in_format(item: Node, style: Node) -> Node:
    """Format a date or time as in a CAST, or raise `ToolError`."""
    text = style.name if isinstance(style, exp.Literal) else ""
    elements = _CAST_ELEMENT.findall(text)
    if "".join(elements) != text or not re.search("[YMDHS]", text, re.I):
        raise ToolError(
            f"invalid argument: the format {echo(style.sql('bigquery'))} is not supported; those of "
            f"dates are, with {', '.join(_CAST_SPELLED)}"
        )
    return _of_one(_joined(list(map(_cast_piece, elements)), "x", "x"), item)


def _cast_piece(element: str) -> str:
    """Names follow the element's letter case."""
    piece = _strftime(_CAST_SPELLED.get(element.upper(), element.strip('"').replace("%", "%%")))
    if element[0].isalpha() and element.isupper():
        return f"upper({piece})"
    return f"lower({piece})" if element.islower() else piece


def _string(node: Node) -> Node:
    """STRING of a time in a time zone ends with its offset."""
    zone = node.args.get("zone")
    if zone is None:
        return library("text", node.this)
    return _of_one(
        "CAST(timezone({1}, x) AS VARCHAR) || regexp_replace(lib.zone_offset(timezone({1}, x), "
        "timezone('UTC', x), ':'), ':00$', '')",
        exp.Cast(this=node.this.copy(), to=exp.DataType.build("TIMESTAMPTZ", dialect="duckdb")),
        zone,
    )


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
