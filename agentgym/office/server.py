"""Base class of office servers: `@tool` methods over a store and a context."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from agentgym.office.context import InitialState, OfficeContext
from agentgym.office.store import Store
from agentgym.text.tools import RollbackError, ToolError, Toolset

ItemT = TypeVar("ItemT")
# Maximum items per page, as in the published APIs.
_PAGE = 100


_NEEDS = {
    **dict.fromkeys(("terminal", "python_execute"), "programs"),
    **dict.fromkeys(
        ("pdf_tools", "excel", "calendar", "google_cloud", "google_sheet", "snowflake"), "office"
    ),
}


def requirements(servers: Iterable[str]) -> Mapping[str, str]:
    """Return what servers require of the host, without importing the servers."""
    return {_NEEDS[name]: "" for name in servers if name in _NEEDS}


class Server(Toolset):
    """An office service. It is self-contained: mount it on any env, or serve it over MCP.

    A server defines `schema` and `@tool` methods, which return text, `Content` or JSON-serialisable
    data, read the time from `self.context.clock` and reject calls with `ToolError`. A failed call
    changes nothing: each runs in a transaction over the context, store, session and `undo_points`.

    A large server has `parts`: plain classes that receive the server and share its state.

    Attributes:
        name: Its name in the office, and the prefix of a tool whose name another server uses.
        schema: SQL that creates its tables.
        session: Connection state, such as the logged-in user.
        renamed: Tools offered under other names.
    """

    name: ClassVar[str]
    schema: ClassVar[str] = ""
    json_indent: ClassVar[int | None] = 2  # as printed by the published servers
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
        self.context.begin()
        self._initial.begin(self)

    def version(self) -> object:
        """Return a value that changes if and only if the state changes, apart from the context."""
        return self.store.version(), pickle.dumps(self.session)

    def undo_points(self) -> Iterator[Callable[[], None]]:
        """Yield functions that restore the current state; parts are copy-on-write or immutable."""
        yield self.context.undo_point()
        session, before = self.session, pickle.dumps(self.session)

        def restore_session() -> None:
            if pickle.dumps(session) != before:
                session.clear()
                session.update(pickle.loads(before))

        yield restore_session

    @contextmanager
    def transaction(self) -> Iterator[None]:
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
    """Return a page, counted from 1, of at most 100 items; pages past the end are empty."""
    if page < 1:
        raise ToolError(f"invalid argument: page must be at least 1, got {page}")
    if not 1 <= size <= _PAGE:
        raise ToolError(f"invalid argument: a page holds 1 to {_PAGE} items, got {size}")
    return list(items[(page - 1) * size : page * size])
