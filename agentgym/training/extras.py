"""Optional dependencies: rooms that load a module when one of its names is used, and one sentence
when its extra is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
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


def lazy_exports(room: str, extras: Mapping[str, tuple[str, str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` (PEP 562) of a room, some of whose modules are slow to import or
    need an extra.

    Args:
        room: The full name of the package.
        extras: The extra of each such module, and the names that the room exports from it,
            separated by spaces; the name of a module stands for the module itself.
    """
    homes = {
        name: (module, extra) for module, (extra, names) in extras.items() for name in names.split()
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module, extra = homes[name]
        with needs_extra(name, extra):
            loaded = import_module(f"{room}.{module}")
        return loaded if name == module else getattr(loaded, name)

    return load
