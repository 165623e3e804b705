"""Replies with reasoning, kept as the server gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.text.messages import Message
from agentgym.world.digests import digest

MAX_REPLIES = 20_000
"""Replies that are kept: several thousand turns of a few episodes."""

Item = dict[str, Any]


class KeptReplies:
    """Items of replies with reasoning, by the reply's text.

    APIs accept reasoning only with a signature or in encrypted form, which messages cannot store.
    The reasoning of a reply that a context strategy has edited, or that another process received,
    is omitted from requests.

    Args:
        call_type: The type of items that are calls.
        call_id: The field with a call's id.
    """

    def __init__(self, call_type: str, call_id: str) -> None:
        self._call_type, self._call_id = call_type, call_id
        self._items: dict[str, Sequence[Item]] = {}

    def keep(self, text: str, items: Sequence[Item]) -> None:
        """Keep the items of a reply's text."""
        # The first reply of a text wins; otherwise a repeated run would send other requests.
        self._items.setdefault(text, items)
        if len(self._items) > MAX_REPLIES:
            del self._items[next(iter(self._items))]

    def find(self, message: Message) -> list[Item]:
        """Return the items of a message, with its own call ids; empty if they are unknown."""
        items = self._items.get(message.raw, ())
        ids = [call.id for call in message.calls]
        if sum(item["type"] == self._call_type for item in items) != len(ids):
            return []
        found: list[Item] = []
        for item in items:
            is_call = item["type"] == self._call_type
            found.append({**item, self._call_id: ids.pop(0)} if is_call else item)
        return found


def visible_thought(texts: Sequence[str], items: Sequence[Item]) -> str:
    """Return the text of a reply's thinking; hidden thinking gets a digest."""
    thought = "\n".join(filter(None, texts)).strip()
    if thought or not items:
        return thought
    return f"(thinking not shown: {digest(list(items))[:12]})"
