"""Import modules that are named by users, installed packages or run folders."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

_OWN = __name__.partition(".")[0]
_HOW_TO_TRUST = (
    "the run uses the module {module!r}, which runs only if the command line names it; if you trust "
    "it, write agentgym --import {module} before the command"
)
_installed: set[str] = set()
_trusted: set[str] | None = None


class UntrustedModule(ImportError):
    """Error for a module that is not trusted; the message states how to allow the import."""


def trust_package(module: str) -> None:
    """Trust the top-level package of a module."""
    _installed.add(module.partition(".")[0])


def trust_only(modules: Iterable[str]) -> None:
    """Restrict imports by name to agentgym, the worlds of installed packages, and `modules`.

    A run folder may name any module, so importing such modules requires trust.
    """
    global _trusted  # noqa: PLW0603 - a property of the process, like sys.path
    _trusted = set(modules)


def trust_also(modules: Iterable[str]) -> None:
    """Add trusted modules, unless all modules are trusted."""
    if _trusted is not None:
        _trusted.update(modules)


def import_named(module: str) -> ModuleType:
    """Import a third-party module; raise `UntrustedModule` if the module is not trusted."""
    if _trusted is not None:
        _check_trusted(module, _trusted)
    try:
        return importlib.import_module(module)
    except SystemExit as error:
        raise ImportError(f"{module} exits on import (SystemExit: {error.code})") from None


def import_function(module: str, name: str) -> Any:
    """Import a function whose name comes from a run's settings.

    Unlike a class, a function such as `subprocess.run` can do anything, so its module must be
    trusted by name. Raises UntrustedModule, ImportError or AttributeError.
    """
    if _trusted is not None and module not in _trusted:
        raise UntrustedModule(_HOW_TO_TRUST.format(module=module))
    return getattr(import_named(module), name)


def _check_trusted(module: str, trusted: set[str]) -> None:
    package = module.partition(".")[0]
    if package == _OWN or package in _installed:
        return
    if module not in trusted:
        raise UntrustedModule(_HOW_TO_TRUST.format(module=module))
    if str(Path.cwd()) not in sys.path:
        # As the last entry of `sys.path`, the working directory cannot shadow installed modules.
        sys.path.append(str(Path.cwd()))
