"""CREATE, ALTER, DROP and COMMENT ON; a refused statement raises `ToolError`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from agentgym.office.warehouse.dialects.translation import Warehouse
from agentgym.office.warehouse.dialects.trees import comment_in, copied_table, only_comment
from agentgym.office.warehouse.tables import (
    Column,
    Table,
    TableName,
    declare,
    path,
    quote,
)
from agentgym.office.warehouse.values import ConversionResult
from agentgym.office.warehouse.work_limits import limit_work
from agentgym.text.tools import ToolError


def create(warehouse: Warehouse, tree: exp.Create) -> ConversionResult:
    """Execute a CREATE of a table, view, schema or database, or change nothing."""
    kind = str(tree.kind).upper()
    if kind in ("SCHEMA", "DATABASE"):
        return warehouse.create_schema(warehouse.resolve_schema(tree.this, kind), tree, kind)
    if kind not in ("TABLE", "VIEW"):
        raise ToolError(
            f"invalid argument: CREATE {kind} is not supported; TABLE, VIEW and SCHEMA are"
        )
    signature = tree.this if isinstance(tree.this, exp.Schema) else None
    name = warehouse.resolve_table(signature.this if signature else tree.this)
    warehouse.check_schema(name[0])
    if name in warehouse.engine.tables and not tree.args.get("replace"):
        if tree.args.get("exists"):
            return ConversionResult(
                f"CREATE_{kind}",
                target=name,
                message=f"{'.'.join(name)} already exists, statement succeeded.",
            )
        raise ToolError(f"conflict: {'.'.join(name)} already exists")
    items = signature.expressions if signature else []
    keys = _primary_keys(items)
    columns = [
        warehouse.column_definition(item, keys)
        for item in items
        if isinstance(item, (exp.ColumnDef, exp.Identifier, exp.Column))
    ]
    table = (_create_view if kind == "VIEW" else _create_table)(warehouse, tree, name, columns)
    text = comment_in(tree.args.get("properties")) or table.comment
    warehouse.engine.set_schema(
        name, replace(table, comment=text, created=warehouse.now.isoformat())
    )
    return ConversionResult(f"CREATE_{kind}", target=name)


def _create_table(
    warehouse: Warehouse, tree: exp.Create, name: TableName, columns: list[Column]
) -> Table:
    old, text, seed = warehouse.engine.tables.get(name), "", ""
    statements = [f"DROP VIEW {path(name)}"] if old and old.view else []
    head = f"CREATE OR REPLACE TABLE {path(name)}"
    tables = [name] if old else []
    like, with_rows = copied_table(tree)
    if like is not None:
        origin = warehouse.find_table(like)
        copied = warehouse.engine.tables[origin]
        columns, text = list(copied.columns), copied.comment
        tables.append(origin)
        statements.append(f"{head} ({', '.join(map(declare, columns))})")
        statements += [f"INSERT INTO {path(name)} SELECT * FROM {path(origin)}"] * with_rows
    elif tree.expression:
        tree.set("this", exp.to_identifier("x"))
        needed, seed = warehouse.prepare(tree)
        tables += needed
        query = warehouse.to_duckdb(tree.expression)
        if columns:
            labels = ", ".join(quote(column.name) for column in columns)
            parts = ", ".join(
                f"CAST({quote(column.name)} AS {column.type}) AS {quote(column.name)}"
                for column in columns
            )
            query = f"SELECT {parts} FROM ({query}) AS _({labels})"
        statements.append(f"{head} AS {query}")
        statements += [
            f"ALTER TABLE {path(name)} ALTER {quote(c.name)} SET NOT NULL"
            for c in columns
            if not c.nullable
        ]
    elif columns:
        statements.append(f"{head} ({', '.join(map(declare, columns))})")
    else:
        raise ToolError("invalid argument: CREATE TABLE needs columns or a query")
    warehouse.engine.write(statements, tables, warehouse.now, seed=seed, schema=name[0], new=[name])
    return Table(warehouse.engine.columns_of(name, columns), comment=text)


def _create_view(
    warehouse: Warehouse, tree: exp.Create, name: TableName, columns: list[Column]
) -> Table:
    if not tree.expression:
        raise ToolError("invalid argument: CREATE VIEW needs a query")
    tree.set("this", exp.to_identifier("x"))
    needed, _ = warehouse.prepare(tree)
    if name in needed or warehouse.virtual_tables:
        raise ToolError("invalid argument: a view cannot read itself or INFORMATION_SCHEMA")
    definition = warehouse.to_duckdb(tree.expression)
    limit_work(tree, warehouse.engine.rows_bound)
    query = warehouse.to_duckdb(tree.expression)
    if columns:
        labels = ", ".join(quote(column.name) for column in columns)
        definition, query = (
            f"SELECT * FROM ({each}) AS _({labels})" for each in (definition, query)
        )
    old = warehouse.engine.tables.get(name)
    start = [f"DROP TABLE {path(name)}"] if old and not old.view else []
    warehouse.engine.write(
        [*start, f"CREATE OR REPLACE VIEW {path(name)} AS {query}"],
        [*needed, *([name] if old else [])],
        warehouse.now,
        schema=name[0],
    )
    return Table(
        warehouse.engine.columns_of(name, columns),
        view=query,
        needs=tuple(needed),
        definition=definition,
    )


def _primary_keys(items: Sequence[exp.Expression]) -> set[str]:
    return {
        part.name.lower()
        for item in items
        for key in item.find_all(exp.PrimaryKey)
        for part in key.expressions
    }


def drop(warehouse: Warehouse, tree: exp.Drop) -> ConversionResult:
    """Execute a DROP of tables, views, schemas or databases."""
    kind = str(tree.args["kind"]).upper()
    for table in tree.args["tables"]:
        if kind in ("SCHEMA", "DATABASE"):
            _drop_schema(warehouse, warehouse.resolve_schema(table, kind), tree, kind)
        elif kind in ("TABLE", "VIEW"):
            _drop_table(warehouse, warehouse.resolve_table(table), tree, kind)
        else:
            raise ToolError(
                f"invalid argument: DROP {kind} is not supported; TABLE, VIEW and SCHEMA are"
            )
    names = ", ".join(table.sql(warehouse.dialect) for table in tree.args["tables"])
    return ConversionResult(f"DROP_{kind}", message=f"{names} successfully dropped.")


def _drop_table(warehouse: Warehouse, name: TableName, tree: exp.Drop, kind: str) -> None:
    table = warehouse.engine.tables.get(name)
    if table is not None and bool(table.view) == (kind == "VIEW"):
        warehouse.engine.drop(name)
    elif table is not None or not tree.args.get("exists"):
        raise ToolError(f"not found: there is no {kind.lower()} {'.'.join(name)}")


def _drop_schema(warehouse: Warehouse, name: str, tree: exp.Drop, kind: str) -> None:
    engine = warehouse.engine
    within = [
        each
        for each in engine.schemas
        if each == name or (kind == "DATABASE" and each.startswith(f"{name}."))
    ]
    if not within and not tree.args.get("exists"):
        raise ToolError(f"not found: there is no {kind.lower()} {name}")
    tables = [table for table in engine.tables if table[0] in within]
    if tables and (
        tree.args.get("restrict") or not (warehouse.cascades or tree.args.get("cascade"))
    ):
        raise ToolError(
            f"conflict: {name} is still in use: it has {len(tables)} tables; drop them first or add "
            "CASCADE"
        )
    for table in tables:
        engine.drop(table)
    for schema in within:
        del engine.schemas[schema]


def comment(warehouse: Warehouse, tree: exp.Comment) -> ConversionResult:
    """Execute a COMMENT ON a table, view or column."""
    kind = str(tree.args["kind"]).upper()
    if kind not in ("TABLE", "VIEW", "COLUMN"):
        raise ToolError(
            f"invalid argument: COMMENT ON {kind} is not supported; TABLE, VIEW and COLUMN are"
        )
    column = tree.this.name if kind == "COLUMN" else ""
    parts = tree.this.args
    table = (
        exp.Table(this=parts.get("table"), db=parts.get("db"), catalog=parts.get("catalog"))
        if column
        else tree.this
    )
    if tree.args.get("exists") and warehouse.resolve_table(table) not in warehouse.engine.tables:
        return ConversionResult("COMMENT")
    name = warehouse.find_table(table)
    warehouse.set_comment(name, column, tree.expression.name)
    return ConversionResult("COMMENT", target=name)


def alter(warehouse: Warehouse, tree: exp.Alter) -> ConversionResult:
    """Execute an ALTER TABLE atomically."""
    kind = str(tree.args["kind"]).upper()
    if kind not in ("TABLE", "VIEW"):
        raise ToolError(f"invalid argument: ALTER {kind} is not supported; ALTER TABLE is")
    if (
        tree.args.get("exists")
        and warehouse.resolve_table(tree.this) not in warehouse.engine.tables
    ):
        return ConversionResult("ALTER_TABLE")
    alteration = _Alteration(warehouse, warehouse.find_table(tree.this))
    for action in tree.args["actions"]:
        if type(action) not in _CHANGES:
            raise ToolError(
                f"invalid argument: {action.sql(warehouse.dialect)[:60]} is not supported in ALTER "
                f"{kind}"
            )
        _CHANGES[type(action)](alteration, action)
    alteration.apply()
    return ConversionResult("ALTER_TABLE", target=alteration.new_name)


class _Alteration:
    """An ALTER TABLE under construction."""

    def __init__(self, warehouse: Warehouse, name: TableName) -> None:
        self._warehouse = warehouse
        self._name = self.new_name = name
        self._statements: list[str] = []
        self._before = warehouse.engine.tables[name]
        self._columns = list(self._before.columns)
        self._comment = self._before.comment

    def add_column(self, action: exp.ColumnDef) -> None:
        if self._has(action.name):
            if action.args.get("exists"):
                return
            raise ToolError(f"conflict: {'.'.join(self._name)} has a column {action.name} already")
        for constraint in action.constraints:
            if isinstance(constraint.kind, exp.Properties):
                only_comment(constraint.kind)
            elif not isinstance(constraint.kind, _COLUMN_PROPERTIES):
                self._refuse(constraint)
        column = self._warehouse.column_definition(action, set())
        self._do(f"ADD COLUMN {declare(replace(column, nullable=True))}")
        if not column.nullable:
            self._do(f"ALTER {quote(column.name)} SET NOT NULL")
        self._columns.append(column)

    def drop_columns(self, action: exp.Drop) -> None:
        for item in action.args.get("tables") or [action.this]:
            if action.args.get("exists") and not self._has(item.name):
                continue
            column = self._find(item.name)
            self._do(f"DROP COLUMN {quote(column.name)}")
            self._columns.remove(column)

    def rename_column(self, action: exp.RenameColumn) -> None:
        column = self._find(action.this.name)
        new = action.args["to"].name
        self._do(f"RENAME COLUMN {quote(column.name)} TO {quote(new)}")
        self._columns[self._columns.index(column)] = replace(column, name=new)

    def rename(self, action: exp.AlterRename) -> None:
        if action.this.args.get("db"):
            self.new_name = self._warehouse.resolve_table(action.this)
        else:
            self.new_name = (self._name[0], action.this.name)
        if self.new_name[0] != self._name[0]:
            raise ToolError("invalid argument: a table cannot be renamed into another schema")
        if self.new_name in self._warehouse.engine.tables:
            raise ToolError(f"conflict: {'.'.join(self.new_name)} already exists")
        self._do(f"RENAME TO {quote(self.new_name[1])}")

    def alter_column(self, action: exp.AlterColumn) -> None:
        column = self._find(action.this.name)
        label, arguments = quote(column.name), action.args
        if arguments.get("collate") or arguments.get("using"):
            self._refuse(action)
        if "comment" in arguments:
            changed = replace(column, comment=arguments["comment"].name)
        elif arguments.get("dtype"):
            definition = exp.ColumnDef(this=action.this.copy(), kind=arguments["dtype"].copy())
            changed = replace(
                column, type=self._warehouse.column_definition(definition, set()).type
            )
            self._do(f"ALTER {label} SET DATA TYPE {changed.type}")
        elif arguments.get("default"):
            changed = replace(column, default=self._warehouse.default_value(arguments["default"]))
            self._do(f"ALTER {label} SET DEFAULT {changed.default}")
        elif "allow_null" in arguments:
            changed = replace(column, nullable=bool(arguments["allow_null"]))
            self._do(f"ALTER {label} {'DROP' if changed.nullable else 'SET'} NOT NULL")
        elif arguments.get("drop"):
            changed = replace(column, default=None)
            self._do(f"ALTER {label} DROP DEFAULT")
        else:
            raise ToolError("invalid argument: this change of a column is not supported")
        self._columns[self._columns.index(column)] = changed

    def set_options(self, action: exp.AlterSet) -> None:
        for item in action.expressions or [action]:
            if not isinstance(item, exp.Properties) or not item.expressions:
                self._refuse(action)
            self._comment = only_comment(item)

    def add_keys(self, action: exp.AddConstraint) -> None:
        """Keys are recorded, not enforced, as in the warehouses."""
        for constraint in action.expressions:
            if not constraint.find(exp.PrimaryKey):
                self._refuse(constraint)
        for name in _primary_keys([action]):
            column = self._find(name)
            self._columns[self._columns.index(column)] = replace(column, key=True)

    def apply(self) -> None:
        engine = self._warehouse.engine
        table = replace(self._before, columns=tuple(self._columns), comment=self._comment)
        if not self._statements:
            engine.tables[self._name] = table
            return
        if self._before.view:
            raise ToolError(
                f"invalid argument: {'.'.join(self._name)} is a view; make it anew with CREATE OR "
                "REPLACE VIEW"
            )
        engine.write(self._statements, [self._name], self._warehouse.now, new=[self.new_name])
        if self.new_name != self._name:
            engine.set_schema(self._name, None)
        engine.set_schema(
            self.new_name, replace(table, columns=engine.columns_of(self.new_name, self._columns))
        )

    def _has(self, name: str) -> bool:
        return any(column.name.lower() == name.lower() for column in self._columns)

    def _find(self, name: str) -> Column:
        for column in self._columns:
            if column.name.lower() == name.lower():
                return column
        raise ToolError(f"not found: {'.'.join(self._name)} has no column {name}")

    def _refuse(self, part: exp.Expression) -> None:
        """Refuse a change that no record would show."""
        text = part.sql(self._warehouse.dialect)[:60]
        raise ToolError(f"not supported: {text} in ALTER; leave it out")

    def _do(self, text: str) -> None:
        self._statements.append(f"ALTER TABLE {path(self._name)} {text}")


_COLUMN_PROPERTIES = (
    exp.NotNullColumnConstraint,
    exp.PrimaryKeyColumnConstraint,
    exp.DefaultColumnConstraint,
    exp.CommentColumnConstraint,
)
_CHANGES: dict[type, Callable[[_Alteration, Any], None]] = {
    exp.ColumnDef: _Alteration.add_column,
    exp.Drop: _Alteration.drop_columns,
    exp.RenameColumn: _Alteration.rename_column,
    exp.AlterRename: _Alteration.rename,
    exp.AlterColumn: _Alteration.alter_column,
    exp.AlterSet: _Alteration.set_options,
    exp.AddConstraint: _Alteration.add_keys,
}
