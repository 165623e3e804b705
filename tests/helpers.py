from __future__ import annotations

import contextlib
import copy
import functools
import gc
import pickle
import subprocess
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

# Seconds until a test gives up on a hanging process, far more than any test needs on a busy core.
PATIENCE = 600.0


def run_python(
    *words: str, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in another process, and capture its output."""
    options |= {"capture_output": True, "text": True, "timeout": PATIENCE}
    return subprocess.run([sys.executable, *words], check=check, **options)


@contextlib.contextmanager
def forgotten_worlds() -> Iterator[None]:
    """Unregister the worlds registered inside the block, so that other tests do not see them."""
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
    """Return a machine-independent measure of a call's work: the number of function calls and
    SQLite steps.
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
    gc.disable()  # excludes the finalizers of other tests' objects from the measured work
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
    """Return a world's state without the turn counter, which a failed reply increments."""
    state = copy.deepcopy(vars(world))
    del state["turn"]
    if "office" in state:
        state |= {"office": pickle.dumps(world.office), "progress": world.progress.lines()}
    return {**state, "rng": world.rng.bit_generator.state}


class Outcome(NamedTuple):
    """The outcome of a reply: the newest message, the reward, the end flags and the turn."""

    text: str
    reward: float
    terminated: bool
    truncated: bool
    turn: int

    @property
    def going_on(self) -> bool:
        return not (self.terminated or self.truncated)


def start(env_id: str, *, task: str = "", seed: int = 0, **options: Any) -> ToolEnv:
    """Return an env at the start of an episode; a task message selects the instance."""
    env = agentgym.tool_env(agentgym.make(env_id, **options))
    env.reset(seed=seed)
    if task:
        vars(env.world).update(vars(type(env.world).read_task(task)))
    return env


def say(env: ToolEnv, *replies: str) -> Outcome:
    for reply in replies:
        chat, reward, terminated, truncated, info = env.step(reply)
    return Outcome(chat.messages[-1].text, float(reward), terminated, truncated, info["turn"])


def play(env: ToolEnv, *calls: ToolCall) -> Outcome:
    return say(env, *map(agentgym.render, calls))


def play_optimally(env: ToolEnv) -> Outcome:
    """Play the first optimal call until the episode ends or success is impossible."""
    outcome = play(env, env.world.optimal_calls()[0])
    while outcome.going_on and (calls := env.world.optimal_calls()):
        outcome = play(env, calls[0])
    return outcome


@functools.cache
def needs_workbench() -> None:
    workbench = pytest.importorskip("agentgym.sandboxes.workbench")
    try:
        workbench.run(["/usr/bin/bash", "-c", "true"], {})
    except RuntimeError as error:
        pytest.skip(str(error))
