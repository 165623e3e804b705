"""Deltas between consecutive steps; a delta's size depends only on the new text and tokens."""

from __future__ import annotations

from typing import NamedTuple

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.token_ids import TokenIds
from agentgym.text.tools import Tool


class ChatDelta(NamedTuple):
    """Difference between a chat and an earlier chat that starts with the same `kept` messages."""

    kept: int
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None
    agent: str = ""

    @classmethod
    def of(cls, chat: Chat, before: Chat) -> ChatDelta:
        """Return a chat's difference from an earlier chat."""
        kept = chat.shared_prefix(before)
        return cls(
            kept,
            tuple(chat.messages[kept:]),
            None if chat.tools == before.tools else chat.tools,
            chat.agent,
        )

    def after(self, before: Chat) -> Chat:
        """Rebuild the chat, or raise `ValueError` if the earlier chat is too short."""
        if not 0 <= self.kept <= len(before.messages):
            raise ValueError(f"kept must be in [0, {len(before.messages)}], got {self.kept}")
        prefix = Chat(
            before.first(self.kept).messages,
            before.tools if self.tools is None else self.tools,
            self.agent,
        )
        if self.kept == len(before.messages) or not self.messages:
            return prefix.extend(self.messages)
        # Ephemeral hints replace each chat's last message, so only earlier messages are shared.
        *stay, newest = self.messages
        return prefix.extend(stay).with_last(newest)


class ReplyDelta(NamedTuple):
    """Difference between two replies; `new` contains the prompt ids after the first `kept` ids."""

    text: str
    kept: int
    new: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    @classmethod
    def of(cls, reply: Reply, before: Reply) -> ReplyDelta:
        """Return a reply's difference from an earlier reply."""
        kept = continued(reply, before)
        return cls(reply.text, kept, tuple(reply.prompt_ids[kept:]), reply.ids, reply.logprobs)

    def after(self, before: Reply) -> Reply:
        """Rebuild the reply, or raise `ValueError` if the earlier reply is too short."""
        if not 0 <= self.kept <= len(before.prompt_ids) + len(before.ids):
            raise ValueError(f"kept must not exceed the number of earlier ids, got {self.kept}")
        if not self.kept and not self.new:
            return Reply(self.text, (), self.ids, self.logprobs)
        ids = as_token_ids(before.prompt_ids)
        if self.kept > len(ids):
            ids = ids.add(before.ids[: self.kept - len(ids)])
        return Reply(self.text, ids.first(self.kept).add(self.new), self.ids, self.logprobs)


class Border:
    """One end of a connection that sends each chat as a delta to the agent's previous chat."""

    def __init__(self) -> None:
        self._chats: dict[str, Chat] = {}

    def send(self, chat: Chat) -> ChatDelta:
        """Encode a chat."""
        delta = ChatDelta.of(chat, self._chats.get(chat.agent, Chat()))
        self._chats[chat.agent] = chat
        return delta

    def receive(self, delta: ChatDelta) -> Chat:
        """Decode a chat."""
        chat = delta.after(self._chats.get(delta.agent, Chat()))
        self._chats[delta.agent] = chat
        return chat


def continued(reply: Reply, before: Reply) -> int:
    """Count the leading ids that a prompt shares with the previous prompt and reply."""
    if not reply.prompt_ids:
        return 0
    prompt = as_token_ids(reply.prompt_ids)
    shared = prompt.shared_prefix(before.prompt_ids)
    if shared == len(before.prompt_ids):
        shared += prompt.shared_prefix(before.ids, shared)
    return shared


def as_token_ids(ids: TokenIds | tuple[int, ...]) -> TokenIds:
    """Return ids as `TokenIds`."""
    return ids if isinstance(ids, TokenIds) else TokenIds(ids)
