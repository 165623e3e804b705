"""Registry of worlds and teams, which also builds env specs."""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec, load_env_creator

from agentgym.assemble.context_options import Context
from agentgym.assemble.plugins import import_plugins, register_each
from agentgym.assemble.wrapper_stack import build_stack, import_owner, needed_hooks
from agentgym.multi.gym import TeamEnv
from agentgym.play.env import ToolEnv
from agentgym.play.kept_spec import entry_point, has_own_entry_point
from agentgym.text.requirements import check_requirements
from agentgym.text.tools import first_paragraph
from agentgym.text.validation import check_choice, list_names
from agentgym.world.config import json_schema, make_config
from agentgym.world.splits import config_for_split
from agentgym.world.world import World, check_defined, check_world, load_world, world_path

# Maps each kind of team to the suffix of its ids.
TEAMS = {"split": "team", "manager": "manager", "host": "host", "duel": "duel", "match": "match"}
TEAM_IDS = f"ids of teams end in -{', -'.join(TEAMS.values())}"

_NAMESPACE = "agentgym/"
_NAMESPACES = re.compile(r"[\w-]+", re.ASCII)
_ENV, _TEAM_ENV = "agentgym.play.env:ToolEnv", "agentgym.multi.gym:TeamEnv"
_SEAT_ENV = "agentgym.training.rollout.seat_env:SeatEnv"
# `_SEAT_ENV` is missing, because a recorded spec must not choose which policies run.
ENTRY_POINTS = (_ENV, _TEAM_ENV)
# Keyword arguments of `ToolEnv` and of teams, not of worlds.
_ENV_OPTIONS: tuple[str, ...] = (
    *("world", "dialect", "parallel_calls", "max_failed_rounds"),
    *("max_result_chars", "on_fault", "render_mode", "split"),
)
_TEAM_OPTIONS = (
    *("team", "roles", "reward", "max_message", "message_words"),
    *("message_noise", "max_cycles", "seat", "opponents"),
)
# Presets of agentgym's own worlds are checked in tests, not on import, which would be slow.
_OWN_WORLDS = "agentgym.envs."
_worlds: dict[str, Entry] = {}
_teams: dict[str, Entry] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered world."""

    id: str
    source: type[World[Any]] | str
    options: Mapping[str, Any]

    @property
    def path(self) -> str:
        return world_path(self.source)

    @property
    def world(self) -> type[World[Any]]:
        """Return the class, imported on first use (see `load_world`)."""
        return load_world(self.source)

    @property
    def summary(self) -> str:
        return first_paragraph(self.world.__doc__)


def register(
    world: type[World[Any]] | str,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    teams: Sequence[str] = (),
    namespace: str = "agentgym",
) -> None:
    """Register a world as `<namespace>/<Class>-v0`, with ids for its presets and teams.

    Args:
        world: The class, or its path `module:Class`, which is imported on first use.
        presets: Maps preset names to options of the world and of `ToolEnv`.
        teams: Additional kinds of teams that can play the world; see `TEAMS`.
        namespace: The first part of the ids.

    Raises:
        ValueError: A preset option, a path or the namespace is invalid.
        MissingHook: The world lacks a required hook.
    """
    if not _NAMESPACES.fullmatch(namespace):
        raise ValueError(f"namespace may contain only letters, digits, _ and -, got {namespace!r}")
    path = world_path(world)
    name = path.rpartition(":")[2] if isinstance(world, str) else world.__name__
    if not isinstance(world, str):
        check_world(world)
    for preset, options in {"": {}, **(presets or {})}.items():
        suffix = f"-{preset}" if preset else ""
        if not isinstance(world, str) and not path.startswith(_OWN_WORLDS):
            make_config(world, {key: options[key] for key in options if key not in _ENV_OPTIONS})
        entry = Entry(f"{namespace}/{name}{suffix}-v0", world, dict(options))
        _worlds[entry.id] = entry
        kwargs = {"world": path, **options}
        _register(entry.id, kwargs)
        if preset:
            continue
        for kind, ending in TEAMS.items():
            if kind in ("split", "manager") or kind in teams:
                team = Entry(f"{namespace}/{name}-{ending}-v0", world, {"team": kind})
                _teams[team.id] = team
                _register(team.id, {**kwargs, **team.options})


def _register(env_id: str, kwargs: dict[str, Any]) -> None:
    old = gymnasium.registry.get(env_id)
    if old is None or not has_own_entry_point(old) or old.kwargs != kwargs:
        if old is not None:
            warnings.warn(f"the id {env_id} now refers to another env", stacklevel=3)
        # `gymnasium.register` is slow, because it searches all ids.
        gymnasium.registry[env_id] = EnvSpec(
            env_id,
            entry_point=entry_point(env_id),
            kwargs=kwargs,
            order_enforce=False,  # Gymnasium's wrappers would slow down each step
            disable_env_checker=True,
        )


def worlds(presets: bool = False) -> list[Entry]:
    """Return the registered worlds, optionally with presets."""
    return [entry for entry in _worlds.values() if presets or not entry.options]


def teams() -> list[Entry]:
    """Return the registered teams; `options["team"]` is the team's kind."""
    return list(_teams.values())


