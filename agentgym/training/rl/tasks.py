"""The tasks of a training run: one world at several horizons, with oracle arms and context
strategies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from pydantic import Field

from agentgym.config import Config, TokenCount
from agentgym.policy import Policy
from agentgym.registry import resolve, spec
from agentgym.stacks import check_arm
from agentgym.training.rollout import PolicyConfig
from agentgym.world import load_world


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """The tasks that a model is trained on.

    Attributes:
        world: The id of a world.
        options: Keyword arguments of the world.
        horizons: Turns that an optimal policy needs, as `World.config_for_horizon` reads them;
            episodes are of all of them in turn.
        arms: Oracle arms, of which the first is the main one.
        contexts: Context strategies, each several joined by `+`.
        window: The tokens of the context window; None for no limit, or that of the paper if a
            strategy is asked for.
        teacher: The policy that is cloned, with its options, as `PolicyConfig` names it.
        seed: Seeds all draws.

    Raises:
        ValueError: An id, arm, horizon, policy or option is not right.
    """

    world: str = "ListWorld"
    options: Mapping[str, Any] = field(default_factory=dict)
    horizons: Sequence[int] = (3,)
    arms: Sequence[str] = ("",)
    contexts: Sequence[str] = ("none",)
    window: Annotated[int, TokenCount()] | None = None
    teacher: str = "oracle"
    seed: Annotated[int, Field(ge=0, le=10**6)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("horizons", "arms", "contexts"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must be given, each once, got {list(values)}")
        PolicyConfig(self.teacher)
        self.specs(self.cells())

    def make_teacher(self) -> Policy:
        """Return the policy that is cloned."""
        return PolicyConfig(self.teacher, self.seed).make(self.world)

    def cells(self) -> list[tuple[str, str]]:
        """Return arms with context strategies: each arm in the first context, and each context in
        the first arm.
        """
        arms, contexts = [check_arm(arm) for arm in self.arms], list(self.contexts)
        return [(arm, contexts[0]) for arm in arms] + [
            (arms[0], context) for context in contexts[1:]
        ]

    def specs(self, cells: Sequence[tuple[str, str]], **more: Any) -> list[EnvSpec]:
        """Return the specs of envs, in which a reply that cannot be read ends an episode: it would
        else fill up with errors.

        Args:
            cells: Arms with context strategies.
            **more: Further keyword arguments of the world.
        """
        env_id = resolve(self.world)
        world = load_world(gymnasium.spec(env_id).kwargs["world"])
        sizes = [{**world.config_for_horizon(horizon), **self.options} for horizon in self.horizons]
        rest: dict[str, Any] = {"window": self.window, "max_failed_rounds": 1, **more}
        return [
            spec(env_id, oracles=arm, context=context, **rest, **size)
            for size in sizes
            for arm, context in cells
        ]
