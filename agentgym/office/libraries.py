"""Optional libraries that the servers import on first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from agentgym.text.requirements import install_command


@contextmanager
def install_hint(need: str, *modules: str) -> Iterator[None]:
    """Explain how to install one of these modules if it is missing; other errors pass unchanged.

    Args:
        need: The feature and its library; the installation command follows.
        modules: The modules of the extra `office` imported in the block.

    Raises:
        ImportError: One of them is missing.
    """
    try:
        yield
    except ImportError as error:
        if error.name not in modules:
            raise
        raise ImportError(f"{need}: {install_command('office')}") from error


def pdf_library(name: str) -> Any:
    """Return a module of pypdf or reportlab."""
    with install_hint("PDF files need pypdf and reportlab", "pypdf", "reportlab"):
        return import_module(name)
