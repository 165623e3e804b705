"""The options of SearchWorld."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field

from agentgym.envs.gsm_agent.database import MAX_TASKS, DatabaseOptions, draw_people
from agentgym.envs.gsm_agent.prompts import TOOL_SETS
from agentgym.world.config import CallsPerTurn, Choice
from agentgym.world.turn_budget import BudgetFactor, BudgetSlack, TurnBudget
from agentgym.world.world import SplitName

# In measurements, the scripted searcher took `_PER_PREMISE` turns per premise plus `_ENDS` turns.
_PER_PREMISE, _ENDS, _LONGEST = 0.69, 1.7, 12


@dataclass(frozen=True, kw_only=True)
class SearchConfig(DatabaseOptions, TurnBudget):
    """Options of SearchWorld.

    Attributes:
        setting: `agentic`, or `static` to show all documents in the task instead of offering a
            search.
        tools: Additional tools besides `search` and `next_page`; `base` adds none.
        prompt: The style of the instructions.
        min_rounds: The minimum number of search turns; earlier answers are rejected with a request
            to keep searching.
        max_rounds: The turn budget per episode, before `budget_factor` and `budget_slack` are
            applied.
        max_calls_per_turn: The maximum number of calls in one reply.
        task: The number of the task to play; None for a random task.
    """

    setting: Literal["agentic", "static"] = "agentic"
    tools: Annotated[str, Choice(TOOL_SETS)] = "base"
    prompt: Literal["zero_shot", "few_shot", "cot"] = "zero_shot"
    min_rounds: Annotated[int, Field(ge=0, le=10_000)] = 0
    max_rounds: Annotated[int, Field(ge=1, le=100_000)] = 50
    max_calls_per_turn: CallsPerTurn = 16
    task: Annotated[int, Field(ge=0, le=MAX_TASKS - 1)] | None = None
    budget_factor: BudgetFactor = 1.0
    budget_slack: BudgetSlack = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.setting == "static" and (self.min_rounds or self.tools != "base"):
            raise ValueError(
                f"setting='static' does not support searches; omit min_rounds={self.min_rounds} and "
                f"tools={self.tools!r}"
            )

    @cached_property
    def database_options(self) -> DatabaseOptions:
        return DatabaseOptions(
            **{item.name: getattr(self, item.name) for item in fields(DatabaseOptions)}
        )

    def with_people_of(self, split: SplitName) -> Self:
        """Return a configuration that draws tasks only from a split's people or templates.

        Raise ValueError if `people` names a different split, or if the split has too few people.
        """
        if self.data:
            return replace(self, people=split)
        if self.people not in ("all", split):
            raise ValueError(f"split={split!r} sets the people, so omit people={self.people!r}")
        drawn = replace(self, people=split)
        draw_people(drawn)
        return drawn


def options_for_turns(turns: int) -> dict[str, int]:
    """Return options for tasks that take the scripted searcher about `turns` turns."""
    premises = min(max(1, round((turns - _ENDS) / _PER_PREMISE)), _LONGEST)
    options = {"premises": premises, "tasks": 2_000 // premises, "max_rounds": 3 * turns + 20}
    if premises == _LONGEST:
        # Raise `min_rounds` for long episodes, because longer problems would be slow to read.
        options["min_rounds"] = turns - 1
    return options
