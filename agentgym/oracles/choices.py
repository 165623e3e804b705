"""Choices among the calls of a world: the optimal ones, the wrong ones, any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentgym.messages import ToolCall
from agentgym.world import World


def best_call(world: World[object]) -> ToolCall:
    """Return the first optimal call, or the first legal one if there is no optimal one."""
    return next(iter(world.optimal_calls() or world.legal_calls()))


def wrong_calls(world: World[object]) -> list[ToolCall]:
    """List the legal calls that are not optimal."""
    best = world.optimal_calls() or ()
    return [call for call in world.legal_calls() if call not in best]


def wrong_call(world: World[object], rng: np.random.Generator) -> ToolCall:
    """Return a random legal call that is not optimal; an optimal one if there is no other."""
    return choose(wrong_calls(world) or world.legal_calls(), rng)


def choose(calls: Sequence[ToolCall], rng: np.random.Generator) -> ToolCall:
    """Return one of the calls at random."""
    return calls[int(rng.integers(len(calls)))]
