"""Turn budget of worlds whose optimal number of turns is known."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Annotated

from pydantic import Field

from agentgym.world.config import Config

# With a factor below 1, no policy can succeed; above 100, the budget has no effect.
BudgetFactor = Annotated[float, Field(ge=1.0, le=100.0)]

# More turns than any episode has.
BudgetSlack = Annotated[int, Field(ge=0, le=1_000_000)]


@dataclass(frozen=True, kw_only=True)
class TurnBudget(Config):
    """Turn budget derived from T*, the number of turns of an optimal policy (LUMINA, section 4.1).

    Attributes:
        budget_factor: The factor m of the turn budget `ceil(m * T*) + n`, where T* is the number of
            turns of an optimal policy.
        budget_slack: The summand n of the turn budget.
    """

    budget_factor: BudgetFactor = 1.5
    budget_slack: BudgetSlack = 2

    def budget(self, optimal: int) -> int:
        """Return the budget of a task that takes `optimal` turns."""
        return multiply_up(float(self.budget_factor), optimal) + self.budget_slack


@lru_cache(maxsize=1024)
def multiply_up(factor: float, number: int) -> int:
    """Return a number times a factor, rounded up."""
    # Use the decimal number as written: 1.1 * 10 turns are 11, not 12.
    return ceil(Fraction(repr(factor)) * number)
