"""Translation of a warehouse's SQL dialect to DuckDB.

Statements can use only catalogue tables and the dialect's functions, so they cannot access DuckDB's
own tables and functions.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp

from agentgym.office.warehouse.dialects.bounded_parser import parse_sql
from agentgym.office.warehouse.dialects.trees import (
    Rewrite,
    comment_in,
    is_cte,
    set_name,
    swap,
)
from agentgym.office.warehouse.engine import Column, SQLEngine, TableName
from agentgym.office.warehouse.values import Rows, View
from agentgym.text.tools import ToolError, echo

# Otherwise, SQLGlot prints warnings to stderr.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())

# Errors that SQLGlot raises for some invalid SQL.
_PARSER_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)

MAX_CHARS = 100_000  # maximum characters per statement

READS = (exp.Query, exp.Values, exp.Show, exp.Describe)  # Statements that return records

# Constraints of columns whose values the database generates.
_GENERATED = (
    exp.AutoIncrementColumnConstraint,
    exp.GeneratedAsIdentityColumnConstraint,
    exp.ComputedColumnConstraint,
)


class Warehouse(ABC):
    """Base class for SQL dialects; in statements, the current time is `now`."""

    dialect: ClassVar[str]
    functions: ClassVar[frozenset[str]]
    """Functions unknown to SQLGlot that DuckDB has with the same meaning."""
    rewrites: Mapping[type, Rewrite]
    """The rewrite of each kind of node that SQLGlot does not translate."""

    def __init__(self, engine: SQLEngine, now: datetime) -> None:
        self.engine = engine
        self.now = now

    @abstractmethod
    def resolve_table(self, table: exp.Table) -> TableName:
        """Return the engine's name for a table, even if the table does not exist."""

    @abstractmethod
    def information_schema(self, table: exp.Table) -> View | None:
        """Return an information schema view, or None for other tables."""

    @abstractmethod
    def default_column_name(self, item: exp.Expression, number: int) -> str:
        """Return the name of a computed result column without an alias."""

    def show(self, tree: exp.Expression) -> Rows:
        """Return the result of a SHOW or DESCRIBE statement."""
        raise ToolError(
            f"invalid argument: {self.dialect} does not support {tree.key.upper()}; query "
            "INFORMATION_SCHEMA"
        )

    def parse_command(self, text: str) -> exp.Expression | None:
        """Parse a statement that SQLGlot cannot parse; return None for other statements."""
        return None

    def reads(self, tree: exp.Expression) -> bool:
        """Return whether a statement only reads data: a query, SHOW or DESCRIBE."""
        return (
            isinstance(tree, READS)
            and not tree.find(exp.DML, exp.DDL, exp.Command, exp.Into)
            and not isinstance(tree, exp.DML)
        )

    def kind(self, tree: exp.Expression) -> str:
        """Return the kind of statement, such as INSERT or CREATE TABLE."""
        if isinstance(tree, exp.Command):
            first, *rest = f"{tree.this} {tree.args.get('expression') or ''}".upper().split()
            if rest and first in ("CREATE", "ALTER", "DROP"):
                return f"{first} {rest[0]}"
            return first
        kind = tree.args.get("kind")
        if not kind or kind is True:  # for COPY, SQLGlot sets `kind` to True
            return tree.key.upper()
        return f"{tree.key.upper()} {str(kind).upper()}"

    def transpile(self, tree: exp.Expression) -> None:
        """Apply the rewrites to a syntax tree in place."""
        try:
            # Children precede their parents.
            for node in list(tree.walk())[::-1]:
                if rewrite := self.rewrites.get(type(node)):
                    new = rewrite(node)
                    if new is not node:
                        swap(node, new)
        except _PARSER_ERRORS:
            raise ToolError(
                "invalid argument: the statement contains an invalid expression"
            ) from None

    def parse(self, sql: str) -> exp.Expression:
        """Parse exactly one statement."""
        text = sql.strip().rstrip(";")
        if len(sql) > MAX_CHARS:
            raise ToolError(
                f"invalid argument: a statement may have at most {MAX_CHARS} characters, got "
                f"{len(sql)}: {echo(sql)}"
            )
        try:
            parsed = parse_sql(sql, self.dialect)
        except sqlglot.errors.SqlglotError as error:
            other = self.parse_command(text)
            if other is not None:
                return other
            problem = {"description": str(error), "line": 1, "col": 1}
            if known := getattr(error, "errors", None):
                problem = known[0]
            what = str(problem["description"]).rstrip(".")
            raise ToolError(
                f"invalid argument: syntax error: {what} at [{problem['line']}:{problem['col']}]"
            ) from None
        except (RecursionError, *_PARSER_ERRORS):
            raise ToolError(
                "invalid argument: syntax error: the statement is invalid, nested too deeply or "
                "too long"
            ) from None
        trees = [tree for tree in parsed if tree is not None]
        if len(trees) != 1:
            raise ToolError(
                f"invalid argument: a call must contain one statement, got {len(trees)}"
            )
        tree: exp.Expression = trees[0]
        if isinstance(tree, exp.Command):
            return self.parse_command(text) or tree
        return tree

    def find_table(self, table: exp.Table) -> TableName:
        """Return the engine's name of an existing table, or raise `ToolError`."""
        name = self.resolve_table(table)
        if name not in self.engine.tables:
            raise ToolError(f"not found: there is no table {'.'.join(name)}")
        return name

    def is_skipped(self, tree: exp.Expression, table: exp.Table) -> bool:
        """Return whether a statement has IF EXISTS but the table does not exist."""
        return bool(tree.args.get("exists")) and self.resolve_table(table) not in self.engine.tables

    def translate(self, tree: exp.Expression) -> tuple[str, list[TableName]]:
        """Return DuckDB SQL and the tables that it uses; the tree is modified."""
        needed = self.prepare(tree)
        return self.to_duckdb(tree), needed

    def prepare(self, tree: exp.Expression) -> list[TableName]:
        """Check and rewrite a syntax tree in place; return the tables in it."""
        self.check(tree)
        self._name_columns(tree)
        needed = self._resolve(tree)
        self.transpile(tree)
        return needed

    def to_duckdb(self, tree: exp.Expression) -> str:
        """Convert a rewritten tree to DuckDB SQL; the tree may change."""
        level = sqlglot.ErrorLevel.RAISE
        try:
            return tree.sql("duckdb", unsupported_level=level, comments=False, copy=False)
        except sqlglot.errors.UnsupportedError as error:
            raise ToolError(f"invalid argument: not supported here: {error}") from None

    def check(self, tree: exp.Expression) -> None:
        """Reject parameters, unknown functions, and queries for earlier versions of tables."""
        for node in tree.walk():
            if isinstance(node, exp.Anonymous) and node.name.lower() not in self.functions:
                raise ToolError(f"invalid argument: function not found: {echo(node.name)}")
            if isinstance(
                node, (exp.Parameter, exp.Placeholder, exp.SessionParameter, exp.Command, exp.Into)
            ):
                raise ToolError(
                    f"invalid argument: {echo(node.sql(self.dialect))} cannot be used here; write "
                    "the value itself"
                )
            if isinstance(node, exp.Table) and (node.args.get("when") or node.args.get("version")):
                raise ToolError(
                    "invalid argument: earlier versions of tables cannot be queried; query the "
                    "current table"
                )

    def _name_columns(self, tree: exp.Expression) -> None:
        query: Any = tree.expression if isinstance(tree, (exp.Insert, exp.Create)) else tree
        while isinstance(query, (exp.SetOperation, exp.Subquery)):
            query = query.this
        items = query.expressions if isinstance(query, exp.Select) else []
        unnamed = [
            item
            for item in items
            if not isinstance(item, (exp.Alias, exp.Aliases, exp.Column)) and not item.is_star
        ]
        for number, item in enumerate(unnamed):
            if isinstance(item, exp.Dot):
                name = item.output_name
            else:
                name = self.default_column_name(item, number)
            swap(item, exp.alias_(item.copy(), name, quoted=True))

    def _resolve(self, tree: exp.Expression) -> list[TableName]:
        needed: dict[TableName, None] = {}
        nodes = list(tree.walk())
        for table in [n for n in nodes if isinstance(n, exp.Table) and not is_cte(n)]:
            if not isinstance(table.this, exp.Identifier):
                raise ToolError(
                    f"invalid argument: {echo(table.sql(self.dialect)[:60])} is not a table"
                )
            if view := self.information_schema(table):
                name = ("lib", f"information {len(needed)}")
                self.engine.add_virtual_table(name, *view)
                set_name(table, name, alias=table.alias or table.name.rsplit(".", 1)[-1])
            else:
                name = self.find_table(table)
                set_name(table, name)
            needed[name] = None
        for column in nodes:
            if isinstance(column, exp.Column):
                column.set("db", None)
                column.set("catalog", None)
        return list(needed)

    def column_definition(self, item: exp.Expression, keys: set[str]) -> Column:
        """Convert a column definition to a `Column`."""
        column = Column(item.name, "VARCHAR", key=item.name.lower() in keys)
        if not isinstance(item, exp.ColumnDef) or not item.kind:
            return column
        holder = exp.Paren(this=item.kind.copy())
        self.transpile(holder)
        facts: dict[str, Any] = {"type": self.to_duckdb(holder.this)}
        for constraint in item.constraints:
            kind: Any = constraint.kind
            if isinstance(kind, exp.NotNullColumnConstraint):
                facts["nullable"] = bool(kind.args.get("allow_null"))
            elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
                facts |= {"key": True, "nullable": False}
            elif isinstance(kind, exp.DefaultColumnConstraint):
                facts["default"] = self._default_value(kind.this)
            elif isinstance(kind, exp.CommentColumnConstraint):
                facts["comment"] = kind.this.name
            elif isinstance(kind, exp.Properties):
                facts["comment"] = comment_in(kind)
            elif isinstance(kind, _GENERATED):
                raise ToolError(
                    f"invalid argument: column {column.name}: generated values are not supported; "
                    "insert the values"
                )
        return replace(column, **facts)

    def _default_value(self, item: exp.Expression) -> str:
        holder = exp.Paren(this=item.copy())
        self.check(holder)
        if holder.find(exp.Table, exp.Query):
            raise ToolError("invalid argument: a default value cannot be a query")
        self.transpile(holder)
        return self.to_duckdb(holder.this)

    def set_comment(self, name: TableName, column: str, text: str) -> None:
        """Set the comment of a column, or of the table if `column` is empty."""
        table = self.engine.tables[name]
        if not column:
            self.engine.tables[name] = replace(table, comment=text)
            return
        columns = list(table.columns)
        for k, candidate in enumerate(columns):
            if candidate.name.lower() == column.lower():
                columns[k] = replace(candidate, comment=text)
                self.engine.tables[name] = replace(table, columns=tuple(columns))
                return
        raise ToolError(f"not found: {'.'.join(name)} has no column {echo(column)}")
