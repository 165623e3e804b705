"""What every server of an office is: `@tool` methods over a store, at a desk."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from agentgym.envs.loca.servers.context import OfficeContext
from agentgym.envs.loca.servers.store import Store
from agentgym.tools import ToolError, Toolset

ItemT = TypeVar("ItemT")
_PAGE = 100
"""The most items of a page."""


class Server(Toolset):
    """A service of the office. It stands for itself: mount it on any env, or serve it over MCP.

    A server fills `schema` and offers `@tool` methods. They return text, `Content` or JSON-able data, take the time from
    `self.context.clock`, and refuse a call with `ToolError` before anything has changed (or inside `self.store.change()`).

    Args:
        desk: Clock, identifiers and files; servers of one office share it. A desk of its own by default.

    Attributes:
        name: How the office calls it; also what a tool is prefixed with whose name another server has too.
        schema: SQL that makes its tables.
        desk: Its desk.
        store: Its records.
        session: What belongs to the connection, such as who is logged in.
        renamed: Names that some tools are offered under in place of their own.
    """

    name: ClassVar[str]
    schema: ClassVar[str] = ""
    episode_state: ClassVar[tuple[str, ...]] = ("context", "store", "session")

    def __init__(self, context: OfficeContext | None = None) -> None:
        self.context = OfficeContext() if context is None else context
        self.store = Store(self.schema)
        self.session: dict[str, Any] = {}
        self.renamed: Mapping[str, str] = {}
        self._opening: dict[str, Any] | None = None

    def begin(self) -> None:
        """Return to the state at which it was first mounted."""
        self.context.begin()
        held = [name for name in self.episode_state if name != "context"]
        if self._opening is None:
            self._opening = copy.deepcopy({name: getattr(self, name) for name in held})
        else:
            vars(self).update(copy.deepcopy(self._opening))

    def close(self) -> None:
        """Let go of what the server holds outside of this process's memory; most hold nothing."""


def page_of(items: Sequence[ItemT], page: int, size: int) -> list[ItemT]:
    """One page of a listing.

    Args:
        items: All of it.
        page: Which page, from 1 on; one after the last is empty.
        size: Items a page, at most 100.

    Raises:
        ToolError: The page or its size is out of range.
    """
    if page < 1:
        raise ToolError(f"invalid argument: page must be at least 1, got {page}")
    if not 1 <= size <= _PAGE:
        raise ToolError(f"invalid argument: a page holds 1 to {_PAGE} items, got {size}")
    return list(items[(page - 1) * size : page * size])
