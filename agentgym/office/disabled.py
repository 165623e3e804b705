"""Tools that are listed but fail, because the account lacks a feature."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from agentgym.text.tools import Tool, ToolError, tool_with_schema

ServerT = TypeVar("ServerT", bound=type)


def with_disabled_tools(path: Path) -> Callable[[ServerT], ServerT]:
    """Return a class decorator that adds tools whose calls always raise `ToolError`.

    The JSON file maps the name of a feature to the published schemas of its tools.
    """

    def add(cls: ServerT) -> ServerT:
        for feature, schemas in json.loads(path.read_text(encoding="utf-8")).items():
            for schema in schemas:
                setattr(cls, schema["name"], _refusal(Tool(**schema), feature))
        return cls

    return add


def _refusal(schema: Tool, feature: str) -> Callable[..., NoReturn]:
    def refuse(self: object, /, **arguments: Any) -> NoReturn:
        raise ToolError(
            f"permission denied: {feature} not enabled for this account; use another tool"
        )

    return tool_with_schema(schema, refuse)
