"""An office: servers with a shared context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any, TypeVar, cast

from agentgym.office.context import START, OfficeContext
from agentgym.office.server import Server, requirements
from agentgym.text.requirements import check_requirements
from agentgym.text.tool_results import run_tool
from agentgym.text.tools import BoundTool, tools_of
from agentgym.text.validation import check_choice

ServerT = TypeVar("ServerT", bound=Server)

# Module and class of each server, imported on first use because some are slow to load.
SERVERS = {
    "filesystem": "files.filesystem:Filesystem",
    "terminal": "files.terminal:Terminal",
    "python_execute": "files.python_execute:PythonExecute",
    "pdf_tools": "files.pdf_tools:PdfTools",
    "excel": "spreadsheet.excel:Excel",
    "memory": "memory:KnowledgeGraph",
    "email": "email.server:Email",
    "calendar": "calendar:Calendar",
    "canvas": "canvas.server:Canvas",
    "google_cloud": "gcloud.google_cloud:GoogleCloud",
    "google_sheet": "spreadsheet.google_sheet:GoogleSheet",
    "snowflake": "warehouse.snowflake:Snowflake",
    "woocommerce": "woocommerce.server:WooCommerce",
    "claim_done": "claim_done:ClaimDone",
}


class Office:
    """Servers that share a clock, identifiers and files.

    Offices can be pickled and deep-copied during an episode. If two servers have a tool with the
    same name, the later tool is renamed to `<server>_<tool>`.

    Args:
        servers: Names from `SERVERS`; their order determines the order of tools.
        start: The start time of the episode.

    Example:
        >>> office = Office(["filesystem", "terminal", "claim_done"])
    """

    def __init__(self, servers: Iterable[str], start: datetime = START) -> None:
        self.context = OfficeContext(start)
        self._servers: dict[type[Server], Server] = {}
        self._tools: dict[str, BoundTool] = {}
        used: set[str] = set()
        for name in servers:
            check_requirements(f"the server {name}", requirements([name]))
            kind = server_class(name)
            if kind in self._servers:
                raise ValueError(f"servers contains {name} twice; remove one")
            server = self._servers[kind] = kind(self.context)
            names = tools_of(server)
            server.renamed = {tool: f"{name}_{tool}" for tool in names if tool in used}
            used |= names.keys()

    def get(self, kind: type[ServerT]) -> ServerT:
        """Return the server of the given class; raise `KeyError` if there is none."""
        return cast("ServerT", self._servers[kind])

    def toolsets(self) -> Sequence[Server]:
        """Return the servers in order."""
        return tuple(self._servers.values())

    def version(self) -> object:
        """Return a non-copyable value that is different after each change of the state."""
        return self.context.version(), [server.version() for server in self.toolsets()]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run one tool call without an env, and return the result as shown to a policy.

        Raises KeyError for an unknown tool and ToolError for an invalid call.
        """
        if name not in self._tools:
            self._tools = tools_of(*self.toolsets())
        answer = run_tool(self._tools[name], arguments)
        return answer if isinstance(answer, str) else answer.text

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_tools": {}}

    def close(self) -> None:
        """Release resources outside this process."""
        for server in self._servers.values():
            server.close()


def server_class(name: str) -> type[Server]:
    """Return a server's class; raise `ValueError` if the name is unknown."""
    check_choice("server", name, list(SERVERS))
    module, _, attribute = SERVERS[name].partition(":")
    package = import_module(f"agentgym.office.{module}")
    return cast("type[Server]", getattr(package, attribute))
