"""GoogleSQL, the dialect of BigQuery, on DuckDB: what SQLGlot does not translate."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar

from sqlglot import exp

from agentgym.envs.loca.servers.sql import Column, Engine, Table, TableName, quote
from agentgym.envs.loca.servers.sql_dialects import COMMON_MACROS, COMMON_REWRITES, NOW, default_name, duck, library
from agentgym.envs.loca.servers.sql_statements import Outcome, Warehouse
from agentgym.tools import ToolError, echo
from agentgym.world import check_choice

MACROS = (
    "div(a, b) AS CASE WHEN b = 0 THEN error('division by zero') ELSE a / b END",
    "modulo(a, b) AS CASE WHEN b = 0 THEN error('division by zero: MOD') ELSE a % b END",
    "quotient(a, b) AS CASE WHEN b = 0 THEN error('division by zero: DIV') ELSE CAST(trunc(a / b) AS BIGINT) END",
    "text(a) AS CASE WHEN typeof(a) = 'DOUBLE' THEN regexp_replace(CAST(a AS VARCHAR), '\\.0$', '') "
    "WHEN typeof(a) LIKE 'DECIMAL%' THEN regexp_replace(regexp_replace(CAST(a AS VARCHAR), '(\\.\\d*?)0+$', '\\1'), '\\.$', '') "
    "ELSE CAST(a AS VARCHAR) END",
    "whole(a) AS CASE WHEN a IS NULL THEN NULL WHEN typeof(a) = 'DOUBLE' THEN CAST(round(CAST(a AS DOUBLE)) AS BIGINT) "
    "WHEN typeof(a) = 'VARCHAR' AND NOT regexp_full_match(trim(CAST(a AS VARCHAR)), '[+-]?\\d+') "
    "THEN error('Bad int64 value: ' || CAST(a AS VARCHAR)) ELSE CAST(a AS BIGINT) END",
    "try_whole(a) AS CASE WHEN typeof(a) = 'DOUBLE' THEN TRY_CAST(round(TRY_CAST(a AS DOUBLE)) AS BIGINT) WHEN typeof(a) = 'VARCHAR' "
    "AND NOT regexp_full_match(trim(CAST(a AS VARCHAR)), '[+-]?\\d+') THEN NULL ELSE TRY_CAST(a AS BIGINT) END",
    *COMMON_MACROS,
)
"""Functions of `lib`: division and casts as GoogleSQL defines them, by the type of the argument where that matters."""

FUNCTIONS = frozenset(
    "error bit_count ascii chr array_reverse array_first array_last contains unicode code_points_to_string soundex"
    " array_slice degrees radians to_base64 from_base64 format_bytes cbrt list_distinct".split()
)
_TYPES = {
    "BIGINT": "INT64", "INTEGER": "INT64", "HUGEINT": "INT64", "SMALLINT": "INT64", "TINYINT": "INT64", "UBIGINT": "INT64",
    "DOUBLE": "FLOAT64", "FLOAT": "FLOAT64", "VARCHAR": "STRING", "BOOLEAN": "BOOL", "DATE": "DATE", "TIME": "TIME",
    "TIMESTAMP": "DATETIME", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP", "BLOB": "BYTES", "JSON": "JSON", "INTERVAL": "INTERVAL",
    "UUID": "STRING", '"NULL"': "INT64",
}  # fmt: skip
DUCK_TYPES = {
    "INT64": "BIGINT", "INTEGER": "BIGINT", "INT": "BIGINT", "FLOAT64": "DOUBLE", "FLOAT": "DOUBLE", "STRING": "VARCHAR",
    "BOOL": "BOOLEAN", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "TIME": "TIME", "DATETIME": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP WITH TIME ZONE", "NUMERIC": "DECIMAL(38,9)", "BIGNUMERIC": "DECIMAL(38,18)", "BYTES": "BLOB", "JSON": "JSON",
}  # fmt: skip
"""The DuckDB type of each type of BigQuery. Of BIGNUMERIC there are 38 digits, 18 of them after the point."""

_PARTS = {
    "DAYOFWEEK": "extract(dow FROM {0}) + 1", "WEEK": "CAST(strftime({0}, '%U') AS BIGINT)", "ISOWEEK": "extract(week FROM {0})",
    "DATE": "CAST({0} AS DATE)", "TIME": "CAST({0} AS TIME)", "DAYOFYEAR": "extract(doy FROM {0})",
    "MICROSECOND": "extract(microseconds FROM {0}) % 1000000", "MILLISECOND": "extract(milliseconds FROM {0}) % 1000",
}  # fmt: skip


class GoogleSQL(Warehouse):
    """BigQuery's dialect; a schema of the engine is a dataset of the one project.

    Args:
        engine: The tables.
        now: The present.
        project: The project that names may begin with.
    """

    dialect: ClassVar[str] = "bigquery"
    functions: ClassVar[frozenset[str]] = FUNCTIONS
    cascades: ClassVar[bool] = False

    def __init__(self, engine: Engine, now: datetime, project: str) -> None:
        super().__init__(engine, now)
        self.project = project

    def locate(self, table: exp.Table) -> TableName:
        """See the class above."""
        if table.catalog and table.catalog != self.project:
            raise ToolError(
                f"permission denied: there is no access to project {echo(table.catalog)}; the project is {self.project}"
            )
        if not table.db:
            raise ToolError(f"invalid argument: table {echo(table.name)} must be qualified with a dataset (e.g. dataset.table)")
        self.check_schema(table.db)
        return table.db, table.name

    def locate_name(self, table: exp.Table) -> str:
        """See the class above."""
        return table.name

    def locate_schema(self, table: exp.Table, kind: str) -> str:
        """See the class above."""
        if kind != "SCHEMA":
            raise ToolError(f"invalid argument: {kind} is not supported; a dataset is a SCHEMA")
        *project, name = [part for named in (table.catalog, table.db, table.name) if named for part in named.split(".")]
        if project not in ([], [self.project]):
            raise ToolError(f"permission denied: there is no access to project {echo('.'.join(project))}; it is {self.project}")
        if not re.fullmatch(r"\w{1,1024}", name, re.ASCII):
            raise ToolError(f"invalid argument: the name of a dataset has letters, digits and underscores only, got {echo(name)}")
        return name

    def unnamed(self, item: exp.Expression, number: int) -> str:
        """See the class above."""
        return f"f{number}_"

    def wildcard(self, table: exp.Table) -> list[TableName]:
        """See the class above."""
        if not table.name.endswith("*"):
            return []
        dataset, pattern = self.locate(table)
        found = sorted(name for name in self.engine.tables if name[0] == dataset and name[1].startswith(pattern[:-1]))
        if not found:
            raise ToolError(f"not found: {dataset}.{pattern} does not match any table")
        return found

    def command(self, text: str) -> exp.Expression | None:
        """See the class above."""
        found = re.fullmatch(
            r"(ALTER\s+TABLE\s+.+?)\s+ALTER\s+COLUMN\s+(?:IF\s+EXISTS\s+)?`?(\w+)`?\s+SET\s+OPTIONS\s*(\(.*\))", text, re.S | re.I
        )
        if not found:
            return None
        tree = self.parse(f"{found[1]} SET OPTIONS {found[3]}")
        said = [item for item in tree.find_all(exp.Property) if item.name.lower() == "description"]
        column = exp.AlterColumn(
            this=exp.to_identifier(found[2]), comment=said[-1].args["value"] if said else exp.Literal.string("")
        )
        tree.set("actions", [column])
        return tree

    def information(self, table: exp.Table) -> tuple[Sequence[str], list[Sequence[Any]]] | None:
        """See the class above."""
        head, dot, view = table.name.upper().partition(".")
        if table.name == "__TABLES__":
            names = [name for name in self.engine.tables if name[0] == self.locate(table)[0]]
            return ("project_id", "dataset_id", "table_id", "row_count"), [
                (self.project, *name, self.engine.count(name)) for name in names
            ]
        if head != "INFORMATION_SCHEMA" or not dot:
            return None
        within = None if not table.db or table.db.lower().startswith("region-") else self.locate(table)[0]
        views: dict[str, Callable[[str | None], tuple[Sequence[str], list[Sequence[Any]]]]] = {
            "TABLES": self._tables, "COLUMNS": self._columns, "COLUMN_FIELD_PATHS": self._columns, "SCHEMATA": self._schemata,
            "VIEWS": self._views,
        }  # fmt: skip
        if view not in views:
            raise ToolError(f"not found: INFORMATION_SCHEMA.{view}; there are {', '.join(views)}")
        if within is None and not table.db and view != "SCHEMATA":
            raise ToolError(f"invalid argument: INFORMATION_SCHEMA.{view} must be qualified with a dataset or region")
        return views[view](within)

    def _named(self, within: str | None) -> list[tuple[TableName, Table]]:
        return [(name, table) for name, table in sorted(self.engine.tables.items()) if within in (None, name[0])]

    def _tables(self, within: str | None) -> tuple[Sequence[str], list[Sequence[Any]]]:
        names = ("table_catalog", "table_schema", "table_name", "table_type", "is_insertable_into", "creation_time")
        return names, [
            (self.project, *name, "VIEW" if table.view else "BASE TABLE", "NO" if table.view else "YES", table.created)
            for name, table in self._named(within)
        ]

    def _columns(self, within: str | None) -> tuple[Sequence[str], list[Sequence[Any]]]:
        names = (
            "ordinal_position", "table_catalog", "table_schema", "table_name", "column_name", "field_path", "is_nullable",
            "data_type", "column_default", "description",
        )  # fmt: skip
        return names, [
            (
                k,
                self.project,
                *name,
                c.name,
                c.name,
                "YES" if c.nullable else "NO",
                type_name(c.type),
                default_name(c),
                c.comment or None,
            )
            for name, table in self._named(within)
            for k, c in enumerate(table.columns, 1)
        ]

    def _schemata(self, within: str | None) -> tuple[Sequence[str], list[Sequence[Any]]]:
        listed = [
            (self.project, name, schema.created, schema.notes or "US") for name, schema in sorted(self.engine.schemas.items())
        ]
        return ("catalog_name", "schema_name", "creation_time", "location"), listed

    def _views(self, within: str | None) -> tuple[Sequence[str], list[Sequence[Any]]]:
        listed = [(self.project, *name, table.view) for name, table in self._named(within) if table.view]
        return ("table_catalog", "table_schema", "table_name", "view_definition"), listed

    def rewrite(self, tree: exp.Expression) -> None:
        """See the class above."""
        if isinstance(tree, (exp.Update, exp.Delete)) and not tree.args.get("where"):
            raise ToolError(f"invalid argument: {tree.key.upper()} must have a WHERE clause; write WHERE true for all rows")
        for node in list(tree.walk())[::-1]:
            change = _REWRITES.get(type(node))
            made = change(node) if change else node
            if made is not node:
                node.replace(made)


def type_name(duck: str) -> str:
    """What BigQuery calls a type of DuckDB."""
    if duck.endswith("[]"):
        return f"ARRAY<{type_name(duck[:-2])}>"
    if duck.startswith("STRUCT("):
        return f"STRUCT<{', '.join(f'{name} {type_name(kind)}' for name, kind in _fields(duck[7:-1]))}>"
    if duck.startswith("DECIMAL"):
        return "BIGNUMERIC" if int(re.findall(r"\d+", duck)[1]) > 9 else "NUMERIC"
    return _TYPES.get(duck, duck)


def duck_type(name: str) -> str:
    """The DuckDB type that a type of BigQuery is kept as.

    Raises:
        ValueError: There is no such type.
    """
    if name.upper().startswith("ARRAY<"):
        return f"{duck_type(name[6:-1])}[]"
    check_choice("type", name.upper(), list(DUCK_TYPES))
    return DUCK_TYPES[name.upper()]


def field(column: Column) -> dict[str, Any]:
    """A column as the field of a schema."""
    name = type_name(column.type)
    repeated = name.startswith("ARRAY<")
    mode = "REPEATED" if repeated else "NULLABLE" if column.nullable else "REQUIRED"
    shown = {"name": column.name, "type": name[6:-1] if repeated else name, "mode": mode}
    return shown | ({"description": column.comment} if column.comment else {})


def counts_shown(outcome: Outcome) -> dict[str, Any]:
    """What a statement changed, as the statistics of its job say it."""
    shown: dict[str, Any] = {}
    if outcome.counts:
        shown["numDmlAffectedRows"] = sum(outcome.counts.values())
        shown["dmlStats"] = {f"{done}RowCount": count for done, count in outcome.counts.items()}
    if outcome.target:
        shown["ddlTargetTable" if not outcome.counts else "destinationTable"] = ".".join(outcome.target)
    return shown


def _fields(text: str) -> list[tuple[str, str]]:
    """Names and types of the fields of a DuckDB STRUCT."""
    found, depth, start = [], 0, 0
    for k, sign in enumerate(f"{text},"):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            name, _, kind = text[start:k].strip().partition(" ")
            found.append((name.strip('"'), kind))
            start = k + 1
    return found


def _cast(node: Any) -> exp.Expression:
    kind = node.to.this
    if isinstance(node.this, exp.Literal) and node.this.is_int:
        return node
    label = {exp.DType.BIGINT: "whole", exp.DType.TEXT: "text"}.get(kind)
    if not label:
        return node
    return library("try_whole" if label == "whole" and isinstance(node, exp.TryCast) else label, node.this)


def _type(node: Any) -> exp.Expression:
    if node.this == exp.DType.DECIMAL and not node.expressions:
        return exp.DataType.build("DECIMAL(38, 9)", dialect="duckdb")
    if node.this == exp.DType.BIGDECIMAL:
        return exp.DataType.build("DECIMAL(38, 18)", dialect="duckdb")
    if node.this in (exp.DType.TEXT, exp.DType.VARCHAR) and node.expressions:
        return exp.DataType.build("VARCHAR", dialect="duckdb")
    return node


def _extract(node: Any) -> exp.Expression:
    part = node.this.name.upper()
    if isinstance(node.this, exp.WeekStart) or part not in _PARTS:
        return node
    return duck(_PARTS[part], node.expression)


def _array_agg(node: Any) -> exp.Expression:
    """ARRAY_AGG with LIMIT, which DuckDB has not: a part of the whole array."""
    limit = node.find(exp.Limit)
    if limit is None or limit.find_ancestor(exp.ArrayAgg) is not node:
        return node
    count = limit.expression
    limit.replace(limit.this)
    return duck(f"({{0}})[1:{int(count.name)}]", node)


def _ignore_nulls(node: Any) -> exp.Expression:
    """ARRAY_AGG(x IGNORE NULLS …), whose filter SQLGlot writes with the order in it."""
    call = node.this
    if isinstance(call, exp.Paren):  # a part of an array, made above
        inner = call.find(exp.ArrayAgg)
    else:
        inner = call
    if not isinstance(inner, exp.ArrayAgg):
        return node
    item = inner.this.this if isinstance(inner.this, exp.Order) else inner.this
    kept = exp.Filter(this=inner.copy(), expression=exp.Where(this=exp.Not(this=exp.Is(this=_bare(item), expression=exp.Null()))))
    if inner is call:
        return kept
    inner.replace(kept)
    return call


def _bare(item: Any) -> exp.Expression:
    return item.expressions[0].copy() if isinstance(item, exp.Distinct) else item.copy()


def _string_agg(node: Any) -> exp.Expression:
    limit = node.this if isinstance(node.this, exp.Limit) else None
    if limit is None:
        return node
    agg = exp.ArrayAgg(this=limit.this)
    item = limit.this.this if isinstance(limit.this, exp.Order) else limit.this
    kept = exp.Filter(this=agg, expression=exp.Where(this=exp.Not(this=exp.Is(this=_bare(item), expression=exp.Null()))))
    separator = node.args.get("separator") or exp.Literal.string(",")
    return duck(f"array_to_string(({{0}})[1:{int(limit.expression.name)}], {{1}})", kept, separator)


def _array(node: Any) -> exp.Expression:
    """Fields of the first of several structs are those of all."""
    first = node.expressions[0] if node.expressions else None
    if not isinstance(first, exp.Struct) or not all(isinstance(field, (exp.PropertyEQ, exp.Alias)) for field in first.expressions):
        return node
    labels = [field.this if isinstance(field, exp.PropertyEQ) else field.args["alias"] for field in first.expressions]
    for item in node.expressions[1:]:
        plain = isinstance(item, (exp.Tuple, exp.Struct)) and len(item.expressions) == len(labels)
        if plain and not any(isinstance(field, (exp.PropertyEQ, exp.Alias)) for field in item.expressions):
            fields = [
                exp.PropertyEQ(this=label.copy(), expression=value) for label, value in zip(labels, item.expressions, strict=True)
            ]
            item.replace(exp.Struct(expressions=fields))
    return node


def _struct(node: Any) -> exp.Expression:
    """A struct without names, in the rows of an INSERT."""
    plain = not any(isinstance(field, (exp.PropertyEQ, exp.Alias)) for field in node.expressions)
    return exp.Anonymous(this="ROW", expressions=node.expressions) if plain and node.find_ancestor(exp.Insert) else node


def _unnest(node: Any) -> exp.Expression:
    """An array of structs gives a column for each field."""
    array, offset = node.expressions[0], node.args.get("offset")
    structs = isinstance(array, exp.Array) and array.expressions and isinstance(array.expressions[0], exp.Struct)
    if not (structs or offset) or not isinstance(node.parent, (exp.From, exp.Join)):
        return node
    alias = node.args.get("alias")
    columns = alias.columns if alias else []
    label = columns[0].name if columns else alias.name if alias and alias.this else "unnested"
    item = "unnest({0}, max_depth := 2)" if structs else f"unnest({{0}}) AS {quote(label)}"
    number = f", generate_subscripts({{0}}, 1) - 1 AS {quote(offset.name)}" if offset else ""
    made = duck(f"(SELECT {item}{number})", array).find(exp.Select)
    outer = label if structs else f"{label} and its place"  # x alone is to mean the item, not the record
    return exp.Subquery(this=made, alias=exp.TableAlias(this=exp.to_identifier(outer, quoted=True)))


def _pivot(node: Any) -> exp.Expression:
    """The columns of a PIVOT are called `sum_x` where DuckDB calls them `x_sum`."""
    table = node.parent
    labels = [item.alias for item in node.expressions if item.alias]
    fields = node.args.get("fields") or []
    if node.args.get("unpivot") or not labels or len(fields) != 1 or not isinstance(fields[0], exp.In):
        return node
    values = [item.alias or item.name for item in fields[0].expressions]
    renames = [exp.alias_(exp.column(f"{v}_{n}", quoted=True), f"{n}_{v}", quoted=True) for v in values for n in labels]
    alias, holder = node.args.get("alias") or table.args.get("alias"), exp.Paren(this=table.copy())
    star = exp.Star(rename=renames)
    query = exp.Select(expressions=[star], from_=exp.From(this=holder.this))
    table.replace(exp.Subquery(this=query, alias=alias.copy() if alias else None))
    return node


def _literal(node: Any) -> exp.Expression:
    """A number with a point is a FLOAT64 (a decimal in DuckDB), but for one that is a value of a row to insert."""
    holder = node.parent.parent if isinstance(node.parent, exp.Neg) else node.parent
    if node.is_string or node.is_int or isinstance(holder, (exp.DataTypeParam, exp.Tuple, exp.Cast)):
        return node
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DOUBLE", dialect="duckdb"))


def _now(text: str) -> Callable[[Any], exp.Expression]:
    """The present of the episode, in a time zone."""

    def change(node: Any) -> exp.Expression:
        zone = node.this if isinstance(node.this, exp.Expression) else exp.Literal.string("UTC")
        return duck(text, zone)

    return change


def _trunc(node: Any) -> exp.Expression:
    unit = node.args["unit"]
    if isinstance(unit, exp.WeekStart) or unit.name.upper() == "WEEK" or node.args.get("zone"):
        return (
            node
            if not node.args.get("zone")
            else duck(f"timezone({{1}}, date_trunc('{unit.name}', timezone({{1}}, {{0}})))", node.this, node.args["zone"])
        )
    return library(
        "cut", exp.Literal.string({"ISOWEEK": "week", "ISOYEAR": "isoyear"}.get(unit.name.upper(), unit.name)), node.this
    )


def _as_date(node: Any) -> exp.Expression:
    """DATE_ADD and DATE_SUB give a DATE, where DuckDB gives a moment."""
    if isinstance(node.parent, exp.Cast) and node.parent.to.is_type("date"):
        return node
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DATE"))


def _between_moments(node: Any) -> exp.Expression:
    """TIMESTAMP_DIFF counts whole units, where DuckDB's date_diff counts the borders between them."""
    return duck(f"date_sub('{node.args['unit'].name}', {{1}}, {{0}})", node.this, node.expression)


