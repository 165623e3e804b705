"""Which worlds there are, and how an id with options becomes an env with its wrappers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from agentgym.arguments import check_choice, check_int
from agentgym.config import json_schema, make_config
from agentgym.world import World, load_world

ARMS = ("", "S", "P", "SP", "SH", "SPH")
"""The oracle arms of LUMINA (section 4.3): state, plan and history; history needs state."""
HINT_SCOPES = ("persistent", "ephemeral")
STRATEGIES = ("clear_results", "clear_thinking", "compaction", "awareness", "memory", "programmatic")
"""The context strategies of LOCA-bench (section 4.1)."""
TEAMS = {"split": "team", "manager": "manager", "host": "host", "duel": "duel"}
"""The kinds of teams (`agentgym.multi`), with the last part of their ids."""
TEAM_IDS = f"ids of teams end in -{', -'.join(TEAMS.values())}"
WINDOW = 128_000
"""The tokens of a context window where a strategy is asked for and no window given: those of the paper's comparison."""

_NAMESPACE = "agentgym/"
_OWN_WORLDS = "agentgym.envs."
"""Worlds whose presets are checked by the tests: checking them here would slow the import by a tenth."""
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
        """The first line of the world's docstring."""
        return (self.world.__doc__ or "").strip().split("\n", 1)[0]


def register(world: type[World[Any]], presets: Mapping[str, Mapping[str, Any]] | None = None, teams: Sequence[str] = ()) -> None:
    """Register a world as `agentgym/<Class>-v0`, and each preset as `agentgym/<Class>-<preset>-v0`.

    Teams that share it are `agentgym/<Class>-team-v0` and `agentgym/<Class>-manager-v0`.

    Args:
        world: The class; it must be importable from its module, since specs name it by its path.
        presets: Options of the world, and of `ToolEnv`, by the name of the preset.
        teams: More kinds of teams that play it; see `TEAMS`.

    Raises:
        ValueError: A preset has an option that the world's configuration refuses.
    """
    for suffix, options in {"": {}, **{f"-{name}": options for name, options in (presets or {}).items()}}.items():
        if not world.__module__.startswith(_OWN_WORLDS):
            config = {name: options[name] for name in options if name not in _ENV_OPTIONS}
            make_config(world, config)
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
    # The envs enforce the order of calls themselves, and the tests check every world; Gymnasium's two wrappers for that would cost
    # a twentieth of a step.
    gymnasium.register(env_id, entry_point=entry_point, kwargs=kwargs, order_enforce=False, disable_env_checker=True)


def worlds(presets: bool = False) -> list[Entry]:
    """The registered worlds in the order of registration, with their presets if asked."""
    return [entry for entry in _worlds.values() if presets or not entry.options]


def teams() -> list[Entry]:
    """The registered teams, in the order of registration; `options["team"]` is the kind."""
    return list(_teams.values())


def is_team(env_id: str) -> bool:
    """Whether an id, in full or short, is that of a team.

    Raises:
        ValueError: No such id.
    """
    return resolve(env_id) in _teams


def resolve(env_id: str) -> str:
    """The full id of a world: `ListWorld` and `ListWorld-easy` mean `agentgym/ListWorld-v0` and `agentgym/ListWorld-easy-v0`.

    Raises:
        ValueError: No such world.
    """
    short = env_id.removeprefix(_NAMESPACE)
    for known in (env_id, f"{_NAMESPACE}{short}", f"{_NAMESPACE}{short}-v0"):
        if known in gymnasium.registry:
            return known
    names = ", ".join(entry.id.removeprefix(_NAMESPACE).removesuffix("-v0") for entry in worlds())
    raise ValueError(f"there is no world {env_id!r}; worlds: {names}")


