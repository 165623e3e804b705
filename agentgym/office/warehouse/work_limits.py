"""Work limits of a statement.

DuckDB sequences count a statement's work while it runs: rows visited or created, rounds of a
recursion, long texts. An exhausted sequence ends the statement at the same point on every host.
Statements that are cheap by table size run without counters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import exp

from agentgym.office.warehouse.dialects.macros import RECURSIONS, copies_of_arguments
from agentgym.office.warehouse.dialects.trees import Node, is_cte, nodes_of
from agentgym.office.warehouse.tables import TableName
from agentgym.text.tools import ToolError

MAX_FREE_ROWS = 1_000_000  # row combinations that need no counter, as they take milliseconds

# Maximum rows from an array or a function (`lib.upto`, `lib.few`).
_GENERATED_ROWS = 1_000_000.0

# Nodes that a tree may gain through repeated arguments of `lib` functions. DuckDB binds about ten
# thousand per second, and nested calls multiply.
MAX_COPIES = 20_000

# Sources whose row count is not a table's.
_MAKERS = (exp.Unnest, exp.Lateral, exp.Explode, exp.Pivot, exp.TableSample, exp.TableFromRows)

# These window functions' time per row hardly depends on the frame's length.
_PLAIN_WINDOWS = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag),
    *(exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue, exp.Sum, exp.Avg, exp.Count, exp.Min),
    exp.Max,
)


def limit_work(tree: exp.Expression, rows_of: Callable[[TableName], float]) -> None:
    """Make a DuckDB statement count its work; `rows_of` bounds a table's rows, possibly at
    infinity.
    """
    _check_copies(tree)
    queries = list(tree.find_all(exp.Select))
    for number, recursion in enumerate(list(_recursions(tree))):
        for query in list(recursion.find_all(exp.Select)):
            step = exp.Select(expressions=[_count(f"steps{number % RECURSIONS}")])
            _demand(query, exp.Subquery(this=step))
    # A view's query will run on later contents of its tables.
    is_view = isinstance(tree, exp.Create) and tree.args.get("kind") == "VIEW"
    if not is_view and _combinations(tree, rows_of) <= MAX_FREE_ROWS:
        return
    for query in queries:
        if query.args.get("from_"):
            _count_rows(query)
    for change in list(tree.find_all(exp.Update, exp.Delete)):
        if change.args.get("from_") or change.args.get("using"):
            _count_rows(change)
    for join in [*tree.find_all(exp.Join), *tree.find_all(exp.Merge)]:
        if join.args.get("on"):
            join.set("on", _counted(join.args["on"]))


def _recursions(tree: exp.Expression) -> Iterator[Node]:
    for item in tree.find_all(exp.CTE):
        term = item.this.unnest() if isinstance(item.this, exp.Subquery) else item.this
        if isinstance(term, exp.SetOperation) and any(
            table.name.lower() == item.alias.lower() and not table.args.get("db")
            for table in term.expression.find_all(exp.Table)
        ):
            yield term.expression


def _combinations(tree: exp.Expression, rows_of: Callable[[TableName], float]) -> float:
    """Return an upper bound on rows: the product of all sources, infinite for recursion."""
    named = {item.alias.lower(): item.this for item in tree.find_all(exp.CTE)}
    sizes: dict[str, float] = {}

    def size_of(node: Node) -> float:
        own = [
            part
            for part in nodes_of(node)
            if isinstance(part, (exp.Table, *_MAKERS)) and _belongs(part, node)
        ]
        size = 1.0
        for part in own:
            if isinstance(part, exp.Table):
                size *= 1 + size_of_source(part)
            elif isinstance(part, exp.TableFromRows):
                size *= math.inf  # a generator's rows may be an expression
            else:
                size *= _GENERATED_ROWS
        return size

    def size_of_source(source: Any) -> float:
        if not is_cte(source):
            return rows_of((source.db, source.name))
        name = source.name.lower()
        if name not in sizes:
            sizes[name] = math.inf  # for one that refers to itself
            sizes[name] = size_of(named[name])
        return sizes[name]

    return size_of(tree)


def _belongs(node: Node, query: Node) -> bool:
    """Distinguish a query's sources from its common table expressions' sources."""
    holder = node.find_ancestor(exp.CTE)
    return holder is None or holder is query.find_ancestor(exp.CTE)


def _count(name: str) -> Node:
    """Return a condition that is true until a sequence is exhausted, which ends the statement."""
    return exp.GT(
        this=exp.Anonymous(this="nextval", expressions=[exp.Literal.string(f"lib.{name}")]),
        expression=exp.Literal.number(0),
    )


def _demand(query: Node, condition: Node) -> None:
    where = query.args.get("where")
    both = exp.and_(condition, where.this, copy=False) if where else condition
    query.set("where", exp.Where(this=both))


def _count_rows(query: Node) -> None:
    """Count a query's rows, and those of windows that visit all rows for each row."""
    if where := query.args.get("where"):
        where.set("this", _counted(where.this))
    _demand(query, _count("rows"))
    if any(
        not isinstance(window.this, _PLAIN_WINDOWS) and window.find_ancestor(exp.Select) is query
        for window in query.find_all(exp.Window)
    ):
        _demand(query, _count("framed"))


def _counted(condition: Node) -> Node:
    """Count a condition's evaluations where DuckDB evaluates it for each pair of rows."""
    parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    return exp.and_(*map(_counted_part, parts), copy=False)


def _counted_part(part: Node) -> Node:
    plain = part.unnest()
    hashed = isinstance(plain, (exp.EQ, exp.NullSafeEQ)) and all(
        len(_sources(side)) == 1 for side in (plain.this, plain.expression)
    )
    if hashed or len(_sources(plain)) < 2 or plain.find(exp.Query):
        return part
    return exp.Case(ifs=[exp.If(this=_count("rows"), true=part.copy())])


def _sources(node: Node) -> set[str]:
    """Return an expression's tables, or its columns without a table name."""
    columns = list(node.find_all(exp.Column))
    named = all(column.table for column in columns)
    return {column.table if named else column.sql() for column in columns}


def _check_copies(tree: exp.Expression) -> None:
    """Refuse nested calls of `lib` functions that multiply."""
    factors: dict[int, int] = {}
    copies = 0
    for node in nodes_of(tree):
        factor = factors.get(id(node.parent), 1) * _repeated(node)
        factors[id(node)] = factor
        copies += factor - 1
        if copies > MAX_COPIES:
            raise ToolError(
                "limit exceeded: Resources exceeded during query execution: Not enough resources "
                "for query planning - the query is too complex; nest fewer functions"
            )


def _repeated(node: Node) -> int:
    call = node.parent
    if not isinstance(call, exp.Anonymous) or not call.name.startswith("lib."):
        return 1
    repeated = copies_of_arguments(call.name[4:])
    place = node.index or 0
    return repeated[place] if place < len(repeated) else 1
