"""Policy that calls the Anthropic Messages API or a compatible server."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import ModuleType
from typing import Annotated, Any, ClassVar

import anthropic
from pydantic import Field

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Image, Message
from agentgym.text.parsing import Dialect
from agentgym.text.tools import Tool
from agentgym.training.rollout.endpoints.answers import (
    AnswerError,
    Item,
    KeptReplies,
    call_text,
    join_parts,
    quote,
    read_usage,
    visible_thought,
)
from agentgym.training.rollout.endpoints.config import EndpointOptions
from agentgym.training.rollout.endpoints.connection import Connection
from agentgym.training.rollout.endpoints.endpoint import FromEnvironment, HttpPolicy, dialect_of
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.config import TokenCount

# Stop reasons of replies that the server cut short.
_CUT = ("max_tokens", "model_context_window_exceeded", "refusal")
_LEADING_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
# Characters that tool names cannot contain.
_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 128
# The API rejects messages without content.
_EMPTY = "(empty)"
# The API requires a maximum reply length; this default leaves room for thinking.
_MAX_TOKENS = 16_000


@dataclass(frozen=True)
class AnthropicConfig(EndpointOptions):
    """Options of `AnthropicPolicy`, including all `EndpointOptions`.

    Attributes:
        base_url: The API's URL, without `/v1/messages`.
        max_tokens: Maximum reply tokens, including thinking; None for 16,000 plus
            `thinking_budget`.
        thinking_budget: Maximum thinking tokens, fewer than `max_tokens`; None disables thinking.
            To use another thinking mode, set `extra_body={"thinking": {"type": "adaptive"}}`.
    """

    base_url: str = "https://api.anthropic.com"
    api_key_env: str = "ANTHROPIC_API_KEY"
    thinking_budget: Annotated[int, Field(ge=1, le=10**9), TokenCount()] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens is None:
            object.__setattr__(self, "max_tokens", _MAX_TOKENS + (self.thinking_budget or 0))
        elif self.thinking_budget is not None and self.thinking_budget >= self.max_tokens:
            raise ValueError(
                f"thinking_budget must be below max_tokens ({self.max_tokens}), got "
                f"{self.thinking_budget}; raise max_tokens"
            )


class AnthropicPolicy(HttpPolicy[AnthropicConfig]):
    """Policy that calls the Messages API and sends back signed thinking blocks."""

    sdk: ClassVar[ModuleType] = anthropic
    client = anthropic.AsyncAnthropic
    path = "/v1/messages"
    remedies: ClassVar[Mapping[int, str]] = {
        404: "check model and base_url, which ends before /v1",
        413: "play with a context strategy and a window",
    }
    answer: ClassVar[str] = "message"

    def __init__(self, config: AnthropicConfig, connection: Connection | None = None) -> None:
        super().__init__(config, connection)
        self._kept = KeptReplies("tool_use", "id")

    def compose(self, chat: Chat) -> dict[str, Any]:
        config = self.config
        fields = to_prompt(chat, self._kept)
        fields |= {"max_tokens": config.max_tokens, "cache_control": {"type": "ephemeral"}}
        if config.thinking_budget is not None:
            fields["thinking"] = {"type": "enabled", "budget_tokens": config.thinking_budget}
        return fields

    def read(self, chat: Chat, answer: Any) -> tuple[Reply, EndpointUsage]:
        return to_reply(answer, dialect_of(chat), self._kept), to_usage(answer)


def to_prompt(chat: Chat, kept: KeptReplies) -> dict[str, Any]:
    """Return the request fields `system`, `messages` and, if there are tools, `tools`."""
    messages = list(chat.messages)
    system: list[str] = []
    while messages and messages[0].role == "system":
        system.append(messages.pop(0).text)
    prompt: dict[str, Any] = {"messages": _messages(messages, kept)}
    if system:
        prompt["system"] = "\n\n".join(system)
    if chat.tools:
        prompt["tools"] = [_tool(tool) for tool in chat.tools]
    return prompt


def _tool(tool: Tool) -> Item:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.parameters),
    }


def _messages(messages: Sequence[Message], kept: KeptReplies) -> list[Item]:
    out: list[Item] = []
    open_calls: set[str] = set()
    for is_reply, turn in groupby(messages, lambda message: message.role == "assistant"):
        blocks: list[Item] = []
        if is_reply:
            role = "assistant"
            for message in turn:
                blocks += _reply_blocks(message, kept)
            open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
        else:
            role = "user"
            for message in turn:
                blocks += _user_blocks(message, open_calls)
            blocks.sort(key=lambda block: block["type"] != "tool_result")
        out.append({"role": role, "content": blocks or [{"type": "text", "text": _EMPTY}]})
    return out


def _reply_blocks(message: Message, kept: KeptReplies) -> Iterator[Item]:
    if found := kept.find(message):
        yield from found
        return
    text = message.text
    if message.raw and not message.calls:
        text = _LEADING_THOUGHT.sub("", message.raw)
    if text.strip() or not message.calls:
        yield {"type": "text", "text": text.rstrip() or _EMPTY}
    for call in message.calls:
        name = _NAME.sub("_", call.name)[:_MAX_NAME]
        yield {"type": "tool_use", "id": call.id, "name": name, "input": dict(call.arguments)}


def _user_blocks(message: Message, open_calls: set[str]) -> Iterator[Item]:
    content: list[Item] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    content += map(_image_block, message.images)
    if message.role != "tool" or message.call_id not in open_calls:
        yield from content
        return
    result: Item = {"type": "tool_result", "tool_use_id": message.call_id}
    if content:
        result["content"] = content
    if message.text.startswith("error:"):
        result["is_error"] = True
    yield result


def _image_block(image: Image) -> Item:
    data = base64.b64encode(image.png).decode("ascii")
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def to_reply(answer: Any, dialect: Dialect, kept: KeptReplies) -> Reply:
    """Convert an answer to a reply and store its thinking, or raise an error in `MALFORMED`."""
    # Drop a truncated tool call, because its arguments are incomplete.
    if answer.get("type") != "message" or not isinstance(answer["content"], list):
        raise AnswerError(quote(answer))
    content = list(answer["content"])
    if answer.get("stop_reason") in _CUT and content and content[-1]["type"] == "tool_use":
        content.pop()
    thoughts: list[str] = []
    thinking: list[Item] = []
    texts: list[str] = []
    for block in content:
        if block["type"] == "text":
            texts.append(block["text"])
        elif block["type"] == "tool_use":
            texts.append(call_text(block["name"], block["input"], dialect))
        elif block["type"] == "thinking":
            thoughts.append(block["thinking"])
            thinking.append(block)
        elif block["type"] == "redacted_thinking":
            thinking.append(block)
        else:
            raise AnswerError(
                f"a content block must be text, thinking or a tool call, got {quote(block)}"
            )
    text = join_parts(visible_thought(thoughts, thinking), *texts)
    if thinking:
        kept.keep(text, content)
    return Reply(text)


def to_usage(answer: Any) -> EndpointUsage:
    """Return an answer's token usage; the API does not count cached tokens as `input_tokens`."""
    return read_usage(
        answer.get("usage"),
        ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"],
        "output_tokens",
        "cache_read_input_tokens",
        "output_tokens_details.thinking_tokens",
        cut=answer.get("stop_reason") in _CUT,
    )


# The factory reads `ANTHROPIC_BASE_URL`, `ANTHROPIC_MODEL` and `ANTHROPIC_API_KEY`.
from_environment = FromEnvironment("ANTHROPIC", AnthropicConfig, AnthropicPolicy)