def is_team(env_id: str) -> bool:
    """Report whether an id belongs to a team; raise ValueError for an unknown id."""
    return resolve(env_id) in _teams


def one_agent_spec(env_id: str, **options: Any) -> EnvSpec:
    """Return the spec of a single-agent env; raise ValueError for a team if no seat is given."""
    env_spec = spec(env_id, **options)
    if env_spec.entry_point == _TEAM_ENV:
        raise ValueError(
            f"{env_spec.name} is a team, and this bridge plays one agent; name its seat and the "
            "other agents' policies, such as opponents={'player_1': 'oracle'}"
        )
    return env_spec


def register_plugins() -> None:
    """Register the worlds of other packages without importing them."""
    register_each(lambda path, package: register(path, namespace=package))


def load_plugins(namespace: str = "") -> None:
    """Import one or all plugin packages; unregister broken worlds with a warning."""
    for path in import_plugins(namespace):
        for env_id in ids_of(path):
            for table in (_worlds, _teams, gymnasium.registry):
                table.pop(env_id, None)


def resolve(env_id: str) -> str:
    """Return the full id of a world or team; raise ValueError unless exactly one matches.

    `ListWorld-easy` is short for `agentgym/ListWorld-easy-v0`, or else for another package's world.
    `package.module:MyWorld` names a class.
    """
    if not isinstance(env_id, str):
        raise ValueError(f"an id must be a string such as 'ListWorld', got {env_id!r}")
    if ":" in env_id:
        full = _resolve_in_module(env_id)
    else:
        namespace = env_id.rpartition("/")[0]
        full = _find(env_id)
        for packages in (namespace, "") if namespace else ("",):
            if not full:
                load_plugins(packages)
                full = _find(env_id)
    if full:
        return full
    names = [_short(entry.id) for entry in worlds()]
    near = [_short(entry.id) for entry in (*worlds(presets=True), *teams())]
    remedy = list_names(_short(env_id.rpartition(":")[2]), names, "worlds", near)
    raise ValueError(
        f"there is no world {env_id!r}; {remedy}; name your own world as package.module:MyWorld"
    )


def _short(env_id: str) -> str:
    return env_id.removeprefix(_NAMESPACE).removesuffix("-v0")


def _find(name: str) -> str:
    for full in (name, f"{name}-v0", f"{_NAMESPACE}{name}", f"{_NAMESPACE}{name}-v0"):
        if full in gymnasium.registry and "world" in gymnasium.registry[full].kwargs:
            return full
    matches = [full for full in (*_worlds, *_teams) if _is_called(full, name)]
    if len(matches) > 1:
        raise ValueError(
            f"{name!r} is ambiguous: several packages have this world; use {' or '.join(matches)}"
        )
    return "".join(matches)


def _is_called(full: str, name: str) -> bool:
    return full.rpartition("/")[2] in (name, f"{name}-v0")


def _resolve_in_module(env_id: str) -> str:
    name = import_owner(env_id)
    module = env_id.rpartition(":")[0]
    short = name.rpartition("/")[2]
    world = getattr(sys.modules.get(module), short.partition("-")[0], None)
    if isinstance(world, type) and issubclass(world, World):
        path = world_path(world)
        if not ids_of(path):
            register(world, namespace=module.partition(".")[0])
        for full in ids_of(path):
            if full == name or _is_called(full, short):
                return full
    return _find(name)


def ids_of(path: str) -> list[str]:
    """Return the ids of the worlds and teams whose class has this path."""
    registered = gymnasium.registry.items()
    return [env_id for env_id, each in registered if each.kwargs.get("world") == path]


