"""Policy that calls an OpenAI-compatible endpoint, such as vLLM, llama.cpp or a hosted API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Literal

import openai

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import Dialect
from agentgym.training.rollout.endpoints import chat_completions
from agentgym.training.rollout.endpoints.answers import (
    AnswerError,
    Item,
    KeptReplies,
    call_text,
    join_parts,
    quote,
    read_usage,
    text_of,
    visible_thought,
)
from agentgym.training.rollout.endpoints.config import EndpointOptions
from agentgym.training.rollout.endpoints.connection import Connection
from agentgym.training.rollout.endpoints.endpoint import FromEnvironment, HttpPolicy, dialect_of
from agentgym.training.rollout.token_usage import EndpointUsage


@dataclass(frozen=True)
class EndpointConfig(EndpointOptions):
    """Options of `EndpointPolicy`, including all `EndpointOptions`.

    Attributes:
        base_url: The API's URL, without `/chat/completions` or `/responses`.
        api: `chat` for Chat Completions; `responses` for the Responses API, which preserves
            reasoning across tool calls.
        seed: Seed of the server's sampler, sent with every request; the Responses API does not
            support seeds.
    """

    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    api: Literal["chat", "responses"] = "chat"
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.api == "responses" and self.seed is not None:
            raise ValueError(
                f"the Responses API does not accept seed={self.seed!r}; omit it or set api='chat'"
            )


class EndpointPolicy(HttpPolicy[EndpointConfig]):
    """Policy that calls a Chat Completions or Responses endpoint."""

    sdk: ClassVar[ModuleType] = openai
    client = openai.AsyncOpenAI
    remedies: ClassVar[Mapping[int, str]] = {
        400: "correct the options; a server without tool calling needs tools='text'",
        404: "check model and base_url, which mostly ends in /v1",
    }
    answer: ClassVar[str] = "chat completion"

    def __init__(self, config: EndpointConfig, connection: Connection | None = None) -> None:
        super().__init__(config, connection)
        self._kept = KeptReplies("function_call", "call_id")
        self.path = "/responses" if config.api == "responses" else "/chat/completions"

    def compose(self, chat: Chat) -> dict[str, Any]:
        config = self.config
        if config.api == "responses":
            return responses_prompt(chat, self._kept) | {"max_output_tokens": config.max_tokens}
        return chat_completions.to_prompt(chat) | {
            "max_tokens": config.max_tokens,
            "seed": config.seed,
        }

    def read(self, chat: Chat, answer: Any) -> tuple[Reply, EndpointUsage]:
        dialect = dialect_of(chat)
        if self.config.api == "responses":
            reply = responses_reply(answer, dialect, self._kept)
            return reply, responses_usage(answer)
        return chat_completions.to_reply(answer, dialect), chat_completions.to_usage(answer)


def responses_prompt(chat: Chat, kept: KeptReplies) -> dict[str, Any]:
    """Return the request fields `input` and, if there are tools, `tools`."""
    items: list[Item] = []
    for message in chat.messages:
        items += _responses_items(message, kept)
    # The server stores nothing, so it must return encrypted reasoning.
    prompt = {"input": items, "store": False, "include": ["reasoning.encrypted_content"]}
    if chat.tools:
        # Strict schemas must not have optional arguments.
        functions = [tool.to_openai()["function"] for tool in chat.tools]
        prompt["tools"] = [{"type": "function", **each, "strict": False} for each in functions]
    return prompt


def _responses_items(message: Message, kept: KeptReplies) -> Iterator[Item]:
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


def responses_reply(answer: Any, dialect: Dialect, kept: KeptReplies) -> Reply:
    """Convert an answer to a reply and store its reasoning, or raise an error in `MALFORMED`."""
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
            texts.append(text_of(item["content"]))
        elif item["type"] == "function_call":
            texts.append(call_text(item["name"], item["arguments"], dialect))
        else:
            raise AnswerError(
                f"an output item must be text, reasoning or a tool call, got {quote(item)}"
            )
    text = join_parts(visible_thought(summaries, reasoning), *texts)
    if reasoning:
        kept.keep(text, answer["output"])
    return Reply(text)


def responses_usage(answer: Any) -> EndpointUsage:
    """Return an answer's usage."""
    return read_usage(
        answer.get("usage"),
        ["input_tokens"],
        "output_tokens",
        "input_tokens_details.cached_tokens",
        "output_tokens_details.reasoning_tokens",
        cut=answer.get("status") == "incomplete",
    )


# The factory reads `OPENAI_BASE_URL`, `OPENAI_MODEL` and `OPENAI_API_KEY`.
from_environment = FromEnvironment("OPENAI", EndpointConfig, EndpointPolicy)
