"""Simulated office servers: mail, calendar, Canvas, shop, warehouses, sheets, files and cloud.

The servers reproduce those of LOCA-bench (section 2.2 and table 7) in process. Each runs alone
(`agentgym serve`, MCP) or mounts on any world (`world.mount(Calendar())`). They import only `text`
and `sandboxes`. For invalid tool calls, methods raise `ToolError` before they change anything.
"""

from agentgym.office.context import START, Clock, OfficeContext
from agentgym.office.files.workspace import ROOT, Workspace
from agentgym.office.office import SERVERS, Office, server_class
from agentgym.office.server import Server

__all__ = [
    "ROOT",
    "SERVERS",
    "START",
    "Clock",
    "Office",
    "OfficeContext",
    "Server",
    "Workspace",
    "server_class",
]
