"""Probes of an episode without knowledge of the world: state, differences and copies."""

from __future__ import annotations

import copyreg
import functools
import math
import pickle
import sqlite3
import types
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import gymnasium
import numpy as np

from agentgym.multi.gym import TeamEnv
from agentgym.play.env import ToolEnv, clone
from agentgym.play.tool_host import Snapshot
from agentgym.testing.checks import StepResult, describe_result
from agentgym.text.messages import Chat
from agentgym.text.tools import Toolset

# The start of a database image; two images with the same records may differ.
_SQLITE = b"SQLite format 3\x00"
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
# A team's state besides its worlds, and its mail, which the end of a cycle delivers.
_TEAM_FIELDS = ("messages", "tasks", "winners", "faults", "question", "answer")
# enough to recognise the change
_MAX_DIFFERENCES = 5


def state_of(env: gymnasium.Env[Any, Any]) -> bytes:
    """Return an episode's state: its worlds and the mounted toolsets.

    The turn number is excluded, because every reply advances it.
    """
    inner = env.unwrapped
    if isinstance(inner, TeamEnv):
        team = inner.game.team
        worlds = list({id(world): world for world in team.worlds.values()}.values())
        rest: Any = {name: getattr(team, name) for name in _TEAM_FIELDS}
    elif isinstance(inner, ToolEnv):
        worlds, rest = [inner.world], [_state_of_toolset(owner) for owner in inner._mounted]
    else:
        raise TypeError(f"a fuzzer plays envs of agentgym, got {type(inner).__name__}")
    turns = [world.turn for world in worlds]
    try:
        for world in worlds:
            world.turn = 0
        return pickle.dumps((worlds, rest))
    finally:
        for world, turn in zip(worlds, turns, strict=True):
            world.turn = turn


def _state_of_toolset(owner: object) -> Mapping[str, Any]:
    names = owner.episode_state if isinstance(owner, Toolset) else tuple(vars(owner))
    return {name: getattr(owner, name) for name in names}


def differences(before: bytes, after: bytes) -> list[str]:
    """Return the differences between two states as paths with both values.

    Pickles of equal content (shared objects, set order, database pages) do not differ.
    """
    if before == after:
        return []
    paths = _Comparison().compare("", pickle.loads(before), pickle.loads(after))
    return list(islice(paths, _MAX_DIFFERENCES))


