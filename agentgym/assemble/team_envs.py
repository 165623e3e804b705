"""Teams as PettingZoo envs (extra `multi`)."""

from __future__ import annotations

from typing import Any

from agentgym.assemble.registry import TEAM_IDS, spec
from agentgym.text.requirements import install_command


def aec_env(env_id: str, *, render_mode: str | None = None, **options: Any) -> Any:
    """Make a team as a `pettingzoo.AECEnv` with the arguments of `agentgym.spec`.

    Example:
        >>> env = aec_env("ListWorld-team", oracles="S", items=6)
    """
    try:
        from agentgym.multi.zoo import TeamAEC  # noqa: PLC0415 - an extra of its own
    except ImportError as error:
        raise ImportError(
            f"team envs require PettingZoo: {install_command('multi')} ({error})"
        ) from error
    team_spec = spec(env_id, **options)
    if "team" not in team_spec.kwargs:
        raise ValueError(f"{env_id} has one agent; {TEAM_IDS}")
    return TeamAEC(
        name=f"{team_spec.name}_v{team_spec.version}", render_mode=render_mode, **team_spec.kwargs
    )


def parallel_env(env_id: str, *, render_mode: str | None = None, **options: Any) -> Any:
    """Make a team's `pettingzoo.ParallelEnv`; see `aec_env` for the arguments.

    Each step runs the agents' replies in the order of `possible_agents`.
    """
    env = aec_env(env_id, render_mode=render_mode, **options)
    from pettingzoo.utils.conversions import aec_to_parallel  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    return aec_to_parallel(env)
