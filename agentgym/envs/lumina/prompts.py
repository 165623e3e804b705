"""Prompts in this package's wording, or in the structure of LUMINA's appendix A.

The task states the budget, because the budget ends the episode. The env option `dialect="python"`
selects the paper's call format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from agentgym.envs.reading import load_texts
from agentgym.world.turn_budget import TurnBudget

TEXTS: Mapping[str, Mapping[str, str]] = load_texts(__file__, "prompts")
"""The rules of each world in both wordings, and the reminder of its framed tasks."""
_NEW_TASK = "=== Starting new task ===\n"


@dataclass(frozen=True, kw_only=True)
class LuminaConfig(TurnBudget):
    """Options of the LUMINA worlds.

    Attributes:
        prompts: The wording of the system message and the task, either `own` or `paper`, which has
            the structure of the paper's appendix A.
    """

    texts: ClassVar[Mapping[str, str]]

    prompts: Literal["own", "paper"] = "own"

    def rules(self) -> str:
        """Return the system message of the world."""
        return self.texts[self.prompts]

    def frame(self, task: str) -> str:
        """Fill the prompt template with the task."""
        if self.prompts == "own":
            return task
        return f"{_NEW_TASK}{task}\n\n{self.texts['reminder']}"


def without_frame(text: str) -> str:
    """Extract the task from a filled prompt template."""
    task = text.removeprefix(_NEW_TASK)
    return text if task == text else task.rpartition("\n\n")[0]
