"""Optional dependencies: modules are loaded lazily, and a missing extra raises a clear error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from agentgym.text.requirements import install_command


class MissingExtraError(ImportError, ValueError):
    """Error for an extra that is not installed; also a `ValueError`, since the user can fix it."""


@contextmanager
def needs_extra(purpose: str, extra: str) -> Iterator[None]:
    """Convert another package's import error to a `MissingExtraError` that names `purpose`."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("agentgym"):  # a bug, not a missing extra
            raise
        # In nested calls, report the outermost purpose and the innermost cause, which names the
        # missing package.
        cause = error.__cause__ if isinstance(error, MissingExtraError) else error
        raise MissingExtraError(
            f"{purpose} needs its extra: {install_command(extra)} ({cause})"
        ) from cause


# Extras by full module name.
_EXTRAS: dict[str, str] = {}


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _EXTRAS else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with needs_extra(fullname, _EXTRAS[fullname]):
                    execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def lazy_exports(room: str, extras: Mapping[str, tuple[str, str]]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` (PEP 562) that loads slow or optional modules on first use.

    `extras` maps each module to its extra and its exported names, separated by spaces. A module
    that lists its own name is exported itself; a module without names is not exported.
    """
    homes = {
        name: (module, extra) for module, (extra, names) in extras.items() for name in names.split()
    }
    _EXTRAS.update({f"{room}.{module}": extra for module, (extra, _) in extras.items()})
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module, extra = homes[name]
        with needs_extra(name, extra):
            loaded = import_module(f"{room}.{module}")
        return loaded if name == module else getattr(loaded, name)

    return load
