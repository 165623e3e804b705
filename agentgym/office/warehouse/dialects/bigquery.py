"""GoogleSQL, the SQL dialect of BigQuery, run on DuckDB."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime

from sqlglot import exp
from typing_extensions import override

from agentgym.office.warehouse.dialects.bigquery_rewrites import FUNCTIONS, REWRITES
from agentgym.office.warehouse.dialects.translation import Warehouse
from agentgym.office.warehouse.dialects.trees import default_name
from agentgym.office.warehouse.engine import SQLEngine, Table, TableName
from agentgym.office.warehouse.statements import action_of, run
from agentgym.office.warehouse.values import ConversionResult, View
from agentgym.text.tools import ToolError, echo

# DuckDB's integer types that BigQuery lacks, and its type of NULL.
_INTEGERS = ("HUGEINT", "UBIGINT", '"NULL"')


class GoogleSQL(Warehouse):
    """BigQuery's SQL dialect for one project, whose datasets are schemas in the engine."""

    dialect = "bigquery"
    functions = FUNCTIONS
    rewrites = REWRITES

    def __init__(self, engine: SQLEngine, now: datetime, project: str) -> None:
        super().__init__(engine, now)
        self.project = project

    def run(self, sql: str, limit: int) -> ConversionResult:
        """Execute a statement; a `ToolError` means that nothing has changed."""
        return run(self, self.parse(sql), writes=True, limit=limit)

    def check_statement(self, sql: str) -> str:
        """Check a statement without running it, and return the kind of statement."""
        tree = self.parse(sql)
        kind = self.kind(tree)
        if self.reads(tree):
            sql, needed = self.translate(tree)
            self.engine.read(f"EXPLAIN {sql}", needed, self.now, 1)
        else:
            action_of(self, tree)
        return kind

    @override
    def resolve_table(self, table: exp.Table) -> TableName:
        if table.catalog and table.catalog != self.project:
            raise ToolError(
                f"permission denied: no access to project {echo(table.catalog)}; use {self.project}"
            )
        if not table.db:
            raise ToolError(
                f"invalid argument: table {echo(table.name)} must be qualified with a dataset (e.g. dataset.table)"
            )
        if table.db not in self.engine.schemas:
            raise ToolError(f"not found: there is no dataset {table.db}")
        if table.name.endswith("*"):
            raise ToolError(
                "not supported: wildcard tables; name each table and join them with UNION ALL"
            )
        return table.db, table.name

    @override
    def default_column_name(self, item: exp.Expression, number: int) -> str:
        return f"f{number}_"

    @override
    def information_schema(self, table: exp.Table) -> View | None:
        if table.name == "__TABLES__":
            records = []
            for name, found in self._named(self.resolve_table(table)[0]):
                records.append((self.project, *name, found.rows))
            return ("project_id", "dataset_id", "table_id", "row_count"), records
        head, dot, view = table.name.upper().partition(".")
        if head != "INFORMATION_SCHEMA" or not dot:
            return None
        within = None
        if table.db and not table.db.lower().startswith("region-"):
            within = self.resolve_table(table)[0]
        views: dict[str, Callable[[str | None], View]] = {
            "TABLES": self._tables, "COLUMNS": self._columns, "COLUMN_FIELD_PATHS": self._columns, "SCHEMATA": self._schemata,
            "TABLE_OPTIONS": self._options,
        }  # fmt: skip
        if view not in views:
            raise ToolError(f"not found: INFORMATION_SCHEMA.{view}; use {', '.join(views)}")
        if within is None and not table.db and view != "SCHEMATA":
            raise ToolError(
                f"invalid argument: INFORMATION_SCHEMA.{view} must be qualified with a dataset or region"
            )
        return views[view](within)

    def _named(self, within: str | None) -> Iterator[tuple[TableName, Table]]:
        for name, table in sorted(self.engine.tables.items()):
            if within in (None, name[0]):
                yield name, table

    def _tables(self, within: str | None) -> View:
        names = "table_catalog table_schema table_name table_type is_insertable_into creation_time"
        records = []
        for name, table in self._named(within):
            records.append((self.project, *name, "BASE TABLE", "YES", table.created))
        return names.split(), records

    def _columns(self, within: str | None) -> View:
        names = (
            "ordinal_position table_catalog table_schema table_name column_name field_path "
            "is_nullable data_type column_default description"
        )
        records = []
        for table_name, table in self._named(within):
            for k, c in enumerate(table.columns, 1):
                nullable, kind = "YES" if c.nullable else "NO", bigquery_type(c.type)
                details = (c.name, c.name, nullable, kind, default_name(c), c.comment or None)
                records.append((k, self.project, *table_name, *details))
        return names.split(), records

    def _schemata(self, within: str | None) -> View:
        records = []
        for name, schema in sorted(self.engine.schemas.items()):
            records.append((self.project, name, schema.created, schema.notes or "US"))
        return "catalog_name schema_name creation_time location".split(), records

    def _options(self, within: str | None) -> View:
        names = "table_catalog table_schema table_name option_name option_type option_value"
        records = []
        for name, table in self._named(within):
            if table.comment:
                comment = json.dumps(table.comment, ensure_ascii=False)
                records.append((self.project, *name, "description", "STRING", comment))
        return names.split(), records

    @override
    def transpile(self, tree: exp.Expression) -> None:
        if isinstance(tree, (exp.Update, exp.Delete)) and not tree.args.get("where"):
            raise ToolError(
                f"invalid argument: {tree.key.upper()} must have a WHERE clause; write WHERE true for all rows"
            )
        super().transpile(tree)


def bigquery_type(duck: str) -> str:
    """Return the BigQuery type for a DuckDB type."""
    if duck in _INTEGERS:
        return "INT64"
    if duck.endswith("[]"):
        return f"ARRAY<{bigquery_type(duck[:-2])}>"
    if duck.startswith("DECIMAL"):
        return "BIGNUMERIC" if int(re.findall(r"\d+", duck)[1]) > 9 else "NUMERIC"
    return str(exp.DataType.build(duck, dialect="duckdb").sql("bigquery"))
