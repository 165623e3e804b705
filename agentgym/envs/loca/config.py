"""Options common to all office tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from agentgym.config import TokenCount
from agentgym.turn_budget import BudgetFactor, BudgetSlack, TurnBudget

LENGTHS = {
    "8k": 8_000,
    "16k": 16_000,
    "32k": 32_000,
    "64k": 64_000,
    "96k": 96_000,
    "128k": 128_000,
    "256k": 256_000,
}
"""The environment description lengths of the paper (section 2.3), in tokens."""

MIN_LENGTH, MAX_LENGTH = 4_000, 4_000_000
"""A unit of some tasks takes nearly 4,000 tokens; no model has a longer context window than that."""

MAX_SIZE = 100_000
"""So that the names, SKUs and numbers of all tasks suffice."""


@dataclass(frozen=True, kw_only=True)
class OfficeConfig(TurnBudget):
    """A task at an environment description length; each task adds its own knobs.

    Attributes:
        length: The environment description length of the state to draw, in tokens of cl100k.
        size: The number of what the task is about (courses, students, …), in place of a length;
            None to solve for the length.
    """

    length: Annotated[int, Field(ge=MIN_LENGTH, le=MAX_LENGTH), TokenCount()] = LENGTHS["8k"]
    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] | None = None
    budget_factor: BudgetFactor = 2.0
    budget_slack: BudgetSlack = 30
