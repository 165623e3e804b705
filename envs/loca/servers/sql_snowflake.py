"""The dialect of Snowflake on DuckDB: what SQLGlot does not translate.

Values of the types VARIANT, OBJECT and ARRAY are JSON. Names without quotes are in capitals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar

from sqlglot import Dialect, exp
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from agentgym.envs.loca.servers.sql import Column, Engine, Rows, Schema, Table, TableName
from agentgym.envs.loca.servers.sql_dialects import COMMON_MACROS, COMMON_REWRITES, NOW, default_name, duck, library
from agentgym.envs.loca.servers.sql_statements import Outcome, Warehouse
from agentgym.tools import ToolError, echo
from agentgym.world import check_choice

_SCALE = "CAST(coalesce(nullif(regexp_extract(typeof(a), 'DECIMAL.*,(\\d+)', 1), ''), '0') AS INTEGER)"

MACROS = (
    # A NUMBER by a NUMBER has six more digits after the point than the first has, up to 12; with a FLOAT it is a FLOAT.
    "div(a, b) AS CASE WHEN b = 0 THEN error('Division by zero') WHEN typeof(a) = 'DOUBLE' OR typeof(b) = 'DOUBLE' THEN a / b "
    f"ELSE round(a / b, greatest({_SCALE}, least({_SCALE} + 6, 12))) END",
    "modulo(a, b) AS CASE WHEN b = 0 THEN error('Division by zero') ELSE a % b END",
    "text(a) AS CASE WHEN typeof(a) = 'JSON' THEN TRY_CAST(CAST(a AS VARCHAR) AS JSON) ->> '$' "
    "WHEN typeof(a) = 'DOUBLE' THEN regexp_replace(CAST(a AS VARCHAR), '\\.0$', '') ELSE CAST(a AS VARCHAR) END",
    "whole(a DOUBLE) AS CAST(round(a) AS BIGINT), (a BIGINT) AS a, (a) AS CAST(a AS BIGINT)",
    (
        "later(a DATE, i) AS CAST(a + i AS DATE), (a TIMESTAMP, i) AS a + i, (a TIMESTAMPTZ, i) AS a + i, "
        "(a VARCHAR, i) AS CAST(a AS TIMESTAMP) + i"
    ),
    "moment(a BIGINT) AS CAST(to_timestamp(a) AS TIMESTAMP), (a) AS CAST(a AS TIMESTAMP)",
    "texts(a) AS from_json(a, '[\"VARCHAR\"]')",
    *COMMON_MACROS,
)
"""Functions of `lib`: division, casts and dates as Snowflake defines them, by the type of the argument where that matters."""

FUNCTIONS = frozenset({"bit_count", "ascii", "chr", "contains", "degrees", "radians", "cbrt", "soundex", "factorial", "object_keys"})

_TYPES = {
    "BIGINT": "NUMBER(38,0)", "INTEGER": "NUMBER(38,0)", "HUGEINT": "NUMBER(38,0)", "SMALLINT": "NUMBER(38,0)",
    "UBIGINT": "NUMBER(38,0)", "DOUBLE": "FLOAT", "FLOAT": "FLOAT", "VARCHAR": "VARCHAR(16777216)", "BOOLEAN": "BOOLEAN",
    "DATE": "DATE", "TIME": "TIME(9)", "TIMESTAMP": "TIMESTAMP_NTZ(9)", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP_LTZ(9)",
    "BLOB": "BINARY(8388608)", "JSON": "VARIANT", '"NULL"': "VARCHAR(16777216)",
}  # fmt: skip
_DUCK_TYPES = {
    "NUMBER": "DECIMAL(38,0)", "INT": "BIGINT", "INTEGER": "BIGINT", "BIGINT": "BIGINT", "FLOAT": "DOUBLE", "DOUBLE": "DOUBLE",
    "VARCHAR": "VARCHAR", "STRING": "VARCHAR", "TEXT": "VARCHAR", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "TIME": "TIME",
    "TIMESTAMP_NTZ": "TIMESTAMP", "TIMESTAMP": "TIMESTAMP", "TIMESTAMP_LTZ": "TIMESTAMP WITH TIME ZONE",
    "TIMESTAMP_TZ": "TIMESTAMP WITH TIME ZONE", "VARIANT": "JSON", "OBJECT": "JSON", "ARRAY": "JSON", "BINARY": "BLOB",
}  # fmt: skip


class SnowSQL(Warehouse):
    """Snowflake's dialect; a schema of the engine is called `DATABASE.SCHEMA`, and a database is there under its own name.

    Args:
        engine: The tables.
        now: The present.
        session: The `database` and `schema` in use, which a USE changes.
    """

    dialect: ClassVar[str] = "snowflake"
    functions: ClassVar[frozenset[str]] = FUNCTIONS
    cascades: ClassVar[bool] = True

    def __init__(self, engine: Engine, now: datetime, session: dict[str, Any]) -> None:
        super().__init__(engine, now)
        self.session = session

    def parse(self, sql: str) -> exp.Expression:
        """See the class above."""
        return normalize_identifiers(super().parse(sql), dialect="snowflake")

    def locate(self, table: exp.Table) -> TableName:
        """See the class above."""
        schema = self._schema(table.catalog, table.db)
        if schema not in self.engine.schemas:
            raise ToolError(f"not found: schema {schema} does not exist or not authorized")
        return schema, table.name

    def locate_name(self, table: exp.Table) -> str:
        """See the class above."""
        return table.name

    def locate_schema(self, table: exp.Table, kind: str) -> str:
        """See the class above."""
        parts = [part for part in (table.catalog, table.db, table.name) if part]
        if any(not re.fullmatch(r"[\w$ -]{1,255}", part) for part in parts):
            raise ToolError(f"invalid argument: {echo('.'.join(parts))} is no name of a {kind.lower()}")
        if kind == "DATABASE":
            return parts[-1]
        return self._schema(parts[-2] if len(parts) > 1 else "", parts[-1])

    def create_schema(self, name: str, tree: exp.Create, kind: str) -> Outcome:
        """See the class above; a database has the schema PUBLIC from the start, and is in use at once."""
        database = name.partition(".")[0]
        if kind == "SCHEMA" and database not in self.engine.schemas:
            raise ToolError(f"not found: database {database} does not exist or not authorized")
        outcome = super().create_schema(name, tree, kind)
        if kind == "DATABASE":
            self.engine.schemas.setdefault(f"{name}.PUBLIC", Schema("", self.now.isoformat()))
        self.session.update(database=database, schema=name.partition(".")[2] or "PUBLIC")
        return outcome

    def use(self, tree: exp.Use) -> Outcome:
        """USE DATABASE, USE SCHEMA.

        Raises:
            ToolError: There is no such database or schema.
        """
        kind = tree.args["kind"].name.upper() if tree.args.get("kind") else ""
        database, name = tree.this.db, tree.this.name
        if kind in ("WAREHOUSE", "ROLE"):
            return Outcome("USE", message="Statement executed successfully.")
        if kind == "DATABASE" or (not kind and not database):
            if name not in self.engine.schemas:
                raise ToolError(f"not found: database {name} does not exist or not authorized")
            self.session.update(database=name, schema="PUBLIC")
        else:
            schema = self._schema(database, name)
            if schema not in self.engine.schemas:
                raise ToolError(f"not found: schema {schema} does not exist or not authorized")
            self.session.update(database=schema.partition(".")[0], schema=name)
        return Outcome("USE", message="Statement executed successfully.")

    def run(self, tree: exp.Expression, writes: bool, limit: int) -> Outcome:
        """See the class above."""
        return self.use(tree) if writes and isinstance(tree, exp.Use) else super().run(tree, writes, limit)

    def unnamed(self, item: exp.Expression, number: int) -> str:
        """See the class above."""
        return item.sql("snowflake").upper()

    def command(self, text: str) -> exp.Expression | None:
        """See the class above."""
        head = r"(ALTER\s+TABLE\s+(?:IF\s+EXISTS\s+)?\S+)\s+(?:MODIFY|ALTER)\s+"
        found = re.fullmatch(head + r"(?:COLUMN\s+)?(\S+)\s+UNSET\s+COMMENT", text, re.S | re.I)
        if found:
            return self.parse(f"{found[1]} ALTER COLUMN {found[2]} COMMENT ''")
        item = r"(?:COLUMN\s+)?(\"[^\"]+\"|\w+)\s+COMMENT\s+('(?:[^']|'')*')"
        found = re.fullmatch(head + rf"\(?\s*({item}(?:\s*,\s*{item})*)\s*\)?", text, re.S | re.I)
        if not found:
            return None
        trees = [self.parse(f"{found[1]} ALTER COLUMN {name} COMMENT {said}") for name, said in re.findall(item, found[2], re.I)]
        for tree in trees[1:]:
            trees[0].args["actions"].extend(tree.args["actions"])
        return trees[0]

    def information(self, table: exp.Table) -> tuple[Sequence[str], list[Sequence[Any]]] | None:
        """See the class above."""
        if table.db.upper() != "INFORMATION_SCHEMA":
            return None
        database = table.catalog or self.session.get("database", "")
        if database not in self.engine.schemas:
            raise ToolError(f"not found: database {database} does not exist or not authorized")
        views: dict[str, Callable[[str], tuple[Sequence[str], list[Sequence[Any]]]]] = {
            "TABLES": self._tables, "COLUMNS": self._columns, "SCHEMATA": self._schemata, "DATABASES": self._databases,
            "VIEWS": self._views,
        }  # fmt: skip
        if table.name.upper() not in views:
            raise ToolError(f"not found: INFORMATION_SCHEMA.{table.name}; there are {', '.join(views)}")
        return views[table.name.upper()](database)

    def list_things(self, tree: exp.Expression) -> Rows:
        """See the class above."""
        if isinstance(tree, exp.Describe):
            if not isinstance(tree.this, exp.Table):
                raise ToolError("invalid argument: DESCRIBE needs the name of a table")
            return _listing(("name", "type", "kind", "null?", "default", "primary key", "comment"), [
                (c.name, type_name(c.type), "COLUMN", "Y" if c.nullable else "N", default_name(c), "Y" if c.key else "N", c.comment)
                for c in self.engine.tables[self.find(tree.this)].columns
            ])  # fmt: skip
        what = str(tree.this).upper()
        shows: dict[str, Callable[[Any], Rows]] = {
            "TABLES": self._show_tables, "VIEWS": self._show_tables, "OBJECTS": self._show_tables, "COLUMNS": self._show_columns,
            "PRIMARY KEYS": self._show_columns, "SCHEMAS": self._show_schemas, "DATABASES": self._show_schemas,
        }  # fmt: skip
        if what not in shows:
            raise ToolError(f"invalid argument: SHOW {what} is not supported; {', '.join(shows)} are")
        rows = shows[what](tree)
        like, first = tree.args.get("like"), tree.args.get("starts_with")
        if like:
            pattern = re.escape(like.name).replace("%", ".*").replace("_", ".")
            place = rows.names.index("column_name" if "column_name" in rows.names else "name")
            rows.records = [record for record in rows.records if re.fullmatch(pattern, record[place], re.I | re.S)]
        if first:
            rows.records = [record for record in rows.records if record[rows.names.index("name")].startswith(first.name)]
        rows.total = len(rows.records)
        return rows

    def _schema(self, database: str, schema: str) -> str:
        within = database or self.session.get("database", "")
        if not within:
            raise ToolError("invalid argument: there is no current database; write database.schema.table")
        named = schema or (self.session.get("schema") if within == self.session.get("database") else "") or "PUBLIC"
        return f"{within}.{named}"

    def _within(self, tree: exp.Show) -> Callable[[TableName], bool]:
        """Which tables a SHOW is about."""
        scope, kind = tree.args.get("scope"), str(tree.args.get("scope_kind") or "").upper()
        if kind == "TABLE" and scope:
            name = self.find(scope)
            return lambda table: table == name
        if kind == "ACCOUNT" or (not scope and not self.session.get("database")):
            return lambda table: True
        if kind == "DATABASE":
            database = scope.name if scope else self.session["database"]
            self._check(database)
            return lambda table: table[0].startswith(f"{database}.")
        schema = self._schema(scope.db, scope.name) if scope else self._schema("", "")
        self._check(schema)
        return lambda table: table[0] == schema

    def _check(self, name: Any) -> None:
        if isinstance(name, str):
            if name not in self.engine.schemas:
                raise ToolError(f"not found: {name} does not exist or not authorized")
            return
        super()._check(name)

    def _named(self) -> list[tuple[TableName, str, str, Table]]:
        parts = [(name, *name[0].split(".", 1), table) for name, table in sorted(self.engine.tables.items())]
        return [(name, database, schema, table) for name, database, schema, table in parts]

    def _show_tables(self, tree: exp.Show) -> Rows:
        within, what = self._within(tree), str(tree.this).upper()
        return _listing(("created_on", "name", "database_name", "schema_name", "kind", "comment", "rows"), [
            (table.created, name[1], database, schema, "VIEW" if table.view else "TABLE", table.comment, self.engine.count(name))
            for name, database, schema, table in self._named()
            if within(name) and (what == "OBJECTS" or bool(table.view) == (what == "VIEWS"))
        ])  # fmt: skip

    def _show_columns(self, tree: exp.Show) -> Rows:
        within, keys = self._within(tree), str(tree.this).upper() == "PRIMARY KEYS"
        return _listing(("table_name", "schema_name", "column_name", "data_type", "null?", "default", "kind", "comment", "database_name"), [
            (name[1], schema, c.name, type_name(c.type), str(c.nullable).lower(), default_name(c), "COLUMN", c.comment, database)
            for name, database, schema, table in self._named() if within(name)
            for c in table.columns if c.key or not keys
        ])  # fmt: skip

    def _show_schemas(self, tree: exp.Show) -> Rows:
        if str(tree.this).upper() == "DATABASES":
            held = [(schema.created, name, schema.comment) for name, schema in sorted(self.engine.schemas.items()) if "." not in name]
            return _listing(("created_on", "name", "comment"), held)
        scope = tree.args.get("scope")
        database = scope.name if scope else self.session.get("database", "")
        found = [
            (schema.created, name.split(".", 1)[1], name.split(".", 1)[0], schema.comment)
            for name, schema in sorted(self.engine.schemas.items())
            if "." in name and (not database or name.startswith(f"{database}."))
        ]
        return _listing(("created_on", "name", "database_name", "comment"), found)

    def _tables(self, database: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
        names = ("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "TABLE_TYPE", "ROW_COUNT", "CREATED", "COMMENT")
        return names, [
            (held, schema, name[1], "VIEW" if table.view else "BASE TABLE", self.engine.count(name), table.created, table.comment or None)
            for name, held, schema, table in self._named()
            if held == database
        ]

    def _columns(self, database: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
        names = (
            "ORDINAL_POSITION", "TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "COLUMN_NAME", "COLUMN_DEFAULT", "IS_NULLABLE",
            "DATA_TYPE", "COMMENT",
        )  # fmt: skip
        return names, [
            (k, held, schema, name[1], c.name, default_name(c), "YES" if c.nullable else "NO", bare_type(c.type), c.comment or None)
            for name, held, schema, table in self._named()
            if held == database
            for k, c in enumerate(table.columns, 1)
        ]

    def _schemata(self, database: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
        found = [
            (database, name.split(".", 1)[1], schema.created, schema.comment or None)
            for name, schema in sorted(self.engine.schemas.items())
            if name.startswith(f"{database}.")
        ]
        return ("CATALOG_NAME", "SCHEMA_NAME", "CREATED", "COMMENT"), found

    def _databases(self, database: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
        found = [(name, schema.created, schema.comment or None) for name, schema in sorted(self.engine.schemas.items()) if "." not in name]
        return ("DATABASE_NAME", "CREATED", "COMMENT"), found

    def _views(self, database: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
        found = [(held, schema, name[1], table.view) for name, held, schema, table in self._named() if table.view and held == database]
        return ("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "VIEW_DEFINITION"), found

    def rewrite(self, tree: exp.Expression) -> None:
        """See the class above."""
        said = {exp.CurrentDatabase: "database", exp.CurrentSchema: "schema"}
        for node in list(tree.walk())[::-1]:
            if type(node) in said:
                node.replace(exp.Literal.string(self.session.get(said[type(node)], "")))
            change = REWRITES.get(type(node))
            made = change(node) if change else node
            if made is not node:
                node.replace(made)


def type_name(duck_name: str) -> str:
    """What Snowflake calls a type of DuckDB."""
    if duck_name.startswith("DECIMAL"):
        return duck_name.replace("DECIMAL", "NUMBER")
    return "ARRAY" if duck_name.endswith("[]") else _TYPES.get(duck_name, duck_name)


def bare_type(duck_name: str) -> str:
    """The same as the information schema writes it: without precision."""
    name = type_name(duck_name).partition("(")[0]
    return "TEXT" if name == "VARCHAR" else name


def duck_type(name: str) -> str:
    """The DuckDB type that a type of Snowflake is kept as.

    Raises:
        ValueError: There is no such type.
    """
    base, bracket, rest = name.upper().partition("(")
    if base in ("NUMBER", "DECIMAL", "NUMERIC") and bracket:
        return f"DECIMAL({rest}"
    check_choice("type", base, list(_DUCK_TYPES))
    return _DUCK_TYPES[base]


def _listing(names: Sequence[str], records: Sequence[Sequence[Any]]) -> Rows:
    return Rows(list(names), ["VARCHAR"] * len(names), [list(record) for record in records], len(records))


_WIDE = {exp.DType.INT, exp.DType.SMALLINT, exp.DType.TINYINT}
_JSON = {exp.DType.VARIANT, exp.DType.OBJECT, exp.DType.ARRAY}
_TEXT = {exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.In, exp.Between, exp.Order, exp.Group)


def _type(node: Any) -> exp.Expression:
    if node.this in _WIDE:
        return exp.DataType.build("BIGINT", dialect="duckdb")
    if node.this in _JSON:
        return exp.DataType.build("JSON", dialect="duckdb")
    if node.this in _TEXT and node.expressions:
        return exp.DataType.build("VARCHAR", dialect="duckdb")
    return node


def _cast(node: Any) -> exp.Expression:
    kind = node.to.this
    if isinstance(node.this, exp.Literal) and node.this.is_string and kind not in _TEXT:
        return node
    if kind in _TEXT:
        return library("text", node.this)
    if kind in (exp.DType.BIGINT, *_WIDE) and not isinstance(node, exp.TryCast):
        return library("whole", node.this)
    return exp.Anonymous(this="to_json", expressions=[node.this]) if kind in _JSON else node


def _path(node: Any) -> exp.Expression:
    """A part of a VARIANT is compared by its value, without the quotes of JSON."""
    compared = isinstance(node.parent, _COMPARISONS) and node.args.get("variant_extract")
    return library("text", node.copy()) if compared else node


def _part(node: Any) -> exp.Expression:
    """An item of an ARRAY by its number, counted from 0, or of an OBJECT by its name."""
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        return node
    made = exp.Anonymous(this="json_extract", expressions=[node.this, node.expressions[0]])
    return library("text", made) if isinstance(node.parent, _COMPARISONS) else made


def _values(node: Any) -> exp.Expression:
    """Columns without names are COLUMN1, COLUMN2, …"""
    alias = node.args.get("alias")
    if not (alias and alias.columns) and not isinstance(node.parent, exp.Insert):
        width = len(node.expressions[0].expressions) if isinstance(node.expressions[0], exp.Tuple) else 1
        names = [exp.to_identifier(f"COLUMN{k}", quoted=True) for k in range(1, width + 1)]
        node.set("alias", exp.TableAlias(this=exp.to_identifier(alias.name if alias else "VALUES", quoted=True), columns=names))
    return node


def _object(node: Any) -> exp.Expression:
    """OBJECT_CONSTRUCT: a field that is NULL is left out."""
    parts = []
    for field in node.expressions:
        parts += [field.this if isinstance(field.this, exp.Literal) else exp.Literal.string(field.this.name), field.expression]
    made = exp.Anonymous(this="json_object", expressions=parts)
    return exp.Anonymous(this="json_merge_patch", expressions=[exp.Literal.string("{}"), made])


def _array_agg(node: Any) -> exp.Expression:
    if isinstance(node.parent, (exp.Window, exp.WithinGroup)) or getattr(node.parent, "name", "") == "to_json":
        return node
    return exp.Anonymous(this="to_json", expressions=[node.copy()])


def _within_group(node: Any) -> exp.Expression:
    return exp.Anonymous(this="to_json", expressions=[node.copy()]) if isinstance(node.this, exp.ArrayAgg) else node


_FLAT = (
    "(SELECT 1 AS SEQ, CASE WHEN json_type({0}) = 'OBJECT' THEN key END AS KEY, "
    "CASE WHEN json_type({0}) = 'ARRAY' THEN '[' || key || ']' ELSE key END AS PATH, "
    "CASE WHEN json_type({0}) = 'ARRAY' THEN CAST(key AS BIGINT) END AS INDEX, value AS VALUE, {0} AS THIS FROM json_each({0}))"
)


def _flatten(call: Any) -> tuple[exp.Expression, bool]:
    """The records of a FLATTEN as a query, and whether one without items gives a record too."""
    given = {}
    for item in (call.this, *call.expressions):
        if not isinstance(item, exp.Kwarg):
            raise ToolError("invalid argument: write FLATTEN(INPUT => …)")
        given[item.this.name.lower()] = item.expression
    if "input" not in given or given.keys() - {"input", "outer", "path"}:
        raise ToolError("invalid argument: FLATTEN has INPUT, PATH and OUTER here")
    source = exp.Anonymous(this="to_json", expressions=[given["input"]])
    if "path" in given:
        path = exp.Literal.string(f"$.{given['path'].name}")
        source = exp.Anonymous(this="json_extract", expressions=[source, path])
    outer = given.get("outer")
    return duck(_FLAT, source).find(exp.Select), bool(outer is not None and outer.args.get("this"))


def _lateral(node: Any) -> exp.Expression:
    if not isinstance(node.this, exp.Explode):
        return node
    query, outer = _flatten(node.this)
    alias = exp.TableAlias(this=exp.to_identifier(node.alias or "F", quoted=True))
    made = exp.Lateral(this=exp.Subquery(this=query), alias=alias)
    if outer and isinstance(node.parent, exp.Join):
        node.parent.set("side", "LEFT")
        node.parent.set("on", exp.true())
    return made


def _table_function(node: Any) -> exp.Expression:
    call, alias = node.this, node.args.get("alias")
    if isinstance(call, exp.Explode):
        query, _ = _flatten(call)
    elif isinstance(call, exp.SplitToTable):
        text = "(SELECT 1 AS SEQ, generate_subscripts({0}, 1) AS INDEX, unnest({0}) AS VALUE)"
        query = duck(text, exp.Anonymous(this="str_split", expressions=[call.this, call.expression])).find(exp.Select)
    else:
        return node
    named = exp.TableAlias(this=exp.to_identifier(alias.name if alias else "F", quoted=True))
    return exp.Lateral(this=exp.Subquery(this=query), alias=named)


def _to_char(node: Any) -> exp.Expression:
    style = node.args.get("format")
    if style is None:
        return library("text", node.this)
    if not isinstance(style, exp.Literal) or not re.search("[YMDH]", style.name, re.I):
        raise ToolError(f"invalid argument: the format {echo(style.sql('snowflake'))} is not supported; those of dates are")
    known = Dialect.get_or_raise("snowflake").format_time(exp.Literal.string(style.name.lower()))
    return exp.Anonymous(this="strftime", expressions=[_moment(node.this), exp.Literal.string(known.name)])


def _moment(item: exp.Expression) -> exp.Expression:
    return library("moment", item)


def _add(sign: str) -> Callable[[Any], exp.Expression]:
    def change(node: Any) -> exp.Expression:
        unit = node.args["unit"].name.upper() if node.args.get("unit") else "DAY"
        span = duck(f"{{0}} * INTERVAL {sign}1 {unit}", node.expression)
        if unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"):
            return duck("{0} + {1}", _moment(node.this), span)
        return library("later", node.this, span)

    return change


def _diff(node: Any) -> exp.Expression:
    """The ends may be texts."""
    for key in ("this", "expression"):
        if isinstance(node.args[key], exp.Literal):
            node.set(key, exp.Cast(this=node.args[key], to=exp.DataType.build("TIMESTAMP", dialect="duckdb")))
    return node


def _constant(text: str) -> Callable[[Any], exp.Expression]:
    return lambda node: exp.Literal.string(text)


def _now(text: str) -> Callable[[Any], exp.Expression]:
    return lambda node: duck(text)


REWRITES: dict[type, Callable[[Any], exp.Expression]] = {
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
    exp.ArrayToString: lambda node: duck("array_to_string(lib.texts({0}), {1})", node.this, node.expression),
    exp.ArrayContains: lambda node: duck("json_contains({0}, to_json({1}))", node.this, node.expression),
    exp.Split: lambda node: duck("to_json(str_split({0}, {1}))", node.this, node.expression),
    exp.Lateral: _lateral,
    exp.TableFromRows: _table_function,
    exp.ToChar: _to_char,
    exp.DateAdd: _add(""),
    exp.DateSub: _add("-"),
    exp.TimestampAdd: _add(""),
    exp.DateDiff: _diff,
    exp.DateTrunc: lambda node: library("cut", exp.Literal.string(node.args["unit"].name), node.this),
    exp.TimestampTrunc: lambda node: library("cut", exp.Literal.string(node.args["unit"].name), node.this),
    exp.CurrentTimestamp: lambda node: duck(f"timezone('UTC', {NOW})" if node.args.get("sysdate") else NOW),
    exp.CurrentDate: _now(f"CAST({NOW} AS DATE)"),
    exp.CurrentTime: _now(f"CAST(timezone('UTC', {NOW}) AS TIME)"),
    exp.CurrentUser: _constant("AGENT"),
    exp.CurrentRole: _constant("ANALYST"),
    exp.CurrentWarehouse: _constant("COMPUTE_WH"),
}
