"""Long-horizon text worlds for training and evaluating LLM agents, with the Gymnasium interface."""

import sys

if sys.flags.optimize > 1:
    raise ImportError(
        "agentgym does not run under python -OO (PYTHONOPTIMIZE=2), which strips the docstrings "
        "that document tools and options; run python or python -O"
    )

from agentgym.world.config import Config
from agentgym.world.step_info import StepInfo
from agentgym.play.env import ToolEnv, clone, tool_env
from agentgym.play.tool_host import Snapshot
from agentgym.text.messages import Chat, Content, Image, Message, ToolCall
from agentgym.text.parsing import explain, parse, render
from agentgym.play.policy import Policy, Reply
from agentgym.assemble.registry import (
    config_schema,
    make,
    register,
    register_plugins,
    resolve,
    spec,
    teams,
    worlds,
)
from agentgym.assemble.team_envs import aec_env, parallel_env
from agentgym.assemble.wrapper_stack import register_oracle, register_strategy, strategies
from agentgym.text.tokens import TokenCounter
from agentgym.text.tools import Tool, ToolError, tool
from agentgym.world.world import CallSet, World

# These modules register worlds, oracles, strategies and the chat space. The modules use the names
# above, so the imports come last.
from agentgym import envs, wrappers  # noqa: F401
from agentgym.play import shared_chats  # noqa: F401
from agentgym.oracles import ARMS

register_plugins()  # registers worlds without importing the packages that define them

STRATEGIES = strategies()
"""The context strategies of the package (LOCA-bench, section 4.1); `strategies()` also lists other
packages'.
"""

__version__ = "0.1.0"

__all__ = [
    "ARMS",
    "STRATEGIES",
    "CallSet",
    "Chat",
    "Config",
    "Content",
    "Image",
    "Message",
    "Policy",
    "Reply",
    "Snapshot",
    "StepInfo",
    "TokenCounter",
    "Tool",
    "ToolCall",
    "ToolEnv",
    "ToolError",
    "World",
    "aec_env",
    "clone",
    "config_schema",
    "explain",
    "make",
    "parallel_env",
    "parse",
    "register",
    "register_oracle",
    "register_strategy",
    "render",
    "resolve",
    "spec",
    "strategies",
    "teams",
    "tool",
    "tool_env",
    "worlds",
]