def _moment(node: Any) -> exp.Expression:
    """PARSE_TIMESTAMP gives a moment in UTC."""
    return duck("{0} AT TIME ZONE 'UTC'", node)


def _insert_row(node: Any) -> exp.Expression:
    if isinstance(node.this, exp.Var) and node.this.name.upper() == "ROW":
        node.set("this", exp.Star())
    return node


_REWRITES: dict[type, Callable[[Any], exp.Expression]] = {
    exp.Div: lambda node: library("div", node.this, node.expression),
    exp.Mod: lambda node: library("modulo", node.this, node.expression),
    exp.IntDiv: lambda node: library("quotient", node.this, node.expression),
    **COMMON_REWRITES,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.DataType: _type,
    exp.Extract: _extract,
    exp.ArrayAgg: _array_agg,
    exp.IgnoreNulls: _ignore_nulls,
    exp.GroupConcat: _string_agg,
    exp.Array: _array,
    exp.Struct: _struct,
    exp.Unnest: _unnest,
    exp.Pivot: _pivot,
    exp.Literal: _literal,
    exp.Format: lambda node: exp.Anonymous(this="printf", expressions=[node.this, *node.expressions]),
    exp.SafeFunc: lambda node: exp.Anonymous(this="TRY", expressions=[node.this]),
    exp.CurrentTimestamp: _now(NOW),
    exp.CurrentDatetime: _now(f"timezone({{0}}, {NOW})"),
    exp.CurrentDate: _now(f"CAST(timezone({{0}}, {NOW}) AS DATE)"),
    exp.CurrentTime: _now(f"CAST(timezone({{0}}, {NOW}) AS TIME)"),
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _trunc,
    exp.DateAdd: _as_date,
    exp.DateSub: _as_date,
    exp.TimestampDiff: _between_moments,
    exp.StrToTime: _moment,
    exp.SessionUser: lambda node: exp.Literal.string("user@example.com"),
    exp.Insert: _insert_row,
}
