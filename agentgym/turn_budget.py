"""The turn budget of worlds in which an optimal policy needs a known number of turns."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym.world import check_float, check_int, turn_budget

MAX_FACTOR = 100.0
MAX_SLACK = 1_000_000


@dataclass(frozen=True, kw_only=True)
class TurnBudget:
    """How many turns an agent has: `ceil(budget_factor * T*) + budget_slack`, where T* is what an optimal policy needs.

    Attributes:
        budget_factor: The factor m, at least 1.
        budget_slack: The summand n, in turns.
    """

    budget_factor: float = 1.5
    budget_slack: int = 2

    def __post_init__(self) -> None:
        check_float("budget_factor", self.budget_factor, 1.0, MAX_FACTOR)
        check_int("budget_slack", self.budget_slack, 0, MAX_SLACK)

    def budget(self, optimal: int) -> int:
        """The budget for a task that an optimal policy solves in `optimal`."""
        return turn_budget(optimal, self.budget_factor, self.budget_slack)