def spec(
    env_id: str,
    *,
    oracles: str = "",
    hint_scope: str = "persistent",
    shots: int = 0,
    labels: bool = False,
    wrappers: Sequence[WrapperSpec] = (),
    context: str = "",
    window: int | None = None,
    context_options: Mapping[str, Mapping[str, Any]] | None = None,
    agents: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> EnvSpec:
    """The spec of a world or a team with its wrappers. `gymnasium.make(spec)` builds the env; `spec.to_json()` keeps it.

    Args:
        env_id: The id, in full or short.
        oracles: Which oracles help: letters of P (plan), S (state) and H (history, which needs S), in any order.
        hint_scope: `persistent` hints stay in the chat, `ephemeral` ones show on the newest message only.
        shots: How many solved examples stand before the task.
        labels: Whether `info` says if each step was optimal (`StepOptimality`).
        wrappers: More wrappers, inner to outer, between the oracles and the examples.
        context: Context strategies, joined by `+`, in any order, such as `memory+clear_results`; see `STRATEGIES`.
        window: The tokens of the context window. What does not fit any more is trimmed, oldest turns first.
        context_options: Arguments of the strategies' wrappers by strategy; of `trim` and `budget` too.
        agents: For a team, whose agents all have these wrappers, but no `shots`: what is other for an agent, by its name.
        **options: Keyword arguments of `ToolEnv` and of the world's configuration; for a team also of `agentgym.multi.game.Game`.

    Raises:
        ValueError: The id, an arm or an option is not right.
    """
    made = _plain_spec(env_id, options)
    shared: dict[str, Any] = {"oracles": oracles, "hint_scope": hint_scope, "labels": labels, "wrappers": wrappers}
    shared |= {"context": context, "window": window, "context_options": context_options or {}}
    return _with_wrappers(made, shared, agents, shots)


def _plain_spec(env_id: str, options: Mapping[str, Any]) -> EnvSpec:
    """The spec without wrappers, with its options checked."""
    made = copy.deepcopy(gymnasium.spec(resolve(env_id)))
    made.kwargs.update(options)
    known = {*_ENV_OPTIONS, *(_TEAM_OPTIONS if "team" in made.kwargs else ())}
    make_config(load_world(made.kwargs["world"]), {name: value for name, value in made.kwargs.items() if name not in known})
    return made


def _with_wrappers(made: EnvSpec, shared: Mapping[str, Any], agents: Mapping[str, Any] | None, shots: int) -> EnvSpec:
    if "team" in made.kwargs:
        made.kwargs["stacks"] = _stacks(shared, agents or {}, shots)
    elif agents is None:
        made.additional_wrappers = (*made.additional_wrappers, *_stack(shots=shots, **shared))
    else:
        raise ValueError(f"agents are for teams, and {made.name} is played by one; {TEAM_IDS}")
    return made


def _stack(
    *,
    oracles: str,
    hint_scope: str,
    labels: bool,
    wrappers: Sequence[WrapperSpec],
    context: str,
    window: int | None,
    context_options: Mapping[str, Mapping[str, Any]],
    shots: int = 0,
) -> list[WrapperSpec]:
    """The wrappers of an env, inner to outer."""
    check_int("shots", shots, 0, 100)
    tools, edits = _context_wrappers(context, window, context_options)
    examples = [_wrapper("InContextExamples", {"shots": shots})] if shots else []
    return [*tools, *_oracle_wrappers(oracles, hint_scope, labels), *wrappers, *examples, *edits]


def _stacks(shared: Mapping[str, Any], agents: Mapping[str, Mapping[str, Any]], shots: int) -> dict[str, list[dict[str, Any]]]:
    """The wrappers around the seats of a team by agent; `""` for those that are not named. All is JSON-able."""
    if shots:
        raise ValueError(f"a team takes no solved examples, got shots={shots!r}: an example shows one agent that has all tools")
    for agent, own in agents.items():
        if unknown := [name for name in own if name not in shared]:
            raise ValueError(f"{agent} cannot have its own {unknown[0]!r}; what agents may have: {', '.join(shared)}")
    stacks = {agent: _stack(**{**shared, **own}) for agent, own in {"": {}, **agents}.items()}
    return {
        agent: [{"entry_point": wrapper.entry_point, "kwargs": wrapper.kwargs or {}} for wrapper in stack]
        for agent, stack in stacks.items()
    }


_ENV_OPTIONS = {"world", "dialect", "parallel_calls", "max_failed_rounds", "render_mode"}
_TEAM_OPTIONS = ("team", "roles", "reward", "max_message", "max_cycles")


def make(env_id: str, *, render_mode: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make an env; takes what `spec` takes.

    Example:
        >>> env = make("ListWorld", oracles="SP", items=6, removals=2)
    """
    return gymnasium.make(spec(env_id, **options), render_mode=render_mode)


def check_arm(oracles: str) -> str:
    """The letters of an arm.

    Raises:
        ValueError: A letter is unknown or doubled, or H stands without S.
    """
    letters = "" if oracles == "none" else oracles
    if set(letters) - set("PSH") or len(set(letters)) != len(letters):
        raise ValueError(f"oracles must be letters of P (plan), S (state) and H (history), each at most once, got {oracles!r}")
    if "H" in letters and "S" not in letters:
        raise ValueError(f"oracles {oracles!r}: without history the agent cannot know the state, so H needs S; use {letters}S")
    return letters


def check_context(context: str) -> tuple[str, ...]:
    """The strategies that are joined by `+`; none for an empty text or `none`.

    Raises:
        ValueError: One is unknown or doubled.
    """
    names = tuple(context.split("+")) if context not in ("", "none") else ()
    if unknown := [name for name in names if name not in STRATEGIES]:
        raise ValueError(f"there is no context strategy {unknown[0]!r}; strategies: {', '.join(STRATEGIES)}, joined by +")
    if len(set(names)) != len(names):
        raise ValueError(f"context {context!r} names a strategy twice")
    return names


def _oracle_wrappers(oracles: str, hint_scope: str, labels: bool) -> list[WrapperSpec]:
    """Labels and oracles, inner to outer."""
    letters = check_arm(oracles)
    check_choice("hint_scope", hint_scope, HINT_SCOPES)
    hints = {"hint_scope": hint_scope}
    stack = [_wrapper("StepOptimality", {})] if labels else []
    stack += [_wrapper("PlanOracle", {**hints, "with_state": "S" in letters})] if "P" in letters else []
    stack += [_wrapper("StateOracle", hints)] if "S" in letters else []
    stack += [_wrapper("HistoryOracle", {})] if "H" in letters else []
    return stack


def _context_wrappers(
    context: str, window: int | None, options: Mapping[str, Mapping[str, Any]]
) -> tuple[list[WrapperSpec], list[WrapperSpec]]:
    """The wrappers that add tools and those that edit the context, each inner to outer."""
    names = check_context(context)
    if unknown := [name for name in options if name not in (*names, "trim", "budget")]:
        raise ValueError(f"context_options are given for {unknown[0]!r}, which is not in the context {context!r}")
    tools = [_wrapper(_TOOLS[name], dict(options.get(name, {})), "wrappers") for name in _TOOLS if name in names]
    if not names and window is None:
        return tools, []
    size = WINDOW if window is None else window
    check_int("window", size, 1, 10**9)
    asked = [name for name in _EDITS if name in (*names, "trim")]
    first = {"budget": {**options.get("budget", {}), "window": size}}  # the innermost sets the budget of all
    edits = [_wrapper(_EDITS[n], {**options.get(n, {}), **(first if n == asked[0] else {})}, "wrappers") for n in asked]
    return tools, edits


_TOOLS = {"memory": "MemoryTool", "programmatic": "ProgrammaticTools"}
_EDITS = {
    "clear_thinking": "ClearThinking",
    "clear_results": "ClearToolResults",
    "compaction": "Compaction",
    "trim": "Trim",
    "awareness": "ContextAwareness",
}


def _wrapper(name: str, kwargs: dict[str, Any], package: str = "oracles") -> WrapperSpec:
    return WrapperSpec(name, f"agentgym.{package}:{name}", kwargs)


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
