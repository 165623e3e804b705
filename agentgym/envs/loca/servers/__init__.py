"""The servers of the office, in this process and on real embedded engines (LOCA-bench, section 2.2
and table 7).
"""

from agentgym.envs.loca.servers.context import START, Clock, OfficeContext
from agentgym.envs.loca.servers.files.workspace import ROOT, Workspace
from agentgym.envs.loca.servers.office import SERVERS, Office, server_class
from agentgym.envs.loca.servers.server import Server

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
