"""States of an office task: drawn in a size that gives them the configured length."""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from agentgym.envs.loca.config import MAX_SIZE
from agentgym.envs.loca.plan import PlanStep
from agentgym.envs.loca.progress import steps_of
from agentgym.envs.loca.protected_state import fingerprint_protected
from agentgym.office.office import Office
from agentgym.text.tokens import count_texts

if TYPE_CHECKING:
    from agentgym.envs.loca.task import OfficeConfig, OfficeTask

TOLERANCE = 0.08
"""The relative error of the length of a state above which another size is tried; it is small beside
the steps between the preset lengths.
"""

_IDS = 1
"""Marks the random stream of the identifiers in a state, which is apart from that of `draw`."""

_TRIES = 12
"""The most sizes that are tried, which bounds the time of a reset where no size fits."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A drawn state: the office and the truth, pickled, and its length.

    Attributes:
        state: The pickled office and truth.
        tokens: The description length.
        steps: The number of steps of the plan, if the description is what they read; else None.
    """

    state: bytes
    tokens: int
    steps: int | None


@dataclass(frozen=True, slots=True)
class DrawnState(_Draft):
    """A draft that has the configured length, with the number of steps of the plan and the hashes of
    what a task leaves alone.
    """

    steps: int
    hashes: Mapping[str, str]


@functools.lru_cache(maxsize=8)
def draw_state(task: Any, config: OfficeConfig, seed: int) -> DrawnState:
    """Draw a state of the configured length, from better and better guesses of the size."""
    if config.size is not None:
        return _complete(task, config, _draw_draft(task, config, (seed, config.size), config.size))
    size = max(1, round(config.length / task.tokens_per_unit))

    def error(draft: _Draft) -> int:
        return abs(draft.tokens - config.length)

    drafts = [_draw_draft(task, config, (seed, 0), size)]
    sizes = [size]
    while len(drafts) < _TRIES and min(map(error, drafts)) > TOLERANCE * config.length:
        # The nearest size so far is corrected by most of its relative error: the exponent makes
        # this converge for lengths that grow with the size, with its square, or in between. A size
        # may come up again: where one unit more is too much, another draw of the same size may fit.
        size, best = min(zip(sizes, drafts, strict=True), key=lambda pair: error(pair[1]))
        size = round(size * (config.length / max(1, best.tokens)) ** 0.75)
        sizes.append(min(MAX_SIZE, max(1, size)))
        drafts.append(_draw_draft(task, config, (seed, len(drafts)), sizes[-1]))
    return _complete(task, config, min(drafts, key=error))


def _draw_draft(
    task: type[OfficeTask[Any]], config: OfficeConfig, seed: tuple[int, int], size: int
) -> _Draft:
    """Draw a state of a size and measure it; only for the accepted one the plan is made."""
    world = task(config, 0)
    world.rng = np.random.default_rng(seed)
    world.office.context.seed = int(np.random.default_rng((*seed, _IDS)).integers(2**63))
    with contextlib.ExitStack() as transactions:  # one for all, as each takes time to end
        for server in world.office.toolsets():
            transactions.enter_context(server.store.change())
        world.draw(size)
    state = pickle.dumps((world.office, world.truth))
    calls, steps = world.describe(), None
    if calls is None:
        results, steps = _play(world, world.office)
    else:
        results = [world.office.call(call.name, call.arguments) for call in calls]
    return _Draft(state, count_texts(results), steps)


def _play(world: OfficeTask[Any], office: Office) -> tuple[list[str], int]:
    """Make the calls of the plan from whose results it learns; return the results of the reading
    ones, and the number of all steps.
    """

    def play(step: PlanStep) -> str:
        return office.call(step.call.name, step.call.arguments) if step.learn else ""

    steps = list(steps_of(world.plan, play))
    return [result for step, result in steps if not step.changes], len(steps) + 1


def _complete(task: type[OfficeTask[Any]], config: OfficeConfig, draft: _Draft) -> DrawnState:
    """Return what an episode needs of a draft."""
    office, _ = pickle.loads(draft.state)
    hashes = fingerprint_protected(office, task.mutable_tables, task.harmless_differences())
    steps = _play(task(config, 0), office)[1] if draft.steps is None else draft.steps
    return DrawnState(draft.state, draft.tokens, steps, hashes)


@functools.cache
def plan_length(task: Any, size: int) -> int:
    """Return the number of steps of the plan for a state of a size."""
    return draw_state(task, task.Config(size=size), 0).steps
