"""Snowflake's SQL dialect, run on DuckDB; unquoted names are upper-case."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from typing_extensions import override

from agentgym.office.warehouse.dialects.snowflake_rewrites import FUNCTIONS, REWRITES
from agentgym.office.warehouse.dialects.translation import Warehouse
from agentgym.office.warehouse.dialects.trees import default_name
from agentgym.office.warehouse.engine import SQLEngine, Table, TableName
from agentgym.office.warehouse.statements import run
from agentgym.office.warehouse.values import (
    ConversionResult,
    Rows,
    View,
    snowflake_bare,
    snowflake_type,
)
from agentgym.text.tools import ToolError, echo


class SnowSQL(Warehouse):
    """Snowflake's dialect. Engine schemas have names such as `DATABASE.SCHEMA`."""

    dialect = "snowflake"
    functions = FUNCTIONS

    def __init__(self, engine: SQLEngine, now: datetime, session: dict[str, Any]) -> None:
        super().__init__(engine, now)
        self.session = session
        self.rewrites = {
            **REWRITES,
            exp.CurrentDatabase: lambda node: exp.Literal.string(session.get("database", "")),
            exp.CurrentSchema: lambda node: exp.Literal.string(session.get("schema", "")),
        }

    def parse(self, sql: str) -> exp.Expression:
        return normalize_identifiers(super().parse(sql), dialect="snowflake")

    @override
    def resolve_table(self, table: exp.Table) -> TableName:
        schema = self._schema(table.catalog, table.db)
        self._check_scope(f"schema {schema}", schema)
        return schema, table.name

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
        """Execute a statement; a `ToolError` means that nothing has changed."""
        if writes and isinstance(tree, exp.Use):
            return self.use(tree)
        return run(self, tree, writes, limit)

    def parse_name(self, name: str) -> exp.Table:
        """Parse the qualified name of a table."""
        try:
            parsed = exp.to_table(name, dialect="snowflake")
        except (SqlglotError, ValueError, RecursionError):
            parsed = exp.Table()
        if not isinstance(parsed.this, exp.Identifier):
            raise ToolError(
                f"invalid argument: {echo(name)} is not a valid table name; write "
                "database.schema.table"
            )
        return normalize_identifiers(parsed, dialect="snowflake")

    @override
    def default_column_name(self, item: exp.Expression, number: int) -> str:
        return item.sql("snowflake").upper()

    @override
    def parse_command(self, text: str) -> exp.Expression | None:
        head = r"(ALTER\s+TABLE\s+(?:IF\s+EXISTS\s+)?\S+)\s+(?:MODIFY|ALTER)\s+(?:COLUMN\s+)?"
        comment = r"(\"[^\"]+\"|\w+)\s+COMMENT\s+('(?:[^']|'')*')"
        match = re.fullmatch(head + comment, text, re.S | re.I)
        if not match:
            return None
        rewritten = f"{match[1]} ALTER COLUMN {match[2]} COMMENT {match[3]}"
        if rewritten == text:  # SQLGlot cannot parse this form either
            return None
        return self.parse(rewritten)

    @override
    def information_schema(self, table: exp.Table) -> View | None:
        if table.db.upper() != "INFORMATION_SCHEMA":
            return None
        database = table.catalog or self.session.get("database", "")
        self._check_scope(f"database {database}", database)
        views: dict[str, Callable[[str], View]] = {
            "TABLES": self._tables, "COLUMNS": self._columns, "SCHEMATA": self._schemata, "DATABASES": self._databases,
        }  # fmt: skip
        if table.name.upper() not in views:
            raise ToolError(f"not found: INFORMATION_SCHEMA.{table.name}; use {', '.join(views)}")
        return views[table.name.upper()](database)

    @override
    def show(self, tree: exp.Expression) -> Rows:
        if not isinstance(tree, exp.Describe):
            raise ToolError(
                "not supported: SHOW; use list_databases, list_schemas, list_tables, "
                "describe_table or INFORMATION_SCHEMA"
            )
        if not isinstance(tree.this, exp.Table):
            raise ToolError("invalid argument: DESCRIBE needs the name of a table")
        records = []
        for c in self.engine.tables[self.find_table(tree.this)].columns:
            kind, nullable = snowflake_type(c.type), "NY"[c.nullable]
            default, key = default_name(c), "NY"[c.key]
            records.append([c.name, kind, "COLUMN", nullable, default, key, c.comment])
        names = "name,type,kind,null?,default,primary key,comment".split(",")
        return Rows(names, records, len(records))

    def _schema(self, database: str, schema: str) -> str:
        within = database or self.session.get("database", "")
        if not within:
            raise ToolError(
                "invalid argument: there is no current database; write database.schema.table"
            )
        if not schema and within == self.session.get("database"):
            schema = self.session.get("schema", "")
        return f"{within}.{schema or 'PUBLIC'}"

    def _check_scope(self, label: str, name: str) -> None:
        if name not in self.engine.schemas:
            raise ToolError(f"not found: {label} does not exist or not authorized")

    def _named(self, database: str) -> Iterator[tuple[tuple[str, str, str], Table]]:
        for (within, name), table in sorted(self.engine.tables.items()):
            catalog, _, schema = within.partition(".")
            if catalog == database:
                yield (catalog, schema, name), table

    def _tables(self, database: str) -> View:
        titles = "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ROW_COUNT CREATED COMMENT"
        records = []
        for names, table in self._named(database):
            details = ("BASE TABLE", table.rows, table.created, table.comment or None)
            records.append((*names, *details))
        return titles.split(), records

    def _columns(self, database: str) -> View:
        titles = (
            "ORDINAL_POSITION TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME COLUMN_DEFAULT "
            "IS_NULLABLE DATA_TYPE COMMENT"
        )
        records = []
        for names, table in self._named(database):
            for k, c in enumerate(table.columns, 1):
                nullable, kind = "YES" if c.nullable else "NO", snowflake_bare(c.type)
                details = (c.name, default_name(c), nullable, kind, c.comment or None)
                records.append((k, *names, *details))
        return titles.split(), records

    def _schemata(self, database: str) -> View:
        records = []
        for name, schema in sorted(self.engine.schemas.items()):
            if name.startswith(f"{database}."):
                place = name.split(".", 1)[1]
                records.append((database, place, schema.created, schema.comment or None))
        return "CATALOG_NAME SCHEMA_NAME CREATED COMMENT".split(), records

    def _databases(self, database: str) -> View:
        records = []
        for name, schema in sorted(self.engine.schemas.items()):
            if "." not in name:
                records.append((name, schema.created, schema.comment or None))
        return "DATABASE_NAME CREATED COMMENT".split(), records
