"""Tools that a server lists but refuses, for parts of a service that the account cannot use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from agentgym.text.tools import ToolError, tool


def disabled_tool(feature: str) -> Callable[[Callable[..., None]], Callable[..., NoReturn]]:
    """Return a decorator for a tool that is listed like the published one and always refused.

    The decorated method needs only its signature and docstring, from which the schema is made.

    Args:
        feature: What the account cannot use, for the error message.
    """

    def mark(method: Callable[..., None]) -> Callable[..., NoReturn]:
        @tool
        @functools.wraps(method)
        def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
            raise ToolError(
                f"permission denied: {feature} not enabled for this account; use another tool"
            )

        return refuse

    return mark
