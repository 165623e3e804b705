"""What the tests of office tasks need: a task at some length, and the same one after its reference plan was carried out."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import agentgym
from agentgym import worlds
from agentgym.envs.loca.config import LENGTHS
from agentgym.envs.loca.plan import CLAIM
from agentgym.envs.loca.task import OfficeTask

TASKS = {entry.world.__name__: entry.world for entry in worlds() if issubclass(entry.world, OfficeTask)}


def fresh(task: str, length: int = LENGTHS["8k"], seed: int = 0, **knobs: Any) -> Any:
    """A task at the start of an episode."""
    env = agentgym.tool_env(agentgym.make(task, length=length, **knobs))
    env.reset(seed=seed)
    return env.world


def carry_out(world: Any) -> Any:
    """Carry out the reference plan through the tools, up to the claim; each call is checked and run as the env would."""
    while (steps := world.progress.pending()) != [CLAIM]:
        step = steps[0]
        world.read_result(step.call, world.office.call(step.call.name, step.call.arguments))
        assert step.label in world.progress.facts, step
    world.done = True
    return world


@functools.cache
def _solved(task: str, length: int, seed: int, knobs: tuple[tuple[str, Any], ...]) -> bytes:
    return pickle.dumps(carry_out(fresh(task, length, seed, **dict(knobs))))


def solved(task: str, length: int = LENGTHS["8k"], seed: int = 0, **knobs: Any) -> Any:
    """A task whose reference plan was carried out; a new copy at each call."""
    return pickle.loads(_solved(task, length, seed, tuple(sorted(knobs.items()))))


def faults_after(task: str, change: Callable[[Any], object], **options: Any) -> list[str]:
    """What is wrong after the reference plan was carried out and a change was made to the final state.

    For near misses, which have to give a fault, and for equivalent states, which must not.
    """
    world = solved(task, **options)
    assert list(world.wrong()) == []
    change(world)
    assert world.score() == float(not list(world.wrong()))
    return list(world.wrong())
