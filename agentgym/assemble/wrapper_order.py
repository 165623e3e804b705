"""The order of wrappers, inner to outer: tools, hints, context edits, reports."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import gymnasium
from gymnasium.core import ActType, ObsType, WrapperActType, WrapperObsType

from agentgym.play.env import tool_env


class Stage(IntEnum):
    """Position of a wrapper in a stack."""

    TOOLS = 1
    HINTS = 2
    HISTORY = 3
    EXAMPLES = 4
    CLEAR_THINKING = 5
    CLEAR_TOOL_RESULTS = 6
    COMPACTION = 7
    TRIM = 8
    AWARENESS = 9


def layers(env: gymnasium.Env[Any, Any]) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """Yield the wrappers of a stack, outermost first."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


class StagedWrapper(
    gymnasium.Wrapper[WrapperObsType, WrapperActType, ObsType, ActType],
    gymnasium.utils.RecordConstructorArgs,
):
    """Base class of wrappers that check their order in the stack and record arguments for specs.

    `world_env` is the env inside all wrappers.

    Raises:
        ValueError: The env already has a wrapper that belongs to a later stage.
    """

    def __init__(self, env: gymnasium.Env[ObsType, ActType], **recorded: Any) -> None:
        mine: Stage | None = getattr(type(self), "stage", None)
        for layer in layers(env):
            theirs: Stage | None = getattr(type(layer), "stage", None)
            if mine is not None and theirs is not None and theirs > mine:
                raise ValueError(
                    f"{type(self).__name__} ({mine.name.lower()}) must go inside "
                    f"{type(layer).__name__} ({theirs.name.lower()}); the order is, inner to "
                    f"outer: {' -> '.join(stage.name.lower() for stage in Stage)}"
                )
        gymnasium.utils.RecordConstructorArgs.__init__(self, **recorded)
        super().__init__(env)  # type: ignore[arg-type]  # Gymnasium names the types of the wrapper
        self.world_env = tool_env(env)
