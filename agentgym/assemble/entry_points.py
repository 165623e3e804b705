"""Entry points that let `gymnasium.make` accept every option of `agentgym.make`.

Gymnasium loads an id's entry point as an attribute of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from agentgym.assemble.registry import env_metadata, spec


class EntryPoint:
    """Entry point of a registered env id."""

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the env's metadata, from which Gymnasium reads the render modes."""
        return env_metadata(self.env_id)

    def __call__(self, **options: Any) -> gymnasium.Env[Any, Any]:
        return gymnasium.make(spec(self.env_id, **options))


def __getattr__(name: str) -> EntryPoint:
    if name in gymnasium.registry:
        return EntryPoint(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
