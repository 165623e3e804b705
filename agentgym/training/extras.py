"""Optional dependencies: rooms that load a module when one of its names is used, and one sentence
when its extra is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class MissingExtraError(ImportError, ValueError):
    """An extra is not installed; a `ValueError` too, as it is the user who can fix it."""


@contextmanager
def needs_extra(purpose: str, extra: str) -> Iterator[None]:
    """Turn a failed import of another package into a sentence that names the extra.

    Args:
        purpose: The subject of the sentence, such as `training`.
        extra: The extra that brings the package.

    Raises:
        MissingExtraError: A package is missing or too old.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith(
            "agentgym"
        ):  # a fault of this package, which no extra cures
            raise
        # The outermost purpose is the one that the user knows, the innermost cause the one that
        # says which package it is.
        cause = error.__cause__ if isinstance(error, MissingExtraError) else error
        raise MissingExtraError(
            f"{purpose} needs its extra: pip install 'agentgym[{extra}]' ({cause})"
        ) from cause


_EXTRAS: dict[str, str] = {}
"""The extra of each module that has one, by its full name."""


class _Finder(MetaPathFinder):
    """Finder of the modules that need an extra: importing one directly says which, too."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of such a module; None for any other."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _EXTRAS else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with needs_extra(fullname, _EXTRAS[fullname]):
                    execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def lazy_exports(room: str, extras: Mapping[str, tuple[str, str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` (PEP 562) of a room, some of whose modules are slow to import or
    need an extra.

    Args:
        room: The full name of the package.
        extras: The extra of each such module, and the names that the room exports from it,
            separated by spaces; the name of a module stands for the module itself, and a module
            without names is only imported directly.
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
