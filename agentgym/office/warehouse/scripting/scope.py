"""Variables, parameters and functions of scripts, a dataset's stored functions (CREATE FUNCTION,
DROP FUNCTION), and their use in GoogleSQL statements.

A dataset stores each function's text. Calls of stored and temporary functions are replaced by their
expression.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlglot
from sqlglot import exp

from agentgym.office.warehouse.dialects.trees import Node
from agentgym.office.warehouse.tables import Table
from agentgym.office.warehouse.values import ConversionResult
from agentgym.text.tools import ToolError, echo

if TYPE_CHECKING:
    from agentgym.office.warehouse.dialects.bigquery import GoogleSQL

TEMPORARY = "_SESSION"
"""The schema of a script's temporary tables, named as in BigQuery."""
MAX_NODES = 20_000
"""Maximum nodes of a statement with expanded functions, which may use each other repeatedly."""
MAX_FUNCTIONS = 500
"""Maximum functions of a dataset, which bounds the state; each is at most as long as a statement.
"""


class Value(NamedTuple):
    """A value as text, with its DuckDB type."""

    type: str
    text: str | None


@dataclass
class Function:
    """A function: the names and types of its parameters, its type, and its expression."""

    parameters: list[tuple[str, exp.DataType | None]]
    type: exp.DataType | None
    body: Node


@dataclass
class Scope:
    """Names available to a script's statements besides tables.

    Attributes:
        variables: Variables by name, innermost block last.
        parameters: Parameters of EXECUTE IMMEDIATE, by name.
        positional: Its parameters without names.
        functions: Temporary functions by name.
        steps: The script's steps so far.
    """

    variables: list[dict[str, Value]] = field(default_factory=lambda: [{}])
    parameters: dict[str, Value] = field(default_factory=dict)
    positional: list[Value] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)
    steps: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether a statement can use no names."""
        return not (any(self.variables) or self.parameters or self.positional or self.functions)

    def find(self, name: str) -> Value | None:
        """Return the variable with a name, if there is one."""
        return self._block_of(name).get(name.lower())

    def assign(self, name: str, value: Value) -> None:
        """Set a variable, keeping its type.

        Raises:
            ToolError: There is none.
        """
        block = self._block_of(name)
        if not block:
            raise ToolError(f"not found: the variable {echo(name)} is not declared")
        block[name.lower()] = value

    def _block_of(self, name: str) -> dict[str, Value]:
        """Return the variables of the innermost block with a name; empty if there is none."""
        return next((block for block in reversed(self.variables) if name.lower() in block), {})


class Binding:
    """Values in a statement, replaced by placeholders during translation.

    Args:
        scope: The names.
        tree: The statement; it is changed.
        tables: The tables that it names.
    """

    def __init__(self, scope: Scope, tree: Node, tables: list[Table]) -> None:
        self._values: dict[str, Value] = {}
        expand_functions(tree, lambda call: scope.functions.get(call.name.lower()))
        hidden = {column.name.lower() for table in tables for column in table.columns}
        hidden.update(_inner_names(tree))
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
            mark = exp.Paren(this=mark)  # it has no name, like a parameter
        node.replace(mark)

    def fill(self, tree: Node) -> None:
        """Replace the placeholders by values in DuckDB SQL."""
        for column in list(tree.find_all(exp.Column)):
            value = self._values.get(column.name)
            if value is not None and not column.table:
                text = exp.Null() if value.text is None else exp.Literal.string(value.text)
                kind = exp.DataType.build(value.type, dialect="duckdb")
                column.replace(exp.Paren(this=exp.Cast(this=text, to=kind)))


def _variable(node: Any, scope: Scope, hidden: set[str]) -> tuple[Value | None, str]:
    """Return the variable, and its field, that a name refers to; a column of that name hides it."""
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
    """Yield the table and column names defined by a statement's parts."""
    for alias in tree.find_all(exp.TableAlias):
        yield alias.name.lower()
        yield from (column.name.lower() for column in alias.columns)
    for query in tree.find_all(exp.Select):
        if isinstance(query.parent, (exp.Subquery, exp.CTE)):
            yield from (name.lower() for name in query.named_selects)