class _Comparison:
    """Parallel walk through two object graphs, by the pickled form of each object."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()
        self._alive: list[Any] = []  # prevents reuse of ids

    def compare(self, path: str, one: Any, two: Any) -> Iterator[str]:
        if one is two or (id(one), id(two)) in self._seen:
            return
        if type(one) is not type(two):
            yield _difference(path, one, two)
        elif isinstance(one, (str, int, float, bytes, complex, type(None))):
            if not _equal_atoms(one, two):
                yield _difference(path, one, two)
        else:
            self._seen.add((id(one), id(two)))
            self._alive += [one, two]
            yield from self._compare_parts(path, one, two)

    def _compare_parts(self, path: str, one: Any, two: Any) -> Iterator[str]:
        if isinstance(one, dict):
            yield from self._compare_dicts(path, one, two)
        elif isinstance(one, (list, tuple)):
            if len(one) != len(two):
                yield f"{path}: {len(one)} items became {len(two)}"
            for k, (left, right) in enumerate(zip(one, two, strict=False)):
                yield from self.compare(f"{path}[{k}]", left, right)
        elif isinstance(one, functools.partial):
            parts = [(each.func, each.args, each.keywords) for each in (one, two)]
            yield from self.compare(path, *parts)
        elif isinstance(one, (set, frozenset, np.ndarray, type, *_FUNCTIONS)):
            if not _equal_values(one, two):
                yield _difference(path, one, two)
        else:
            yield from self._compare_objects(path, one, two)

    def _compare_dicts(self, path: str, one: Any, two: Any) -> Iterator[str]:
        if one.keys() != two.keys():
            yield f"{path}: keys {sorted(map(repr, one.keys() ^ two.keys()))[:3]} on one side only"
        elif list(one) != list(two):
            yield f"{path}: the order of the keys changed"
        for name in one:
            if name in two:
                yield from self.compare(f"{path}.{name}", one[name], two[name])

    def _compare_objects(self, path: str, one: Any, two: Any) -> Iterator[str]:
        left, right = _parts(one), _parts(two)
        for name in one.__dict__.keys() ^ two.__dict__.keys() if hasattr(one, "__dict__") else ():
            if isinstance(getattr(type(one), name, None), functools.cached_property):
                for part in (left, right):  # derived from the rest
                    if isinstance(part[2], dict):
                        part[2].pop(name, None)
        for k, (first, second) in enumerate(zip(left, right, strict=True)):
            yield from self.compare(path if k == 2 else f"{path}<{k}>", first, second)


def _parts(value: Any) -> list[Any]:
    """Return the parts from which an object is rebuilt: function, arguments, state, items."""
    reduce = copyreg.dispatch_table.get(type(value))
    parts = reduce(value) if reduce else value.__reduce_ex__(4)
    if isinstance(parts, str):
        return [parts]
    function, arguments, state, *items = [*parts, None, None, None][:5]
    own = dict(state) if isinstance(state, dict) else state
    return [function, arguments, own, *(None if each is None else list(each) for each in items)]


def _equal_values(one: Any, two: Any) -> bool:
    if isinstance(one, (set, frozenset)):
        return sorted(map(repr, one)) == sorted(map(repr, two))
    return bool(np.array_equal(one, two) if isinstance(one, np.ndarray) else one == two)


def _equal_atoms(one: Any, two: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(two)
    if isinstance(one, bytes) and one.startswith(_SQLITE) and one != two:
        return _records(one) == _records(two)
    return bool(one == two)


def _records(image: bytes) -> list[str]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(image)
        return list(database.iterdump())


def _difference(path: str, one: Any, two: Any) -> str:
    if isinstance(one, bytes) and isinstance(two, bytes) and one.startswith(_SQLITE):
        old, new = set(_records(one)), set(_records(two))
        return f"{path}: {_short(sorted(old - new)[:2])} became {_short(sorted(new - old)[:2])}"
    return f"{path}: {_short(one)} became {_short(two)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"


@dataclass(frozen=True, slots=True)
class Twin:
    """A copy of an env at one moment: another env, or the same one with a snapshot."""

    how: str
    env: gymnasium.Env[Any, Any]
    snapshot: Snapshot | None = None


def copy_for(env: gymnasium.Env[Any, Any], way: int) -> Twin:
    """Return a copy of an env.

    `way` is 0 for a clone, 1 for a pickle, 2 for a snapshot. Snapshots do not include wrappers, so
    a stack is pickled.
    """
    if way == 2 and isinstance(env, ToolEnv):
        return Twin("restored from a snapshot", env, env.snapshot())
    if way:
        return Twin("unpickled", pickle.loads(pickle.dumps(env)))
    return Twin("cloned", clone(env))


def compare_copy(
    env: gymnasium.Env[Any, Any], twin: Twin, chat: Chat, action: str, result: StepResult
) -> str:
    """Play a reply in an earlier copy too, and describe the differences, if any."""
    state = state_of(env)
    if twin.snapshot is not None and isinstance(env, ToolEnv):
        env.restore(twin.snapshot)
    again = twin.env.step(action)
    if (one := describe_result(chat, result)) != (two := describe_result(chat, again)):
        k = next((k for k, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), 0)
        return (
            f"an env that was {twin.how} goes on otherwise: {one[max(0, k - 60) : k + 60]!r} "
            f"became {two[max(0, k - 60) : k + 60]!r}"
        )
    changes = differences(state, state_of(twin.env))
    return f"an env that was {twin.how} has another state: {'; '.join(changes)}" if changes else ""
