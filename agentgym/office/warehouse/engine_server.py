"""Base class for servers with an SQL engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from agentgym.office.context import OfficeContext
from agentgym.office.server import Server
from agentgym.office.warehouse.engine import SQLEngine, TableName, path
from agentgym.office.warehouse.values import Rows

ALL_ROWS = 10_000_000  # a limit that no table reaches


class EngineServer(Server):
    """A server that stores tables in an SQL engine."""

    dialect: ClassVar[str]
    episode_state = (*Server.episode_state, "engine")

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self.engine = SQLEngine(self.dialect)

    def read_all(self, name: TableName) -> Rows:
        """Return all records of a table, in insertion order."""
        return self.engine.read(
            f"SELECT * FROM {path(name)}", [name], self.context.clock.now(), ALL_ROWS
        )

    def version(self) -> object:
        return super().version(), self.engine.version()

    def undo_points(self) -> Iterator[Callable[[], None]]:
        yield from super().undo_points()
        yield self.engine.undo_point()

    def close(self) -> None:
        self.engine.close()
