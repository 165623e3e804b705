"""Parsing of API answers. Parsers raise only errors listed in `MALFORMED`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from agentgym.text.messages import Message
from agentgym.text.parsing import Dialect, parse, render
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.digests import digest

# Errors raised when an answer's fields are missing or malformed.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
# Maximum plausible token count: no model has processed that many tokens.
MAX_TOKENS = 10**12
# Maximum number of characters that an error message quotes from an answer.
QUOTED = 300
# Maximum number of stored replies: enough for several thousand turns of a few episodes.
MAX_REPLIES = 20_000
_SURROGATES = re.compile("[\ud800-\udfff]")

Item = dict[str, Any]


class AnswerError(ValueError):
    """Error for an API answer that cannot be read."""


def quote(value: Any) -> str:
    """Return the start of a value's JSON text, for error messages."""
    try:
        return json.dumps(value)[:QUOTED]
    except MALFORMED:
        return "a deeply nested value"


def text_of(value: Any, thoughts: list[str] | None = None) -> str:
    """Return a field's text; append any thinking in the field to `thoughts`."""
    if value is None or isinstance(value, str):
        return value or ""
    texts: list[str] = []
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, str):
            texts.append(part)
        elif part.get("type") in ("thinking", "reasoning"):
            thought = text_of(part.get("thinking") or part.get("text") or part.get("reasoning"))
            if thoughts is not None:
                thoughts.append(thought)
        else:
            text = part["refusal"] if part.get("type") == "refusal" else part["text"]
            if not isinstance(text, str):
                raise AnswerError(f"a content part must be text, got {quote(part)}")
            texts.append(text)
    return "".join(texts)


def call_text(name: Any, values: Any, dialect: Dialect) -> str:
    """Return a native tool call as text."""
    if values is None:
        values = {}
    arguments = values if isinstance(values, str) else json.dumps(values)
    body = f'{{"name": {json.dumps(name)}, "arguments": {arguments.strip() or "{}"}}}'
    body = body.replace("</", "<\\/")  # a closing tag in an argument would end the call
    text = f"<tool_call>\n{body}\n</tool_call>"
    calls = parse(text, "json").calls
    return render(calls[0], dialect) if calls else text


def join_parts(thought: str, *parts: str) -> str:
    """Join the thinking and the other parts of a reply."""
    # UTF-8 files cannot store lone surrogates.
    thinking = f"<think>\n{thought}\n</think>" if thought else ""
    return _SURROGATES.sub("\ufffd", "\n".join(filter(None, (thinking, *parts))))


def read_usage(
    usage: Any, prompt: Iterable[str], reply: str, cached: str, reasoning: str = "", *, cut: bool
) -> EndpointUsage:
    """Return the token usage of one reply; unreadable counts become 0 and set `unmetered`.

    `prompt` lists the fields whose sum is the prompt token count; only the first field is required.
    """
    prompts = [_count(usage, name) for name in prompt]
    written = _count(usage, reply)
    return EndpointUsage(
        replies=1,
        cut=int(cut),
        prompt_tokens=sum(filter(None, prompts)),
        cached_tokens=_count(usage, cached) or 0,
        completion_tokens=written or 0,
        reasoning_tokens=_count(usage, reasoning) or 0,
        unmetered=int(prompts[0] is None or written is None),
    )


def _count(usage: Any, name: str) -> int | None:
    for step in name.split("."):
        usage = usage.get(step) if isinstance(usage, dict) else None
    if not isinstance(usage, (int, float)) or isinstance(usage, bool):
        return None
    return int(usage) if 0 <= usage <= MAX_TOKENS and usage == int(usage) else None


class KeptReplies:
    """Mapping from a reply's text to the API items that contain the reply's reasoning.

    APIs accept only signed or encrypted reasoning, which messages cannot store. The reasoning is
    lost if a context strategy edits the reply, or if another process received the reply.
    """

    def __init__(self, call_type: str, call_id: str) -> None:
        self._call_type, self._call_id = call_type, call_id
        self._items: dict[str, Sequence[Item]] = {}

    def keep(self, text: str, items: Sequence[Item]) -> None:
        """Store a reply's items."""
        # If several replies have the same text, keep the items of the first, for reproducibility.
        self._items.setdefault(text, items)
        if len(self._items) > MAX_REPLIES:
            del self._items[next(iter(self._items))]

    def find(self, message: Message) -> list[Item]:
        """Return a message's stored API items with its call ids; empty if call counts differ."""
        items = self._items.get(message.raw, ())
        ids = [call.id for call in message.calls]
        if sum(item["type"] == self._call_type for item in items) != len(ids):
            return []
        found: list[Item] = []
        for item in items:
            if item["type"] == self._call_type:
                found.append({**item, self._call_id: ids.pop(0)})
            else:
                found.append(item)
        return found


def visible_thought(texts: Sequence[str], items: Sequence[Item]) -> str:
    """Return a reply's visible thinking, or a digest of hidden thinking."""
    thought = "\n".join(filter(None, texts)).strip()
    if thought or not items:
        return thought
    return f"(thinking not shown: {digest(list(items))[:12]})"
