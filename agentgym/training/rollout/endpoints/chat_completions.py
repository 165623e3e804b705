"""Requests and answers of the Chat Completions API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.training.rollout.endpoints.answers import (
    AnswerError,
    call_text,
    join_parts,
    quote,
    read_usage,
    text_of,
)
from agentgym.training.rollout.token_usage import EndpointUsage


def to_prompt(chat: Chat) -> dict[str, Any]:
    """Return the request fields `messages` and, if there are tools, `tools`."""
    # Send unparsable replies verbatim, so that the model sees its malformed markup.
    messages = [
        replace(m, text=m.raw, thinking="") if m.raw and not m.calls else m for m in chat.messages
    ]
    prompt: dict[str, Any] = {"messages": replace(chat, messages=messages).to_openai()}
    if chat.tools:
        prompt["tools"] = [tool.to_openai() for tool in chat.tools]
    return prompt


def to_reply(answer: Any, dialect: Dialect) -> Reply:
    """Convert an answer to a reply, or raise an error in `MALFORMED`."""
    choice = answer["choices"][0]
    # Some gateways report upstream failures with status 200.
    failed = answer.get("error") or choice.get("error") or choice.get("finish_reason") == "error"
    if failed:
        raise AnswerError(quote(answer))
    message = choice["message"]
    thoughts: list[str] = []
    content = text_of(message.get("content"), thoughts)
    for name in ("reasoning", "reasoning_content"):
        if message.get(name):
            thoughts = [text_of(message[name])]
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise AnswerError(f"tool_calls must be a list, got {quote(calls)}")
    functions = [call.get("function") or call for call in calls]
    if message.get("function_call"):  # the predecessor of tool_calls
        functions.append(message["function_call"])
    texts = [call_text(f.get("name"), f.get("arguments"), dialect) for f in functions]
    said = content or text_of(message.get("refusal"))
    return Reply(join_parts("".join(thoughts), said, *texts))


def to_usage(answer: Any) -> EndpointUsage:
    """Return an answer's usage."""
    return read_usage(
        answer.get("usage"),
        ["prompt_tokens"],
        "completion_tokens",
        "prompt_tokens_details.cached_tokens",
        "completion_tokens_details.reasoning_tokens",
        cut=answer["choices"][0].get("finish_reason") in ("length", "content_filter"),
    )
