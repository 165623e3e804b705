"""LOCA-bench's own instances: configurations, state folders and success rules."""

from agentgym.envs.loca.published.configurations import PublishedRun, read_configurations

__all__ = ["PublishedRun", "read_configurations"]
