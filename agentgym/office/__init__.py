"""Simulated office servers: mail, calendar, Canvas, shop, warehouses, sheets, files and cloud.

The servers reproduce LOCA-bench's office (paper, section 2.2 and table 7). A server runs alone
(`agentgym serve`, MCP) or is mounted on any world (`world.mount(Calendar())`). Invalid tool calls
raise `ToolError` and change nothing.
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
