"""Prompts in the structure of LUMINA's appendix A: role, rules, a request to reason, and a task
between separators that ends with a reminder.

The wording is new. The task states the budget, because the budget ends the episode. Tools and call
format follow the rules, as in every world (`dialect="python"` is the paper's format).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentgym.world.turn_budget import TurnBudget

_NEW_TASK = "=== Starting new task ===\n"


@dataclass(frozen=True, kw_only=True)
class LuminaConfig(TurnBudget):
    """Options of the LUMINA worlds.

    Attributes:
        prompts: The wording of the system message and the task: `own`, or `paper` for the structure
            of the paper's appendix A.
    """

    prompts: Literal["own", "paper"] = "own"

    def frame(self, task: str, reminder: str) -> str:
        """Return the framed task."""
        return f"{_NEW_TASK}{task}\n\n{reminder}" if self.prompts == "paper" else task


def without_frame(text: str) -> str:
    """Return the task inside a frame."""
    task = text.removeprefix(_NEW_TASK)
    return text if task == text else task.rpartition("\n\n")[0]