def read_function(tree: Node) -> tuple[str, Function]:
    """Return the name of the function that a CREATE FUNCTION defines, and the function.

    Raises:
        ToolError: It is not an SQL expression.
    """
    properties = tree.args["properties"].expressions if tree.args.get("properties") else []
    if any(isinstance(item, exp.LanguageProperty) for item in properties) or not tree.expression:
        raise ToolError(
            "invalid argument: only functions in SQL are supported; write CREATE FUNCTION dataset.f(x "
            "INT64) AS (x + 1)"
        )
    parameters = [
        (item.name.lower(), None if item.kind.this == exp.DType.VARIANT else item.kind)
        for item in tree.this.expressions
    ]
    kind = next((item.this for item in properties if isinstance(item, exp.ReturnsProperty)), None)
    return tree.this.this.name.lower(), Function(parameters, kind, tree.expression)


def temporary_mark(tree: Node) -> Node | None:
    """Return the word that makes a CREATE temporary, if there is one."""
    properties = tree.args.get("properties")
    items = properties.expressions if properties else []
    return next((item for item in items if isinstance(item, exp.TemporaryProperty)), None)


def expand_functions(tree: Node, find: Callable[[Any], Function | None]) -> None:
    """Replace function calls by their expressions.

    Args:
        tree: The statement; it is changed.
        find: Returns the called function; None to keep the call.
    """
    size = 0
    while calls := [
        (node, function)
        for node in tree.find_all(exp.Anonymous)
        if (function := find(node)) is not None
    ]:
        call: Any = calls[-1][0]  # the innermost of the remaining ones
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


def create_function(warehouse: GoogleSQL, tree: Any) -> ConversionResult:
    """Execute a dataset's CREATE FUNCTION.

    Raises:
        ToolError: It is refused; nothing has changed.
    """
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


def drop_function(warehouse: GoogleSQL, tree: Any) -> ConversionResult:
    """Execute a dataset's DROP FUNCTION.

    Raises:
        ToolError: It is refused; nothing has changed.
    """
    [table] = tree.args["tables"]
    dataset, name = _resolve(warehouse, table)
    functions = dict(warehouse.engine.schemas[dataset].functions)
    if functions.pop(name, None) is None and not tree.args.get("exists"):
        raise ToolError(f"not found: there is no function {echo(f'{dataset}.{name}')}")
    _keep(warehouse, dataset, functions)
    return ConversionResult("DROP_FUNCTION")


def _keep(warehouse: GoogleSQL, dataset: str, functions: Mapping[str, str]) -> None:
    schemas = warehouse.engine.schemas
    schemas[dataset] = replace(schemas[dataset], functions=functions)


def _resolve(warehouse: GoogleSQL, place: Any) -> tuple[str, str]:
    """Return the dataset and the name of a function."""
    if not isinstance(place, exp.Table) or not place.db:
        raise ToolError(
            "invalid argument: the name of a function that lasts has a dataset; write CREATE "
            "FUNCTION dataset.f(…), or CREATE TEMP FUNCTION in the script that uses it"
        )
    return warehouse.resolve_table(place)


def _check(warehouse: GoogleSQL, function: Function) -> None:
    """Refuse a function with an unusable expression, by trying it with NULL."""
    kinds = [kind or exp.DataType.build("INT64", "bigquery") for _, kind in function.parameters]
    nulls = [exp.Cast(this=exp.Null(), to=kind.copy()) for kind in kinds]
    call = exp.Anonymous(this="f", expressions=nulls)
    body = _expansion(call, replace(function, type=None))
    sql, needed, _ = warehouse.translate(exp.Select(expressions=[body]))
    if all(kind for _, kind in function.parameters):  # ANY TYPE is only known at a call
        warehouse.engine.read(f"EXPLAIN {sql}", needed, warehouse.now, 1)


def expand_stored_functions(warehouse: GoogleSQL, tree: Node) -> None:
    """Replace calls of stored functions by their expressions."""
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
    """Return the parts of a called function's name."""
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
    """Parse a function's text; the cached result must not be changed."""
    return read_function(sqlglot.parse_one(text, read="bigquery"))[1]
