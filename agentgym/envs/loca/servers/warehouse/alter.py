"""ALTER TABLE and COMMENT ON of the warehouses: columns, comments, names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from agentgym.envs.loca.servers.warehouse.tables import Column, Table, TableName, path, quote
from agentgym.envs.loca.servers.warehouse.trees import said, without_last
from agentgym.envs.loca.servers.warehouse.values import ConversionResult
from agentgym.tools import ToolError

if TYPE_CHECKING:
    from agentgym.envs.loca.servers.warehouse.statements import Warehouse


class Alteration:
    """What an ALTER TABLE does: statements for DuckDB, and what the catalogue says afterwards."""

    def __init__(self, house: Warehouse, name: TableName) -> None:
        self.house = house
        self.name = self.new_name = name
        self.statements: list[str] = []
        table = house.engine.tables[name]
        self.columns = list(table.columns)
        self.comment = table.comment

    def add(self, action: exp.ColumnDef) -> None:
        """ADD COLUMN."""
        if any(column.name.lower() == action.name.lower() for column in self.columns):
            if action.args.get("exists"):
                return
            raise ToolError(f"conflict: {'.'.join(self.name)} has a column {action.name} already")
        made = self.house.declared(action, set())
        default = f" DEFAULT {made.default}" if made.default else ""
        self._do(f"ADD COLUMN {quote(made.name)} {made.type}{default}")
        if not made.nullable:
            self._do(f"ALTER {quote(made.name)} SET NOT NULL")
        self.columns.append(made)

    def drop(self, action: exp.Drop) -> None:
        """DROP COLUMN."""
        items = action.args.get("tables") or [action.this]
        for item in items:
            if action.args.get("exists") and not any(column.name.lower() == item.name.lower() for column in self.columns):
                continue
            column = self._find(item.name)
            self._do(f"DROP COLUMN {quote(column.name)}")
            self.columns.remove(column)

    def rename_column(self, action: exp.RenameColumn) -> None:
        """RENAME COLUMN."""
        column = self._find(action.this.name)
        new = action.args["to"].name
        self._do(f"RENAME COLUMN {quote(column.name)} TO {quote(new)}")
        self.columns[self.columns.index(column)] = replace(column, name=new)

    def rename(self, action: exp.AlterRename) -> None:
        """RENAME TO."""
        target = action.this.copy()
        if not target.args.get("db"):
            self.new_name = (self.name[0], self.house.locate_name(target))
        else:
            self.new_name = self.house.locate(target)
        if self.new_name[0] != self.name[0]:
            raise ToolError("invalid argument: a table cannot be renamed into another schema")
        if self.new_name in self.house.engine.tables:
            raise ToolError(f"conflict: {'.'.join(self.new_name)} already exists")
        self._do(f"RENAME TO {quote(self.new_name[1])}")

    def column(self, action: exp.AlterColumn) -> None:
        """ALTER COLUMN: type, default, NOT NULL, comment."""
        column, named = self._find(action.this.name), quote(self._find(action.this.name).name)
        arguments = action.args
        if "comment" in arguments:
            changed = replace(column, comment=arguments["comment"].name)
        elif arguments.get("dtype"):
            definition = exp.ColumnDef(this=action.this.copy(), kind=arguments["dtype"].copy())
            changed = replace(column, type=self.house.declared(definition, set()).type)
            self._do(f"ALTER {named} SET DATA TYPE {changed.type}")
        elif arguments.get("default"):
            changed = replace(column, default=self.house.value_of(arguments["default"]))
            self._do(f"ALTER {named} SET DEFAULT {changed.default}")
        elif "allow_null" in arguments:
            changed = replace(column, nullable=bool(arguments["allow_null"]))
            self._do(f"ALTER {named} {'DROP' if changed.nullable else 'SET'} NOT NULL")
        elif arguments.get("drop"):
            changed = replace(column, default=None)
            self._do(f"ALTER {named} DROP DEFAULT")
        else:
            raise ToolError("invalid argument: this change of a column is not supported")
        self.columns[self.columns.index(column)] = changed

    def options(self, action: exp.AlterSet) -> None:
        """SET COMMENT or SET OPTIONS of the table."""
        given = [said(item) for item in action.expressions if isinstance(item, exp.Properties)]
        if not given:
            raise ToolError("invalid argument: of a table only the comment (or description) can be set")
        self.comment = given[-1]

    def constrain(self, action: exp.AddConstraint) -> None:
        """ADD PRIMARY KEY, which is noted and not enforced, as in the warehouses; other constraints are not kept."""
        keys = {part.name.lower() for key in action.find_all(exp.PrimaryKey) for part in key.expressions}
        for name in keys:
            self._find(name)
        self.columns = [replace(column, key=column.key or column.name.lower() in keys) for column in self.columns]

    def _find(self, name: str) -> Column:
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise ToolError(f"not found: {'.'.join(self.name)} has no column {name}")

    def _do(self, text: str) -> None:
        self.statements.append(f"ALTER TABLE {path(self.name)} {text}")


_KINDS: dict[type, Callable[[Alteration, Any], None]] = {
    exp.ColumnDef: Alteration.add,
    exp.Drop: Alteration.drop,
    exp.RenameColumn: Alteration.rename_column,
    exp.AlterRename: Alteration.rename,
    exp.AlterColumn: Alteration.column,
    exp.AlterSet: Alteration.options,
    exp.AddConstraint: Alteration.constrain,
}


def alter(house: Warehouse, tree: exp.Alter) -> ConversionResult:
    """Carry out an ALTER TABLE, all of it or nothing.

    Raises:
        ToolError: It is refused.
    """
    kind = str(tree.args["kind"]).upper()
    if kind not in ("TABLE", "VIEW"):
        raise ToolError(f"invalid argument: ALTER {kind} is not supported; ALTER TABLE is")
    name = house.locate(tree.this)
    if tree.args.get("exists") and name not in house.engine.tables:
        return ConversionResult("ALTER_TABLE")
    name = house.find(tree.this)
    work = Alteration(house, name)
    for action in tree.args["actions"]:
        if type(action) not in _KINDS:
            raise ToolError(f"invalid argument: {action.sql(house.dialect)[:60]} is not supported in ALTER {kind}")
        _KINDS[type(action)](work, action)
    engine, before = house.engine, house.engine.tables[name]
    if work.statements:
        if before.view:
            raise ToolError(f"invalid argument: {'.'.join(name)} is a view; make it anew with CREATE OR REPLACE VIEW")
        engine.write(work.statements, [name], [], house.now)
    _note(work, before)
    return ConversionResult("ALTER_TABLE", target=work.new_name)


def _note(work: Alteration, before: Table) -> None:
    engine = work.house.engine
    table = replace(before, columns=tuple(work.columns), comment=work.comment)
    if not work.statements:
        engine.tables[work.name] = table
        return
    engine.define(work.name, None)
    engine.define(work.new_name, replace(table, columns=engine.columns_of(work.new_name, work.columns)))


def comment(house: Warehouse, tree: exp.Comment) -> ConversionResult:
    """Carry out a COMMENT ON a table, view or column.

    Raises:
        ToolError: It is refused.
    """
    kind, text = str(tree.args["kind"]).upper(), tree.expression.name
    if kind not in ("TABLE", "VIEW", "COLUMN"):
        raise ToolError(f"invalid argument: COMMENT ON {kind} is not supported; TABLE, VIEW and COLUMN are")
    column = tree.this.name if kind == "COLUMN" else ""
    table = exp.Table(**without_last(tree.this)) if column else tree.this
    name = house.locate(table)
    if tree.args.get("exists") and name not in house.engine.tables:
        return ConversionResult("COMMENT")
    name = house.find(table)
    house.say(name, column, text)
    return ConversionResult("COMMENT", target=name)
