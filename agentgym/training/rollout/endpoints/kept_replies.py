"""Replies with reasoning, stored verbatim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.text.messages import Message
from agentgym.world.digests import digest

# Maximum number of stored replies: several thousand turns of a few episodes.
MAX_REPLIES = 20_000

Item = dict[str, Any]


class KeptReplies:
    """Items of replies with reasoning, by the reply's text.

    APIs accept reasoning only signed or encrypted, which messages cannot store. Requests omit the
    reasoning of replies that a context strategy edited or another process received.
    """

    def __init__(self, call_type: str, call_id: str) -> None:
        self._call_type, self._call_id = call_type, call_id
        self._items: dict[str, Sequence[Item]] = {}

    def keep(self, text: str, items: Sequence[Item]) -> None:
        """Store a reply's items."""
        # The first reply with a text wins; otherwise a repeated run would send other requests.
        self._items.setdefault(text, items)
        if len(self._items) > MAX_REPLIES:
            del self._items[next(iter(self._items))]

    def find(self, message: Message) -> list[Item]:
        """Return a message's items with its call ids; empty if they are unknown."""
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
    """Return a reply's visible thinking; hidden thinking gets a digest."""
    thought = "\n".join(filter(None, texts)).strip()
    if thought or not items:
        return thought
    return f"(thinking not shown: {digest(list(items))[:12]})"
