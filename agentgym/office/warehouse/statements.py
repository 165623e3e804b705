"""Functions that execute each kind of SQL statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp

from agentgym.office.warehouse.dialects.translation import READS, Warehouse
from agentgym.office.warehouse.dialects.trees import comment_in, only_comment
from agentgym.office.warehouse.engine import Table, TableName, declare, path
from agentgym.office.warehouse.values import MAX_BYTES, ConversionResult
from agentgym.text.tools import ToolError


def run(warehouse: Warehouse, tree: exp.Expression, writes: bool, limit: int) -> ConversionResult:
    """Execute a statement; a `ToolError` means that nothing has changed."""
    try:
        if warehouse.reads(tree):
            return _read(warehouse, tree, limit)
        if isinstance(tree, READS):
            raise ToolError(
                "permission denied: a query cannot contain a statement that changes data"
            )
        if not writes:
            raise ToolError(
                "permission denied: only SELECT and DESCRIBE can be run here, not "
                f"{warehouse.kind(tree)}"
            )
        return action_of(warehouse, tree)(warehouse, tree)
    except RecursionError:
        raise ToolError(
            "invalid argument: the statement is nested too deeply or too long"
        ) from None
    except sqlglot.errors.SqlglotError as error:
        raise ToolError(f"invalid argument: {str(error)[:300]}") from None


def action_of(
    warehouse: Warehouse, tree: exp.Expression
) -> Callable[[Warehouse, Any], ConversionResult]:
    """Return the function that executes a statement; raise `ToolError` if there is none."""
    action = _ACTIONS.get(type(tree))
    kind = warehouse.kind(tree)
    if tree.find(exp.TemporaryProperty):
        kind = kind.replace(" ", " TEMPORARY ", 1)
    verb, _, target = kind.partition(" ")
    if action is None or (verb in ("CREATE", "ALTER", "DROP") and target != "TABLE"):
        raise ToolError(
            f"not supported: {kind}; use a query, INSERT, UPDATE, DELETE, MERGE, TRUNCATE, "
            "COMMENT, CREATE TABLE or DROP TABLE"
        )
    return action


def _read(warehouse: Warehouse, tree: exp.Expression, limit: int) -> ConversionResult:
    if isinstance(tree, (exp.Show, exp.Describe)):
        return ConversionResult(tree.key.upper(), warehouse.show(tree))
    sql, needed = warehouse.translate(tree)
    # `fit` applies the exact limit. As Python literals, records are at most eight times as long.
    rows = warehouse.engine.read(sql, needed, warehouse.now, limit, 8 * MAX_BYTES)
    return ConversionResult("SELECT", rows)


def _change_rows(warehouse: Warehouse, tree: Any) -> ConversionResult:
    if isinstance(tree, exp.Delete) and not tree.this:  # DELETE without FROM
        tree.set("this", tree.args["tables"][0])
        tree.set("tables", None)
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if not isinstance(table, exp.Table):
        raise ToolError(f"invalid argument: {warehouse.kind(tree)} needs the name of a table")
    target = warehouse.find_table(table)
    for assignment in tree.find_all(exp.EQ):
        if isinstance(assignment.parent, exp.Update) and isinstance(assignment.this, exp.Column):
            assignment.this.set("table", None)
    statements = []
    if tree.args.get("overwrite"):
        statements.append(f"DELETE FROM {path(target)}")
    tree.set("overwrite", None)
    sql, needed = warehouse.translate(tree)
    merges = isinstance(tree, exp.Merge)
    if merges:  # DuckDB counts all merged rows together, so request the action for each row
        sql = f"{sql} RETURNING merge_action"
    statements.append(sql)
    answer = warehouse.engine.write(statements, [*needed, target], warehouse.now, target)
    if merges:
        actions = Counter(row[0].lower() for row in answer)
        counts = {name: actions[action] for action, name in _EFFECTS.items()}
        if not counts["deleted"]:  # as in the real warehouses, the other counts may be 0
            del counts["deleted"]
    else:
        counts = {_EFFECTS[tree.key]: int(answer[0][0])}
    return ConversionResult(tree.key.upper(), counts=counts)


def _truncate(warehouse: Warehouse, tree: exp.TruncateTable) -> ConversionResult:
    table = tree.expressions[0]
    if not isinstance(table, exp.Table):
        raise ToolError("invalid argument: TRUNCATE needs the name of a table")
    if warehouse.is_skipped(tree, table):
        return ConversionResult("TRUNCATE_TABLE")
    name = warehouse.find_table(table)
    sql = f"DELETE FROM {path(name)}"
    answer = warehouse.engine.write([sql], [name], warehouse.now, name)
    return ConversionResult("TRUNCATE_TABLE", counts={"deleted": int(answer[0][0])})


def _create(warehouse: Warehouse, tree: exp.Create) -> ConversionResult:
    table: Any = tree.this
    items: list[exp.Expression] = []
    if isinstance(table, exp.Schema):
        table, items = table.this, table.expressions
    name = warehouse.resolve_table(table)
    if name in warehouse.engine.tables and not tree.args.get("replace"):
        message = f"{'.'.join(name)} already exists"
        if tree.args.get("exists"):
            message = f"{message}, statement succeeded."
            return ConversionResult("CREATE_TABLE", target=name, message=message)
        raise ToolError(f"conflict: {message}")
    keys: set[str] = set()
    for item in items:
        for key in item.find_all(exp.PrimaryKey):
            keys.update(part.name.lower() for part in key.expressions)
    columns = []
    for item in items:
        if isinstance(item, (exp.ColumnDef, exp.Identifier, exp.Column)):
            columns.append(warehouse.column_definition(item, keys))
    if bool(tree.expression) == bool(columns):
        raise ToolError("invalid argument: CREATE TABLE needs columns or a query, but not both")
    content = f"({', '.join(map(declare, columns))})"
    tables: list[TableName] = []
    if tree.expression:
        tree.set("this", exp.to_identifier("x"))  # the new table is not among the tables to read
        tables = warehouse.prepare(tree)
        content = f"AS {warehouse.to_duckdb(tree.expression.copy())}"
    text = comment_in(tree.args.get("properties"))
    created = Table(tuple(columns), comment=text, created=warehouse.now.isoformat())
    statement = f"CREATE OR REPLACE TABLE {path(name)} {content}"
    warehouse.engine.write([statement], tables, warehouse.now, name, created)
    return ConversionResult("CREATE_TABLE", target=name)


def _drop(warehouse: Warehouse, tree: exp.Drop) -> ConversionResult:
    for table in tree.args["tables"]:
        name = warehouse.resolve_table(table)
        if name not in warehouse.engine.tables and not tree.args.get("exists"):
            raise ToolError(f"not found: there is no table {'.'.join(name)}")
        warehouse.engine.tables.pop(name, None)
    names = ", ".join(table.sql(warehouse.dialect) for table in tree.args["tables"])
    return ConversionResult("DROP_TABLE", message=f"{names} successfully dropped.")


def _comment(warehouse: Warehouse, tree: exp.Comment) -> ConversionResult:
    kind = str(tree.args["kind"]).upper()
    if kind not in ("TABLE", "COLUMN"):
        raise ToolError(
            f"invalid argument: COMMENT ON {kind} is not supported; use TABLE or COLUMN"
        )
    table: Any = tree.this
    column = ""
    if kind == "COLUMN":
        column, parts = table.name, table.args
        table = exp.Table(this=parts.get("table"), db=parts.get("db"), catalog=parts.get("catalog"))
    if warehouse.is_skipped(tree, table):
        return ConversionResult("COMMENT")
    name = warehouse.find_table(table)
    warehouse.set_comment(name, column, tree.expression.name)
    return ConversionResult("COMMENT")


def _alter(warehouse: Warehouse, tree: exp.Alter) -> ConversionResult:
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
    return ConversionResult("ALTER_TABLE")


_EFFECTS = {"insert": "inserted", "update": "updated", "delete": "deleted"}

_ACTIONS: dict[type, Callable[[Warehouse, Any], ConversionResult]] = {
    exp.Insert: _change_rows,
    exp.Update: _change_rows,
    exp.Delete: _change_rows,
    exp.Merge: _change_rows,
    exp.TruncateTable: _truncate,
    exp.Create: _create,
    exp.Drop: _drop,
    exp.Alter: _alter,
    exp.Comment: _comment,
}
