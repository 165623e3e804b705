"""Statements of a warehouse: parsed in its dialect, checked, resolved against the catalogue, run on the engine.

What a statement does is told from its syntax tree. Every table that it names is looked up in the catalogue and every function is
one that the dialect has, so nothing of the engine itself can be reached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp

from agentgym.envs.loca.servers.warehouse.alter import alter, comment
from agentgym.envs.loca.servers.warehouse.create import create
from agentgym.envs.loca.servers.warehouse.engine import Engine
from agentgym.envs.loca.servers.warehouse.tables import Column, Schema, TableName, path
from agentgym.envs.loca.servers.warehouse.trees import READS, check_length, is_cte, is_reading, kind_of, point, said
from agentgym.envs.loca.servers.warehouse.values import ConversionResult, Rows, View
from agentgym.tools import ToolError, echo

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # it warns on standard error otherwise

_FAULTS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What SQLGlot raises besides its own errors, for some statements that are none."""

_RANDOM = (exp.Rand, exp.Randn, exp.Uuid, exp.TableSample)


class Warehouse:
    """One dialect on an engine, at a moment.

    Args:
        engine: The tables.
        now: The present.
    """

    dialect: ClassVar[str]
    functions: ClassVar[frozenset[str]]
    """Functions that SQLGlot does not know but that DuckDB has with the same meaning."""
    cascades: ClassVar[bool]
    """Whether a schema is dropped with the tables in it."""

    def __init__(self, engine: Engine, now: datetime) -> None:
        self.engine = engine
        self.now = now
        self.lent: list[str] = []

    def reads(self, tree: exp.Expression) -> bool:
        """Whether a statement can change nothing."""
        return is_reading(tree)

    def kind(self, tree: exp.Expression) -> str:
        """What a statement is, in capitals, such as INSERT or CREATE TABLE."""
        return kind_of(tree)

    # What a dialect says.

    def locate(self, table: exp.Table) -> TableName:
        """The table of the engine that is named so, whether or not there is one."""
        raise NotImplementedError

    def locate_name(self, table: exp.Table) -> str:
        """The name of a table alone."""
        return table.name

    def locate_schema(self, table: exp.Table, kind: str) -> str:
        """The schema that a CREATE or DROP of a schema or database names."""
        raise NotImplementedError

    def rewrite(self, tree: exp.Expression) -> None:
        """Change a tree so that SQLGlot writes the SQL of DuckDB that means the same."""
        raise NotImplementedError

    def adapt(self, tree: exp.Expression) -> None:
        """Rewrite a tree; one that is malformed in a way that the parser lets pass is refused.

        Raises:
            ToolError: It is malformed.
        """
        try:
            self.rewrite(tree)
        except _FAULTS:
            raise ToolError("invalid argument: the statement has a part that cannot be understood") from None

    def information(self, table: exp.Table) -> View | None:
        """Columns and records of a view of the information schema, if the name is that of one."""
        raise NotImplementedError

    def wildcard(self, table: exp.Table) -> list[TableName]:
        """The tables that a name with a `*` stands for, if it is one."""
        return []

    def list_things(self, tree: exp.Expression) -> Rows:
        """What SHOW or DESCRIBE gives."""
        raise ToolError(f"invalid argument: {tree.key.upper()} is not a statement of {self.dialect}; query INFORMATION_SCHEMA")

    def command(self, text: str) -> exp.Expression | None:
        """The tree of a statement that SQLGlot cannot parse."""
        return None

    def unnamed(self, item: exp.Expression, number: int) -> str:
        """The name of a column that a query does not name."""
        raise NotImplementedError

    # What all do.

    def parse(self, sql: str) -> exp.Expression:
        """The tree of one statement.

        Raises:
            ToolError: It cannot be parsed, or there are several.
        """
        text = sql.strip().rstrip(";")
        try:
            parsed: list[Any] = sqlglot.parse(check_length(sql), read=self.dialect)
        except sqlglot.errors.SqlglotError as error:
            other = self.command(text)
            if other is not None:
                return other
            problem = getattr(error, "errors", None) or [{"description": str(error), "line": 1, "col": 1}]
            what = str(problem[0]["description"]).rstrip(".")
            raise ToolError(f"invalid argument: syntax error: {what} at [{problem[0]['line']}:{problem[0]['col']}]") from None
        except RecursionError:
            raise ToolError("invalid argument: syntax error: the statement is nested too deeply") from None
        except _FAULTS:
            raise ToolError("invalid argument: syntax error: the statement cannot be parsed") from None
        trees = [tree for tree in parsed if tree is not None]
        if len(trees) != 1:
            raise ToolError(f"invalid argument: one statement a call, got {len(trees)}; make a call for each")
        tree: exp.Expression = trees[0]
        return (self.command(text) or tree) if isinstance(tree, exp.Command) else tree

    def run(self, tree: exp.Expression, writes: bool, limit: int) -> ConversionResult:
        """Carry out a statement.

        Args:
            tree: The statement.
            writes: Whether it may change anything.
            limit: The most records to give.

        Raises:
            ToolError: It is refused; nothing has changed.
        """
        try:
            if is_reading(tree):
                return self._read(tree, limit)
            if isinstance(tree, READS):
                raise ToolError("permission denied: a query cannot hold a statement that changes something")
            if not writes:
                raise ToolError(f"permission denied: only SELECT, SHOW and DESCRIBE can be run here, not {kind_of(tree)}")
            actions: dict[type, Callable[[Any], ConversionResult]] = {
                exp.Insert: self._change, exp.Update: self._change, exp.Delete: self._change, exp.Merge: self._change,
                exp.TruncateTable: self._truncate, exp.Create: partial(create, self), exp.Drop: self._drop,
                exp.Alter: partial(alter, self), exp.Comment: partial(comment, self),
            }  # fmt: skip
            if type(tree) not in actions:
                raise ToolError(f"invalid argument: {kind_of(tree)} is not supported")
            return actions[type(tree)](tree)
        except RecursionError:
            raise ToolError("invalid argument: the statement is nested too deeply") from None
        except sqlglot.errors.SqlglotError as error:
            raise ToolError(f"invalid argument: {str(error)[:300]}") from None

    def find(self, table: exp.Table) -> TableName:
        """The table that is named.

        Raises:
            ToolError: There is none.
        """
        name = self.locate(table)
        if name not in self.engine.tables:
            raise ToolError(f"not found: there is no table {'.'.join(name)}")
        return name

    def _read(self, tree: exp.Expression, limit: int) -> ConversionResult:
        if isinstance(tree, (exp.Show, exp.Describe)):
            rows = self.list_things(tree)
            rows.records = rows.records[:limit]
            return ConversionResult(tree.key.upper(), rows)
        sql, needed, seed = self.translate(tree)
        return ConversionResult("SELECT", self.engine.read(sql, needed, self.now, limit, seed))

    def translate(self, tree: exp.Expression) -> tuple[str, list[TableName], str]:
        """A statement in the SQL of DuckDB, the tables that it needs, and what its random functions depend on."""
        seed = tree.sql(self.dialect) if any(tree.find(kind) for kind in _RANDOM) else ""
        self.check(tree)
        self._name_columns(tree)
        needed = self._resolve(tree)
        self.adapt(tree)
        return self.write_out(tree), needed, seed

    def write_out(self, tree: exp.Expression) -> str:
        """A tree in the SQL of DuckDB."""
        return tree.sql("duckdb", unsupported_level=sqlglot.ErrorLevel.IGNORE, comments=False)

    def check(self, tree: exp.Expression) -> None:
        """Refuse what a tree must not hold: functions that the dialect has not, parameters, other versions of a table."""
        for node in tree.walk():
            if isinstance(node, exp.Anonymous) and node.name.lower() not in self.functions:
                raise ToolError(f"invalid argument: function not found: {echo(node.name)}")
            if isinstance(node, (exp.Parameter, exp.Placeholder, exp.SessionParameter, exp.Command, exp.Into)):
                raise ToolError(f"invalid argument: {echo(node.sql(self.dialect))} cannot be used here; write the value itself")
            if isinstance(node, exp.Table) and (node.args.get("when") or node.args.get("version")):
                raise ToolError("invalid argument: tables are kept as they are now only; earlier versions cannot be read")

    def _name_columns(self, tree: exp.Expression) -> None:
        query: Any = tree.expression if isinstance(tree, (exp.Insert, exp.Create)) else tree
        while isinstance(query, (exp.SetOperation, exp.Subquery)):
            query = query.this
        number = 0
        for item in list(query.expressions) if isinstance(query, exp.Select) else []:
            if isinstance(item, (exp.Alias, exp.Aliases, exp.Column)) or item.is_star:
                continue
            name = item.output_name if isinstance(item, exp.Dot) else self.unnamed(item, number)
            number += 1
            item.replace(exp.alias_(item.copy(), name, quoted=True))

    def _resolve(self, tree: exp.Expression) -> list[TableName]:
        """Write the engine's name for every table; those tables, without repetition."""
        needed: dict[TableName, None] = {}
        for table in list(tree.find_all(exp.Table)):
            if is_cte(table):
                continue
            if not isinstance(table.this, exp.Identifier):
                raise ToolError(f"invalid argument: {echo(table.sql(self.dialect)[:60])} is not a table")
            shown = self.information(table)
            many = [] if shown else self.wildcard(table)
            if shown:
                name = ("lib", f"information {len(self.lent)}")
                self.engine.lend(name, *shown)
                self.lent.append(name[1])
                point(table, name, alias=table.alias or table.name.rsplit(".", 1)[-1])
            elif many:
                point(table, self.engine.merge(many, len(table.name) - 1), alias=table.alias or table.name)
            else:
                name = self.find(table)
                needed[name] = None
                point(table, name)
        for column in tree.find_all(exp.Column):
            column.set("db", None)
            column.set("catalog", None)
        return list(needed)

    def _change(self, tree: Any) -> ConversionResult:
        if isinstance(tree, exp.Delete) and not tree.this:
            tree.set("this", tree.args["tables"][0])
            tree.set("tables", None)
        table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        if not isinstance(table, exp.Table):
            raise ToolError(f"invalid argument: {kind_of(tree)} needs the name of a table")
        target = self.find(table)
        if self.engine.tables[target].view:
            raise ToolError(f"invalid argument: {'.'.join(target)} is a view; its rows cannot be changed")
        for assignment in tree.find_all(exp.EQ):
            if isinstance(assignment.parent, exp.Update) and isinstance(assignment.this, exp.Column):
                assignment.this.set("table", None)
        first = f"DELETE FROM {path(target)}" if tree.args.get("overwrite") else ""
        tree.set("overwrite", None)
        sql, needed, seed = self.translate(tree)
        merges = isinstance(tree, exp.Merge)
        statements = [first, sql] if first else [sql + " RETURNING merge_action"] if merges else [sql]
        answer = self.engine.write(statements, [*needed, target], [target], self.now, seed)
        if merges:
            done = [row[0] for row in answer]
            counts = {
                name: done.count(action) for name, action in _ACTIONS.items() if action in ("INSERT", "UPDATE") or action in done
            }
        else:
            counts = {{"insert": "inserted", "update": "updated", "delete": "deleted"}[tree.key]: int(answer[0][0])}
        return ConversionResult(tree.key.upper(), counts=counts, target=target)

    def _truncate(self, tree: exp.TruncateTable) -> ConversionResult:
        if not isinstance(tree.expressions[0], exp.Table):
            raise ToolError("invalid argument: TRUNCATE needs the name of a table")
        name = self.locate(tree.expressions[0])
        if tree.args.get("exists") and name not in self.engine.tables:
            return ConversionResult("TRUNCATE_TABLE")
        name = self.find(tree.expressions[0])
        answer = self.engine.write([f"DELETE FROM {path(name)}"], [name], [name], self.now)
        return ConversionResult("TRUNCATE_TABLE", counts={"deleted": int(answer[0][0])}, target=name)

    def create_schema(self, name: str, tree: exp.Create, kind: str) -> ConversionResult:
        """Make a schema."""
        if name in self.engine.schemas:
            if tree.args.get("exists"):
                return ConversionResult(f"CREATE_{kind}", message=f"{name} already exists, statement succeeded.")
            raise ToolError(f"conflict: {name} already exists")
        self.engine.schemas[name] = Schema(said(tree.args.get("properties")), self.now.isoformat())
        return ConversionResult(f"CREATE_{kind}", message=f"{kind.capitalize()} {name} successfully created.")

    def check_schema(self, name: str) -> None:
        """Refuse a schema that there is not."""
        if name not in self.engine.schemas:
            raise ToolError(f"not found: there is no {'dataset' if self.dialect == 'bigquery' else 'schema'} {name}")

    def declared(self, item: exp.Expression, keys: set[str]) -> Column:
        """A column as a statement declares it."""
        made = Column(item.name, "VARCHAR", key=item.name.lower() in keys)
        if not isinstance(item, exp.ColumnDef) or not item.kind:
            return made
        kind = exp.Paren(this=item.kind.copy())
        self.adapt(kind)
        made = replace(made, type=self.write_out(kind.this))
        for constraint in item.constraints:
            made = self._constrain(made, constraint.kind)
        return made

    def _constrain(self, column: Column, kind: Any) -> Column:
        if isinstance(kind, exp.NotNullColumnConstraint):
            return replace(column, nullable=bool(kind.args.get("allow_null")))
        if isinstance(kind, exp.PrimaryKeyColumnConstraint):
            return replace(column, key=True, nullable=False)
        if isinstance(kind, exp.DefaultColumnConstraint):
            return replace(column, default=self.value_of(kind.this))
        if isinstance(kind, exp.CommentColumnConstraint):
            return replace(column, comment=kind.this.name)
        if isinstance(
            kind, (exp.AutoIncrementColumnConstraint, exp.GeneratedAsIdentityColumnConstraint, exp.ComputedColumnConstraint)
        ):
            raise ToolError(f"invalid argument: column {column.name}: values that make themselves are not supported; give them")
        return replace(column, comment=said(kind)) if isinstance(kind, exp.Properties) else column

    def value_of(self, item: exp.Expression) -> str:
        """An expression without tables, in the SQL of DuckDB."""
        holder = exp.Paren(this=item.copy())
        self.check(holder)
        if holder.find(exp.Table, exp.Query):
            raise ToolError("invalid argument: a default value cannot be a query")
        self.adapt(holder)
        return self.write_out(holder.this)

    def _drop(self, tree: exp.Drop) -> ConversionResult:
        kind = str(tree.args["kind"]).upper()
        for table in tree.args["tables"]:
            if kind in ("SCHEMA", "DATABASE"):
                self._drop_schema(self.locate_schema(table, kind), tree, kind)
            elif kind in ("TABLE", "VIEW"):
                self._drop_table(self.locate(table), tree, kind)
            else:
                raise ToolError(f"invalid argument: DROP {kind} is not supported; TABLE, VIEW and SCHEMA are")
        return ConversionResult(
            f"DROP_{kind}", message=f"{', '.join(t.sql(self.dialect) for t in tree.args['tables'])} successfully dropped."
        )

    def _drop_table(self, name: TableName, tree: exp.Drop, kind: str) -> None:
        held = self.engine.tables.get(name)
        if held is None and tree.args.get("exists"):
            return
        if held is None or bool(held.view) != (kind == "VIEW"):
            raise ToolError(f"not found: there is no {kind.lower()} {'.'.join(name)}")
        self.engine.forget(name)

    def _drop_schema(self, name: str, tree: exp.Drop, kind: str) -> None:
        within = [other for other in self.engine.schemas if other == name or (kind == "DATABASE" and other.startswith(f"{name}."))]
        if not within and tree.args.get("exists"):
            return
        if not within:
            raise ToolError(f"not found: there is no {kind.lower()} {name}")
        tables = [table for table in self.engine.tables if table[0] in within]
        if tables and (tree.args.get("restrict") or not (self.cascades or tree.args.get("cascade"))):
            raise ToolError(f"conflict: {name} is still in use: it has {len(tables)} tables; drop them first or add CASCADE")
        for table in tables:
            self.engine.forget(table)
        for other in within:
            del self.engine.schemas[other]

    def say(self, name: TableName, column: str, text: str) -> None:
        """Set the comment of a table or, with its name, of a column."""
        table = self.engine.tables[name]
        if column:
            held = self.column_of(name, column)
            self.engine.tables[name] = replace(
                table, columns=tuple(replace(c, comment=text) if c is held else c for c in table.columns)
            )
        else:
            self.engine.tables[name] = replace(table, comment=text)

    def column_of(self, name: TableName, column: str) -> Column:
        """A column of a table, in whatever case its name is written.

        Raises:
            ToolError: There is none.
        """
        for held in self.engine.tables[name].columns:
            if held.name.lower() == column.lower():
                return held
        raise ToolError(f"not found: {'.'.join(name)} has no column {echo(column)}")


_ACTIONS = {"inserted": "INSERT", "updated": "UPDATE", "deleted": "DELETE"}
