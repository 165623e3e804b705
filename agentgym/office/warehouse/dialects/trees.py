"""Helpers for the syntax trees of statements, and the rewrites that both dialects have."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp

from agentgym.office.warehouse.tables import Column, TableName
from agentgym.text.tools import ToolError, echo

Node: TypeAlias = Any
"""A node of a syntax tree. SQLGlot's classes have few attributes that type checkers know."""


def nodes_of(tree: exp.Expression) -> list[Any]:
    """Return the nodes of a tree in the order of its `walk`, which takes three times as long: each
    node passes through several generators.
    """
    nodes: list[Any] = [tree]
    for node in nodes:
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                nodes.append(value)
            elif isinstance(value, list):
                nodes += [each for each in value if isinstance(each, exp.Expr)]
    return nodes


_FEW_LEVELS, _FEW_NODES, _TIMES = 4, 5_000, 8
"""Rewrites in one another, and nodes, that are never too many; how much larger a part may become."""


class Growth:
    """Size of the parts of a tree whose nodes are rewritten, children before their parents.

    Where a rewrite writes an argument twice, as many such functions in one another would make a
    tree that is twice as large with each.
    """

    def __init__(self) -> None:
        self._sizes, self._levels = Counter[int](), Counter[int]()

    def check(self, node: Any, rewritten: bool) -> None:
        """Take note of the next node.

        Raises:
            ToolError: The rewrites of what is in it have made that many times as large.
        """
        size = 1 + self._sizes.pop(id(node), 0)
        level = self._levels.pop(id(node), 0) + rewritten
        parent = id(node.parent)
        self._sizes[parent] += size
        self._levels[parent] = max(self._levels[parent], level)
        if (
            rewritten
            and level > _FEW_LEVELS
            and len(nodes_of(node)) > max(_FEW_NODES, _TIMES * size)
        ):
            raise ToolError("invalid argument: the functions are nested too deeply")


def is_cte(table: exp.Table) -> bool:
    """Tell the name of a common table expression that is visible there from that of a table."""
    if table.args.get("db") or not table.name:
        return False
    child: Any = table
    while (parent := child.parent) is not None:
        if isinstance(parent, exp.With):
            seen = parent.expressions
            place = next((k for k, each in enumerate(seen) if each is child), len(seen))
            visible = seen if parent.args.get("recursive") else seen[:place]
        else:
            holder = parent.args.get("with_")
            visible = [] if holder is None or holder is child else holder.expressions
        if any(each.alias.lower() == table.name.lower() for each in visible):
            return True
        child = parent
    return False


def set_name(table: exp.Table, name: TableName, alias: str = "") -> None:
    """Write the engine's name for a table in place of the one it is called by."""
    table.set("this", exp.to_identifier(name[1], quoted=True))
    table.set("db", exp.to_identifier(name[0], quoted=True))
    table.set("catalog", None)
    if alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def comment_in(properties: Any) -> str:
    """Return the comment (or, in BigQuery, the description) among properties."""
    for item in properties.expressions if properties else []:
        if isinstance(item, exp.SchemaCommentProperty):
            return str(item.this.name)
        if isinstance(item, exp.Property) and item.name.lower() == "description":
            return str(item.args["value"].name)
    return ""


def copied_table(tree: exp.Create) -> tuple[exp.Table | None, bool]:
    """Return the table that one is made like, and whether its rows are copied."""
    if tree.args.get("clone"):
        return tree.args["clone"].this, True
    for item in tree.args["properties"].expressions if tree.args.get("properties") else []:
        if isinstance(item, exp.LikeProperty):
            return item.this, False
    return None, False


def check_length(sql: str) -> str:
    """Return a statement that is not too long to parse.

    Raises:
        ToolError: It is, or it is empty.
    """
    if not sql.strip():
        raise ToolError("invalid argument: the statement is empty")
    if len(sql) > 100_000:
        raise ToolError(
            f"invalid argument: the statement has {len(sql)} characters, at most 100000 are "
            f"allowed: {echo(sql)}"
        )
    return sql


NOW = "CAST(getvariable('now') AS TIMESTAMPTZ)"
"""The present of the episode, in the SQL of DuckDB."""


