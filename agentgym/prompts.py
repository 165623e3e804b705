"""The part of the system message that is the same for every world: which tools there are and how to call them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentgym.messages import ToolCall
from agentgym.parsing import Dialect, render
from agentgym.tools import Tool


def document_tools(tools: Sequence[Tool], dialect: Dialect, parallel_calls: bool) -> str:
    """The tools as JSON function schemas, and the form in which the dialect wants calls."""
    schemas = "\n".join(json.dumps(tool.to_openai()["function"], ensure_ascii=False) for tool in tools)
    return f"# Tools\nYou act by calling these functions:\n{schemas}\n\n# How to reply\n{_form(dialect, parallel_calls)}"


def _form(dialect: Dialect, parallel_calls: bool) -> str:
    example = ToolCall("function_name", {"argument": "value"})
    fence = f"one call in a Python code block, arguments by name:\n{render(example, 'python')}"
    tag = f"each call as JSON in a tag of its own:\n{render(example, 'json')}"
    several = parallel_calls and dialect != "python"
    number = "You may make several calls in one reply." if several else "Make exactly one call in each reply."
    forms = {"python": f"Write {fence}", "json": f"Write {tag}"}
    form = forms.get(dialect, f"Write {tag}\nor write {fence}")
    return f"Think first if you like, then call. {number}\n{form}"


SUMMARY_REQUEST = (
    "The context is nearly full. Instead of calling a tool, reply with a summary of everything above that you still need: what the "
    "task asks for, what you have found and done, what is left to do, and every fact, number and name you will use. Most of the "
    "messages above will be removed, and your summary stays; calls in it are not run."
)
SUMMARY_FOLLOWS = "Earlier messages have been removed; the summary above stands for them. Go on with the task."
