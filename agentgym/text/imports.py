"""Import of code that users and other packages name."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_named(module: str) -> ModuleType:
    """Import a module of anyone.

    Raises:
        ImportError: It ends the program when it is imported, as scripts without a
            `__name__ == "__main__"` do; or it cannot be found.
        Exception: Whatever the module raises.
    """
    try:
        return importlib.import_module(module)
    except SystemExit as error:
        raise ImportError(
            f"{module} ends the program when it is imported (SystemExit: {error.code})"
        ) from None
