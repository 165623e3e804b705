"""Parts of answers that all APIs share. Readers raise errors in `MALFORMED` and nothing else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from agentgym.text.parsing import Dialect, parse, render

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""Errors from reading an answer with missing or wrong parts."""
MAX_TOKENS = 10**12
"""Larger token counts are unreadable: no model has seen as many tokens."""
QUOTED = 300
"""Characters of an answer quoted in errors."""
_SURROGATES = re.compile("[\ud800-\udfff]")


class AnswerError(ValueError):
    """An API answer cannot be read."""


def quote(value: Any) -> str:
    """Return the beginning of a value as JSON."""
    try:
        return json.dumps(value)[:QUOTED]
    except MALFORMED:
        return "a deeply nested value"


def text_of(value: Any, thoughts: list[str] | None = None) -> str:
    """Return a field's text, given as a text, a list of parts, or None.

    Args:
        value: The field.
        thoughts: Collects the parts that are thinking.
    """
    if value is None or isinstance(value, str):
        return value or ""
    texts: list[str] = []
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, str):
            texts.append(part)
        elif part.get("type") in ("thinking", "reasoning"):
            thought = text_of(part.get("thinking") or part.get("text") or part.get("reasoning"))
            texts.append("") if thoughts is None else thoughts.append(thought)
        else:
            text = part["refusal"] if part.get("type") == "refusal" else part["text"]
            if not isinstance(text, str):
                raise AnswerError(f"{quote(part)} is not text")
            texts.append(text)
    return "".join(texts)


def call_text(name: Any, values: Any, dialect: Dialect) -> str:
    """Return a native call as text for the env; an invalid call is passed on unchanged, so the env
    can report it.

    Args:
        name: The tool's name.
        values: The arguments, as an object or as JSON.
        dialect: Dialect of the text.
    """
    arguments = values if isinstance(values, str) else json.dumps({} if values is None else values)
    body = f'{{"name": {json.dumps(name)}, "arguments": {arguments.strip() or "{}"}}}'
    body = body.replace("</", "<\\/")  # as `render` does, so that no argument ends the tag
    text = f"<tool_call>\n{body}\n</tool_call>"
    calls = parse(text, "json").calls
    return render(calls[0], dialect) if calls else text


def join_parts(thought: str, *parts: str) -> str:
    """Join the thinking and the other parts of a reply, replacing lone surrogates, which files
    cannot store.
    """
    thinking = f"<think>\n{thought}\n</think>" if thought else ""
    return _SURROGATES.sub("\ufffd", "\n".join(filter(None, (thinking, *parts))))


def token_counts(usage: Any, names: Iterable[str]) -> list[int | None]:
    """Return the token counts of an answer's usage; None for a missing or impossible one.

    Args:
        usage: The usage, as an object or anything else.
        names: The fields; a dot separates an inner field.
    """
    counts: list[int | None] = []
    for name in names:
        value = usage
        for step in name.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        is_count = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_count = is_count and math.isfinite(value) and 0 <= value <= MAX_TOKENS
        counts.append(int(value) if is_count and value == int(value) else None)
    return counts
