"""Differences between steps, so data grows with new text and tokens only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.token_ids import TokenIds
from agentgym.text.tools import Tool

T = TypeVar("T")
# Maximum number of chats to compare with: one per agent of a team.
_MOST_RECENT = 16


class ChatDelta(NamedTuple):
    """Chat relative to an earlier one, of which it keeps the first messages."""

    kept: int
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None
    agent: str = ""

    @classmethod
    def of(cls, chat: Chat, before: Chat, kept: int | None = None) -> ChatDelta:
        """Return a chat's difference from an earlier one."""
        kept = chat.shared_prefix(before) if kept is None else kept
        return cls(
            kept,
            tuple(chat.messages[kept:]),
            None if chat.tools == before.tools else chat.tools,
            chat.agent,
        )

    def after(self, before: Chat) -> Chat:
        """Rebuild the chat; raise `ValueError` if the earlier one is too short."""
        if not 0 <= self.kept <= len(before.messages):
            raise ValueError(f"a chat keeps {self.kept} messages of {len(before.messages)}")
        prefix = Chat(
            before.first(self.kept).messages,
            before.tools if self.tools is None else self.tools,
            self.agent,
        )
        if self.kept == len(before.messages) or not self.messages:
            return prefix.extend(self.messages)
        # Some wrappers replace the last message of each chat, as with ephemeral hints, so share the
        # messages before it.
        *stay, newest = self.messages
        return prefix.extend(stay).with_last(newest)


class ReplyDelta(NamedTuple):
    """Reply relative to an earlier one; `new` are the prompt ids after the `kept` ones."""

    text: str
    kept: int
    new: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    @classmethod
    def of(cls, reply: Reply, before: Reply, kept: int | None = None) -> ReplyDelta:
        """Return a reply's difference from an earlier one."""
        kept = continued(reply, before) if kept is None else kept
        return cls(reply.text, kept, tuple(reply.prompt_ids[kept:]), reply.ids, reply.logprobs)

    def after(self, before: Reply) -> Reply:
        """Rebuild the reply; raise `ValueError` if the earlier one is too short."""
        if not 0 <= self.kept <= len(before.prompt_ids) + len(before.ids):
            raise ValueError(f"a prompt keeps {self.kept} ids of the one before, which has fewer")
        if not self.kept and not self.new:
            return Reply(self.text, (), self.ids, self.logprobs)
        ids = as_token_ids(before.prompt_ids)
        if self.kept > len(ids):
            ids = ids.add(before.ids[: self.kept - len(ids)])
        return Reply(self.text, ids.first(self.kept).add(self.new), self.ids, self.logprobs)


class Recent(Generic[T]):
    """Recently transferred chats or replies, identical on both sides."""

    def __init__(self, empty: T, size: Callable[[T], int]) -> None:
        # A team's agents take turns, so the nearest earlier item need not be the last one.
        self.items, self._size = [empty], size

    def nearest(self, kept: Callable[[T], int]) -> tuple[int, int]:
        """Return the item that shares most with a new one, and the number of shared parts."""
        counts = list(map(kept, self.items))
        most = max(counts)
        return counts.index(most), most

    def add(self, item: T, base: int, kept: int) -> None:
        """Add an item, replacing its base if the item contains all of it."""
        if base and kept == self._size(self.items[base]):
            del self.items[base]
        self.items.append(item)
        if len(self.items) > 1 + _MOST_RECENT:
            del self.items[1]


class Border:
    """One side of a connection that transfers differences; both sides keep equal state."""

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
    """Count the leading ids of a prompt that equal the previous prompt and reply."""
    if not reply.prompt_ids:
        return 0
    prompt = as_token_ids(reply.prompt_ids)
    shared = prompt.shared_prefix(before.prompt_ids)
    if shared == len(before.prompt_ids):
        shared += prompt.shared_prefix(before.ids, shared)
    return shared


def as_token_ids(ids: TokenIds | tuple[int, ...]) -> TokenIds:
    """Return ids as versions of a shared buffer."""
    return ids if isinstance(ids, TokenIds) else TokenIds(ids)
