"""Request parts shared by all APIs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.text.prompts import read_dialect, without_written_calls
from agentgym.training.rollout.endpoints.config import PolicyEndpointConfig
from agentgym.training.rollout.models.plain_chat import as_text, to_encodable


def to_wire(chat: Chat, tools: str) -> Chat:
    """Return the chat with either tool schemas or instructions for written calls."""
    if tools == "text":
        return as_text(chat.messages)
    if not chat.tools:
        return chat
    messages = [
        replace(m, text=without_written_calls(m.text)) if m.role == "system" else m
        for m in chat.messages
    ]
    return replace(chat, messages=tuple(messages))


def dialect_of(chat: Chat) -> Dialect:
    """Return the dialect of calls that the env's system message states."""
    first = chat.messages[0] if chat.messages else None
    return read_dialect(first.text) if first is not None and first.role == "system" else "auto"


def set_fields(
    config: PolicyEndpointConfig, prompt: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the request body, without options that are None."""
    given = {name: value for name, value in options.items() if value is not None}
    body = {"model": config.model, **prompt, **given, **config.extra_body}
    # The cache key and the SDK must see the same values.
    return dict(to_encodable(json.loads(json.dumps(body))))
