"""What a policy sees of the chat: context strategies and adapters, as wrappers."""

from agentgym.stacks import register_strategy
from agentgym.wrappers.awareness import ContextAwareness
from agentgym.wrappers.budget import AnyOf, ContextBudget, WindowFraction, Tokens, ToolUses, Turns
from agentgym.wrappers.clearing import ClearThinking, ClearToolResults
from agentgym.wrappers.compaction import Compaction
from agentgym.wrappers.context import ContextRecord, ContextWrapper
from agentgym.wrappers.discrete import DiscreteActions, FeatureObservations
from agentgym.wrappers.memory import MemoryTool
from agentgym.wrappers.programmatic import ProgrammaticTools
from agentgym.wrappers.trim import Trim

# In the order of LOCA-bench (section 4.1), in which tables and figures list them.
register_strategy("clear_results", ClearToolResults)
register_strategy("clear_thinking", ClearThinking)
register_strategy("compaction", Compaction)
register_strategy("awareness", ContextAwareness)
register_strategy("memory", MemoryTool)
register_strategy("programmatic", ProgrammaticTools)

__all__ = [
    "AnyOf",
    "ContextBudget",
    "ClearThinking",
    "ClearToolResults",
    "Compaction",
    "ContextAwareness",
    "ContextRecord",
    "ContextWrapper",
    "DiscreteActions",
    "FeatureObservations",
    "WindowFraction",
    "MemoryTool",
    "ProgrammaticTools",
    "Tokens",
    "ToolUses",
    "Trim",
    "Turns",
]
