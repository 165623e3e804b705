"""Plain user and assistant messages, for endpoints and trainers without tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import render


def as_text(messages: Iterable[Message]) -> Chat:
    """Convert messages to plain text and join adjacent messages with the same role."""
    out: list[Message] = []
    for message in messages:
        text = message.raw or "\n".join(filter(None, (message.text, *map(render, message.calls))))
        new = Message(
            "user" if message.role == "tool" else message.role, text, images=message.images
        )
        if out and out[-1].role == new.role:
            new = join_messages(out.pop(), new)
        out.append(new)
    return Chat(tuple(out))


def join_messages(first: Message, second: Message) -> Message:
    """Join two messages of the same role."""
    return replace(
        first, text=f"{first.text}\n\n{second.text}", images=first.images + second.images
    )


def to_encodable(data: Any) -> Any:
    """Replace lone surrogates, which requests cannot encode, in JSON-able data."""
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.loads(json.dumps(data, ensure_ascii=False).encode(errors="replace"))
    return data
