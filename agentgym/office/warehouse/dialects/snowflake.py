"""Snowflake's dialect on DuckDB; unquoted names are upper-case."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from typing_extensions import override

from agentgym.office.warehouse.dialects.snowflake_rewrites import (
    FUNCTIONS,
    JSON_NODES,
    JSON_TYPES,
    REWRITES,
)
from agentgym.office.warehouse.dialects.translation import Warehouse
from agentgym.office.warehouse.dialects.trees import default_name, nodes_of
from agentgym.office.warehouse.engine import SQLEngine
from agentgym.office.warehouse.statements import run
from agentgym.office.warehouse.tables import Schema, Table, TableName
from agentgym.office.warehouse.values import (
    ConversionResult,
    Rows,
    View,
    snowflake_bare,
    snowflake_type,
)
from agentgym.text.tools import ToolError, echo

NO_STAGES = (
    "permission denied: stages and file formats are not enabled for this account; write rows with "
    "INSERT"
)
"""The refusal of every statement about a stage."""
NO_JSON = (
    "permission denied: semi-structured data (VARIANT, OBJECT, ARRAY) is not enabled for this "
    "account; use columns, LISTAGG and SPLIT_PART"
)
_STAGE_STATEMENTS = ("COPY", "PUT", "GET", "REMOVE", "RM", "LIST", "LS", "LISTSTAGE")


class SnowSQL(Warehouse):
    """Snowflake's dialect. Engine schemas are `DATABASE.SCHEMA`; USE changes `session`."""

    dialect: ClassVar[str] = "snowflake"
    functions: ClassVar[frozenset[str]] = FUNCTIONS
    cascades: ClassVar[bool] = True

    def __init__(self, engine: SQLEngine, now: datetime, session: dict[str, Any]) -> None:
        super().__init__(engine, now)
        self.session = session
        self.rewrites = {
            **REWRITES,
            exp.CurrentDatabase: lambda node: exp.Literal.string(session.get("database", "")),
            exp.CurrentSchema: lambda node: exp.Literal.string(session.get("schema", "")),
        }

    def parse(self, sql: str) -> exp.Expression:
        """Parse one statement; raise `ToolError` for Snowflake Scripting and semi-structured data."""
        if sql.upper().rstrip("; \n\t").split() == ["START", "TRANSACTION"]:
            sql = "BEGIN"
        if _SCRIPTING.match(sql):
            raise ToolError(
                "invalid argument: Snowflake Scripting is not supported; send each statement in a "
                "call of its own, between BEGIN and COMMIT if they belong together"
            )
        tree = super().parse(sql)
        for node in nodes_of(tree):
            typed = isinstance(node, exp.DataType) and node.this in JSON_TYPES
            if typed or isinstance(node, JSON_NODES):
                raise ToolError(NO_JSON)
        return normalize_identifiers(tree, dialect="snowflake")

    @override
    def check(self, tree: exp.Expression) -> None:
        if any(table.name.startswith("@") for table in tree.find_all(exp.Table)):
            raise ToolError(NO_STAGES)
        super().check(tree)

    @override
    def resolve_table(self, table: exp.Table) -> TableName:
        schema = self._schema(table.catalog, table.db)
        self._check_scope(f"schema {schema}", schema)
        return schema, table.name

    @override
    def resolve_schema(self, table: exp.Table, kind: str) -> str:
        parts = [part for part in (table.catalog, table.db, table.name) if part]
        if any(not re.fullmatch(r"[\w$ -]{1,255}", part) for part in parts):
            raise ToolError(
                f"invalid argument: {echo('.'.join(parts))} is no name of a {kind.lower()}"
            )
        if kind == "DATABASE":
            return parts[-1]
        return self._schema(parts[-2] if len(parts) > 1 else "", parts[-1])

    def create_schema(self, name: str, tree: exp.Create, kind: str) -> ConversionResult:
        """Create a schema, or a database with a PUBLIC schema, and make it current."""
        database, _, schema = name.partition(".")
        if kind == "SCHEMA":
            self._check_scope(f"database {database}", database)
        outcome = super().create_schema(name, tree, kind)
        if kind == "DATABASE":
            self.engine.schemas.setdefault(f"{name}.PUBLIC", Schema("", self.now.isoformat()))
        self.session.update(database=database, schema=schema or "PUBLIC")
        return outcome

    def use(self, tree: exp.Use) -> ConversionResult:
        """Execute USE DATABASE or USE SCHEMA."""
        kind = tree.args["kind"].name.upper() if tree.args.get("kind") else ""
        database, name = tree.this.db, tree.this.name
        if kind == "DATABASE" or (not kind and not database):
            self._check_scope(f"database {name}", name)
            self.session.update(database=name, schema="PUBLIC")
        elif kind not in ("WAREHOUSE", "ROLE"):
            schema = self._schema(database, name)
            self._check_scope(f"schema {schema}", schema)
            self.session.update(database=schema.partition(".")[0], schema=name)
        return ConversionResult("USE", message="Statement executed successfully.")

    def run(self, tree: exp.Expression, writes: bool, limit: int) -> ConversionResult:
        """Execute a statement; a definition commits the transaction."""
        if self._concerns_stages(tree):
            raise ToolError(NO_STAGES)
        if writes and isinstance(tree, exp.Use):
            return self.use(tree)
        if writes and type(tree) in _TRANSACTIONS:
            _TRANSACTIONS[type(tree)](self.engine)
            return ConversionResult(tree.key.upper(), message="Statement executed successfully.")
        if writes and isinstance(tree, _COMMITTING):
            self.engine.commit()
        return run(self, tree, writes, limit)

    def _concerns_stages(self, tree: exp.Expression) -> bool:
        words = self.kind(tree).split()
        if isinstance(tree, exp.Show):
            words = ["SHOW", *str(tree.this).upper().split()]
        named = words[-1] in ("STAGE", "STAGES") or words[1:] == ["FORMAT"]
        return named or words[0] in _STAGE_STATEMENTS

    def parse_name(self, name: str, kind: str) -> exp.Table:
        """Parse a name, or raise `ToolError`."""
        try:
            parsed = exp.to_table(name, dialect="snowflake")
        except (SqlglotError, ValueError, RecursionError):
            parsed = exp.Table()
        if not isinstance(parsed.this, exp.Identifier):
            raise ToolError(
                f"invalid argument: {echo(name)} is no name of a {kind}; write "
                f"database.schema.{kind}"
            )
        return normalize_identifiers(parsed, dialect="snowflake")

    @override
    def default_column_name(self, item: exp.Expression, number: int) -> str:
        return item.sql("snowflake").upper()

    @override
    def parse_command(self, text: str) -> exp.Expression | None:
        head = r"(ALTER\s+TABLE\s+(?:IF\s+EXISTS\s+)?\S+)\s+(?:MODIFY|ALTER)\s+"
        match = re.fullmatch(head + r"(?:COLUMN\s+)?(\S+)\s+UNSET\s+COMMENT", text, re.S | re.I)
        if match:
            return self.parse(f"{match[1]} ALTER COLUMN {match[2]} COMMENT ''")
        item = r"(?:COLUMN\s+)?(\"[^\"]+\"|\w+)\s+COMMENT\s+('(?:[^']|'')*')"
        match = re.fullmatch(head + rf"\(?\s*({item}(?:\s*,\s*{item})*)\s*\)?", text, re.S | re.I)
        if not match:
            return None
        trees = [
            self.parse(f"{match[1]} ALTER COLUMN {name} COMMENT {comment}")
            for name, comment in re.findall(item, match[2], re.I)
        ]
        for tree in trees[1:]:
            trees[0].args["actions"].extend(tree.args["actions"])
        return trees[0]

    @override
    def information_schema(self, table: exp.Table) -> View | None:
        if table.db.upper() != "INFORMATION_SCHEMA":
            return None
        database = table.catalog or self.session.get("database", "")
        self._check_scope(f"database {database}", database)
        views: dict[str, Callable[[str], View]] = {
            "TABLES": self._tables, "COLUMNS": self._columns, "SCHEMATA": self._schemata, "DATABASES": self._databases,
            "VIEWS": self._views,
        }  # fmt: skip
        if table.name.upper() not in views:
            raise ToolError(
                f"not found: INFORMATION_SCHEMA.{table.name}; there are {', '.join(views)}"
            )
        return views[table.name.upper()](database)

    @override
    def show(self, tree: exp.Expression) -> Rows:
        if isinstance(tree, exp.Describe):
            if not isinstance(tree.this, exp.Table):
                raise ToolError("invalid argument: DESCRIBE needs the name of a table")
            return Rows.of_texts(("name", "type", "kind", "null?", "default", "primary key", "comment"), [
                (c.name, snowflake_type(c.type), "COLUMN", "Y" if c.nullable else "N", default_name(c), "NY"[c.key], c.comment)
                for c in self.engine.tables[self.find_table(tree.this)].columns
            ])  # fmt: skip
        what = str(tree.this).upper()
        shows: dict[str, Callable[[Any], Rows]] = {
            "TABLES": self._show_tables, "VIEWS": self._show_tables, "OBJECTS": self._show_tables, "COLUMNS": self._show_columns,
            "PRIMARY KEYS": self._show_columns, "SCHEMAS": self._show_schemas, "DATABASES": self._show_schemas,
        }  # fmt: skip
        if what not in shows:
            raise ToolError(
                f"invalid argument: SHOW {what} is not supported; {', '.join(shows)} are"
            )
        rows = shows[what](tree)
        if like := tree.args.get("like"):
            pattern = re.escape(like.name).replace("%", ".*").replace("_", ".")
            place = rows.names.index("column_name" if "column_name" in rows.names else "name")
            rows.records = [
                record
                for record in rows.records
                if re.fullmatch(pattern, record[place], re.I | re.S)
            ]
        if first := tree.args.get("starts_with"):
            rows.records = [
                record
                for record in rows.records
                if record[rows.names.index("name")].startswith(first.name)
            ]
        rows.total = len(rows.records)
        return rows

    def _schema(self, database: str, schema: str) -> str:
        within = database or self.session.get("database", "")
        if not within:
            raise ToolError(
                "invalid argument: there is no current database; write database.schema.table"
            )
        named = (
            schema
            or (self.session.get("schema") if within == self.session.get("database") else "")
            or "PUBLIC"
        )
        return f"{within}.{named}"

    def _within(self, tree: exp.Show) -> Callable[[TableName], bool]:
        scope, kind = tree.args.get("scope"), str(tree.args.get("scope_kind") or "").upper()
        if kind == "TABLE" and scope:
            name = self.find_table(scope)
            return lambda table: table == name
        if kind == "ACCOUNT" or (not scope and not self.session.get("database")):
            return lambda table: True
        if kind == "DATABASE":
            database = scope.name if scope else self.session["database"]
            self._check_scope(database, database)
            return lambda table: table[0].startswith(f"{database}.")
        schema = self._schema(scope.db, scope.name) if scope else self._schema("", "")
        self._check_scope(schema, schema)
        return lambda table: table[0] == schema

    def _check_scope(self, label: str, name: str) -> None:
        if name not in self.engine.schemas:
            raise ToolError(f"not found: {label} does not exist or not authorized")

    def _named(self) -> list[tuple[TableName, str, str, Table]]:
        return [
            (name, name[0].partition(".")[0], name[0].partition(".")[2], table)
            for name, table in sorted(self.engine.tables.items())
        ]

    def _show_tables(self, tree: exp.Show) -> Rows:
        within, what = self._within(tree), str(tree.this).upper()
        return Rows.of_texts(("created_on", "name", "database_name", "schema_name", "kind", "comment", "rows"), [
            (table.created, name[1], database, schema, "VIEW" if table.view else "TABLE", table.comment,
             self.engine.table(name).rows)
            for name, database, schema, table in self._named()
            if within(name) and (what == "OBJECTS" or bool(table.view) == (what == "VIEWS"))
        ])  # fmt: skip

    def _show_columns(self, tree: exp.Show) -> Rows:
        within, keys = self._within(tree), str(tree.this).upper() == "PRIMARY KEYS"
        return Rows.of_texts((
            "table_name", "schema_name", "column_name", "data_type", "null?", "default", "kind", "comment", "database_name",
        ), [
            (name[1], place, c.name, snowflake_type(c.type), str(c.nullable).lower(), default_name(c), "COLUMN", c.comment, base)
            for name, base, place, table in self._named() if within(name)
            for c in table.columns if c.key or not keys
        ])  # fmt: skip

    def _show_schemas(self, tree: exp.Show) -> Rows:
        if str(tree.this).upper() == "DATABASES":
            return Rows.of_texts(("created_on", "name", "comment"), [
                (schema.created, name, schema.comment) for name, schema in sorted(self.engine.schemas.items()) if "." not in name
            ])  # fmt: skip
        scope = tree.args.get("scope")
        database = scope.name if scope else self.session.get("database", "")
        return Rows.of_texts(("created_on", "name", "database_name", "comment"), [
            (schema.created, name.split(".", 1)[1], name.split(".", 1)[0], schema.comment)
            for name, schema in sorted(self.engine.schemas.items())
            if "." in name and (not database or name.startswith(f"{database}."))
        ])  # fmt: skip

    def _tables(self, database: str) -> View:
        return (
            "TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "TABLE_TYPE", "ROW_COUNT", "CREATED", "COMMENT",
        ), [
            (catalog, schema, name[1], "VIEW" if table.view else "BASE TABLE", self.engine.table(name).rows, table.created,
             table.comment or None)
            for name, catalog, schema, table in self._named()
            if catalog == database
        ]  # fmt: skip

    def _columns(self, database: str) -> View:
        return (
            "ORDINAL_POSITION", "TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "COLUMN_NAME", "COLUMN_DEFAULT", "IS_NULLABLE",
            "DATA_TYPE", "COMMENT",
        ), [
            (k, catalog, schema, name[1], c.name, default_name(c), "YES" if c.nullable else "NO", snowflake_bare(c.type),
             c.comment or None)
            for name, catalog, schema, table in self._named()
            if catalog == database
            for k, c in enumerate(table.columns, 1)
        ]  # fmt: skip

    def _schemata(self, database: str) -> View:
        return ("CATALOG_NAME", "SCHEMA_NAME", "CREATED", "COMMENT"), [
            (database, name.split(".", 1)[1], schema.created, schema.comment or None)
            for name, schema in sorted(self.engine.schemas.items())
            if name.startswith(f"{database}.")
        ]

    def _databases(self, database: str) -> View:
        return ("DATABASE_NAME", "CREATED", "COMMENT"), [
            (name, schema.created, schema.comment or None)
            for name, schema in sorted(self.engine.schemas.items())
            if "." not in name
        ]

    def _views(self, database: str) -> View:
        return ("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "VIEW_DEFINITION"), [
            (catalog, schema, name[1], table.definition)
            for name, catalog, schema, table in self._named()
            if table.view and catalog == database
        ]


_TRANSACTIONS: dict[type, Callable[[SQLEngine], None]] = {
    exp.Transaction: SQLEngine.begin,
    exp.Commit: SQLEngine.commit,
    exp.Rollback: SQLEngine.rollback,
}
_COMMITTING = (exp.Create, exp.Drop, exp.Alter, exp.Comment, exp.TruncateTable)
# Start of a Snowflake Scripting block.
_SCRIPTING = re.compile(
    r"\s*(?:DECLARE\b|LET\b|EXECUTE\s+IMMEDIATE\b|BEGIN\s+(?!TRANSACTION\b|WORK\b|;)\w)",
    re.IGNORECASE,
)
