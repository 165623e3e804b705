"""Deltas between consecutive chats and replies.

Episodes are stored and sent as deltas, so their size grows with new text and tokens, not with the
history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.token_ids import TokenIds
from agentgym.text.tools import Tool

T = TypeVar("T")
# Chats kept as bases for deltas: one for each agent of a team.
_MOST_RECENT = 16


class ChatDelta(NamedTuple):
    """Chat as a change to an earlier chat.

    Attributes:
        kept: Number of leading messages kept.
        messages: The messages that follow.
        tools: The tools, or None if unchanged.
    """

    kept: int
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None

    @classmethod
    def of(cls, chat: Chat, before: Chat, kept: int | None = None) -> ChatDelta:
        """Return the delta from one chat to another.

        Args:
            chat: The new chat.
            before: The earlier chat.
            kept: Length of their shared prefix, if known.
        """
        kept = chat.shared_prefix(before) if kept is None else kept
        return cls(
            kept,
            tuple(chat.messages[kept:]),
            None if chat.tools == before.tools else chat.tools,
        )

    def after(self, before: Chat) -> Chat:
        """Return the new chat, which shares the kept messages with the earlier one.

        Raises:
            ValueError: The delta keeps more messages than the earlier chat has.
        """
        if not 0 <= self.kept <= len(before.messages):
            raise ValueError(f"a chat keeps {self.kept} messages of {len(before.messages)}")
        prefix = Chat(
            before.first(self.kept).messages,
            before.tools if self.tools is None else self.tools,
        )
        if self.kept == len(before.messages) or not self.messages:
            return prefix.extend(self.messages)
        # The earlier chat's last message was replaced (a hint, say), so this one's may be replaced too.
        *stay, newest = self.messages
        return prefix.extend(stay).with_last(newest)


class ReplyDelta(NamedTuple):
    """Reply as a change to an earlier reply.

    Unless the context was edited, a prompt starts with the previous prompt and its reply tokens.

    Attributes:
        text: The action.
        kept: Number of leading ids kept from the earlier prompt and reply.
        new: The prompt ids that follow.
        ids: The sampled token ids.
        logprobs: Their log-probabilities.
    """

    text: str
    kept: int
    new: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    @classmethod
    def of(cls, reply: Reply, before: Reply, kept: int | None = None) -> ReplyDelta:
        """Return the delta from one reply to another.

        Args:
            reply: The new reply.
            before: The earlier reply.
            kept: The result of `continued`, if known.
        """
        kept = continued(reply, before) if kept is None else kept
        return cls(reply.text, kept, tuple(reply.prompt_ids[kept:]), reply.ids, reply.logprobs)

    def after(self, before: Reply) -> Reply:
        """Return the new reply.

        Raises:
            ValueError: The delta keeps more ids than the earlier reply has.
        """
        if not 0 <= self.kept <= len(before.prompt_ids) + len(before.ids):
            raise ValueError(
                f"a prompt keeps {self.kept} ids of the previous prompt, which has fewer"
            )
        if not self.kept and not self.new:
            return Reply(self.text, (), self.ids, self.logprobs)
        ids = as_token_ids(before.prompt_ids)
        if self.kept > len(ids):
            ids = ids.add(before.ids[: self.kept - len(ids)])
        return Reply(self.text, ids.first(self.kept).add(self.new), self.ids, self.logprobs)


class Recent(Generic[T]):
    """Recently sent chats or replies, in the same order on both sides.

    A new item is encoded against the nearest one, since the agents of a team take turns.

    Args:
        empty: The first item, which is never removed.
        size: Returns an item's total length.
    """

    def __init__(self, empty: T, size: Callable[[T], int]) -> None:
        self.items, self._size = [empty], size

    def nearest(self, kept: Callable[[T], int]) -> tuple[int, int]:
        """Return the index of the item with the longest shared prefix, and that prefix's length."""
        counts = list(map(kept, self.items))
        most = max(counts)
        return counts.index(most), most

    def add(self, item: T, base: int, kept: int) -> None:
        """Add an item; it replaces its base if it extends all of it."""
        if base and kept == self._size(self.items[base]):
            del self.items[base]
        self.items.append(item)
        if len(self.items) > 1 + _MOST_RECENT:
            del self.items[1]


class Border:
    """One end of a connection that sends chats and replies as deltas; both ends keep the same
    state.
    """

    def __init__(self) -> None:
        self._chats = Recent(Chat(), lambda chat: len(chat.messages))
        self._replies = Recent(Reply(""), lambda reply: len(reply.prompt_ids) + len(reply.ids))

    def send_chat(self, chat: Chat) -> tuple[int, ChatDelta]:
        """Encode a chat."""
        base, kept = self._chats.nearest(chat.shared_prefix)
        delta = ChatDelta.of(chat, self._chats.items[base], kept)
        self._chats.add(chat, base, kept)
        return base, delta

    def receive_chat(self, base: int, delta: ChatDelta) -> Chat:
        """Decode a chat."""
        chat = delta.after(self._chats.items[base])
        self._chats.add(chat, base, delta.kept)
        return chat

    def send_reply(self, reply: Reply) -> tuple[int, ReplyDelta]:
        """Encode a reply."""
        base, kept = self._replies.nearest(lambda before: continued(reply, before))
        delta = ReplyDelta.of(reply, self._replies.items[base], kept)
        if reply.prompt_ids:
            self._replies.add(reply, base, kept)
        return base, delta

    def receive_reply(self, base: int, delta: ReplyDelta) -> Reply:
        """Decode a reply."""
        reply = delta.after(self._replies.items[base])
        if reply.prompt_ids:
            self._replies.add(reply, base, delta.kept)
        return reply


def continued(reply: Reply, before: Reply) -> int:
    """Return the length of the prefix that a prompt shares with the previous prompt and reply."""
    if not reply.prompt_ids:
        return 0
    prompt = as_token_ids(reply.prompt_ids)
    shared = prompt.shared_prefix(before.prompt_ids)
    if shared == len(before.prompt_ids):
        shared += prompt.shared_prefix(before.ids, shared)
    return shared


def as_token_ids(ids: TokenIds | tuple[int, ...]) -> TokenIds:
    """Return ids as `TokenIds`, which share a buffer."""
    return ids if isinstance(ids, TokenIds) else TokenIds(ids)
