"""Libraries that the servers load on first use, and that need not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


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
