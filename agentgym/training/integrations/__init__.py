"""Adapters for other trainers and tools: TRL, verifiers, verl, SkyRL, MCP, and datasets of training
rows.

Each adapter is a separate module with its own extra, imported on first use.
"""

from typing import TYPE_CHECKING

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
    training_dicts,
    write_rows,
)

if TYPE_CHECKING:
    from agentgym.training.integrations import mcp, skyrl, trl, verifiers, verl

__all__ = [
    "ChatRow",
    "TokenRow",
    "TrainingDict",
    "demonstrations",
    "export",
    "group_id",
    "mcp",
    "skyrl",
    "to_chat_rows",
    "to_training_dict",
    "training_dicts",
    "trl",
    "verifiers",
    "verl",
    "write_rows",
]

__getattr__ = lazy_exports(
    __name__, {name: (name, name) for name in ("mcp", "skyrl", "trl", "verifiers", "verl")}
)
