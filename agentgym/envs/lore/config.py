"""The options that the worlds of LORE share, and their presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from agentgym.envs.lore.graph import Operator, Shape
from agentgym.text.validation import check_choice, check_int
from agentgym.world.config import CallsPerTurn, Choice, Share
from agentgym.world.turn_budget import BudgetFactor, BudgetSlack, TurnBudget

DIFFICULTIES = ("standard", "hard")
MAX_OPERATIONS = 100_000  # thousands of times the paper's tasks are beyond any context
_MAX_ARITY = 10  # longer expressions are hard to read before they are hard to solve


@dataclass(frozen=True, kw_only=True)
class LoreConfig(TurnBudget):
    """Options of all worlds of LORE.

    Attributes:
        operations: The number of operations in the task (N of the paper).
        difficulty: `standard` or `hard`, which adds operators.
        theta: The number of leaves above which they are gathered behind one document; with `p` it
            sets the depth.
        p: The probability that they then are, after each operation.
        min_arity: The fewest operands of a rule.
        max_arity: The most operands of a rule, at least `min_arity`; an operator may take fewer.
        weights: The relative frequencies of the operators, by name; all alike if None.
        max_calls_per_turn: The most calls in one reply.
        strict_ids: Whether an id that does not follow from what was read is answered like one that
            does not exist. If not, as in the paper, ids can be guessed.
        rereads: Whether a document can be read again; if not, that is an error.
        budget_by: Whether an optimal policy, for the turn budget, makes one call in a turn
            (`reads`) or as many as a reply may hold (`rounds`).
        hints: Whether plan and state leave computing to the agent (`plain`) or spell it out
            (`full`).
    """

    operators_of: ClassVar[Mapping[str, Sequence[Operator]]]
    """The operators of the domain, by difficulty."""

    operations: Annotated[int, Field(ge=0, le=MAX_OPERATIONS)] = 3
    difficulty: Annotated[str, Choice(DIFFICULTIES)] = "standard"
    theta: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    p: Share = 0.5
    min_arity: Annotated[int, Field(ge=2, le=_MAX_ARITY)] = 2
    max_arity: Annotated[int, Field(ge=2, le=_MAX_ARITY)] = 4
    weights: Mapping[str, Annotated[float, Field(ge=0.0, le=1e9)]] | None = None
    max_calls_per_turn: CallsPerTurn = 1
    strict_ids: bool = True
    rereads: bool = False
    budget_by: Literal["reads", "rounds"] = "rounds"
    hints: Literal["plain", "full"] = "plain"
    budget_factor: BudgetFactor = 1.25
    budget_slack: BudgetSlack = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("max_arity", self.max_arity, self.min_arity, _MAX_ARITY)
        names = [operator.name for operator in self.operators]
        for name in self.weights or ():
            check_choice("weights", name, names)
        if self.weights is not None and not sum(self.weights.values()):
            raise ValueError(
                f"weights must not all be 0, got {dict(self.weights)!r}; operators: "
                f"{', '.join(names)}"
            )

    @property
    def operators(self) -> Sequence[Operator]:
        """Operators of the rules."""
        return self.operators_of[self.difficulty]

    @property
    def shape(self) -> Shape:
        """Parameters of the growth of the graph."""
        return Shape(self.operations, self.theta, self.p, self.min_arity, self.max_arity)

    @property
    def most_documents(self) -> int:
        """Upper bound of the number of documents."""
        return 1 + self.operations * (self.max_arity + 2)
