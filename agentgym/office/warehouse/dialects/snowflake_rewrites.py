"""Rewrites of Snowflake SQL that SQLGlot does not translate. VARIANT, OBJECT and ARRAY are JSON."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import Dialect, exp

from agentgym.office.warehouse.dialects.trees import COMMON_REWRITES, NOW, Node, duck, library
from agentgym.text.tools import ToolError, echo

FUNCTIONS = frozenset(
    {
        "bit_count",
        "ascii",
        "chr",
        "contains",
        "degrees",
        "radians",
        "cbrt",
        "factorial",
        "object_keys",
    }
)

# All of Snowflake's integers have 38 digits.
_WIDE = {exp.DType.INT, exp.DType.SMALLINT, exp.DType.TINYINT}
_JSON = {exp.DType.VARIANT, exp.DType.OBJECT, exp.DType.ARRAY}
_TEXT = {exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR}
_COMPARISONS = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.Like,
    exp.ILike,
    exp.In,
    exp.Between,
    exp.Order,
    exp.Group,
)


def _type(node: Node) -> Node:
    if node.this in _WIDE:
        return exp.DataType.build("BIGINT", dialect="duckdb")
    if node.this in _JSON and not isinstance(node.parent, exp.Cast):
        return exp.DataType.build("JSON", dialect="duckdb")
    if node.this in _TEXT and node.expressions:
        return exp.DataType.build("VARCHAR", dialect="duckdb")
    return node


def _cast(node: Node) -> Node:
    kind = node.to.this
    text = node.this.name if isinstance(node.this, exp.Literal) and node.this.is_string else None
    if kind in _JSON:
        parsed = text is not None and kind != exp.DType.VARIANT  # a VARIANT's is a text
        return exp.Anonymous(this="json" if parsed else "to_json", expressions=[node.this])
    if text is not None and kind not in _TEXT:
        if kind == exp.DType.TIMESTAMPTZ:  # DuckDB expects a colon, and no space before the offset
            text = re.sub(r" ?([+-]\d\d):?(\d\d)$", r"\1:\2", text)
            node.set("this", exp.Literal.string(text))
        return node
    if kind in _TEXT:
        return library("text", node.this)
    whole = kind in (exp.DType.BIGINT, *_WIDE) and not isinstance(node, exp.TryCast)
    return library("whole", node.this) if whole else node


def _path(node: Node) -> Node:
    """Compare a part of a VARIANT by value, without JSON quotes."""
    compared = isinstance(node.parent, _COMPARISONS) and node.args.get("variant_extract")
    return library("text", node.copy()) if compared else node


def _part(node: Node) -> Node:
    """Return an ARRAY's item by index from 0, or an OBJECT's by name."""
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        return node
    expression = exp.Anonymous(this="json_extract", expressions=[node.this, node.expressions[0]])
    return library("text", expression) if isinstance(node.parent, _COMPARISONS) else expression


def _values(node: Node) -> Node:
    """Name unnamed columns COLUMN1, COLUMN2 and so on."""
    alias = node.args.get("alias")
    if not (alias and alias.columns) and not isinstance(node.parent, exp.Insert):
        width = (
            len(node.expressions[0].expressions)
            if isinstance(node.expressions[0], exp.Tuple)
            else 1
        )
        names = [exp.to_identifier(f"COLUMN{k}", quoted=True) for k in range(1, width + 1)]
        node.set(
            "alias",
            exp.TableAlias(
                this=exp.to_identifier(alias.name if alias else "VALUES", quoted=True),
                columns=names,
            ),
        )
    return node


def _object(node: Node) -> Node:
    """Omit NULL fields."""
    parts = []
    for field in node.expressions:
        parts += [
            field.this
            if isinstance(field.this, exp.Literal)
            else exp.Literal.string(field.this.name),
            field.expression,
        ]
    fields = exp.Anonymous(this="json_object", expressions=parts)
    return exp.Anonymous(this="json_merge_patch", expressions=[exp.Literal.string("{}"), fields])


def _array_agg(node: Node) -> Node:
    if (
        isinstance(node.parent, (exp.Window, exp.WithinGroup))
        or getattr(node.parent, "name", "") == "to_json"
    ):
        return node
    return _to_json(node)


def _within_group(node: Node) -> Node:
    return _to_json(node) if isinstance(node.this, exp.ArrayAgg) else node


# Snowflake's names of VARIANT types.
_TYPE_NAMES = (
    "CASE json_type(to_json({0})) WHEN 'UBIGINT' THEN 'INTEGER' WHEN 'BIGINT' THEN 'INTEGER' WHEN 'DOUBLE' THEN "
    "'DECIMAL' WHEN 'NULL' THEN 'NULL_VALUE' ELSE json_type(to_json({0})) END"
)
_FLAT = (
    "(SELECT 1 AS SEQ, CASE WHEN json_type({0}) = 'OBJECT' THEN key END AS KEY, "
    "CASE WHEN json_type({0}) = 'ARRAY' THEN '[' || key || ']' ELSE key END AS PATH, "
    "CASE WHEN json_type({0}) = 'ARRAY' THEN CAST(key AS BIGINT) END AS INDEX, value AS VALUE, {0} "
    "AS THIS FROM json_each({0}))"
)


def _flatten(call: Node) -> tuple[Node, bool]:
    """Return a FLATTEN's records as a query, and whether empty input gives a record too."""
    arguments = {}
    for item in (call.this, *call.expressions):
        if not isinstance(item, exp.Kwarg):
            raise ToolError("invalid argument: write FLATTEN(INPUT => …)")
        arguments[item.this.name.lower()] = item.expression
    if "input" not in arguments or arguments.keys() - {"input", "outer", "path"}:
        raise ToolError("invalid argument: FLATTEN has INPUT, PATH and OUTER here")
    source = exp.Anonymous(this="to_json", expressions=[arguments["input"]])
    if "path" in arguments:
        path = exp.Literal.string(f"$.{arguments['path'].name}")
        source = exp.Anonymous(this="json_extract", expressions=[source, path])
    outer = arguments.get("outer")
    return duck(_FLAT, source).find(exp.Select), bool(outer is not None and outer.args.get("this"))


