"""Entry points of the registered ids, through which `gymnasium.make` and `make_vec` take what
`agentgym.make` takes: the attribute `agentgym/ListWorld-v0` of this module makes that id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

_MODULE = f"{__name__}:"


class Creator:
    """Entry point of one id: makes the env with its oracles, context strategies and labels.

    Args:
        env_id: The id.
    """

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the metadata of the env, from which Gymnasium takes the render modes."""
        # These two modules import this one.
        from agentgym.env import ToolEnv  # noqa: PLC0415
        from agentgym.multi.gym import TeamEnv  # noqa: PLC0415

        return (TeamEnv if "team" in gymnasium.spec(self.env_id).kwargs else ToolEnv).metadata

    def __call__(self, **options: Any) -> gymnasium.Env[Any, Any]:
        """Make the env; takes what `agentgym.make` takes."""
        from agentgym.registry import spec  # noqa: PLC0415 - it imports this module

        return gymnasium.make(spec(self.env_id, **options))


def entry_point(env_id: str) -> str:
    """Return the entry point of an id, as text."""
    return _MODULE + env_id


def has_creator(spec: EnvSpec) -> bool:
    """Report whether a spec is made by an entry point of this module."""
    return str(spec.entry_point).startswith(_MODULE)


def __getattr__(name: str) -> Creator:
    if name in gymnasium.registry:
        return Creator(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class KeepsSpec:
    """Part of an env that keeps the spec with which its creator made it.

    `gymnasium.make` sets the spec once more behind the creator, with the options of the wrappers
    among those of the env; in the spec of the creator the wrappers stand for themselves, so that
    `gymnasium.make(..., oracles="P")` and `agentgym.make(..., oracles="P")` have one spec.
    """

    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """Return the spec of the env without its wrappers; None if it was not made from one."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if self._spec is None or spec is None or not has_creator(spec):
            self._spec = spec