def library(name: str, *arguments: Any) -> exp.Anonymous:
    """Return a call of a function of `lib`."""
    return exp.Anonymous(
        this=f"lib.{name}", expressions=[argument for argument in arguments if argument is not None]
    )


def duck(text: str, *parts: Any) -> Node:
    """SQL of DuckDB with parts of a tree in place of {0}, {1} and so on."""
    names = [f"__part{k}" for k in range(len(parts))]
    sql = text.format(*names)
    # What a statement has written into it may be long, and is not seen again.
    tree = _template(sql).copy() if len(sql) <= _CACHED_CHARACTERS else _parsed(sql)
    for column in list(tree.find_all(exp.Column)):
        if column.name in names and not column.table:
            column.replace(parts[names.index(column.name)].copy())
    return tree


_CACHED_CHARACTERS = 1_000
"""Length up to which an expression is kept with its tree: more than any rewrite has by itself."""


def _parsed(sql: str) -> Node:
    return exp.Paren(this=sqlglot.parse_one(sql, read="duckdb"))


_template = functools.lru_cache(maxsize=512)(_parsed)
"""The tree of an expression of a rewrite, parsed once; it must not be changed."""


def default_name(column: Column) -> str | None:
    """Return the default value of a column as a statement would write it."""
    return column.default and column.default.replace(NOW, "CURRENT_TIMESTAMP()")


def _pad(node: Node) -> Node:
    return library(
        "left_pad" if node.args.get("is_left") else "right_pad",
        node.this,
        node.expression,
        node.args.get("fill_pattern") or exp.Literal.string(" "),
    )


def _series(node: Node) -> Node:
    step = node.args.get("step") or node.args.get("interval") or exp.Literal.number(1)
    check = "upto" if isinstance(node, exp.GenerateSeries) else "until"
    parts = (node.args["start"], node.args["end"], step)
    node.set("end", library(check, *(part.copy() for part in parts)))
    return node


def _dates(node: Node) -> Node:
    for end in ("start", "end"):  # they may be texts
        node.set(end, exp.Cast(this=node.args[end].copy(), to=exp.DataType.build("DATE")))
    if node.args.get("step") is None:
        node.set("step", exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="DAY")))
    return _series(node)


def _checked(check: str, *others: str | Node) -> Callable[[Node], Node]:
    """Return a rewrite that lets a function of `lib` check or bound the first argument.

    Args:
        check: The function.
        others: Its other arguments: names of arguments, or expressions.
    """

    def rewrite(node: Node) -> Node:
        parts = [
            (node.args.get(part) or exp.Literal.string("")) if isinstance(part, str) else part
            for part in ("this", *others)
        ]
        node.set("this", library(check, *(part.copy() for part in parts)))
        return node

    return rewrite


def _weighed(node: Node) -> Node:
    """Bound what is made by putting texts or arrays together."""
    outer = node.find_ancestor(exp.Concat, exp.ConcatWs, exp.DPipe, exp.ArrayConcat)
    return node if outer is not None and outer is node.parent else library("weighed", node.copy())


COMMON_REWRITES: dict[type, Callable[[Node], Node]] = {
    # The long texts that a function searches are bounded.
    **dict.fromkeys(
        (exp.RegexpLike, exp.RegexpExtract, exp.RegexpExtractAll, exp.RegexpCount),
        _checked("weighed"),
    ),
    **dict.fromkeys((exp.Concat, exp.ConcatWs, exp.DPipe, exp.ArrayConcat), _weighed),
    exp.Repeat: lambda node: library("many", node.this, node.args["times"]),
    exp.Pad: _pad,
    exp.GenerateSeries: _series,
    exp.GenerateTimestampArray: _series,
    exp.GenerateDateArray: _dates,
    exp.Levenshtein: _checked("near", "expression"),
    exp.JarowinklerSimilarity: _checked("near", "expression"),
    exp.Replace: _checked("room", "expression", "replacement"),
    exp.RegexpReplace: _checked("matched", "replacement"),
    exp.ByteLength: lambda node: library("bytes_in", node.this),
    # Lengths are bounded in units of a size.
    exp.Space: _checked("few", exp.Literal.number(1)),
    exp.Randstr: _checked("few", exp.Literal.number(100)),  # drawn one character after the other
    exp.ApproxDistinct: lambda node: exp.Count(this=exp.Distinct(expressions=[node.this])),
}
