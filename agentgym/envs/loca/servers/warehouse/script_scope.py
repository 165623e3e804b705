"""Variables, parameters and temporary functions of a script, and their use in statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlglot import exp

from agentgym.envs.loca.servers.warehouse.dialects import Node
from agentgym.envs.loca.servers.warehouse.tables import Table
from agentgym.tools import ToolError, echo

TEMPORARY = "_SESSION"
"""The schema of the temporary tables of a script, as BigQuery calls it."""
MAX_NODES = 20_000
"""Nodes of a statement whose functions are written out: each may use others twice."""


class Value(NamedTuple):
    """A value as text, with its type in DuckDB."""

    type: str
    text: str | None


@dataclass
class Function:
    """A temporary function: the names and types of its parameters, its type, and its expression."""

    parameters: list[tuple[str, exp.DataType | None]]
    type: exp.DataType | None
    body: Node


@dataclass
class Scope:
    """Names that the statements of a script may use beside those of tables.

    Attributes:
        variables: Variables by name, those of the inner block last.
        parameters: Parameters of EXECUTE IMMEDIATE, by name.
        positional: Its parameters without names.
        functions: Temporary functions by name.
        steps: The steps that the script has taken.
    """

    variables: list[dict[str, Value]] = field(default_factory=lambda: [{}])
    parameters: dict[str, Value] = field(default_factory=dict)
    positional: list[Value] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)
    steps: int = 0

    @property
    def is_empty(self) -> bool:
        """True if a statement can use none."""
        return not (any(self.variables) or self.parameters or self.positional or self.functions)

    def find(self, name: str) -> Value | None:
        """Return the variable of a name, if there is one."""
        for block in reversed(self.variables):
            if name.lower() in block:
                return block[name.lower()]
        return None

    def assign(self, name: str, value: Value) -> None:
        """Set a variable; its type stays.

        Raises:
            ToolError: There is none.
        """
        for block in reversed(self.variables):
            if name.lower() in block:
                block[name.lower()] = value
                return
        raise ToolError(f"not found: the variable {echo(name)} is not declared")


class Binding:
    """Values in a statement: marks take their place while it is translated.

    Args:
        scope: The names.
        tree: The statement; it is changed.
        tables: The tables that it names.
    """

    def __init__(self, scope: Scope, tree: Node, tables: list[Table]) -> None:
        self._values: dict[str, Value] = {}
        expand_functions(tree, lambda call: scope.functions.get(call.name.lower()))
        hidden = {column.name.lower() for table in tables for column in table.columns}
        hidden |= set(_inner_names(tree))
        positional = iter(scope.positional)
        for node in list(tree.find_all(exp.Column, exp.Dot, exp.Parameter, exp.Placeholder)):
            if isinstance(node, exp.Column):
                value, part = _variable(node, scope, hidden)
            else:
                value, part = _parameter(node, scope, positional), ""
            if value is not None:
                self._mark(node, value, part)

    def _mark(self, node: Node, value: Value, part: str) -> None:
        name = f"script value {len(self._values)}"
        self._values[name] = value
        mark: Node = exp.column(name, quoted=True)
        if part:
            mark = exp.Dot(this=mark, expression=exp.to_identifier(part, quoted=True))
        is_item = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        if is_item and isinstance(node, exp.Column):
            mark = exp.alias_(mark, node.name, quoted=True)
        elif is_item:
            mark = exp.Paren(this=mark)  # which has no name of its own, as a parameter has not
        node.replace(mark)

    def fill(self, tree: Node) -> None:
        """Write the values in place of their marks, in the SQL of DuckDB."""
        for column in list(tree.find_all(exp.Column)):
            value = self._values.get(column.name)
            if value is not None and not column.table:
                column.replace(_literal(value))


def _variable(node: Any, scope: Scope, hidden: set[str]) -> tuple[Value | None, str]:
    """Return the variable that a name stands for, and the field of it; a column of that name hides
    it.
    """
    table, name = node.table.lower(), node.name.lower()
    if node.args.get("db") or (table or name) in hidden:
        return None, ""
    if not table:
        return scope.find(name), ""
    whole = scope.find(f"{table}.{name}")
    return (whole, "") if whole else (scope.find(table), node.name)


def _parameter(node: Any, scope: Scope, positional: Iterator[Value]) -> Value | None:
    """Return the value of `?`, `@name`, `@@name` or `@@error.message`."""
    if isinstance(node, exp.Placeholder):
        value = next(positional, None)
        if value is None:
            raise ToolError("invalid argument: there are more ? than values after USING")
        return value
    if isinstance(node.this, exp.Parameter):
        return scope.find(node.sql("bigquery"))
    return scope.parameters.get(node.name.lower()) if isinstance(node, exp.Parameter) else None


def _inner_names(tree: Node) -> Iterator[str]:
    """Yield the names of tables and columns that the parts of a statement give."""
    for alias in tree.find_all(exp.TableAlias):
        yield alias.name.lower()
        yield from (column.name.lower() for column in alias.columns)
    for query in tree.find_all(exp.Select):
        if isinstance(query.parent, (exp.Subquery, exp.CTE)):
            yield from (name.lower() for name in query.named_selects)


def _literal(value: Value) -> Node:
    text = exp.Null() if value.text is None else exp.Literal.string(value.text)
    kind = exp.DataType.build(value.type, dialect="duckdb")
    return exp.Paren(this=exp.Cast(this=text, to=kind))


def read_function(tree: Node) -> tuple[str, Function]:
    """Return the name of a function that a CREATE FUNCTION makes, and the function.

    Raises:
        ToolError: It is not an expression of SQL.
    """
    properties = tree.args["properties"].expressions if tree.args.get("properties") else []
    if any(isinstance(item, exp.LanguageProperty) for item in properties) or not tree.expression:
        raise ToolError(
            "invalid argument: only functions in SQL are supported; write CREATE FUNCTION dataset.f(x "
            "INT64) AS (x + 1)"
        )
    returns = [item.this for item in properties if isinstance(item, exp.ReturnsProperty)]
    parameters = [
        (item.name.lower(), None if item.kind.this == exp.DType.VARIANT else item.kind)
        for item in tree.this.expressions
    ]
    kind = returns[0] if returns else None
    return tree.this.this.name.lower(), Function(parameters, kind, tree.expression)


def is_temporary(tree: Node) -> bool:
    """Return whether a CREATE makes something for its script alone."""
    properties = tree.args.get("properties")
    items = properties.expressions if properties else []
    return any(isinstance(item, exp.TemporaryProperty) for item in items)


def expand_functions(tree: Node, find: Callable[[Any], Function | None]) -> None:
    """Write the expressions of functions in place of their calls.

    Args:
        tree: The statement; it is changed.
        find: Returns the function that is called; None for one that stays.
    """
    size = 0
    while calls := [
        (node, function)
        for node in tree.find_all(exp.Anonymous)
        if (function := find(node)) is not None
    ]:
        call: Any = calls[-1][0]  # the innermost of those that are left
        body = _expansion(call, calls[-1][1])
        size += sum(1 for _ in body.walk())
        if size > MAX_NODES:
            raise ToolError(
                "limit exceeded: the functions of the statement expand to more than "
                f"{MAX_NODES} parts; use a temporary table"
            )
        qualified = isinstance(call.parent, exp.Dot) and call.arg_key == "expression"
        (call.parent if qualified else call).replace(body)


def _expansion(call: Any, function: Function) -> Node:
    name, arguments = call.name, call.expressions
    if len(arguments) != len(function.parameters):
        raise ToolError(
            f"invalid argument: {name} takes {len(function.parameters)} arguments, got "
            f"{len(arguments)}"
        )
    values = {
        label: exp.Cast(this=argument.copy(), to=kind.copy()) if kind else argument.copy()
        for (label, kind), argument in zip(function.parameters, arguments, strict=True)
    }
    holder = exp.Paren(this=function.body.copy())
    for column in list(holder.find_all(exp.Column)):
        if not column.table and column.name.lower() in values:
            column.replace(exp.Paren(this=values[column.name.lower()].copy()))
    return exp.Cast(this=holder, to=function.type.copy()) if function.type else holder
