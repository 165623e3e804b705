"""Functions that execute each kind of SQL statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp

from agentgym.office.warehouse.ddl import alter, comment, create, drop
from agentgym.office.warehouse.dialects.translation import READS, Warehouse
from agentgym.office.warehouse.tables import path
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
    kind = _words(tree) if isinstance(tree, exp.Command) else warehouse.kind(tree)
    if tree.find(exp.TemporaryProperty):
        kind = kind.replace(" ", " TEMPORARY ", 1)
    verb, _, target = kind.partition(" ")
    if action is None or (verb in ("CREATE", "DROP") and target != "TABLE"):
        raise ToolError(
            f"not supported: {kind}; use a query, INSERT, UPDATE, DELETE, MERGE, TRUNCATE, "
            "COMMENT, CREATE TABLE or DROP TABLE"
        )
    return action


def _words(command: exp.Command) -> str:
    first = str(command.this).upper()
    rest = str(command.args.get("expression") or "").upper().split()
    if rest and first in ("CREATE", "ALTER", "DROP"):
        return f"{first} {rest[0]}"
    return first


def _read(warehouse: Warehouse, tree: exp.Expression, limit: int) -> ConversionResult:
    if isinstance(tree, (exp.Show, exp.Describe)):
        rows = warehouse.show(tree)
        rows.records = rows.records[:limit]
        return ConversionResult(tree.key.upper(), rows)
    sql, needed = warehouse.translate(tree)
    return ConversionResult(
        "SELECT", warehouse.engine.read(sql, needed, warehouse.now, limit, MAX_BYTES)
    )


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
    return ConversionResult(tree.key.upper(), counts=counts, target=target)


def _truncate(warehouse: Warehouse, tree: exp.TruncateTable) -> ConversionResult:
    table = tree.expressions[0]
    if not isinstance(table, exp.Table):
        raise ToolError("invalid argument: TRUNCATE needs the name of a table")
    if warehouse.is_skipped(tree, table):
        return ConversionResult("TRUNCATE_TABLE")
    name = warehouse.find_table(table)
    sql = f"DELETE FROM {path(name)}"
    answer = warehouse.engine.write([sql], [name], warehouse.now, name)
    return ConversionResult("TRUNCATE_TABLE", counts={"deleted": int(answer[0][0])}, target=name)


_EFFECTS = {"insert": "inserted", "update": "updated", "delete": "deleted"}

_ACTIONS: dict[type, Callable[[Warehouse, Any], ConversionResult]] = {
    exp.Insert: _change_rows,
    exp.Update: _change_rows,
    exp.Delete: _change_rows,
    exp.Merge: _change_rows,
    exp.TruncateTable: _truncate,
    exp.Create: create,
    exp.Drop: drop,
    exp.Alter: alter,
    exp.Comment: comment,
}
