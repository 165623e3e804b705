"""The kit for office tasks: what a task of your own needs beside the servers of `agentgym.office`."""

from agentgym.envs.loca.checks import as_number
from agentgym.envs.loca.plan import Plan, read_folder, write
from agentgym.envs.loca.task import OfficeConfig, OfficeTask

__all__ = ["OfficeConfig", "OfficeTask", "Plan", "as_number", "read_folder", "write"]
