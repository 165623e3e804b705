"""Registry of worlds and teams, and the spec of an env from an id with options."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec, load_env_creator

from agentgym.arguments import list_names
from agentgym.config import json_schema, make_config
from agentgym.knobs import Context
from agentgym.requirements import check_requirements
from agentgym.splits import check_split
from agentgym.stacks import build_stack, import_owner, needed_hooks
from agentgym.tools import first_paragraph
from agentgym.world import World, check_defined, check_world, load_world

TEAMS = {"split": "team", "manager": "manager", "host": "host", "duel": "duel"}
"""The kinds of teams (`agentgym.multi`), with the last part of their ids."""
TEAM_IDS = f"ids of teams end in -{', -'.join(TEAMS.values())}"

_NAMESPACE = "agentgym/"
_ENV_OPTIONS = (
    "world",
    "dialect",
    "parallel_calls",
    "max_failed_rounds",
    "on_fault",
    "render_mode",
    "split",
)
"""Keyword arguments of `ToolEnv`; all others are fields of the world's configuration."""
_TEAM_OPTIONS = ("team", "roles", "reward", "max_message", "max_cycles")
"""Keyword arguments that a team has besides."""
_OWN_WORLDS = "agentgym.envs."
"""Worlds whose presets are checked by the tests: checking them here would slow the import by a
tenth.
"""
_worlds: dict[str, Entry] = {}
_teams: dict[str, Entry] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered world: its id, its class and the options that the id presets."""

    id: str
    world: type[World[Any]]
    options: Mapping[str, Any]

    @property
    def summary(self) -> str:
        """Return the first paragraph of the world's docstring."""
        return first_paragraph(self.world.__doc__)


def register(
    world: type[World[Any]],
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    teams: Sequence[str] = (),
) -> None:
    """Register a world as `agentgym/<Class>-v0`, and each preset as `agentgym/<Class>-<preset>-v0`.

    Teams that share it are `agentgym/<Class>-team-v0` and `agentgym/<Class>-manager-v0`.

    Args:
        world: The class; it must be importable from its module, since specs name it by its path.
        presets: Options of the world, and of `ToolEnv`, by the name of the preset.
        teams: More kinds of teams that play it; see `TEAMS`.

    Raises:
        MissingHook: The class lacks a hook that every world must fill, or `Config`.
        ValueError: A preset has an option that the world's configuration refuses.
    """
    check_world(world)
    for preset, options in {"": {}, **(presets or {})}.items():
        suffix = f"-{preset}" if preset else ""
        if not world.__module__.startswith(_OWN_WORLDS):
            make_config(
                world, {name: options[name] for name in options if name not in _ENV_OPTIONS}
            )
        entry = Entry(f"{_NAMESPACE}{world.__name__}{suffix}-v0", world, dict(options))
        _worlds[entry.id] = entry
        kwargs = {"world": f"{world.__module__}:{world.__qualname__}", **options}
        _register(entry.id, "agentgym.env:ToolEnv", kwargs)
        for kind, name in TEAMS.items() if not suffix else ():
            if kind in ("split", "manager") or kind in teams:
                team = Entry(f"{_NAMESPACE}{world.__name__}-{name}-v0", world, {"team": kind})
                _teams[team.id] = team
                _register(team.id, "agentgym.multi.gym:TeamEnv", {**kwargs, **team.options})


def _register(env_id: str, entry_point: str, kwargs: dict[str, Any]) -> None:
    # The envs enforce the order of calls themselves, and the tests check every world; Gymnasium's
    # two wrappers for that would cost a twentieth of a step.
    gymnasium.register(
        env_id,
        entry_point=entry_point,
        kwargs=kwargs,
        order_enforce=False,
        disable_env_checker=True,
    )


def worlds(presets: bool = False) -> list[Entry]:
    """Return the registered worlds in the order of registration, with their presets on request."""
    return [entry for entry in _worlds.values() if presets or not entry.options]


def teams() -> list[Entry]:
    """Return the registered teams in the order of registration; `options["team"]` is the kind."""
    return list(_teams.values())


def is_team(env_id: str) -> bool:
    """Report whether an id, in full or short, is that of a team.

    Raises:
        ValueError: No such id.
    """
    return resolve(env_id) in _teams


def resolve(env_id: str) -> str:
    """Return the full id of a world.

    `ListWorld` and `ListWorld-easy` mean `agentgym/ListWorld-v0` and `agentgym/ListWorld-easy-v0`.
    As in Gymnasium, the module that registers a world may stand before its id:
    `package.module:MyWorld`.

    Raises:
        ValueError: No such world.
    """
    short = import_owner(env_id).removeprefix(_NAMESPACE)
    for full in (short, f"{_NAMESPACE}{short}", f"{_NAMESPACE}{short}-v0"):
        if full in gymnasium.registry:
            return full
    names = [_short(entry.id) for entry in worlds()]
    near = [_short(entry.id) for entry in (*worlds(presets=True), *teams())]
    remedy = list_names(_short(short), names, "worlds", near)
    raise ValueError(f"there is no world {env_id!r}; {remedy}")


