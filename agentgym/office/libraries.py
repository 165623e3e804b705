"""Libraries that the servers load on first use, and that need not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def install_hint(need: str, *modules: str) -> Iterator[None]:
    """Tell how to get one of these modules where it is missing; any other error passes as it is.

    Args:
        need: What needs which library; the command that installs it follows.
        modules: The modules of the extra `office` that are imported in the block.

    Raises:
        ImportError: One of them is missing.
    """
    try:
        yield
    except ImportError as error:
        if error.name not in modules:
            raise
        raise ImportError(f"{need}: pip install 'agentgym[office]'") from error


def pdf_library(name: str) -> Any:
    """Return a module of pypdf or reportlab."""
    with install_hint("PDF files need pypdf and reportlab", "pypdf", "reportlab"):
        return import_module(name)
