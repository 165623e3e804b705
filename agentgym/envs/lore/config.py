"""The options that the worlds of LORE share, and their presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.envs.lore.graph import Shape
from agentgym.turn_budget import TurnBudget
from agentgym.world import check_bool, check_choice, check_float, check_int

DIFFICULTIES = ("standard", "hard")
MAX_OPERATIONS = 100_000
GRID = (1, 2, 5, 10, 20, 30, 60, 90, 120, 180, 250, 350)
"""Operation counts over the range of the paper (1 to 350, section 4.1), which does not list its own."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "easy": {"operations": 1},
    "medium": {"operations": 10},
    "hard": {"operations": 30, "difficulty": "hard"},
    "long": {"operations": 120},
    "extreme": {"operations": 350, "difficulty": "hard"},
    **{f"n{count}": {"operations": count} for count in GRID},
}
"""The presets of each world of LORE: sizes, and the operation counts of the benchmark."""


@dataclass(frozen=True, kw_only=True)
class LoreConfig(TurnBudget):
    """Options of all worlds of LORE.

    Attributes:
        operations: How many operations the task has (N of the paper), in [0, 100000].
        difficulty: `standard` or `hard`, which adds operators.
        theta: Leaves are gathered behind one document only where there are more than this many; with `p` it sets the depth.
        p: The probability of it then, after each operation.
        min_arity: The fewest operands of a rule, in [2, 10].
        max_arity: The most operands of a rule, in [min_arity, 10]; an operator may take fewer.
        weights: How often each operator is used, by name, as shares of any sum; all alike if None.
        max_calls_per_turn: How many calls one reply may hold, in [1, 128].
        strict_ids: Whether an id that nothing has told yet is answered like one that does not exist.
        budget_by: Whether an optimal policy, for the turn budget, makes one call in a turn (`reads`) or all at once (`rounds`).
        hints: Whether plan and state leave computing to the agent (`plain`) or spell it out (`full`).
    """

    operations: int = 3
    difficulty: str = "standard"
    theta: int = 10
    p: float = 0.5
    min_arity: int = 2
    max_arity: int = 4
    weights: Mapping[str, float] | None = None
    max_calls_per_turn: int = 16
    strict_ids: bool = False
    budget_by: str = "reads"
    hints: str = "plain"
    budget_factor: float = 2.0
    budget_slack: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("operations", self.operations, 0, MAX_OPERATIONS)
        check_choice("difficulty", self.difficulty, DIFFICULTIES)
        check_int("theta", self.theta, 1, 1_000_000)
        check_float("p", self.p, 0.0, 1.0)
        check_int("min_arity", self.min_arity, 2, 10)
        check_int("max_arity", self.max_arity, self.min_arity, 10)
        check_int("max_calls_per_turn", self.max_calls_per_turn, 1, 128)
        check_bool("strict_ids", self.strict_ids)
        check_choice("budget_by", self.budget_by, ("reads", "rounds"))
        check_choice("hints", self.hints, ("plain", "full"))

    def check_weights(self, names: Sequence[str]) -> None:
        """Raise `ValueError` unless the weights are of these operators, and not all zero."""
        if self.weights is None:
            return
        for name, weight in self.weights.items():
            check_choice("weights", name, names)
            check_float(f"weights[{name!r}]", weight, 0.0, 1e9)
        if not sum(self.weights.values()):
            raise ValueError(f"weights must not all be 0, got {dict(self.weights)!r}; operators: {', '.join(names)}")

    @property
    def shape(self) -> Shape:
        """How the graph grows."""
        return Shape(self.operations, self.theta, self.p, self.min_arity, self.max_arity)

    @property
    def most_documents(self) -> int:
        """More documents than this no task has."""
        return 1 + self.operations * (self.max_arity + 2)
