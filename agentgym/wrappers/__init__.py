"""Context strategies, additional tools, and adapters for classical agents."""

from typing import TYPE_CHECKING, Any

from agentgym.assemble.wrapper_stack import register_strategy
from agentgym.text.requirements import install_command
from agentgym.wrappers.awareness import ContextAwareness
from agentgym.wrappers.budget import AnyOf, ContextBudget, Tokens, ToolUses, Turns, WindowFraction
from agentgym.wrappers.clearing import ClearThinking, ClearToolResults
from agentgym.wrappers.compaction import Compaction, Trim
from agentgym.wrappers.context import ContextRecord, ContextWrapper, EditMessages
from agentgym.wrappers.discrete import DiscreteActions, FeatureObservations
from agentgym.wrappers.memory import MemoryTool
from agentgym.wrappers.programmatic import ProgrammaticTools
from agentgym.wrappers.retrieval import Retrieval

if TYPE_CHECKING:
    from agentgym.wrappers.discrete_team import DiscreteTeam

# Tables and figures list these strategies in the order of LOCA-bench (section 4.1).
register_strategy("clear_results", ClearToolResults)
register_strategy("clear_thinking", ClearThinking)
register_strategy("compaction", Compaction)
register_strategy("awareness", ContextAwareness)
register_strategy("memory", MemoryTool)
register_strategy("programmatic", ProgrammaticTools)
# The RAG baseline of AgentLongBench (section 3.1).
register_strategy("retrieval", Retrieval)

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
    "DiscreteTeam",
    "EditMessages",
    "FeatureObservations",
    "MemoryTool",
    "ProgrammaticTools",
    "Retrieval",
    "Tokens",
    "ToolUses",
    "Trim",
    "Turns",
    "WindowFraction",
]


def __getattr__(name: str) -> Any:
    if name != "DiscreteTeam":
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    try:
        from agentgym.wrappers.discrete_team import DiscreteTeam  # noqa: PLC0415 - an extra of its own
    except ImportError as error:
        raise ImportError(f"PettingZoo is missing: {install_command('multi')} ({error})") from error
    return DiscreteTeam
