"""OpenAI Responses requests and answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import Dialect
from agentgym.training.rollout.endpoints.answers import (
    AnswerError,
    call_text,
    join_parts,
    quote,
    read_usage,
)
from agentgym.training.rollout.endpoints.kept_replies import Item, KeptReplies, visible_thought
from agentgym.training.rollout.token_usage import EndpointUsage


def to_prompt(chat: Chat, kept: KeptReplies) -> dict[str, Any]:
    """Return `input` and, if there are tools, `tools`."""
    items: list[Item] = []
    for message in chat.messages:
        items += _items(message, kept)
    # The server stores nothing, so it must return the reasoning in encrypted form.
    prompt = {"input": items, "store": False, "include": ["reasoning.encrypted_content"]}
    if chat.tools:
        prompt["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,  # strict schemas may have no optional arguments
            }
            for tool in chat.tools
        ]
    return prompt


def _items(message: Message, kept: KeptReplies) -> Iterator[Item]:
    if message.role == "assistant":
        found = kept.find(message)
        yield from found or _reply_items(message)
        return
    content: list[Item] = [{"type": "input_text", "text": message.text}] if message.text else []
    content += [
        {"type": "input_image", "image_url": image.to_data_url(), "detail": "auto"}
        for image in message.images
    ]
    if message.role == "tool":
        output = content if message.images else message.text
        yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
    else:
        yield {"role": message.role, "content": content}


def _reply_items(message: Message) -> Iterator[Item]:
    text = message.raw if message.raw and not message.calls else message.text
    if text or not message.calls:
        yield {"role": "assistant", "content": text}
    for call in message.calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(dict(call.arguments)),
        }


def to_reply(answer: Any, dialect: Dialect, kept: KeptReplies) -> Reply:
    """Convert an answer to a reply and keep its reasoning.

    A malformed answer raises an error in `MALFORMED`.
    """
    if answer.get("error") or answer.get("status") not in ("completed", "incomplete"):
        raise AnswerError(quote(answer.get("error") or answer))
    summaries: list[str] = []
    texts: list[str] = []
    reasoning: list[Item] = []
    for item in answer["output"]:
        if item["type"] == "reasoning":
            reasoning.append(item)
            shown = item.get("summary") or item.get("content") or []
            summaries += [part["text"] for part in shown]
        elif item["type"] == "message":
            parts = [part.get("text") or part["refusal"] for part in item["content"]]
            texts.append("".join(parts))
        elif item["type"] == "function_call":
            texts.append(call_text(item["name"], item["arguments"], dialect))
        else:
            raise AnswerError(f"output has {quote(item)}, which is no text, reasoning or call")
    text = join_parts(visible_thought(summaries, reasoning), *texts)
    if reasoning:
        kept.keep(text, answer["output"])
    return Reply(text)


def to_usage(answer: Any) -> EndpointUsage:
    """Return an answer's usage."""
    return read_usage(
        answer.get("usage"),
        ["input_tokens"],
        "output_tokens",
        "input_tokens_details.cached_tokens",
        "output_tokens_details.reasoning_tokens",
        cut=answer.get("status") == "incomplete",
    )
