"""Draw the state of an office task at a size that matches the configured length."""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agentgym.envs.loca import MAX_SIZE
from agentgym.envs.loca.plan import PlanStep
from agentgym.envs.loca.progress import steps_of
from agentgym.envs.loca.protected_state import fingerprint_protected
from agentgym.office.office import Office
from agentgym.text.tokens import count_texts

if TYPE_CHECKING:
    from agentgym.envs.loca.task import OfficeConfig, OfficeTask

# Maximum relative error of the length, small compared with the gaps between preset lengths.
TOLERANCE = 0.08
# Identifiers have a separate random stream, so that adding identifiers affects no other draw.
_IDS = 1
# Maximum number of draws, so that a reset ends if no size fits.
_TRIES = 12


@dataclass(frozen=True, slots=True)
class DrawnState:
    """A pickled state, with the number of plan steps and the hashes of the protected state."""

    state: bytes
    tokens: int
    steps: int = 0
    hashes: Mapping[str, str] = field(default_factory=dict)


@functools.lru_cache(maxsize=8)
def draw_state(task: Any, config: OfficeConfig, seed: int) -> DrawnState:
    """Draw a state of the configured length, correcting the size after each try."""
    length = config.length
    size = config.size or max(1, round(length / task.tokens_per_unit))
    best = _draw_draft(task, config, (seed, config.size or 0), size)
    for number in range(1, _TRIES):
        if config.size or abs(best.tokens - length) <= TOLERANCE * length:
            break
        # With this exponent, the loop converges whether the length grows linearly or quadratically.
        # A size may be tried again, since another draw may fit.
        tried = round(size * (length / max(1, best.tokens)) ** 0.75)
        tried = min(MAX_SIZE, max(1, tried))
        draft = _draw_draft(task, config, (seed, number), tried)
        if abs(draft.tokens - length) < abs(best.tokens - length):
            best, size = draft, tried
    return _complete(task, config, best)


def _draw_draft(
    task: type[OfficeTask[Any]], config: OfficeConfig, seed: tuple[int, int], size: int
) -> DrawnState:
    world = task(config, 0)
    world.rng = np.random.default_rng(seed)
    world.office.context.seed = int(np.random.default_rng((*seed, _IDS)).integers(2**63))
    with contextlib.ExitStack() as transactions:  # commit only once, because commits are slow
        for server in world.office.toolsets():
            transactions.enter_context(server.store.change())
        world.fill(size)
    state = pickle.dumps((world.office, world.truth))
    calls, steps = world.describe(), 0
    if calls is None:
        results, steps = _play(world, world.office)
    else:
        results = [world.office.call(call.name, call.arguments) for call in calls]
    return DrawnState(state, count_texts(results), steps)


def _play(world: OfficeTask[Any], office: Office) -> tuple[list[str], int]:
    def play(step: PlanStep) -> str:
        return office.call(step.call.name, step.call.arguments) if step.learn else ""

    steps = list(steps_of(world.plan, play))
    return [result for step, result in steps if not step.changes], len(steps) + 1


def _complete(task: type[OfficeTask[Any]], config: OfficeConfig, draft: DrawnState) -> DrawnState:
    office, _ = pickle.loads(draft.state)
    hashes = fingerprint_protected(office, task.mutable_tables, task.harmless_differences())
    steps = draft.steps or _play(task(config, 0), office)[1]
    return replace(draft, steps=steps, hashes=hashes)


@functools.cache
def plan_length(task: Any, size: int) -> int:
    """Return the number of plan steps for a task of the given size."""
    return draw_state(task, task.Config(size=size), 0).steps