def _short(env_id: str) -> str:
    return env_id.removeprefix(_NAMESPACE).removesuffix("-v0")


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
    """Return the spec of a world or a team with its wrappers, for `gymnasium.make` or a file.

    Args:
        env_id: The id, in full or short.
        oracles: Which oracles help: letters of P (plan), S (state), H (history, which needs S) and,
            for teams, C (communication), in any order. After a letter of P and S may stand the
            probability with which a hint is right (`P0.5`; `P0` is always wrong), and after any but
            H `_`, for a placebo of the same length.
        hint_scope: `persistent` hints stay in the chat, `ephemeral` ones show on the newest message
            only.
        oracle_options: Arguments of the oracles' wrappers by letter, such as
            `{"H": {"keep_last_error": True}}`; those of oracles that do not help are not used.
        shots: How many solved examples stand before the task.
        labels: Whether `info` says if each step was optimal (`StepOptimality`).
        wrappers: More wrappers, inner to outer, between the oracles and the examples.
        context: Context strategies, joined by `+` or in a sequence, in any order; see `strategies`.
        window: The tokens of the context window, such as 32_000 or `32k`. What does not fit any more is trimmed, oldest
            turns first.
        context_options: Arguments of the strategies' wrappers by strategy; of `trim` and `budget`
            too.
        agents: For a team, which takes no `shots`: what is different for an agent, by its name.
        **options: Keyword arguments of `ToolEnv` and of the world's configuration; for a team also
            of `agentgym.multi.game.Game`.

    Raises:
        ValueError: The id, an arm or an option is not right; `MissingHook` if the world is not.
        MissingRequirement: The host lacks what the world or a wrapper needs.
    """
    env_spec, world, config = _bare_spec(env_id, options, is_for_team=agents is not None)
    shared: dict[str, Any] = {
        "oracles": oracles,
        "hint_scope": hint_scope,
        "oracle_options": oracle_options,
        "labels": labels,
        "wrappers": wrappers,
    }
    shared |= {"context": context, "window": window, "context_options": context_options}
    if "team" in env_spec.kwargs:
        env_spec.kwargs["stacks"] = _team_stacks(world, shared, agents or {}, shots)
        layers = [layer for stack in env_spec.kwargs["stacks"].values() for layer in stack]
    else:
        stack = build_stack(world, shots=shots, **shared)
        env_spec.additional_wrappers += tuple(stack)
        layers = [{"entry_point": each.entry_point, "kwargs": each.kwargs or {}} for each in stack]
    for layer in layers:
        wrapper = load_env_creator(layer["entry_point"])
        check_defined(world, config, needed_hooks(wrapper, layer["kwargs"]))
        requirements = getattr(wrapper, "requirements", None)
        if requirements is not None:
            owner = layer["entry_point"].rpartition(":")[2]
            check_requirements(owner, requirements(**layer["kwargs"]))
    return env_spec


def _bare_spec(
    env_id: str, options: Mapping[str, Any], *, is_for_team: bool
) -> tuple[EnvSpec, type[World[Any]], Any]:
    """Return the spec without wrappers, with its options checked, the class of the world, and its
    configuration.
    """
    env_spec = copy.deepcopy(gymnasium.spec(resolve(env_id)))
    env_spec.kwargs.update(options)
    others = (*_ENV_OPTIONS, *_TEAM_OPTIONS) if "team" in env_spec.kwargs else _ENV_OPTIONS
    world = load_world(env_spec.kwargs["world"])
    config = make_config(
        world, {k: value for k, value in env_spec.kwargs.items() if k not in others}
    )
    for name in options.keys() & vars(config).keys():  # "8k" is 8000 in the spec too
        if isinstance(options[name], str):
            env_spec.kwargs[name] = getattr(config, name)
    check_split(world, config, env_spec.kwargs.get("split"))
    if is_for_team and "team" not in env_spec.kwargs:
        raise ValueError(f"agents are for teams, and {env_spec.name} is played by one; {TEAM_IDS}")
    check_requirements(world.__name__, world.requirements(config))
    return env_spec, world, config


def _team_stacks(
    world: type[World[Any]],
    shared: Mapping[str, Any],
    agents: Mapping[str, Mapping[str, Any]],
    shots: int,
) -> dict[str, list[dict[str, Any]]]:
    """Return the wrappers of the agents of a team by agent, JSON-able; those of `""` are for agents
    that are not named.
    """
    if shots:
        raise ValueError(
            f"a team takes no solved examples, got shots={shots!r}: an example shows one agent "
            "that has all tools"
        )
    for agent, own in agents.items():
        if unknown := [name for name in own if name not in shared]:
            remedy = list_names(unknown[0], tuple(shared), "what agents may have")
            raise ValueError(f"{agent} cannot have its own {unknown[0]!r}; {remedy}")
    stacks = {
        agent: build_stack(world, is_team=True, **{**shared, **own})
        for agent, own in {"": {}, **agents}.items()
    }
    return {
        agent: [
            {"entry_point": wrapper.entry_point, "kwargs": wrapper.kwargs or {}}
            for wrapper in stack
        ]
        for agent, stack in stacks.items()
    }


def make(env_id: str, *, render_mode: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make an env; takes what `spec` takes.

    Example:
        >>> env = make("ListWorld", oracles="SP", items=6, removals=2)
    """
    return gymnasium.make(spec(env_id, **options), render_mode=render_mode)


def config_schema(env_id: str) -> dict[str, Any]:
    """Return the JSON Schema of the options of a world, with bounds, defaults and descriptions.

    Args:
        env_id: The id, in full or short; the options that it presets are its defaults.

    Raises:
        ValueError: No such world.
    """
    preset = gymnasium.spec(resolve(env_id)).kwargs
    schema = json_schema(load_world(preset["world"]).Config)
    for name, option in schema["properties"].items():
        if name in preset:
            option["default"] = preset[name]
    return schema