def _lateral(node: Node) -> Node:
    if not isinstance(node.this, exp.Explode):
        return node
    query, outer = _flatten(node.this)
    alias = exp.TableAlias(this=exp.to_identifier(node.alias or "F", quoted=True))
    subquery = exp.Lateral(this=exp.Subquery(this=query), alias=alias)
    if outer and isinstance(node.parent, exp.Join):
        node.parent.set("side", "LEFT")
        node.parent.set("on", exp.true())
    return subquery


def _table_function(node: Node) -> Node:
    call, alias = node.this, node.args.get("alias")
    if isinstance(call, exp.Explode):
        query, _ = _flatten(call)
    elif isinstance(call, exp.SplitToTable):
        text = "(SELECT 1 AS SEQ, generate_subscripts({0}, 1) AS INDEX, unnest({0}) AS VALUE)"
        query = duck(
            text, exp.Anonymous(this="str_split", expressions=[call.this, call.expression])
        ).find(exp.Select)
    else:
        return node
    named = exp.TableAlias(this=exp.to_identifier(alias.name if alias else "F", quoted=True))
    return exp.Lateral(this=exp.Subquery(this=query), alias=named)


def _to_char(node: Node) -> Node:
    style = node.args.get("format")
    if style is None:
        return library("text", node.this)
    if not isinstance(style, exp.Literal) or not re.search("[YMDH]", style.name, re.I):
        raise ToolError(
            f"invalid argument: the format {echo(style.sql('snowflake'))} is not supported; those "
            "of dates are"
        )
    match: Node = Dialect.get_or_raise("snowflake").format_time(
        exp.Literal.string(style.name.lower())
    )
    return exp.Anonymous(
        this="strftime",
        expressions=[library("moment", node.this), exp.Literal.string(match.name)],
    )


def _add(sign: str) -> Callable[[Node], Node]:
    def change(node: Node) -> Node:
        unit = node.args["unit"].name.upper() if node.args.get("unit") else "DAY"
        span = duck(f"{{0}} * INTERVAL {sign}1 {unit}", node.expression)
        if unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"):
            return duck("{0} + {1}", library("moment", node.this), span)
        return library("later", node.this, span)

    return change


def _diff(node: Node) -> Node:
    """Cast the ends, which may be texts."""
    for key in ("this", "expression"):
        if isinstance(node.args[key], exp.Literal):
            node.set(
                key,
                exp.Cast(this=node.args[key], to=exp.DataType.build("TIMESTAMP", dialect="duckdb")),
            )
    return node


def _extract(node: Node) -> Node:
    """Seconds since 1970 are whole numbers."""
    return duck("CAST({0} AS BIGINT)", node) if node.this.name.upper() == "EPOCH" else node


def _shift(node: Node) -> Node:
    """Keep the type DATE when adding whole days, weeks, months or years."""
    span, units = node.expression, ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
    if (
        not isinstance(span, exp.Interval)
        or span.args.get("unit") is None
        or span.args["unit"].name.upper().rstrip("S") not in units
    ):
        return node
    return library("later", node.this, exp.Neg(this=span) if isinstance(node, exp.Sub) else span)


