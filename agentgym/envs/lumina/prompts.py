"""Prompts in the manner of LUMINA's appendix A: a role, the rules, a call for reasoning, and a task
that is set off by a line and ends with a reminder.

The structure is the paper's, the words are ours. The budget stays in the task, since it ends the
episode; the tools and the form of calls follow the rules, as in every world (`dialect="python"` is
the paper's form).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentgym.world.turn_budget import TurnBudget

_NEW_TASK = "=== Starting new task ===\n"


@dataclass(frozen=True, kw_only=True)
class LuminaConfig(TurnBudget):
    """Options of the worlds of LUMINA.

    Attributes:
        prompts: The words of the system message and the task: `own`, or `paper` for the structure
            of the paper's appendix A.
    """

    prompts: Literal["own", "paper"] = "own"

    def frame(self, task: str, reminder: str) -> str:
        """Return a task as its message holds it."""
        return f"{_NEW_TASK}{task}\n\n{reminder}" if self.prompts == "paper" else task


def without_frame(text: str) -> str:
    """Return the task in a text of `LuminaConfig.frame`."""
    task = text.removeprefix(_NEW_TASK)
    return text if task == text else task.rpartition("\n\n")[0]
