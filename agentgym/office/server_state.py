"""Access to the state of a server for the parts that it is composed of."""

from __future__ import annotations

from typing import Any

from agentgym.office.context import OfficeContext
from agentgym.office.server import Server
from agentgym.office.store import Store


class ServerState:
    """Store, context and session of a server.

    They are looked up at each use, because the server replaces them when an episode begins and
    when a snapshot is restored.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def store(self) -> Store:
        """Records of the server."""
        return self._server.store

    @property
    def context(self) -> OfficeContext:
        """Clock, identifiers and files of the office."""
        return self._server.context

    @property
    def session(self) -> dict[str, Any]:
        """State of the connection, such as the id of the user who is logged in."""
        return self._server.session
