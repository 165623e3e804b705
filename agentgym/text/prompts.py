"""System message: the tools and how to call them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from agentgym.text.messages import ToolCall
from agentgym.text.parsing import Dialect, render
from agentgym.text.tools import Tool

_TOOLS = "# Tools\nYou act by calling these functions:\n"
_HEADING = "# How to reply\n"
_FENCE = "one call in a Python code block"


def document_tools(tools: Sequence[Tool], dialect: Dialect, most_calls: int | None) -> str:
    """Describe the tools as JSON function schemas, and explain the dialect's call format.

    `most_calls` is the maximum number of calls per reply; None for no limit.
    """
    schemas = "\n".join(
        json.dumps(tool.to_openai()["function"], ensure_ascii=False) for tool in tools
    )
    return (
        f"{_TOOLS}{schemas}\n\n{_HEADING}{_advice(dialect, most_calls)}\nWrite {_forms()[dialect]}"
    )


def _advice(dialect: Dialect, most_calls: int | None) -> str:
    if most_calls == 1 or dialect == "python":
        number = "Make exactly one call in each reply."
    else:
        limit = "" if most_calls is None else f", at most {most_calls}"
        number = f"You may make several calls in one reply{limit}."
    return f"Think first if you like, then call. {number}"


@lru_cache
def _forms() -> dict[Dialect, str]:
    example = ToolCall("function_name", {"argument": "value"})
    fence = f"{_FENCE}, arguments by name:\n{render(example, 'python')}"
    tag = f"each call as JSON in a tag of its own:\n{render(example, 'json')}"
    return {"auto": f"{tag}\nor write {fence}", "python": fence, "json": tag}


def without_written_calls(system: str) -> str:
    """Return a system message without the text of `document_tools`."""
    rules, tools, documentation = system.rpartition(_TOOLS)
    _, heading, advice = documentation.partition(f"\n\n{_HEADING}")
    if not tools or not heading:
        return system
    for form in _forms().values():
        before, found, after = advice.partition(f"\nWrite {form}")
        if found:
            return f"{rules}{_HEADING}{before}{after}"
    return system


def read_dialect(system: str) -> Dialect:
    """Return the dialect that a system message requests."""
    return "python" if f"\nWrite {_FENCE}" in system.rpartition(_HEADING)[2] else "auto"
