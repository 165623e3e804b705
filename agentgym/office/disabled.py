"""Tools that a server lists but refuses because the account lacks the feature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from agentgym.text.tools import ToolError, tool


def disabled_tool(feature: str) -> Callable[[Callable[..., None]], Callable[..., NoReturn]]:
    """Return a decorator for a tool that is listed as published and always refused.

    The method's signature and docstring form the schema; `feature` appears in the error message.
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