def _on_items(*items: str, whole: bool = True) -> Callable[[Node], Node]:
    """Rewrite a function of arrays and `items`; `whole` if the result is an array."""

    def change(node: Node) -> Node:
        for name in ("this", "expression", "expressions"):
            value = node.args.get(name)
            wrap = _to_json if name in items else _to_list
            if isinstance(value, list):
                node.set(name, [wrap(each) for each in value])
            elif value is not None:
                node.set(name, wrap(value))
        return _to_json(library("weighed", node.copy())) if whole else node

    return change


def _to_list(array: Node) -> Node:
    return library("values", array.copy())


def _to_json(item: Node) -> Node:
    return exp.Anonymous(this="to_json", expressions=[item.copy()])


def _unordered(node: Node) -> Node:
    raise ToolError(
        f"invalid argument: {node.key.upper()} of an ARRAY is not supported; take its items apart with "
        "FLATTEN and order them there"
    )


def _constant(text: str) -> Callable[[Node], Node]:
    return lambda node: exp.Literal.string(text)


def _now(text: str) -> Callable[[Node], Node]:
    return lambda node: duck(text)


REWRITES: dict[type, Callable[[Node], Node]] = {
    **COMMON_REWRITES,
    exp.Div: lambda node: library("div", node.this, node.expression),
    exp.Mod: lambda node: library("modulo", node.this, node.expression),
    exp.DataType: _type,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.JSONExtract: _path,
    exp.Bracket: _part,
    exp.Values: _values,
    exp.Struct: _object,
    exp.Array: lambda node: exp.Anonymous(this="json_array", expressions=node.expressions),
    exp.ArrayAgg: _array_agg,
    exp.WithinGroup: _within_group,
    exp.ArraySize: lambda node: exp.Anonymous(this="json_array_length", expressions=[node.this]),
    exp.ArrayToString: lambda node: duck(
        "array_to_string(lib.texts({0}), {1})", node.this, node.expression
    ),
    exp.ArrayContains: _on_items("expression", whole=False),
    exp.ArrayPosition: _on_items("expression", whole=False),
    exp.ArrayOverlaps: _on_items(whole=False),
    exp.ArrayAppend: _on_items("expression"),
    exp.ArrayPrepend: _on_items("expression"),
    exp.ArrayInsert: _on_items("expression"),
    exp.ArrayRemove: _on_items("expression"),
    **dict.fromkeys(
        (
            exp.ArrayConcat,
            exp.ArraySlice,
            exp.ArrayDistinct,
            exp.ArrayCompact,
            exp.ArrayReverse,
            exp.ArrayIntersect,
            exp.ArrayExcept,
        ),
        _on_items(),
    ),
    **dict.fromkeys((exp.ArraySort, exp.ArrayMax, exp.ArrayMin), _unordered),
    exp.ObjectAgg: lambda node: duck(
        "to_json(map(list({0}) FILTER (WHERE {1} IS NOT NULL), list(to_json({1})) FILTER (WHERE {1} "
        "IS NOT NULL)))",
        node.this,
        node.expression,
    ),
    exp.Typeof: lambda node: duck(_TYPE_NAMES, node.this),
    exp.Xor: lambda node: duck(
        "CAST({0} AS BOOLEAN) <> CAST({1} AS BOOLEAN)", node.this, node.expression
    ),
    exp.Extract: _extract,
    exp.Add: _shift,
    exp.Sub: _shift,
    exp.Split: lambda node: duck("to_json(str_split({0}, {1}))", node.this, node.expression),
    exp.Lateral: _lateral,
    exp.TableFromRows: _table_function,
    exp.ToChar: _to_char,
    exp.DateAdd: _add(""),
    exp.DateSub: _add("-"),
    exp.TimestampAdd: _add(""),
    exp.DateDiff: _diff,
    exp.DateTrunc: lambda node: library(
        "cut", exp.Literal.string(node.args["unit"].name), node.this
    ),
    exp.TimestampTrunc: lambda node: library(
        "cut", exp.Literal.string(node.args["unit"].name), node.this
    ),
    exp.CurrentTimestamp: lambda node: duck(
        f"timezone('UTC', {NOW})" if node.args.get("sysdate") else NOW
    ),
    exp.CurrentDate: _now(f"CAST({NOW} AS DATE)"),
    **dict.fromkeys(
        (exp.CurrentTime, exp.Localtime), _now(f"CAST(timezone('UTC', {NOW}) AS TIME)")
    ),
    exp.Systimestamp: _now(NOW),
    exp.CurrentTimezone: _constant("UTC"),
    exp.CurrentAccount: _constant("OFFICE"),
    exp.CurrentRegion: _constant("AWS_US_WEST_2"),
    exp.CurrentVersion: _constant("9.3.1"),
    exp.CurrentUser: _constant("AGENT"),
    exp.CurrentRole: _constant("ANALYST"),
    exp.CurrentWarehouse: _constant("COMPUTE_WH"),
}
