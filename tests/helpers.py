"""What several test files need."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import pytest

import agentgym
from agentgym import ToolCall, ToolEnv
from agentgym.assemble import plugins, registry
from agentgym.office.store import Store
from agentgym.testing.laws import compare_hints

compare = compare_hints

PATIENCE = 600.0
"""Seconds after which a test gives up what hangs: far more than anything takes, on one busy
core too.
"""


@contextlib.contextmanager
def forgotten_worlds() -> Iterator[None]:
    """Forget afterwards the worlds that are registered within, which other tests must not find."""
    tables: tuple[Any, ...] = (registry._worlds, registry._teams, gymnasium.registry)
    tables = (*tables, plugins._unused)
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


def calls_of(
    function: Callable[..., object], *arguments: Any, database: Store | None = None
) -> int:
    """The work of a call, in a measure that is the same on every machine: functions called, and
    steps of a database of SQLite.
    """
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    def progress() -> None:
        nonlocal count
        count += 1

    if database is not None:
        database._db.set_progress_handler(progress, 10)
    previous, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # finalizers of what other tests have left are no work of this call
    sys.setprofile(profile)
    try:
        function(*arguments)
    finally:
        sys.setprofile(previous)
        if collects:
            gc.enable()
        if database is not None:
            database._db.set_progress_handler(None, 10)
    return count


def public_state(world: Any) -> dict[str, Any]:
    """All that a world is, but for the turn that a failed reply uses up."""
    state = copy.deepcopy(vars(world))
    del state["turn"]
    if "office" in state:
        state |= {"office": pickle.dumps(world.office), "progress": world.progress.lines()}
    return {**state, "rng": world.rng.bit_generator.state}


class Outcome(NamedTuple):
    """What a reply led to: the newest message of the chat and the signals of the step."""

    text: str
    reward: float
    terminated: bool
    truncated: bool
    turn: int

    @property
    def going_on(self) -> bool:
        """Whether the episode has not ended."""
        return not (self.terminated or self.truncated)


def start(env_id: str, *, task: str = "", seed: int = 0, **options: Any) -> ToolEnv:
    """An env at the start of an episode; if a task message is given, of the instance that it
    tells.
    """
    env = agentgym.tool_env(agentgym.make(env_id, **options))
    env.reset(seed=seed)
    if task:
        vars(env.world).update(vars(type(env.world).read_task(task)))
    return env


def say(env: ToolEnv, *replies: str) -> Outcome:
    """Play replies; what the last one led to."""
    for reply in replies:
        chat, reward, terminated, truncated, info = env.step(reply)
    return Outcome(chat.messages[-1].text, float(reward), terminated, truncated, info["turn"])


def play(env: ToolEnv, *calls: ToolCall) -> Outcome:
    """Play calls through the text interface; what the last one led to."""
    return say(env, *map(agentgym.render, calls))


def play_optimally(env: ToolEnv) -> Outcome:
    """Play the first optimal call until the episode ends or success is out of reach."""
    outcome = play(env, env.world.optimal_calls()[0])
    while outcome.going_on and (calls := env.world.optimal_calls()):
        outcome = play(env, calls[0])
    return outcome


@functools.cache
def needs_workbench() -> None:
    """Skip a test whose programs this host cannot run."""
    workbench = pytest.importorskip("agentgym.sandboxes.workbench")
    try:
        workbench.run(["/usr/bin/bash", "-c", "true"], {})
    except RuntimeError as error:
        pytest.skip(str(error))
