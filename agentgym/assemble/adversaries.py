"""Registry of adversaries: policies that try to win a world without doing its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentgym.play.policy import Policy
from agentgym.world.world import World

# Function that creates a policy, given the id of a world or preset.
PolicyFactory = Callable[[str], Policy]

_adversaries: dict[type[World[Any]], dict[str, PolicyFactory]] = {}


def register_adversary(world: type[World[Any]], name: str, factory: PolicyFactory) -> None:
    """Add a policy that `agentgym audit` plays in a world and its subclasses."""
    _adversaries.setdefault(world, {})[name] = factory


def adversaries(world: type[World[Any]]) -> Mapping[str, PolicyFactory]:
    """Return the adversaries of a world and its base classes."""
    named: dict[str, PolicyFactory] = {}
    for base in reversed(world.__mro__):
        named.update(_adversaries.get(base, {}))
    return named
