"""CREATE TABLE and CREATE VIEW of the warehouses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from agentgym.envs.loca.servers.warehouse.tables import Column, Table, TableName, declare, path, quote
from agentgym.envs.loca.servers.warehouse.trees import said, source
from agentgym.envs.loca.servers.warehouse.values import ConversionResult
from agentgym.tools import ToolError

if TYPE_CHECKING:
    from agentgym.envs.loca.servers.warehouse.statements import Warehouse


def create(house: Warehouse, tree: exp.Create) -> ConversionResult:
    """Carry out a CREATE of a table, view, schema or database.

    Raises:
        ToolError: It is refused; nothing has changed.
    """
    kind = str(tree.kind).upper()
    if kind in ("SCHEMA", "DATABASE"):
        return house.create_schema(house.locate_schema(tree.this, kind), tree, kind)
    if kind not in ("TABLE", "VIEW"):
        raise ToolError(f"invalid argument: CREATE {kind} is not supported; TABLE, VIEW and SCHEMA are")
    named = tree.this if isinstance(tree.this, exp.Schema) else None
    target = named.this if named else tree.this
    name = house.locate(target)
    house.check_schema(name[0])
    old = house.engine.tables.get(name)
    if old and not tree.args.get("replace"):
        if tree.args.get("exists"):
            return ConversionResult(f"CREATE_{kind}", target=name, message=f"{'.'.join(name)} already exists, statement succeeded.")
        raise ToolError(f"conflict: {'.'.join(name)} already exists")
    columns = _declared(house, named.expressions if named else [])
    made = _make_view(house, tree, name, columns) if kind == "VIEW" else _make_table(house, tree, name, columns)
    comment = said(tree.args.get("properties"))
    house.engine.define(name, replace(made, comment=comment or made.comment, created=house.now.isoformat()))
    return ConversionResult(f"CREATE_{kind}", target=name)


def _make_table(house: Warehouse, tree: exp.Create, name: TableName, columns: list[Column]) -> Table:
    old, comment = house.engine.tables.get(name), ""
    start = [f"DROP VIEW {path(name)}"] if old and old.view else []
    make = f"CREATE OR REPLACE TABLE {path(name)}"
    held = [name] if old else []
    seed = ""
    like, copies = source(tree)
    if like is not None:
        origin = house.find(like)
        columns, comment = list(house.engine.tables[origin].columns), house.engine.tables[origin].comment
        held.append(origin)
        filling = f" INSERT INTO {path(name)} SELECT * FROM {path(origin)}"
        statements = [f"{make} ({', '.join(map(declare, columns))})", *([filling] if copies else [])]
    elif tree.expression:
        tree.set("this", exp.to_identifier("x"))
        _, needed, seed = house.translate(tree)
        held += needed
        query = house.write_out(tree.expression)
        if columns:
            labels = ", ".join(quote(column.name) for column in columns)
            parts = ", ".join(f"CAST({quote(column.name)} AS {column.type}) AS {quote(column.name)}" for column in columns)
            query = f"SELECT {parts} FROM ({query}) AS _({labels})"
        statements = [f"{make} AS {query}"]
        statements += [f"ALTER TABLE {path(name)} ALTER {quote(c.name)} SET NOT NULL" for c in columns if not c.nullable]
    elif columns:
        statements = [f"{make} ({', '.join(map(declare, columns))})"]
    else:
        raise ToolError("invalid argument: CREATE TABLE needs columns or a query")
    house.engine.write([*start, *statements], held, [], house.now, seed, name[0])
    return Table(house.engine.columns_of(name, columns), comment=comment)


def _make_view(house: Warehouse, tree: exp.Create, name: TableName, columns: list[Column]) -> Table:
    if not tree.expression:
        raise ToolError("invalid argument: CREATE VIEW needs a query")
    tree.set("this", exp.to_identifier("x"))
    _, needed, _ = house.translate(tree)
    if name in needed or house.lent:
        raise ToolError("invalid argument: a view cannot read itself or INFORMATION_SCHEMA")
    query = house.write_out(tree.expression)
    if columns:
        query = f"SELECT * FROM ({query}) AS _({', '.join(quote(column.name) for column in columns)})"
    old = house.engine.tables.get(name)
    start = [f"DROP TABLE {path(name)}"] if old and not old.view else []
    made = [*start, f"CREATE OR REPLACE VIEW {path(name)} AS {query}"]
    house.engine.write(made, [*needed, *([name] if old else [])], [], house.now, schema=name[0])
    return Table(house.engine.columns_of(name, columns), view=query, needs=tuple(needed))


def _declared(house: Warehouse, items: Sequence[exp.Expression]) -> list[Column]:
    keys = {part.name.lower() for item in items for key in item.find_all(exp.PrimaryKey) for part in key.expressions}
    return [house.declared(item, keys) for item in items if isinstance(item, (exp.ColumnDef, exp.Identifier, exp.Column))]
