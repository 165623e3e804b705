"""Common parts of the rewrites of both dialects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp

from agentgym.envs.loca.servers.warehouse.tables import Column

Node: TypeAlias = Any
"""A node of a syntax tree. SQLGlot's classes have few attributes that type checkers know."""

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
