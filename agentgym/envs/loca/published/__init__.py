"""LOCA-bench's own instances: its configurations, its state folders and its success rules."""

from agentgym.envs.loca.published.configurations import PublishedRun, read_configurations

__all__ = ["PublishedRun", "read_configurations"]
