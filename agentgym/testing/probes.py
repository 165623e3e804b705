"""Read, compare and copy the state of an episode in any world."""

from __future__ import annotations

import copyreg
import functools
import pickle
import sqlite3
import types
from collections.abc import Iterator, Mapping
from contextlib import closing
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

# The header of an SQLite database; two databases with the same records may have different bytes.
_SQLITE = b"SQLite format 3\x00"
# Types whose values are compared directly rather than part by part.
_VALUES = (
    *(str, int, float, bytes, complex, type(None), type),
    *(types.FunctionType, types.BuiltinFunctionType),
)
# Index of the state in the tuple that `__reduce_ex__` returns.
_STATE = 2
# Fields of a team to compare; mail is excluded, because it is delivered after each cycle.
_TEAM_FIELDS = ("messages", "tasks", "winners", "faults", "question", "answer")
_MAX_DIFFERENCES = 5


def state_of(env: gymnasium.Env[Any, Any]) -> bytes:
    """Return an episode's pickled worlds and toolsets, with the turn number set to 0."""
    inner = env.unwrapped
    if isinstance(inner, TeamEnv):
        team = inner.game.team
        worlds = list({id(world): world for world in team.worlds.values()}.values())
        rest: Any = {name: getattr(team, name) for name in _TEAM_FIELDS}
    elif isinstance(inner, ToolEnv):
        worlds, rest = [inner.world], [_state_of_toolset(owner) for owner in inner._mounted]
    else:
        raise TypeError(f"the fuzzer requires an agentgym env, got {type(inner).__name__}")
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
    """Return the differences between two states, each with its path and both values.

    Differences in object sharing, set order or database pages are ignored.
    """
    if before == after:
        return []
    found = _compare("", pickle.loads(before), pickle.loads(after), {})
    return list(islice(found, _MAX_DIFFERENCES))


# Compared pairs of objects, keyed by id; references to the objects prevent the reuse of ids.
_Pairs = dict[tuple[int, int], tuple[Any, Any]]


def _compare(path: str, one: Any, two: Any, seen: _Pairs) -> Iterator[str]:
    if one is two or (id(one), id(two)) in seen:
        return
    one, two = _plain(one), _plain(two)
    if type(one) is not type(two) or isinstance(one, _VALUES):
        if repr(one) != repr(two):  # unlike ==, this tells 1 from True, but NaN equals NaN
            yield f"{path}: {_short(one)} became {_short(two)}"
        return
    seen[id(one), id(two)] = one, two
    if isinstance(one, dict):
        yield from _compare_dicts(path, one, two, seen)
    elif isinstance(one, (list, tuple)):
        if len(one) != len(two):
            yield f"{path}: {len(one)} items became {len(two)}"
        for k, (left, right) in enumerate(zip(one, two, strict=False)):
            yield from _compare(f"{path}[{k}]", left, right, seen)
    else:
        left, right = _parts(one), _parts(two)
        if len(left) > _STATE:
            _drop_caches(type(one), left[_STATE], right[_STATE])
        for k, (first, second) in enumerate(zip(left, right, strict=True)):
            place = "" if k == _STATE else f"<{k}>"  # most differences are in the state
            yield from _compare(path + place, first, second, seen)


def _compare_dicts(path: str, one: Any, two: Any, seen: _Pairs) -> Iterator[str]:
    if one.keys() != two.keys():
        yield f"{path}: keys {sorted(map(repr, one.keys() ^ two.keys()))[:3]} on one side only"
    elif list(one) != list(two):
        yield f"{path}: the order of the keys changed"
    for name in one:
        if name in two:
            yield from _compare(f"{path}.{name}", one[name], two[name], seen)


def _parts(value: Any) -> list[Any]:
    reduce = copyreg.dispatch_table.get(type(value))
    parts = reduce(value) if reduce else value.__reduce_ex__(4)
    if isinstance(parts, str):
        return [parts]
    function, arguments, state, *items = [*parts, None, None, None][:5]
    own = dict(state) if isinstance(state, dict) else state
    return [function, arguments, own, *(list(each or ()) for each in items)]


def _drop_caches(kind: type, one: Any, two: Any) -> None:
    if isinstance(one, dict) and isinstance(two, dict):
        for name in one.keys() ^ two.keys():
            if isinstance(getattr(kind, str(name), None), functools.cached_property):
                one.pop(name, None)
                two.pop(name, None)


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, bytes) and value.startswith(_SQLITE):
        return _records(value)
    return value


def _records(image: bytes) -> list[str]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(image)
        return list(database.iterdump())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"


# A copy of an env: how it was made, the env, and the snapshot to restore, if any.
Twin = tuple[str, gymnasium.Env[Any, Any], Snapshot | None]


def copy_for(env: gymnasium.Env[Any, Any], way: int) -> Twin:
    """Return a clone (`way` 0), an unpickled copy (1) or, for an env without wrappers, a snapshot
    (2).
    """
    if way == 2 and isinstance(env, ToolEnv):
        return "restored from a snapshot", env, env.snapshot()
    if way:
        return "unpickled", pickle.loads(pickle.dumps(env)), None
    return "cloned", clone(env), None


def compare_copy(
    env: gymnasium.Env[Any, Any], twin: Twin, chat: Chat, action: str, result: StepResult
) -> str:
    """Play the same reply in an earlier copy of an env, and describe any differences."""
    how, other, snapshot = twin
    state = state_of(env)
    if snapshot is not None and isinstance(env, ToolEnv):
        env.restore(snapshot)
    one, two = describe_result(chat, result), describe_result(chat, other.step(action))
    if one != two:
        places = range(min(len(one), len(two)))
        first = next((k for k in places if one[k] != two[k]), 0)
        near = slice(max(0, first - 60), first + 60)
        return f"an env that was {how} continues differently: {one[near]!r} became {two[near]!r}"
    if changes := differences(state, state_of(other)):
        return f"an env that was {how} has another state: {'; '.join(changes)}"
    return ""
