"""Tool results as the policy sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from agentgym.text.messages import Content
from agentgym.text.tools import BoundTool

# Start of the notice after an error that was cut.
ERROR_CUT = "\n[error cut: "


def run_tool(bound: BoundTool, arguments: Mapping[str, Any]) -> str | Content:
    """Run a tool that does not belong to a world."""
    return bound.run(arguments, to_content)


def to_content(result: Any, indent: int | None) -> str | Content:
    """Convert a tool result: text and `Content` stay unchanged, other data becomes JSON."""
    if isinstance(result, (str, Content)):
        return result
    text = json.dumps(result, ensure_ascii=False)
    if indent is None:
        return text
    try:
        # The standard library's encoder is three times slower with indentation.
        return msgspec.json.format(text, indent=indent)
    except (msgspec.DecodeError, UnicodeEncodeError):  # NaN and lone surrogates are not JSON
        return json.dumps(result, ensure_ascii=False, indent=indent)


def cut_result(text: str, limit: int) -> str:
    """Return a tool result; a longer one is cut, with a notice about the omitted length."""
    if len(text) <= limit:
        return text
    return (
        f"{text[:limit]}\n[result cut: this is the first {limit:,} of {len(text):,} characters; "
        "ask for less at a time]"
    )


def cut_error(text: str, limit: int) -> str:
    """Return an error; a longer one is cut, with a notice about the omitted length."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}{ERROR_CUT}this is the first {limit:,} of {len(text):,} characters]"
