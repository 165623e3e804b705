"""Chats as requests to the Anthropic Messages API, and its responses as replies.

Any malformed response raises `AnswerError`, and nothing else.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Image, Message
from agentgym.text.parsing import Dialect
from agentgym.training.rollout.endpoints.chat_completions import (
    QUOTED,
    AnswerError,
    call_text,
    dig,
    join_parts,
    load_json,
    quote,
    token_count,
)
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.digests import digest

# Replies whose thinking blocks are kept: several thousand turns of a few episodes.
MAX_SIGNED = 20_000
# Stop reasons of truncated replies.
_CUT = ("max_tokens", "model_context_window_exceeded")
_LEADING_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
# Characters that tool names cannot contain.
_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# The API's limit for tool names.
_MAX_NAME = 128
# The API rejects messages without content.
_EMPTY = "(empty)"

# Marks the end of a cacheable prefix.
_CACHED = {"type": "ephemeral"}

Block = dict[str, Any]


class SignedThinking:
    """Thinking blocks of replies, by the visible thinking.

    The API accepts thinking only with its signature, which messages cannot store. Unknown thinking,
    as after a restart, is omitted from requests.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, list[Block]] = {}

    def remember(self, blocks: Sequence[Block]) -> str:
        """Store thinking blocks and return the text that finds them; hidden thinking gets a digest."""
        if not blocks:
            return ""
        said = [text for block in blocks if isinstance(text := block.get("thinking"), str) and text]
        thought = "\n".join(said).strip() or f"(thinking not shown: {digest(list(blocks))[:12]})"
        self._blocks.pop(thought, None)
        self._blocks[thought] = list(blocks)
        while len(self._blocks) > MAX_SIGNED:
            del self._blocks[next(iter(self._blocks))]
        return thought

    def find(self, thought: str) -> list[Block]:
        """Return the blocks of a thought; empty if unknown."""
        return self._blocks.get(thought, [])


def to_prompt(chat: Chat, signed: SignedThinking, *, native: bool) -> dict[str, Any]:
    """Return a request's `system`, `messages` and `tools` for a chat.

    Args:
        chat: The chat; its leading system messages become `system`.
        signed: The thinking blocks of its replies.
        native: Whether to send tools and structured calls.
    """
    begin = next((k for k, m in enumerate(chat.messages) if m.role != "system"), len(chat.messages))
    system = "\n\n".join(message.text for message in chat.messages[:begin])
    prompt: dict[str, Any] = {"messages": _messages(chat.messages[begin:], signed)}
    if system:
        prompt["system"] = [{"type": "text", "text": system, "cache_control": _CACHED}]
    if native and chat.tools:
        prompt["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": dict(tool.parameters),
            }
            for tool in chat.tools
        ]
    return prompt


def _messages(messages: Sequence[Message], signed: SignedThinking) -> list[dict[str, Any]]:
    """Return messages with alternating roles, tool results first in a user turn; the last message
    ends the cacheable prefix.
    """
    out: list[dict[str, Any]] = []
    open_calls: set[str] = set()
    for is_reply, group in groupby(messages, lambda message: message.role == "assistant"):
        turn = list(group)
        if is_reply:
            blocks = [block for message in turn for block in _reply_blocks(message, signed)]
            open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
        else:
            blocks = [block for message in turn for block in _user_blocks(message, open_calls)]
            blocks.sort(key=lambda block: block["type"] != "tool_result")
        out.append(
            {
                "role": "assistant" if is_reply else "user",
                "content": blocks or [{"type": "text", "text": _EMPTY}],
            }
        )
    if out:
        out[-1]["content"][-1]["cache_control"] = _CACHED
    return out


def _reply_blocks(message: Message, signed: SignedThinking) -> Iterator[Block]:
    """Yield the blocks of a reply. A reply without a readable call is sent verbatim."""
    yield from map(dict, signed.find(message.thinking))
    unread = message.raw and not message.calls
    text = _LEADING_THOUGHT.sub("", message.raw) if unread else message.text
    if text.strip() or not message.calls:
        yield {"type": "text", "text": text.rstrip() or _EMPTY}
    for call in message.calls:
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": _NAME.sub("_", call.name)[:_MAX_NAME],
            "input": dict(call.arguments),
        }


def _user_blocks(message: Message, open_calls: set[str]) -> Iterator[Block]:
    content: list[Block] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    content += map(_image_block, message.images)
    if message.role != "tool" or message.call_id not in open_calls:
        yield from content
        return
    result: Block = {"type": "tool_result", "tool_use_id": message.call_id}
    if content:
        result["content"] = content
    if message.text.startswith("error:"):
        result["is_error"] = True
    yield result


def _image_block(image: Image) -> Block:
    return {
        "type": "image",
        "source": {
            "type": "base64",
            "media_type": "image/png",
            "data": base64.b64encode(image.png).decode("ascii"),
        },
    }


def load_message(text: str) -> Any:
    """Parse the body of a response.

    Raises:
        AnswerError: It is not the JSON of a message, or reports an error.
    """
    answer = load_json(text)
    if not isinstance(dig(answer, "content"), list) or dig(answer, "type") != "message":
        raise AnswerError(text[:QUOTED])
    return answer


def to_reply(answer: Any, dialect: Dialect, signed: SignedThinking) -> Reply:
    """Convert a response to a reply and store its thinking blocks.

    A truncated call is omitted, because its arguments are incomplete.

    Raises:
        AnswerError: A block has an unknown type.
    """
    content: list[Any] = list(answer["content"])
    if is_cut(answer) and dig(content, -1, "type") == "tool_use":
        content.pop()
    thoughts: list[Block] = []
    parts: list[str] = []
    for block in content:
        kind = dig(block, "type")
        if kind in ("thinking", "redacted_thinking"):
            thoughts.append(_thinking_block(block))
        elif kind == "text" and isinstance(block.get("text"), str):
            parts.append(block["text"])
        elif kind == "tool_use":
            parts.append(call_text(block.get("name"), block.get("input"), dialect))
        else:
            raise AnswerError(f"content has {quote(block)}, which is no text, thinking or call")
    thought = signed.remember(thoughts)
    return Reply(join_parts([f"<think>\n{thought}\n</think>" if thought else "", *parts]))


def _thinking_block(block: Mapping[str, Any]) -> Block:
    """Return the fields of a thinking block that are sent back."""
    kept = {
        name: block[name]
        for name in ("type", "thinking", "signature", "data")
        if isinstance(block.get(name), str)
    }
    if not kept.keys() & {"thinking", "data"}:
        raise AnswerError(f"content has {quote(block)}, which holds no thinking")
    return kept


def is_cut(answer: Any) -> bool:
    """Report whether the response ended at a token limit."""
    return dig(answer, "stop_reason") in _CUT


def to_usage(answer: Mapping[str, Any]) -> EndpointUsage:
    """Return the usage of a response. Unreadable counts are 0 and set `unmetered`."""
    fresh, cached, stored, written = (
        token_count(dig(answer, "usage", f"{kind}_tokens"))
        for kind in ("input", "cache_read_input", "cache_creation_input", "output")
    )
    return EndpointUsage(
        replies=1,
        cut=int(is_cut(answer)),
        prompt_tokens=(fresh or 0) + (cached or 0) + (stored or 0),
        cached_tokens=cached or 0,
        completion_tokens=written or 0,
        unmetered=int(fresh is None or written is None),
    )
