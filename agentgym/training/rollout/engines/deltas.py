"""What the steps of an episode add to the steps before: the form in which they are stored and sent,
which grows with the new text and tokens, never with the history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.token_ids import TokenIds
from agentgym.text.tools import Tool

T = TypeVar("T")
_MOST_RECENT = 16
"""Chats against which a new one may be written: those of the agents of a team, one each."""


class ChatDelta(NamedTuple):
    """A chat against the one before.

    Attributes:
        kept: The number of messages that stay.
        messages: Those that follow.
        tools: The tools, if they are others.
    """

    kept: int
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None

    @classmethod
    def of(cls, chat: Chat, before: Chat, kept: int | None = None) -> ChatDelta:
        """Return what a chat adds to another.

        Args:
            chat: The chat.
            before: The other.
            kept: The number of messages that both begin with, if it is known.
        """
        kept = chat.shared_prefix(before) if kept is None else kept
        return cls(
            kept,
            tuple(chat.messages[kept:]),
            None if chat.tools == before.tools else chat.tools,
        )

    def after(self, before: Chat) -> Chat:
        """Return the chat, which shares the messages that stay.

        Raises:
            ValueError: It keeps more messages than there are.
        """
        if not 0 <= self.kept <= len(before.messages):
            raise ValueError(f"a chat keeps {self.kept} messages of {len(before.messages)}")
        prefix = Chat(
            before.first(self.kept).messages,
            before.tools if self.tools is None else self.tools,
        )
        if self.kept == len(before.messages) or not self.messages:
            return prefix.extend(self.messages)
        # The end of the chat before was replaced, as the newest hint is, so that of this one may be.
        *stay, newest = self.messages
        return prefix.extend(stay).with_last(newest)


class ReplyDelta(NamedTuple):
    """A reply against the one before: its prompt begins with the prompt of that and its tokens,
    unless the context was edited.

    Attributes:
        text: The action.
        kept: The number of ids of that prompt and its tokens that stay.
        new: The ids of the prompt that follow.
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
        """Return what a reply adds to another.

        Args:
            reply: The reply.
            before: The other.
            kept: The number of ids that `continued` counts, if it is known.
        """
        kept = continued(reply, before) if kept is None else kept
        return cls(reply.text, kept, tuple(reply.prompt_ids[kept:]), reply.ids, reply.logprobs)

    def after(self, before: Reply) -> Reply:
        """Return the reply.

        Raises:
            ValueError: It keeps more ids than there are.
        """
        if not 0 <= self.kept <= len(before.prompt_ids) + len(before.ids):
            raise ValueError(f"a prompt keeps {self.kept} ids of the one before, which has fewer")
        if not self.kept and not self.new:
            return Reply(self.text, (), self.ids, self.logprobs)
        ids = as_token_ids(before.prompt_ids)
        if self.kept > len(ids):
            ids = ids.add(before.ids[: self.kept - len(ids)])
        return Reply(self.text, ids.first(self.kept).add(self.new), self.ids, self.logprobs)


class Recent(Generic[T]):
    """Chats or replies that have crossed a border, in the same order on both sides: a new one is
    written against the nearest of them, since the agents of a team take turns.

    Args:
        empty: The first, which stays.
        size: Counts all that can be kept of an item.
    """

    def __init__(self, empty: T, size: Callable[[T], int]) -> None:
        self.items, self._size = [empty], size

    def nearest(self, kept: Callable[[T], int]) -> tuple[int, int]:
        """Return the place of the item of which a new one keeps most, and how much it keeps."""
        counts = list(map(kept, self.items))
        most = max(counts)
        return counts.index(most), most

    def add(self, item: T, base: int, kept: int) -> None:
        """Add an item, in place of its base if it keeps the whole of that."""
        if base and kept == self._size(self.items[base]):
            del self.items[base]
        self.items.append(item)
        if len(self.items) > 1 + _MOST_RECENT:
            del self.items[1]


class Border:
    """One side of a border that chats and replies cross; those on both sides do the same."""

    def __init__(self) -> None:
        self._chats = Recent(Chat(), lambda chat: len(chat.messages))
        self._replies = Recent(Reply(""), lambda reply: len(reply.prompt_ids) + len(reply.ids))

    def send_chat(self, chat: Chat) -> tuple[int, ChatDelta]:
        """Return the form of a chat in which it crosses."""
        base, kept = self._chats.nearest(chat.shared_prefix)
        delta = ChatDelta.of(chat, self._chats.items[base], kept)
        self._chats.add(chat, base, kept)
        return base, delta

    def receive_chat(self, base: int, delta: ChatDelta) -> Chat:
        """Return the chat that has crossed."""
        chat = delta.after(self._chats.items[base])
        self._chats.add(chat, base, delta.kept)
        return chat

    def send_reply(self, reply: Reply) -> tuple[int, ReplyDelta]:
        """Return the form of a reply in which it crosses."""
        base, kept = self._replies.nearest(lambda before: continued(reply, before))
        delta = ReplyDelta.of(reply, self._replies.items[base], kept)
        if reply.prompt_ids:
            self._replies.add(reply, base, kept)
        return base, delta

    def receive_reply(self, base: int, delta: ReplyDelta) -> Reply:
        """Return the reply that has crossed."""
        reply = delta.after(self._replies.items[base])
        if reply.prompt_ids:
            self._replies.add(reply, base, delta.kept)
        return reply


def continued(reply: Reply, before: Reply) -> int:
    """Count the leading ids of a prompt that are those of the prompt before and its reply."""
    if not reply.prompt_ids:
        return 0
    prompt = as_token_ids(reply.prompt_ids)
    shared = prompt.shared_prefix(before.prompt_ids)
    if shared == len(before.prompt_ids):
        shared += prompt.shared_prefix(before.ids, shared)
    return shared


def as_token_ids(ids: TokenIds | tuple[int, ...]) -> TokenIds:
    """Return ids as versions of a buffer."""
    return ids if isinstance(ids, TokenIds) else TokenIds(ids)
