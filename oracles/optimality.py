"""Labels of step optimality (LUMINA, section 3: step accuracy)."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from agentgym.env import tool_env
from agentgym.messages import Chat


class StepOptimality(gymnasium.Wrapper[Chat, str, Chat, str], RecordConstructorArgs):
    """Adds `optimal` and `alive` to `info`.

    `optimal` says whether every call of the reply was carried out and among the optimal ones; a reply without a readable call
    is not optimal. `alive` says whether success was still possible before the reply. Both are None where the world does not
    define optimality, and after a reset. The labels are for the researcher; no view contains them.

    Example:
        >>> env = StepOptimality(gymnasium.make("agentgym/ListWorld-v0"))
    """

    def __init__(self, env: gymnasium.Env[Chat, str]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self.world_env = tool_env(env)

    def reset(self, **options: Any) -> tuple[Chat, dict[str, Any]]:
        """Reset; there is no step to label yet."""
        chat, info = self.env.reset(**options)
        return chat, {**info, "optimal": None, "alive": None}

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """Label the step against the optimal set before it."""
        best = self.world_env.world.optimal_calls()
        start = len(self.world_env.chat.messages)
        chat, reward, terminated, truncated, info = self.env.step(action)
        if best is None:
            return chat, reward, terminated, truncated, {**info, "optimal": None, "alive": None}
        calls = self.world_env.chat.messages[start].calls
        optimal = info["valid"] and bool(calls) and all(call in best for call in calls)
        return chat, reward, terminated, truncated, {**info, "optimal": optimal, "alive": bool(best)}
