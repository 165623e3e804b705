"""Env specs that `gymnasium.make` does not change."""

from __future__ import annotations

from gymnasium.envs.registration import EnvSpec

_ENTRY_POINTS = "agentgym.assemble.entry_points:"


def entry_point(env_id: str) -> str:
    """Return the entry point of an id, as `module:attribute`."""
    return _ENTRY_POINTS + env_id


def has_own_entry_point(spec: EnvSpec) -> bool:
    """Report whether `agentgym` registered a spec."""
    return str(spec.entry_point).startswith(_ENTRY_POINTS)


class KeepsSpec:
    """Mixin for envs that keep their first spec.

    `gymnasium.make` overwrites the spec with a mixture of the wrappers' and the env's options.
    """

    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """Return the env's spec without wrappers; None if the env was built without a spec."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if self._spec is None or spec is None or not has_own_entry_point(spec):
            self._spec = spec
