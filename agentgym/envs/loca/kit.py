"""Public building blocks for custom office tasks; the servers are in `agentgym.office`."""

from agentgym.envs.loca.checks import as_number
from agentgym.envs.loca.fragments import read_folder
from agentgym.envs.loca.plan import Plan, write
from agentgym.envs.loca.task import OfficeConfig, OfficeTask

__all__ = ["OfficeConfig", "OfficeTask", "Plan", "as_number", "read_folder", "write"]
