"""The world-independent part of the system message: the tools and how to call them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentgym.text.messages import ToolCall
from agentgym.text.parsing import Dialect, render
from agentgym.text.tools import Tool

_HEADING = "# How to reply\n"
_FENCE = "one call in a Python code block"


def document_tools(tools: Sequence[Tool], dialect: Dialect, most_calls: int | None) -> str:
    """Return the tools as JSON function schemas, and the form of calls in the dialect.

    Args:
        tools: The available tools.
        dialect: The form of calls.
        most_calls: The maximum calls per reply; None for no limit.
    """
    schemas = [json.dumps(tool.to_openai()["function"], ensure_ascii=False) for tool in tools]
    return (
        "# Tools\nYou act by calling these functions:\n"
        + "\n".join(schemas)
        + f"\n\n{_HEADING}{_form(dialect, most_calls)}"
    )


def _form(dialect: Dialect, most_calls: int | None) -> str:
    example = ToolCall("function_name", {"argument": "value"})
    fence = f"{_FENCE}, arguments by name:\n{render(example, 'python')}"
    tag = f"each call as JSON in a tag of its own:\n{render(example, 'json')}"
    if most_calls == 1 or dialect == "python":
        number = "Make exactly one call in each reply."
    else:
        limit = "" if most_calls is None else f", at most {most_calls}"
        number = f"You may make several calls in one reply{limit}."
    forms = {"python": fence, "json": tag, "auto": f"{tag}\nor write {fence}"}
    return f"Think first if you like, then call. {number}\nWrite {forms[dialect]}"


def read_dialect(system: str) -> Dialect:
    """Return the dialect that a system message asks for: `python`, or `auto` for the others."""
    return "python" if f"\nWrite {_FENCE}" in system.rpartition(_HEADING)[2] else "auto"
