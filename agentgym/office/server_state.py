"""Gives the parts of a server access to the server's state."""

from __future__ import annotations

from typing import Any

from agentgym.office.context import OfficeContext, iso
from agentgym.office.server import Server
from agentgym.office.store import Store


class ServerState:
    """A server's store, context and session (connection state, such as the logged-in user's id).

    The attributes are properties because episode starts and snapshot restores replace them.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def store(self) -> Store:
        return self._server.store

    @property
    def context(self) -> OfficeContext:
        return self._server.context

    @property
    def session(self) -> dict[str, Any]:
        return self._server.session

    def now(self) -> str:
        """Return the current time in the stored format."""
        return iso(self.context.clock.now())

    def tick(self) -> str:
        """Advance the clock and return the time in the stored format."""
        return iso(self.context.clock.tick())
