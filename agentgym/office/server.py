"""The base class of the servers of an office: `@tool` methods over a store, in a context."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from agentgym.office.context import InitialState, OfficeContext
from agentgym.office.store import Store
from agentgym.text.tools import RollbackError, ToolError, Toolset

ItemT = TypeVar("ItemT")
_PAGE = 100
"""The most items of a page, as in the published APIs."""


_NEEDS = {
    **dict.fromkeys(("terminal", "python_execute"), "programs"),
    **dict.fromkeys(
        ("pdf_tools", "excel", "calendar", "google_cloud", "google_sheet", "snowflake"), "office"
    ),
}


def requirements(servers: Iterable[str]) -> Mapping[str, str]:
    """Return what servers need of the host (`agentgym.text.requirements`), by their names: some cannot
    even be imported without it.
    """
    return {_NEEDS[name]: "" for name in servers if name in _NEEDS}


class Server(Toolset):
    """A service of the office. It stands for itself: mount it on any env, or serve it over MCP.

    A server fills `schema` and offers `@tool` methods. They return text, `Content` or JSON-able
    data, take the time from `self.context.clock`, and refuse a call with `ToolError`. A call that
    fails changes nothing: each runs in a transaction over context, store, session and whatever else
    the server lists in `undo_points`.

    A large server is composed of `parts`: plain classes that are handed the server, whose context,
    store and session they reach through it, and the parts that they work with.

    Args:
        context: Clock, identifiers and files; servers of one office share it. One of its own by
            default.

    Attributes:
        name: Its name in the office; also the prefix of a tool whose name another server has too.
        schema: SQL that makes its tables.
        context: Its context.
        store: Its records.
        session: State of the connection, such as who is logged in.
        renamed: Names that some tools are offered under in place of their own.
    """

    name: ClassVar[str]
    schema: ClassVar[str] = ""
    json_indent: ClassVar[int | None] = 2  # as the published servers print it
    episode_state: ClassVar[tuple[str, ...]] = ("context", "store", "session")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.requirements = requirements([getattr(cls, "name", "")])

    def __init__(self, context: OfficeContext | None = None) -> None:
        self.context = OfficeContext() if context is None else context
        self.store = Store(self.schema)
        self.session: dict[str, Any] = {}
        self.renamed: Mapping[str, str] = {}
        self._initial = InitialState(name for name in self.episode_state if name != "context")

    def begin(self) -> None:
        """Return to the state at which it was first mounted."""
        self.context.begin()
        self._initial.begin(self)

    def version(self) -> object:
        """Return what is equal later as long as nothing of the server has changed; its context,
        which servers share, left out.
        """
        return self.store.version(), pickle.dumps(self.session)

    def undo_points(self) -> Iterator[Callable[[], None]]:
        """Yield functions that return a part of the state to what it is now.

        They cost next to nothing to make: a part is copied on writing, or refers to what never
        changes in place.
        """
        yield self.context.undo_point()
        session, before = self.session, pickle.dumps(self.session)

        def restore_session() -> None:
            if pickle.dumps(session) != before:
                session.clear()
                session.update(pickle.loads(before))

        yield restore_session

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Context that restores the state of the server if an exception leaves it."""
        points = list(self.undo_points())
        try:
            with self.store.change():
                yield
        except BaseException:
            try:
                for undo in points:
                    undo()
            except Exception as error:
                raise RollbackError(f"{self.name} could not be restored") from error
            raise


def page_of(items: Sequence[ItemT], page: int, size: int) -> list[ItemT]:
    """Return one page of a listing.

    Args:
        items: All of it.
        page: The number of the page, from 1 on; one after the last is empty.
        size: Items a page, at most 100.

    Raises:
        ToolError: The page or its size is out of range.
    """
    if page < 1:
        raise ToolError(f"invalid argument: page must be at least 1, got {page}")
    if not 1 <= size <= _PAGE:
        raise ToolError(f"invalid argument: a page holds 1 to {_PAGE} items, got {size}")
    return list(items[(page - 1) * size : page * size])
