"""Functions that a dataset keeps: CREATE FUNCTION, DROP FUNCTION, and their calls, in GoogleSQL.

A dataset keeps the text of each; a call is replaced by the expression, as that of a temporary one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from agentgym.envs.loca.servers.warehouse.dialects import Node
from agentgym.envs.loca.servers.warehouse.script_scope import (
    Function,
    expand_functions,
    read_function,
)
from agentgym.envs.loca.servers.warehouse.tables import Schema
from agentgym.envs.loca.servers.warehouse.values import ConversionResult
from agentgym.tools import ToolError, echo

if TYPE_CHECKING:
    from agentgym.envs.loca.servers.warehouse.bigquery_dialect import GoogleSQL

MAX_FUNCTIONS = 500
"""Functions of a dataset, so that a state stays small; each is at most as long as a statement."""


def is_function(tree: Any) -> bool:
    """Return whether a statement makes or drops a function."""
    kind = tree.args.get("kind") if isinstance(tree, (exp.Create, exp.Drop)) else ""
    return str(kind or "").upper() == "FUNCTION"


def change_function(warehouse: GoogleSQL, tree: Any) -> ConversionResult:
    """Carry out a CREATE FUNCTION or DROP FUNCTION of a dataset.

    Raises:
        ToolError: It is refused; nothing has changed.
    """
    return (_create if isinstance(tree, exp.Create) else _drop)(warehouse, tree)


def _create(warehouse: GoogleSQL, tree: Any) -> ConversionResult:
    function = read_function(tree)[1]
    dataset, name = _resolve(warehouse, tree.this.this)
    schema = warehouse.engine.schemas[dataset]
    if name in schema.functions and not tree.args.get("replace"):
        if tree.args.get("exists"):
            return ConversionResult("CREATE_FUNCTION")
        raise ToolError(f"conflict: the function {echo(f'{dataset}.{name}')} already exists")
    if len(schema.functions) >= MAX_FUNCTIONS and name not in schema.functions:
        raise ToolError(f"limit exceeded: a dataset keeps at most {MAX_FUNCTIONS} functions")
    _check(warehouse, function)
    for key in ("exists", "replace"):
        tree.set(key, None)
    text = tree.sql(warehouse.dialect, comments=False)
    _keep(warehouse, dataset, {**schema.functions, name: text})
    return ConversionResult("CREATE_FUNCTION")


def _drop(warehouse: GoogleSQL, tree: Any) -> ConversionResult:
    [table] = tree.args["tables"]
    dataset, name = _resolve(warehouse, table)
    functions = dict(warehouse.engine.schemas[dataset].functions)
    if functions.pop(name, None) is None and not tree.args.get("exists"):
        raise ToolError(f"not found: there is no function {echo(f'{dataset}.{name}')}")
    _keep(warehouse, dataset, functions)
    return ConversionResult("DROP_FUNCTION")


def _keep(warehouse: GoogleSQL, dataset: str, functions: Mapping[str, str]) -> None:
    schema: Schema = warehouse.engine.schemas[dataset]
    warehouse.engine.schemas[dataset] = replace(schema, functions=functions)


def _resolve(warehouse: GoogleSQL, place: Any) -> tuple[str, str]:
    """Return the dataset and the name of a function."""
    if not isinstance(place, exp.Table) or not place.db:
        raise ToolError(
            "invalid argument: the name of a function that lasts has a dataset; write CREATE "
            "FUNCTION dataset.f(…), or CREATE TEMP FUNCTION in the script that uses it"
        )
    [dataset, name] = warehouse.resolve_table(place)
    return dataset, name


def _check(warehouse: GoogleSQL, function: Function) -> None:
    """Refuse a function whose expression could not be used: it is tried with NULL."""
    names = {name for name, _ in function.parameters}
    nulls: dict[str, Node] = {
        name: exp.Cast(this=exp.Null(), to=(kind or exp.DataType.build("INT64", "bigquery")).copy())
        for name, kind in function.parameters
    }
    holder = exp.Select(expressions=[exp.Paren(this=function.body.copy())])
    for column in list(holder.find_all(exp.Column)):
        if not column.table and column.name.lower() in names:
            column.replace(nulls[column.name.lower()].copy())
    sql, needed, _ = warehouse.translate(holder)
    if all(kind for _, kind in function.parameters):  # what ANY TYPE is shows at a call alone
        warehouse.engine.read(f"EXPLAIN {sql}", needed, warehouse.now, 1)


def expand_stored_functions(warehouse: GoogleSQL, tree: Node) -> None:
    """Write the expressions of the functions of datasets in place of their calls."""
    if not any(schema.functions for schema in warehouse.engine.schemas.values()):
        return

    def find(call: Any) -> Function | None:
        *project, dataset, name = ["", *_parts(call)]
        schema = warehouse.engine.schemas.get(dataset)
        if schema is None or name not in schema.functions:
            return None
        return _read(schema.functions[name]) if project in ([""], ["", warehouse.project]) else None

    expand_functions(tree, find)


def _parts(call: Any) -> list[str]:
    """Return the parts of the name of a function that is called."""
    names, node = [call.name], call.parent
    node = node.this if isinstance(node, exp.Dot) and call.arg_key == "expression" else None
    while isinstance(node, exp.Dot):
        names.append(node.expression.name)
        node = node.this
    if node is not None:
        names.append(node.name)
    return ".".join(reversed(names)).split(".")


@functools.lru_cache(maxsize=256)
def _read(text: str) -> Function:
    """Return a function from its text; it is to be looked at and not changed."""
    return read_function(sqlglot.parse_one(text, read="bigquery"))[1]
