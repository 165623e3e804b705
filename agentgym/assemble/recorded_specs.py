"""Envs of recorded episodes. A spec read from a log must not run arbitrary code."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.assemble.registry import ENTRY_POINTS
from agentgym.text.imports import import_named


def make_recorded(spec: str) -> gymnasium.Env[Any, Any]:
    """Make the env of a recorded spec, which may name only agentgym's envs and Gymnasium wrappers.

    `gymnasium.make` would call any function that the spec names, such as `os:system`. Raises
    ValueError for a forbidden entry point, and ImportError for a missing or untrusted module.
    """
    env_spec = EnvSpec.from_json(spec)
    if env_spec.entry_point not in ENTRY_POINTS:
        raise ValueError(
            f"the spec has the entry point {env_spec.entry_point!r}; replay it with gymnasium.make "
            "if you trust it"
        )
    layers = [layer.entry_point for layer in env_spec.additional_wrappers]
    for stack in env_spec.kwargs.get("stacks", {}).values():
        layers += [layer["entry_point"] for layer in stack]
    for path in layers:
        _check_wrapper(path)
    return gymnasium.make(env_spec, disable_env_checker=True)


def _check_wrapper(path: str) -> None:
    module, _, name = path.partition(":")
    wrapper = getattr(import_named(module), name, None)
    if not (isinstance(wrapper, type) and issubclass(wrapper, gymnasium.Wrapper)):
        raise ValueError(f"the spec has the wrapper {path!r}, which is not a gymnasium.Wrapper")
