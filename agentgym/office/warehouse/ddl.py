"""CREATE, ALTER, DROP and COMMENT statements for tables; invalid statements raise `ToolError`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from agentgym.office.warehouse.dialects.translation import Warehouse
from agentgym.office.warehouse.dialects.trees import comment_in, only_comment
from agentgym.office.warehouse.tables import Column, Table, TableName, declare, path, quote
from agentgym.office.warehouse.values import ConversionResult
from agentgym.text.tools import ToolError


def create(warehouse: Warehouse, tree: exp.Create) -> ConversionResult:
    """Execute a CREATE TABLE statement; a `ToolError` means that nothing has changed."""
    kind = str(tree.kind).upper()
    if kind != "TABLE":
        raise ToolError(f"not supported: CREATE {kind}; use CREATE TABLE")
    table: Any = tree.this
    items: list[exp.Expression] = []
    if isinstance(table, exp.Schema):
        table, items = table.this, table.expressions
    name = warehouse.resolve_table(table)
    warehouse.check_schema(name[0])
    if name in warehouse.engine.tables and not tree.args.get("replace"):
        if tree.args.get("exists"):
            return ConversionResult(
                "CREATE_TABLE",
                target=name,
                message=f"{'.'.join(name)} already exists, statement succeeded.",
            )
        raise ToolError(f"conflict: {'.'.join(name)} already exists")
    keys = _primary_keys(items)
    columns = []
    for item in items:
        if isinstance(item, (exp.ColumnDef, exp.Identifier, exp.Column)):
            columns.append(warehouse.column_definition(item, keys))
    text = comment_in(tree.args.get("properties"))
    created = Table(tuple(columns), comment=text, created=warehouse.now.isoformat())
    _create_table(warehouse, tree, name, created)
    return ConversionResult("CREATE_TABLE", target=name)


def _create_table(warehouse: Warehouse, tree: exp.Create, name: TableName, created: Table) -> None:
    statements, columns = [], created.columns
    head = f"CREATE OR REPLACE TABLE {path(name)}"
    tables: list[TableName] = []
    if tree.expression:
        tree.set("this", exp.to_identifier("x"))  # the new table is not among the tables to read
        tables = warehouse.prepare(tree)
        query = warehouse.to_duckdb(tree.expression)
        if columns:
            query = _cast_columns(query, columns)
        statements.append(f"{head} AS {query}")
        for column in columns:
            if not column.nullable:
                label = quote(column.name)
                statements.append(f"ALTER TABLE {path(name)} ALTER {label} SET NOT NULL")
    elif columns:
        statements.append(f"{head} ({', '.join(map(declare, columns))})")
    else:
        raise ToolError("invalid argument: CREATE TABLE needs columns or a query")
    warehouse.engine.write(statements, tables, warehouse.now, name, created)


def _cast_columns(query: str, columns: Sequence[Column]) -> str:
    labels, parts = [], []
    for column in columns:
        label = quote(column.name)
        labels.append(label)
        parts.append(f"CAST({label} AS {column.type}) AS {label}")
    return f"SELECT {', '.join(parts)} FROM ({query}) AS _({', '.join(labels)})"


def _primary_keys(items: Sequence[exp.Expression]) -> set[str]:
    keys: set[str] = set()
    for item in items:
        for key in item.find_all(exp.PrimaryKey):
            keys.update(part.name.lower() for part in key.expressions)
    return keys


def drop(warehouse: Warehouse, tree: exp.Drop) -> ConversionResult:
    """Execute a DROP TABLE."""
    kind = str(tree.args["kind"]).upper()
    if kind != "TABLE":
        raise ToolError(f"not supported: DROP {kind}; use DROP TABLE")
    for table in tree.args["tables"]:
        name = warehouse.resolve_table(table)
        if name not in warehouse.engine.tables and not tree.args.get("exists"):
            raise ToolError(f"not found: there is no table {'.'.join(name)}")
        warehouse.engine.tables.pop(name, None)
    names = ", ".join(table.sql(warehouse.dialect) for table in tree.args["tables"])
    return ConversionResult("DROP_TABLE", message=f"{names} successfully dropped.")


def comment(warehouse: Warehouse, tree: exp.Comment) -> ConversionResult:
    """Execute a COMMENT statement for a table or column."""
    kind = str(tree.args["kind"]).upper()
    if kind not in ("TABLE", "COLUMN"):
        raise ToolError(
            f"invalid argument: COMMENT ON {kind} is not supported; use TABLE or COLUMN"
        )
    table: Any = tree.this
    column = ""
    if kind == "COLUMN":
        column = table.name
    if column:
        parts = table.args
        table = exp.Table(this=parts.get("table"), db=parts.get("db"), catalog=parts.get("catalog"))
    if warehouse.is_skipped(tree, table):
        return ConversionResult("COMMENT")
    name = warehouse.find_table(table)
    warehouse.set_comment(name, column, tree.expression.name)
    return ConversionResult("COMMENT", target=name)


def alter(warehouse: Warehouse, tree: exp.Alter) -> ConversionResult:
    """Execute an ALTER TABLE statement that changes comments; reject all other changes."""
    kind = str(tree.args["kind"]).upper()
    if kind != "TABLE":
        raise ToolError(f"invalid argument: ALTER {kind} is not supported; use ALTER TABLE")
    if warehouse.is_skipped(tree, tree.this):
        return ConversionResult("ALTER_TABLE")
    name = warehouse.find_table(tree.this)
    for action in tree.args["actions"]:
        if isinstance(action, exp.AlterColumn) and "comment" in action.args:
            warehouse.set_comment(name, action.this.name, action.args["comment"].name)
            continue
        for item in action.expressions if isinstance(action, exp.AlterSet) else [action]:
            if not isinstance(item, exp.Properties) or not item.expressions:
                raise ToolError(
                    "not supported: ALTER TABLE can change only comments; for other changes use "
                    "CREATE OR REPLACE TABLE ... AS SELECT"
                )
            warehouse.set_comment(name, "", only_comment(item))
    return ConversionResult("ALTER_TABLE", target=name)
