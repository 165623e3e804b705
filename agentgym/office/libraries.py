"""Optional libraries, imported on first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from agentgym.text.requirements import install_command


@contextmanager
def install_hint(need: str, *modules: str) -> Iterator[None]:
    """Raise `ImportError` with the installation command if one of the `modules` is missing.

    The error message starts with the string `need`.
    """
    try:
        yield
    except ImportError as error:
        if error.name not in modules:
            raise
        raise ImportError(f"{need}: {install_command('office')}") from error


def pdf_library(name: str) -> Any:
    """Import and return a module of pypdf or reportlab."""
    with install_hint("PDF files need pypdf and reportlab", "pypdf", "reportlab"):
        return import_module(name)
