"""Registry of adversaries: policies that try to win a world without doing its task.

`agentgym audit` plays a general battery in every world. A world's module registers further ones
that only its author can think of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentgym.play.policy import Policy
from agentgym.world.world import World

PolicyFactory = Callable[[str], Policy]
"""Returns a policy for the id of a world or a preset."""

_adversaries: dict[type[World[Any]], dict[str, PolicyFactory]] = {}


def register_adversary(world: type[World[Any]], name: str, factory: PolicyFactory) -> None:
    """Add a policy that `agentgym audit` plays in a world and its subclasses.

    Args:
        world: The class of the world.
        name: A short name for the tables.
        factory: Makes the policy, which sees only the chat.
    """
    _adversaries.setdefault(world, {})[name] = factory


def adversaries(world: type[World[Any]]) -> Mapping[str, PolicyFactory]:
    """Return the adversaries of a world and its bases, by name."""
    return {
        name: factory
        for base in reversed(world.__mro__)
        for name, factory in _adversaries.get(base, {}).items()
    }
