"""Helpers for syntax trees, and the rewrites common to both dialects."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp

from agentgym.office.warehouse.tables import Column, TableName
from agentgym.text.tools import ToolError, echo

# Type checkers know few attributes of SQLGlot's classes.
Node: TypeAlias = Any


def nodes_of(tree: exp.Expression) -> list[Any]:
    """Return nodes in the order of the tree's `walk`, whose generators take three times as long."""
    nodes: list[Any] = [tree]
    for node in nodes:
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                nodes.append(value)
            elif isinstance(value, list):
                nodes += [each for each in value if isinstance(each, exp.Expr)]
    return nodes


def swap(node: Node, new: Node) -> None:
    """Replace a node; SQLGlot's `replace` visits all siblings."""
    parent, key, place = node.parent, node.arg_key, node.index
    if place is None or not isinstance(parent.args[key], list):
        node.replace(new)
        return
    parent.args[key][place] = new
    new.parent, new.arg_key, new.index = parent, key, place
    node.parent, node.arg_key, node.index = None, None, None


# Nested rewrites and nodes that are always allowed, and a part's maximum growth.
_FEW_LEVELS, _FEW_NODES, _TIMES = 4, 5_000, 8
# Each rewrite may copy its arguments, so deep nesting would take quadratic time.
_MOST_LEVELS = 60


class Growth:
    """The size of a tree's parts during rewriting, children before their parents.

    A rewrite may repeat an argument, so nested ones could double the tree at each level.
    """

    def __init__(self) -> None:
        self._sizes, self._levels = Counter[int](), Counter[int]()

    def record(self, node: Node, parent: Node, new: Node | None) -> None:
        """Record a node's rewriting (`new` is None if unchanged); raise above the limit."""
        size = 1 + self._sizes.pop(id(node), 0)
        level = self._levels.pop(id(node), 0) + (new is not None)
        self._sizes[id(parent)] += size
        self._levels[id(parent)] = max(self._levels[id(parent)], level)
        if new is None or level <= _FEW_LEVELS:
            return
        if level > _MOST_LEVELS or len(nodes_of(new)) > max(_FEW_NODES, _TIMES * size):
            raise ToolError("invalid argument: the functions are nested too deeply")


def is_cte(table: exp.Table) -> bool:
    """Return whether a name is a visible common table expression, not a table."""
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
    """Replace a table's name by the engine's."""
    table.set("this", exp.to_identifier(name[1], quoted=True))
    table.set("db", exp.to_identifier(name[0], quoted=True))
    table.set("catalog", None)
    if alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def comment_in(properties: Any) -> str:
    """Return the comment (in BigQuery, the description) in properties."""
    for item in properties.expressions if properties else []:
        if isinstance(item, exp.SchemaCommentProperty):
            return str(item.this.name)
        if isinstance(item, exp.Property) and item.name.lower() == "description":
            value = item.args["value"]
            return "" if isinstance(value, exp.Null) else str(value.name)
    return ""


def only_comment(properties: exp.Properties) -> str:
    """Return the comment, or raise `ToolError` if the properties set anything else."""
    for item in properties.expressions:
        described = isinstance(item, exp.Property) and item.name.lower() == "description"
        if not described and not isinstance(item, exp.SchemaCommentProperty):
            raise ToolError(
                f"not supported: {item.sql()[:60]}; only a comment (or description) can be set"
            )
    return comment_in(properties)


def check_length(sql: str) -> str:
    """Return a statement that is short enough to parse, or raise `ToolError`."""
    if not sql.strip():
        raise ToolError("invalid argument: the statement is empty")
    if len(sql) > 100_000:
        raise ToolError(
            f"invalid argument: the statement has {len(sql)} characters, at most 100000 are "
            f"allowed: {echo(sql)}"
        )
    return sql


NOW = "CAST(getvariable('now') AS TIMESTAMPTZ)"  # the episode's current time


def library(name: str, *arguments: Any) -> exp.Anonymous:
    """Return a call of a `lib` function."""
    return exp.Anonymous(
        this=f"lib.{name}", expressions=[argument for argument in arguments if argument is not None]
    )


def duck(text: str, *parts: Any) -> Node:
    """Parse DuckDB SQL with tree parts for {0}, {1} and so on."""
    names = [f"__part{k}" for k in range(len(parts))]
    sql = text.format(*names)
    # Statements with substituted parts may be long and do not recur.
    tree = _template(sql).copy() if len(sql) <= _CACHED_CHARACTERS else _parsed(sql)
    for column in list(tree.find_all(exp.Column)):
        if column.name in names and not column.table:
            column.replace(parts[names.index(column.name)].copy())
    return tree


# Longer than any rewrite's own expressions.
_CACHED_CHARACTERS = 1_000


def _parsed(sql: str) -> Node:
    return exp.Paren(this=sqlglot.parse_one(sql, read="duckdb"))


# A rewrite's cached tree, which must not be changed.
_template = functools.lru_cache(maxsize=512)(_parsed)


def default_name(column: Column) -> str | None:
    """Return a column's default value as a statement would write it."""
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
    """Let `lib`'s function `check` bound the first argument."""

    def rewrite(node: Node) -> Node:
        arguments = [node.this]
        for part in others:
            other = node.args.get(part) if isinstance(part, str) else part
            arguments.append(other.copy() if other else exp.Literal.string(""))
        node.set("this", library(check, *arguments))
        return node

    return rewrite


def _weighed(node: Node) -> Node:
    """Bound the result of concatenating texts or arrays."""
    outer = isinstance(node.parent, (exp.Concat, exp.ConcatWs, exp.DPipe, exp.ArrayConcat))
    return node if outer else library("weighed", node.copy())


def _like(node: Node) -> Node:
    many = isinstance(node.expression, (exp.Any, exp.All, exp.Tuple))
    return node if many else _count_like(node)


_count_like = _checked("like_text", "expression")


COMMON_REWRITES: dict[type, Callable[[Node], Node]] = {
    exp.RegexpLike: _checked("matching", "expression"),
    **dict.fromkeys(
        (
            exp.RegexpExtract,
            exp.RegexpExtractAll,
            exp.RegexpCount,
            exp.RegexpInstr,
            exp.RegexpSplit,
        ),
        _checked("matching_all", "expression"),
    ),
    **dict.fromkeys((exp.Like, exp.ILike), _like),
    **dict.fromkeys((exp.Concat, exp.ConcatWs, exp.DPipe, exp.ArrayConcat), _weighed),
    exp.Repeat: lambda node: library("many", node.this, node.args["times"]),
    exp.Pad: _pad,
    exp.GenerateSeries: _series,
    exp.GenerateTimestampArray: _series,
    exp.GenerateDateArray: _dates,
    exp.Levenshtein: _checked("near", "expression"),
    exp.JarowinklerSimilarity: _checked("near", "expression"),
    exp.Replace: _checked("room", "expression", "replacement"),
    exp.RegexpReplace: _checked("replacing", "expression", "replacement"),
    exp.ByteLength: lambda node: library("bytes_in", node.this),
    # Lengths are bounded in units of a size.
    exp.Space: _checked("few", exp.Literal.number(1)),
    exp.Randstr: _checked("few", exp.Literal.number(100)),  # drawn one character at a time
    exp.ApproxDistinct: lambda node: exp.Count(this=exp.Distinct(expressions=[node.this])),
}
