"""Order of wrappers, inner to outer: those that add tools, add hints, edit the context, and report
on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import gymnasium


class Stage(IntEnum):
    """Place of a wrapper in a stack. An edit must see all that is added, and a report all that is
    edited.

    Cheap edits come before lossy ones, so that a summary is asked for only where clearing was not
    enough.
    """

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


def check_order(
    env: gymnasium.Env[Any, Any], wrapper: type[gymnasium.Wrapper[Any, Any, Any, Any]]
) -> None:
    """Refuse to put a wrapper around an env that has a wrapper of a later stage.

    Raises:
        ValueError: Naming both wrappers and the right order.
    """
    mine: Stage | None = getattr(wrapper, "stage", None)
    for layer in layers(env):
        theirs: Stage | None = getattr(type(layer), "stage", None)
        if mine is not None and theirs is not None and theirs > mine:
            order = " -> ".join(stage.name.lower() for stage in Stage)
            raise ValueError(
                f"{wrapper.__name__} ({mine.name.lower()}) must go inside {type(layer).__name__} "
                f"({theirs.name.lower()}); "
                f"the order is, inner to outer: {order}"
            )
