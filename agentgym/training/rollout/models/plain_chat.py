"""Chats without structured calls, as user and assistant messages, for endpoints and trainers that
know nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import render


def as_text(messages: Iterable[Message]) -> Chat:
    """Return messages as a chat of text: replies as written, results as user messages, neighbours
    of one role as one message.
    """
    out: list[Message] = []
    for message in messages:
        text = message.raw or "\n".join(filter(None, (message.text, *map(render, message.calls))))
        new = Message(
            "user" if message.role == "tool" else message.role, text, images=message.images
        )
        out.append(join_messages(out.pop(), new) if out and out[-1].role == new.role else new)
    return Chat(tuple(out))


def join_messages(first: Message, second: Message) -> Message:
    """Return two messages of one role as one."""
    return replace(
        first, text=f"{first.text}\n\n{second.text}", images=first.images + second.images
    )


def plain_messages(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Return messages as `role` and `content` alone, for trainers that know neither calls nor
    results. Pictures are left out.
    """
    return [
        {"role": message.role, "content": message.text} for message in as_text(messages).messages
    ]


def to_encodable(data: Any) -> Any:
    """Return JSON-able data as a request can carry it: half of a surrogate pair is replaced."""
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.loads(json.dumps(data, ensure_ascii=False).encode(errors="replace"))
    return data
