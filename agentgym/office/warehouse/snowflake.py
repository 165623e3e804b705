"""Snowflake: databases, schemas and tables, queried in Snowflake SQL."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from agentgym.office.store import Row
from agentgym.office.warehouse.database import sql_hint
from agentgym.office.warehouse.engine import Column, Schema, TableName
from agentgym.office.warehouse.engine_server import EngineServer
from agentgym.office.warehouse.values import fit, from_snowflake, snowflake_type, to_json
from agentgym.text.tools import ToolError, echo, tool

if TYPE_CHECKING:
    from agentgym.office.warehouse.dialects.snowflake import SnowSQL

MAX_NAME_CHARS = 1_000  # maximum length of a qualified table name
MAX_ROWS = 10_000  # maximum records per result


class Snowflake(EngineServer):
    """A Snowflake account."""

    name = "snowflake"
    dialect = "snowflake"
    schema = "CREATE TABLE insights (id INTEGER PRIMARY KEY, insight TEXT);"

    @tool
    def list_databases(self) -> str:
        """List the databases."""
        names = sorted(name for name in self.engine.schemas if "." not in name)
        return _block([{"DATABASE_NAME": name} for name in names])

    @tool
    def list_schemas(self, database: str) -> str:
        """List the schemas of a database.

        Args:
            database: The database, such as `SALES`.
        """
        prefix = f"{self._known(database, 'database')}."
        schemas = []
        for name in sorted(self.engine.schemas):
            if name.startswith(prefix):
                schemas.append({"SCHEMA_NAME": name.removeprefix(prefix)})
        return _block(schemas, database=database)

    @tool
    def list_tables(self, database: str, schema: str) -> str:
        """List the tables of a schema.

        Args:
            database: The database.
            schema: The schema, such as `PUBLIC`.
        """
        within = self._known(f"{self._known(database, 'database')}.{schema}", "schema")
        catalog, _, place = within.partition(".")
        tables = []
        for (found, name), table in sorted(self.engine.tables.items()):
            if found == within:
                row = {"TABLE_CATALOG": catalog, "TABLE_SCHEMA": place, "TABLE_NAME": name}
                tables.append({**row, "COMMENT": table.comment or None})
        return _block(tables, database=database, schema=schema)

    @tool
    def describe_table(self, table_name: str) -> str:
        """Describe the columns of a table in alphabetical order: name, default, nullability, type,
        comment.

        Args:
            table_name: The table, as `database.schema.table`.
        """
        within, name = self._table(table_name)
        columns = []
        for column in sorted(self.engine.tables[within, name].columns, key=attrgetter("name")):
            description = {
                "COLUMN_NAME": column.name,
                "COLUMN_DEFAULT": column.default,
                "IS_NULLABLE": "YES" if column.nullable else "NO",
                "DATA_TYPE": snowflake_type(column.type),
                "COMMENT": column.comment or None,
            }
            columns.append(description)
        database, _, schema = within.partition(".")
        return _block(columns, database=database, schema=schema, table=name)

    @tool
    def read_query(self, query: str) -> str:
        """Run a query: SELECT or DESCRIBE.

        Args:
            query: One statement in Snowflake's SQL.
        """
        warehouse = self._warehouse()
        tree = warehouse.parse(query)
        rows = warehouse.run(tree, writes=False, limit=MAX_ROWS).rows
        if rows is None:
            raise ToolError("invalid argument: this statement returns no rows; use write_query")
        records, note = fit(rows, MAX_ROWS)
        if note:
            return _block(records, note=note.strip())
        return _block(records)

    @tool
    def write_query(self, query: str) -> str:
        """Run a statement that changes data or objects: INSERT, UPDATE, DELETE, MERGE, ALTER,
        COMMENT, CREATE, DROP, TRUNCATE, USE.

        Args:
            query: One statement in Snowflake's SQL.
        """
        warehouse = self._warehouse()
        tree = warehouse.parse(query)
        if warehouse.reads(tree):
            raise ToolError("invalid argument: this statement changes nothing; use read_query")
        outcome = warehouse.run(tree, writes=True, limit=MAX_ROWS)
        count = sum(outcome.counts.values())
        parts = [f"{number} {action}" for action, number in outcome.counts.items()]
        effect = ", ".join(parts) or outcome.message.rstrip(".") or outcome.kind.replace("_", " ")
        return f"Query succeeded: {count} rows affected ({effect}). data_id: {_data_id(query)}"

    @tool
    def create_table(self, query: str) -> str:
        """Create a table.

        Args:
            query: A CREATE TABLE statement in Snowflake's SQL.
        """
        warehouse = self._warehouse()
        tree = warehouse.parse(query)
        if warehouse.kind(tree) != "CREATE TABLE":
            raise ToolError(
                f"invalid argument: only CREATE TABLE can be run here, not {warehouse.kind(tree)}"
            )
        outcome = warehouse.run(tree, writes=True, limit=MAX_ROWS)
        effect = outcome.message
        if not effect:
            effect = f"Table {outcome.target and outcome.target[1]} successfully created."
        return f"{effect} data_id: {_data_id(query)}"

    @tool
    def append_insight(self, insight: str) -> str:
        """Add an insight about the data to the memo.

        Args:
            insight: The insight.
        """
        if not insight.strip():
            raise ToolError("invalid argument: the insight must not be empty")
        self.store.insert("insights", insight=insight)
        return "Insight added to memo"

    def load(
        self,
        table: str,
        columns: Mapping[str, str],
        rows: Sequence[Sequence[Any]],
        keys: Sequence[str] = (),
    ) -> None:
        """Create or replace the table `DATABASE.SCHEMA.TABLE`; the name is case-sensitive.

        `columns` maps column names to Snowflake types, such as VARCHAR, NUMBER(12,2), INTEGER,
        FLOAT, DATE or TIMESTAMP_NTZ. `rows` contain values in the order of `columns`. `keys` are
        the columns of the primary key.
        """
        database, schema, name = table.split(".")
        now = self.context.clock.now()
        for each in (database, f"{database}.PUBLIC", f"{database}.{schema}"):
            self.engine.schemas.setdefault(each, Schema("", now.isoformat()))
        definitions = []
        for label, kind in columns.items():
            is_key = label in keys
            column = Column(label, from_snowflake(kind), key=is_key, nullable=not is_key)
            definitions.append(column)
        self.engine.load((f"{database}.{schema}", name), definitions, rows, now)
        self.session.setdefault("database", database)
        self.session.setdefault("schema", schema)

    def rows(self, table: str) -> list[Row]:
        """Return the records of the table `DATABASE.SCHEMA.TABLE` in insertion order."""
        return self.read_all(self._table(table)).objects()

    def comments(self, table: str) -> dict[str, str]:
        """Return the column comments of `DATABASE.SCHEMA.TABLE`."""
        columns = self.engine.tables[self._table(table)].columns
        return {column.name: column.comment for column in columns}

    def set_comment(self, table: str, column: str, text: str) -> None:
        """Set a column's comment in `DATABASE.SCHEMA.TABLE`."""
        self._warehouse().set_comment(self._table(table), column, text)

    def insights(self) -> list[str]:
        """Return the memo."""
        return [row["insight"] for row in self.store.find("insights")]

    def _warehouse(self) -> SnowSQL:
        with sql_hint():
            from agentgym.office.warehouse.dialects.snowflake import SnowSQL  # noqa: PLC0415 - it takes 0.3 s to load

        return SnowSQL(self.engine, self.context.clock.now(), self.session)

    def _known(self, name: str, kind: str) -> str:
        for each in (name, name.upper()):  # unquoted names are upper-case
            if each in self.engine.schemas and (kind == "schema" or "." not in each):
                return each
        raise ToolError(f"not found: {kind} {echo(name)} does not exist or not authorized")

    def _table(self, name: str) -> TableName:
        if len(name) > MAX_NAME_CHARS:
            raise ToolError(f"not found: there is no table {echo(name)}")
        schema, _, table = name.rpartition(".")
        # The exact name, which is case-sensitive, takes precedence over the parsed name.
        if schema.count(".") == 1 and (schema, table) in self.engine.tables:
            return schema, table
        warehouse = self._warehouse()
        return warehouse.find_table(warehouse.parse_name(name))


def _block(records: Sequence[Mapping[str, Any]], **lines: str) -> str:
    parts = [f"{name}: {text}" for name, text in lines.items()]
    parts.append("data:" if records else "data: []")
    for record in records:
        parts.append("- ")
        for name, value in record.items():
            parts.append(f"  {name}: {_shown(value)}")
    body = "\n".join(parts)
    return f"type: data\ndata_id: {_data_id(body)}\n{body}"


def _data_id(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return str(uuid.UUID(digest[:32], version=4))


def _shown(value: Any) -> str:
    if isinstance(value, str) and not _MISLEADING.search(value):
        return value
    return to_json(value)


# Strings with line breaks, and `null`, which would look like a missing value, are quoted.
_MISLEADING = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|\Anull\Z")
