"""Helpers for the syntax trees of statements."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlglot import exp

from agentgym.envs.loca.servers.warehouse.tables import TableName
from agentgym.tools import ToolError, echo


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
