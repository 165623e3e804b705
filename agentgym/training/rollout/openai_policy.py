"""Policy behind an OpenAI-compatible endpoint, such as vLLM, SGLang, llama.cpp or a hosted API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Literal

import openai

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.endpoints import chat_completions, responses
from agentgym.training.rollout.endpoints.config import PolicyEndpointConfig
from agentgym.training.rollout.endpoints.connection import Connection
from agentgym.training.rollout.endpoints.kept_replies import KeptReplies
from agentgym.training.rollout.endpoints.policy import FromEnvironment, HttpPolicy, dialect_of
from agentgym.training.rollout.token_usage import EndpointUsage


@dataclass(frozen=True)
class EndpointConfig(PolicyEndpointConfig):
    """Options of `EndpointPolicy` and `PolicyEndpointConfig`.

    Attributes:
        base_url: The API's URL up to, but without, `/chat/completions` or `/responses`.
        api: `chat` for Chat Completions, `responses` for the Responses API, which keeps the
            reasoning across tool calls.
        seed: Seed of the server's sampler, the same in each request; not with `responses`.
        logprobs: Request log-probabilities. A reply with missing or invalid ones is a failure. Not
            with `responses`.

    Raises:
        ValueError: An option is out of range, or the API lacks it.
    """

    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    api: Literal["chat", "responses"] = "chat"
    seed: int | None = None
    logprobs: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("seed", "logprobs"):
            value = getattr(self, name)
            if self.api == "responses" and value not in (None, False):
                raise ValueError(
                    f"the Responses API has no {name}, got {value!r}; omit it or set api='chat'"
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

    def compose(self, chat: Chat) -> dict[str, Any]:
        """Return the prompt and the options."""
        config = self.config
        if config.api == "responses":
            return responses.to_prompt(chat, self._kept) | {"max_output_tokens": config.max_tokens}
        return chat_completions.to_prompt(chat) | {
            "max_tokens": config.max_tokens,
            "seed": config.seed,
            "logprobs": config.logprobs or None,
        }

    async def post(self, client: openai.AsyncOpenAI, body: dict[str, Any]) -> Any:
        """Send a request."""
        if self.config.api == "responses":
            return await client.responses.with_raw_response.create(extra_body=body)
        return await client.chat.completions.with_raw_response.create(
            model=body["model"], messages=body["messages"], extra_body=body
        )

    def read(self, chat: Chat, answer: Any) -> tuple[Reply, EndpointUsage]:
        """Convert an answer."""
        dialect = dialect_of(chat)
        if self.config.api == "responses":
            reply = responses.to_reply(answer, dialect, self._kept)
            return reply, responses.to_usage(answer)
        reply = chat_completions.to_reply(answer, dialect, logprobs=self.config.logprobs)
        return reply, chat_completions.to_usage(answer)


# Reads `OPENAI_BASE_URL`, `OPENAI_MODEL` and `OPENAI_API_KEY`.
from_environment = FromEnvironment("OPENAI", EndpointConfig, EndpointPolicy)
