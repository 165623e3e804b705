"""Options shared by the LORE worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from agentgym.envs.lore.graph import Operator
from agentgym.text.validation import check_int
from agentgym.world.config import CallsPerTurn, Choice, Share
from agentgym.world.turn_budget import BudgetFactor, BudgetSlack, TurnBudget

DIFFICULTIES = ("standard", "hard")
MAX_OPERATIONS = 100_000  # the maximum in the paper is 350
_MAX_ARITY = 10  # more operands would only make expressions harder to read


@dataclass(frozen=True, kw_only=True)
class LoreConfig(TurnBudget):
    """Options of all LORE worlds.

    Attributes:
        operations: The number of operations in the task, called N in the paper.
        difficulty: `standard`, or `hard` for additional operators.
        theta: The number of leaves above which several leaves may get a common child, which makes
            the graph deeper.
        p: The probability that several leaves get a common child after an operation, if there are
            more than `theta` leaves.
        min_arity: The minimum number of operands of a rule.
        max_arity: The maximum number of operands of a rule, at least `min_arity`. Some operators
            have a lower maximum.
        max_calls_per_turn: The maximum number of calls per reply.
        strict_ids: Whether ids that cannot be deduced from the documents read so far are treated as
            nonexistent. If false, ids can be guessed, as in the paper.
        rereads: Whether documents can be read again; otherwise rereading is an error.
        budget_by: Whether the turn budget is based on an optimal policy with one call per turn
            (`reads`) or with the maximum number of calls per turn (`rounds`).
    """

    operators_of: ClassVar[Mapping[str, Sequence[Operator]]]

    operations: Annotated[int, Field(ge=0, le=MAX_OPERATIONS)] = 3
    difficulty: Annotated[str, Choice(DIFFICULTIES)] = "standard"
    theta: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    p: Share = 0.5
    min_arity: Annotated[int, Field(ge=2, le=_MAX_ARITY)] = 2
    max_arity: Annotated[int, Field(ge=2, le=_MAX_ARITY)] = 4
    max_calls_per_turn: CallsPerTurn = 1
    strict_ids: bool = True
    rereads: bool = False
    budget_by: Literal["reads", "rounds"] = "rounds"
    budget_factor: BudgetFactor = 1.25
    budget_slack: BudgetSlack = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("max_arity", self.max_arity, self.min_arity, _MAX_ARITY)

    @property
    def operators(self) -> Sequence[Operator]:
        return self.operators_of[self.difficulty]

    @property
    def most_documents(self) -> int:
        """An upper bound on the number of documents."""
        return 1 + self.operations * (self.max_arity + 2)
