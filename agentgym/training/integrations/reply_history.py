"""Chat-completions requests that repeat each reply exactly as the server returned it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import render
from agentgym.training.rollout.models.plain_chat import as_text, join_messages

_KEPT = ("role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls")
# Number of stored replies, which must cover all concurrent episodes.
_REMEMBERED = 65_536


class ReplyHistory:
    """Stores the server's messages, so that later requests repeat them verbatim."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], dict[str, Any]] = {}
        self._calls: dict[tuple[str, str], Any] = {}

    def remember(self, chat: Chat, text: str, completion: dict[str, Any]) -> None:
        """Store the server's message if `text` is the chat's newest reply."""
        newest = next((m for m in reversed(chat.messages) if m.role == "assistant"), None)
        if newest is None or newest.raw != text:
            return
        kept = {}
        for name in _KEPT:
            if completion.get(name) is not None:
                kept[name] = completion[name]
        self._said[newest.id, text] = {"content": "", **kept}
        self._calls[newest.id, _calls(newest)] = kept.get("tool_calls")
        for entries in (self._said, self._calls):
            if len(entries) > _REMEMBERED:
                del entries[next(iter(entries))]

    def messages(self, chat: Chat) -> list[dict[str, Any]]:
        """Return a chat as request messages; only structured calls get messages of role `tool`."""
        messages: list[Message] = []
        forms: list[dict[str, Any]] = []
        waiting: list[str] = []
        for message in chat.messages:
            if message.role == "assistant":
                forms.append(self._form(message))
                waiting = [call["id"] for call in forms[-1].get("tool_calls", ())]
                messages.append(message)
            elif waiting and message.role == "tool":
                messages.append(replace(message, call_id=waiting.pop(0)))
            elif waiting:  # `message` reports that the calls are unreadable
                messages += [Message("tool", message.text, call_id=each) for each in waiting]
                waiting = []
            else:
                _add(messages, message)
        remaining = iter(forms)
        return [
            next(remaining) if each["role"] == "assistant" else each
            for each in Chat(tuple(messages)).to_openai()
        ]

    def _form(self, message: Message) -> dict[str, Any]:
        if form := self._said.get((message.id, message.raw)):
            return form
        # The results of an edited reply still refer to the ids of its calls.
        calls = self._calls.get((message.id, _calls(message)))
        if message.calls and calls:
            return {**Chat((message,)).to_openai()[0], "tool_calls": calls}
        return as_text([message]).to_openai()[0]


def _calls(message: Message) -> str:
    return "\n".join(map(render, message.calls))


def _add(messages: list[Message], message: Message) -> None:
    role = "user" if message.role == "tool" else message.role
    plain = Message(role, message.text, images=message.images)
    if messages and messages[-1].role == role == "user":
        plain = join_messages(messages.pop(), plain)
    messages.append(plain)
