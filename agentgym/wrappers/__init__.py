"""What a policy sees of the chat: context strategies and adapters, as wrappers."""

from agentgym.wrappers.awareness import ContextAwareness
from agentgym.wrappers.budget import AnyOf, ContextBudget, Tokens, ToolUses, Turns, WindowFraction
from agentgym.wrappers.clearing import ClearThinking, ClearToolResults
from agentgym.wrappers.compaction import Compaction
from agentgym.wrappers.context import ContextRecord, ContextWrapper
from agentgym.wrappers.discrete import DiscreteActions, FeatureObservations
from agentgym.wrappers.memory import MemoryTool
from agentgym.wrappers.programmatic import ProgrammaticTools
from agentgym.wrappers.trim import Trim

__all__ = [
    "AnyOf",
    "ClearThinking",
    "ClearToolResults",
    "Compaction",
    "ContextAwareness",
    "ContextBudget",
    "ContextRecord",
    "ContextWrapper",
    "DiscreteActions",
    "FeatureObservations",
    "MemoryTool",
    "ProgrammaticTools",
    "Tokens",
    "ToolUses",
    "Trim",
    "Turns",
    "WindowFraction",
]