def spec(
    env_id: str,
    *,
    oracles: str | None = "",
    hint_scope: str = "persistent",
    oracle_options: Mapping[str, Mapping[str, Any]] | None = None,
    shots: int = 0,
    labels: bool = False,
    wrappers: Sequence[WrapperSpec] = (),
    context: Context = "",
    window: int | str | None = None,
    context_options: Mapping[str, Mapping[str, Any]] | None = None,
    agents: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> EnvSpec:
    """Return the spec of a world or team with its wrappers, for `gymnasium.make` or a file.

    Args:
        env_id: The id, full or short.
        oracles: Letters in any order: P (plan), S (state), H (history, needs S) and, for teams, C
            (communication). After P or S, a number is the probability of a correct hint (`P0.5`).
            `_` after any letter except H replaces the oracle's hints with equally long placebos.
        hint_scope: `persistent` hints stay in the chat; `ephemeral` hints appear only in
            the newest message.
        oracle_options: Wrapper arguments by oracle letter, such as `{"H": {"keep_last_error":
            True}}`; arguments of inactive oracles are ignored.
        shots: The number of solved examples before the task.
        labels: Whether `info` contains `StepOptimality` labels.
        wrappers: Further wrappers, inner to outer, between the oracles and the examples.
        context: Context strategies, joined by `+` or as a sequence; see `strategies`.
        window: The context window in tokens, such as 32_000 or `32k`.
        context_options: Arguments of each strategy, of `trim` and of `budget`.
        agents: For a team, maps agent names to the options that differ between agents.
        **options: Keyword arguments of `ToolEnv` and of the world's configuration. Teams also
            accept the arguments of `agentgym.multi.game.Game`, or `seat` and `opponents`
            (`agentgym.training.rollout.seat_env.SeatEnv`).

    Raises:
        ValueError: The id or an option is invalid.
        MissingHook: The world lacks a hook that an option requires.
        MissingRequirement: The host does not meet a requirement of the world or a wrapper.
    """
    env_spec, world, config = _bare_spec(env_id, options, is_for_team=agents is not None)
    shared: dict[str, Any] = {
        "oracles": oracles,
        "hint_scope": hint_scope,
        "oracle_options": oracle_options,
        "labels": labels,
        "wrappers": wrappers,
        "context": context,
        "window": window,
        "context_options": context_options,
    }
    if "team" in env_spec.kwargs:
        stacks = _team_stacks(world, shared, agents or {}, shots)
        env_spec.kwargs["stacks"] = {
            agent: list(map(_as_plain, stack)) for agent, stack in stacks.items()
        }
    else:
        stacks = {"": build_stack(world, shots=shots, **shared)}
        env_spec.additional_wrappers += tuple(stacks[""])
    for layer in chain.from_iterable(stacks.values()):
        _check_layer(layer, world, config)
    return env_spec


def _check_layer(layer: WrapperSpec, world: type[World[Any]], config: Any) -> None:
    wrapper, arguments = load_env_creator(layer.entry_point), layer.kwargs or {}
    check_defined(world, config, needed_hooks(wrapper, arguments))
    requirements = getattr(wrapper, "requirements", None)
    if requirements is not None:
        check_requirements(layer.entry_point.rpartition(":")[2], requirements(**arguments))


def _bare_spec(
    env_id: str, options: Mapping[str, Any], *, is_for_team: bool
) -> tuple[EnvSpec, type[World[Any]], Any]:
    env_spec = copy.deepcopy(gymnasium.spec(resolve(env_id)))
    env_spec.kwargs.update(options)
    entry, others = _ENV, _ENV_OPTIONS
    if "team" in env_spec.kwargs:
        is_seat = "seat" in env_spec.kwargs or "opponents" in env_spec.kwargs
        entry = _SEAT_ENV if is_seat else _TEAM_ENV
        others += _TEAM_OPTIONS
    if has_own_entry_point(env_spec):
        env_spec.entry_point = entry
    world = load_world(env_spec.kwargs["world"])
    own = {name: value for name, value in env_spec.kwargs.items() if name not in others}
    config = make_config(world, own, (*others, *(spec.__kwdefaults__ or ())))
    # The spec stores converted values, such as 8000 for "8k".
    for name in options.keys() & vars(config).keys():
        if isinstance(options[name], str) or isinstance(getattr(config, name), str):
            env_spec.kwargs[name] = getattr(config, name)
    config_for_split(world, config, env_spec.kwargs.get("split"))  # checks the split
    if is_for_team and "team" not in env_spec.kwargs:
        raise ValueError(f"agents requires a team, and {env_spec.name} has one agent; {TEAM_IDS}")
    check_requirements(world.__name__, world.requirements(config))
    return env_spec, world, config


def _as_plain(layer: WrapperSpec) -> dict[str, Any]:
    return {"entry_point": layer.entry_point, "kwargs": layer.kwargs or {}}


def _team_stacks(
    world: type[World[Any]],
    shared: Mapping[str, Any],
    agents: Mapping[str, Mapping[str, Any]],
    shots: int,
) -> dict[str, list[WrapperSpec]]:
    for agent, own in agents.items():
        for name in own:
            if name not in shared:
                remedy = list_names(name, tuple(shared), "options of agents")
                raise ValueError(f"{agent} cannot have a separate option {name!r}; {remedy}")
    return {
        agent: build_stack(world, is_team=True, shots=shots, **{**shared, **own})
        for agent, own in {"": {}, **agents}.items()
    }


def make(env_id: str, *, render_mode: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make an env with the arguments of `spec`.

    Example:
        >>> env = make("ListWorld", oracles="SP", items=6, removals=2)
    """
    env_spec = spec(env_id, **options)
    if render_mode is not None:
        check_choice("render_mode", render_mode, env_metadata(env_spec.id)["render_modes"])
    return gymnasium.make(env_spec, render_mode=render_mode)


def env_metadata(env_id: str) -> Mapping[str, Any]:
    """Return the Gymnasium metadata of a registered id."""
    if "team" in gymnasium.spec(env_id).kwargs:
        return TeamEnv.metadata
    return ToolEnv.metadata


def config_schema(env_id: str) -> dict[str, Any]:
    """Return the JSON Schema of a world's options, with preset defaults."""
    preset = gymnasium.spec(resolve(env_id)).kwargs
    schema = json_schema(load_world(preset["world"]).Config)
    for name, option in schema["properties"].items():
        if name in preset:
            option["default"] = preset[name]
    return schema
