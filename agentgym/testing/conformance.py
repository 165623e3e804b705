"""Check all laws of a world; used by `agentgym check`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import gymnasium

from agentgym.assemble.registry import is_team, make, resolve
from agentgym.oracles import ARMS
from agentgym.play.env import ToolEnv, tool_env
from agentgym.testing import laws
from agentgym.testing.laws import SCRIPTED, BrokenLaw, EndlessEpisode, further_arguments
from agentgym.text.parsing import Dialect
from agentgym.world.world import MissingHook, has_hook

Verdict = Literal["holds", "broken", "skipped"]

_HINTS = ("state", "subtask", "legal_calls")
_READERS = ("read_state", "read_subtask")


@dataclass(frozen=True, slots=True)
class Law:
    """A law and the hooks that it requires; `check` raises `BrokenLaw` for a violation."""

    name: str
    check: Callable[[str], object]
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LawResult:
    """Verdict on one law: `holds`, `broken` or `skipped`; `line` reproduces a violation."""

    name: str
    verdict: Verdict
    reason: str = ""
    line: str = ""
    missing: tuple[MissingHook, ...] = ()


def world_laws(seeds: int = 5) -> list[Law]:
    """Return the laws, fastest first; most laws are checked on `seeds` instances."""
    some = range(seeds)
    every = [
        Law("Gymnasium's check_env passes", laws.check_gymnasium),
        Law("spaces, rewards and infos", functools.partial(laws.check_spaces, seeds=some)),
        Law("doing nothing scores 0", functools.partial(laws.check_doing_nothing, seeds=some)),
        Law("a spec makes the same env", laws.check_spec),
        Law("observations are plain data", laws.check_plain_data),
        Law("global generators are left alone", laws.check_global_generators),
        Law("snapshots, clones and pickles", laws.check_copies),
        Law("hints change nothing", laws.check_hints_change_nothing, (*_HINTS, "optimal_calls")),
        Law(
            "hints use what was shown",
            functools.partial(laws.check_hints, seeds=some),
            (*_HINTS, *SCRIPTED, *_READERS),
        ),
    ]
    for arm in ARMS:
        name = f"the oracle solves and labels fit, arm {arm or 'none'}"
        check = functools.partial(laws.check_oracle, arm=arm, seeds=some)
        every.append(Law(name, check, _needs(arm)))
    for dialect in get_args(Dialect):
        name = f"the oracle solves, dialect {dialect}"
        every.append(Law(name, functools.partial(laws.check_dialect, dialect=dialect), SCRIPTED))
    every.append(Law("hostile replies", laws.check_hostile_replies))
    every.append(Law("same seed, same bytes", lambda env_id: laws.check_same_bytes([env_id])))
    return every


def _needs(arm: str) -> tuple[str, ...]:
    hooks: tuple[str, ...] = SCRIPTED
    for letter, hint in (("S", "state"), ("P", "subtask")):
        if letter in arm:
            hooks += (hint, f"read_{hint}")
    return hooks


def check_laws(env_id: str, seeds: int = 5, only: str = "") -> Iterator[LawResult]:
    """Check every law of a world and yield the verdicts.

    `env_id` may be `package.module:MyWorld`, and `only` selects laws whose names contain it. Raises
    ValueError if the id names a team, the law does not exist, or the world cannot be made.
    """
    full, env = _make(env_id)
    world, undefined = env.world_class, env.world_class.undefined_hooks(env.config)
    # The module prefix lets other processes import a user-defined world.
    name = full
    if not full.startswith("agentgym/"):
        name = f"{world.__module__}:{full.rpartition('/')[2]}"
    chosen = [law for law in world_laws(seeds) if only in law.name]
    if not chosen:
        names = ", ".join(law.name for law in world_laws())
        raise ValueError(f"no law has a name that contains {only!r}; laws: {names}")
    for k, law in enumerate(chosen):
        lacking = [hook for hook in law.hooks if not has_hook(world, hook)]
        reasons = [undefined[hook] for hook in law.hooks if hook in undefined]
        if lacking:
            reasons.insert(0, f"needs {', '.join(lacking)}")
        if reasons:
            missing = tuple(MissingHook(world, hook) for hook in lacking)
            yield LawResult(law.name, "skipped", "; ".join(reasons), missing=missing)
            continue
        try:
            yield _check(law, name)
        except EndlessEpisode as error:
            yield LawResult(law.name, "broken", error.law, error.line)
            for later in chosen[k + 1 :]:
                yield LawResult(later.name, "skipped", "episodes do not end")
            return


def _make(env_id: str) -> tuple[str, ToolEnv]:
    try:
        full = resolve(env_id)
        if is_team(full):
            raise ValueError(f"{env_id} is a team; check the team's world instead")
        return full, tool_env(make(full))
    except (ValueError, MissingHook, gymnasium.error.Error):
        raise
    except Exception as error:
        # Gymnasium appends the arguments to the message of an error that the world raised.
        cause = error.__cause__ or error
        text = f"{env_id} cannot be created: {type(cause).__name__}: {cause}"
        raise ValueError(text) from error


def _check(law: Law, env_id: str) -> LawResult:
    try:
        law.check(env_id)
    except EndlessEpisode:
        raise
    except BrokenLaw as error:
        return LawResult(law.name, "broken", error.law, error.line)
    except MissingHook as error:
        return LawResult(law.name, "skipped", f"needs {error.hook}", missing=(error,))
    # A world may raise anything, and a parser of command lines exits.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return LawResult(law.name, "broken", f"{type(error).__name__}: {error}", _line(law, env_id))
    return LawResult(law.name, "holds")


def _line(law: Law, env_id: str) -> str:
    check: Any = law.check
    options: dict[str, Any] = {}
    if isinstance(check, functools.partial):
        check, options = check.func, check.keywords
    return f"agentgym.testing.laws.{check.__name__}({env_id!r}{further_arguments(options)})"
