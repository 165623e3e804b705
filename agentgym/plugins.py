"""Worlds of other packages, which name them in the entry-point group `agentgym.worlds`.

An entry is `module:Class`, or a module that calls `agentgym.register` when it is imported. Reading
the entries imports nothing; a package that is broken costs a warning and its own worlds.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from agentgym.world import load_world, world_path

GROUP = "agentgym.worlds"

_unused: dict[str, EntryPoint] = {}
"""The entries whose modules were not imported yet, by their value."""


def world_paths() -> Iterator[tuple[str, str]]:
    """Read the entries of all installed packages.

    Yields:
        For each entry that names a class, `module:Class` and the package that it is in.
    """
    for entry in entry_points(group=GROUP):
        try:
            if not EntryPoint.pattern.match(entry.value):
                raise ValueError(f"{entry.value!r} is no module:Class and no module")
            if entry.attr:
                path = world_path(f"{entry.module}:{entry.attr}")
                yield path, entry.module.partition(".")[0]
            _unused[entry.value] = entry
        except ValueError as error:
            _warn(entry, error)


def import_plugins(namespace: str = "") -> list[str]:
    """Import the modules of the entries that were not imported yet.

    Args:
        namespace: Only those of this package, or with this name.

    Returns:
        The `module:Class` of those that cannot be imported.
    """
    broken = []
    for value, entry in list(_unused.items()):
        if namespace and namespace not in (entry.name, entry.module.partition(".")[0]):
            continue
        del _unused[value]
        try:
            if entry.attr:
                load_world(f"{entry.module}:{entry.attr}")
            else:
                importlib.import_module(entry.module)
        except Exception as error:  # noqa: BLE001 - the module is code of anyone
            _warn(entry, error)
            broken.append(f"{entry.module}:{entry.attr}")
    return broken


def _warn(entry: EntryPoint, error: Exception) -> None:
    package = entry.dist.name if entry.dist else entry.value
    cause = error.__cause__ or error
    warnings.warn(
        f"the package {package} offers worlds in {entry.value!r}, which cannot be loaded "
        f"({type(cause).__name__}: {cause}); they are left out",
        stacklevel=2,
    )
