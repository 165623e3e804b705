"""Base class for office servers, which have tools, a store and a context."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from agentgym.office.context import InitialState, OfficeContext
from agentgym.office.store import Store
from agentgym.text.tools import RollbackError, ToolError, Toolset, echo

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
    """Return what servers require from the host, without importing the servers."""
    return {_NEEDS[name]: "" for name in servers if name in _NEEDS}


class Server(Toolset):
    """An office service, which can be mounted on any env or served over MCP.

    A server defines `schema` and `@tool` methods. A tool returns text, `Content` or
    JSON-serialisable data, reads the time from `self.context.clock` and rejects invalid calls
    with `ToolError`. Each call is a transaction, so a failed call changes nothing.

    A large server has `parts`: plain objects that share the server's state.

    Attributes:
        name: The server's name, used as a prefix for duplicate tool names.
        schema: SQL that creates the server's tables.
        session: Connection state, such as the logged-in user.
        renamed: New tool names, by original name.
    """

    name: ClassVar[str]
    schema: ClassVar[str] = ""
    json_indent: ClassVar[int | None] = 2  # as published
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
        """Return a value that is different after each change of the store or session."""
        return self.store.version(), pickle.dumps(self.session)

    def undo_points(self) -> Iterator[Callable[[], None]]:
        """Yield functions that restore the parts of the current state that are not in the store."""
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
    """Return a page of items. `page` counts from 1; pages past the end are empty."""
    if page < 1:
        raise ToolError(f"invalid argument: page must be at least 1, got {echo(page)}")
    if not 1 <= size <= _PAGE:
        raise ToolError(
            f"invalid argument: the page size must be between 1 and {_PAGE}, got {echo(size)}"
        )
    return list(items[(page - 1) * size : page * size])
