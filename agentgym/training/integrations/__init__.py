"""Adapters: TRL, verifiers, verl, SkyRL, OpenEnv, Inspect, MCP, and datasets of training rows.

Each adapter has its own extra and is imported on first use.
"""

from agentgym.training.extras import lazy_exports
from agentgym.training.integrations.datasets import (
    ChatRow,
    TokenRow,
    TrainingDict,
    demonstrations,
    export,
    group_id,
    to_chat_rows,
    to_training_dict,
    write_rows,
)

__all__ = [
    "ChatRow",
    "TokenRow",
    "TrainingDict",
    "demonstrations",
    "export",
    "group_id",
    "inspect_tasks",
    "mcp",
    "openenv",
    "renderers",
    "skyrl",
    "to_chat_rows",
    "to_training_dict",
    "trl",
    "verifiers",
    "verl",
    "write_rows",
]

_NAMES = ("mcp", "openenv", "renderers", "skyrl", "trl", "verifiers", "verl")
_EXTRAS = {name: (name, name) for name in _NAMES}
_EXTRAS["inspect_tasks"] = ("inspect", "inspect_tasks")

__getattr__ = lazy_exports(__name__, _EXTRAS)
