"""Worlds from other packages, listed in the entry-point group `agentgym.worlds`.

An entry names a `module:Class`, or a module that registers worlds on import. A broken package
causes a warning, but other packages still work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, distributions, entry_points

from agentgym.text.imports import import_named, trust_package
from agentgym.world.world import load_world, world_path

GROUP = "agentgym.worlds"

# Plugin entries whose modules have not been imported yet.
_unused: dict[str, EntryPoint] = {}


def register_each(register: Callable[[str, str], None]) -> None:
    """Call `register` for each world, with its path `module:Class` and its package."""
    for entry in _entries():
        try:
            if not EntryPoint.pattern.match(entry.value):
                raise ValueError(f"{entry.value!r} is neither a module nor a module:Class")
            if entry.attr:
                register(world_path(f"{entry.module}:{entry.attr}"), entry.module.partition(".")[0])
            trust_package(entry.module)
            _unused[entry.value] = entry
        except ValueError as error:
            _warn(entry, error)


def _entries() -> Iterator[EntryPoint]:
    try:
        yield from entry_points(group=GROUP)
    except Exception:  # noqa: BLE001 - the metadata are files of anyone
        # Read each package separately, so that a broken one does not hide the others.
        for package in distributions():
            try:
                yield from package.entry_points.select(group=GROUP)
            except Exception as error:  # noqa: BLE001 - the same for a single package
                _warn_of(str(getattr(package, "_path", "a package")), GROUP, error)


def import_plugins(namespace: str = "") -> list[str]:
    """Import plugin modules that are not imported yet; return the modules that failed."""
    broken = []
    for value, entry in list(_unused.items()):
        if namespace and namespace not in (entry.name, entry.module.partition(".")[0]):
            continue
        del _unused[value]
        try:
            if entry.attr:
                load_world(f"{entry.module}:{entry.attr}")
            else:
                import_named(entry.module)
        except Exception as error:  # noqa: BLE001 - the module is code of anyone
            _warn(entry, error)
            broken.append(f"{entry.module}:{entry.attr}")
    return broken


def _warn(entry: EntryPoint, error: Exception) -> None:
    _warn_of(entry.dist.name if entry.dist else entry.value, entry.value, error)


def _warn_of(package: str, value: str, error: Exception) -> None:
    cause = error.__cause__ or error
    warnings.warn(
        f"the package {package} offers worlds in {value!r}, which fail to load "
        f"({type(cause).__name__}: {cause}); they are skipped",
        stacklevel=2,
    )
