"""Access to a server's state for its parts."""

from __future__ import annotations

from typing import Any

from agentgym.office.context import OfficeContext
from agentgym.office.server import Server
from agentgym.office.store import Store


class ServerState:
    """Store, context and session of a server.

    They are looked up at each use, because the server replaces them when an episode starts and when
    a snapshot is restored.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def store(self) -> Store:
        """The server's records."""
        return self._server.store

    @property
    def context(self) -> OfficeContext:
        """Clock, identifiers and files of the office."""
        return self._server.context

    @property
    def session(self) -> dict[str, Any]:
        """Connection state, such as the id of the logged-in user."""
        return self._server.session
