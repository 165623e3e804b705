"""Long-horizon text worlds for training and examining LLM agents, with the interface of Gymnasium."""

import os as _os

# A clone without symlinks has a small file where each of the four packages should be; they are then found beside this one.
_root = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
if _os.path.isdir(_os.path.join(_root, "envs")) and not _os.path.isdir(_os.path.join(__path__[0], "envs")):
    __path__.append(_root)

from agentgym.detail import Detail
from agentgym.env import Snapshot, ToolEnv, clone, tool_env
from agentgym.messages import Chat, Content, Image, Message, ToolCall
from agentgym.parsing import explain, parse, render
from agentgym.policy import Policy, Reply
from agentgym.multi import aec_env, parallel_env
from agentgym.registry import ARMS, STRATEGIES, make, register, resolve, spec, teams, worlds
from agentgym.tokens import TokenCounter
from agentgym.tools import Tool, ToolError, tool
from agentgym.world import OneOf, World

from agentgym import envs  # noqa: F401  # registers the worlds, so it comes last

__version__ = "0.1.0"

__all__ = [
    "ARMS",
    "STRATEGIES",
    "Chat",
    "Content",
    "Detail",
    "Image",
    "Message",
    "OneOf",
    "Policy",
    "Reply",
    "Snapshot",
    "TokenCounter",
    "Tool",
    "ToolCall",
    "ToolEnv",
    "ToolError",
    "World",
    "aec_env",
    "clone",
    "explain",
    "make",
    "parallel_env",
    "parse",
    "register",
    "render",
    "resolve",
    "spec",
    "teams",
    "tool",
    "tool_env",
    "worlds",
]
