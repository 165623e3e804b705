"""The servers of the office, in this process and on real embedded engines (LOCA-bench, section 2.2
and table 7).
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
