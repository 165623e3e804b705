"""Import of modules named by users and other packages."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_named(module: str) -> ModuleType:
    """Import a third-party module.

    Raises:
        ImportError: The module cannot be found, or exits on import, as scripts without a `__name__
            == "__main__"` guard do.
        Exception: Any exception of the module.
    """
    try:
        return importlib.import_module(module)
    except SystemExit as error:
        raise ImportError(f"{module} exits on import (SystemExit: {error.code})") from None
