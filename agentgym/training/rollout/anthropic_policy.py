"""A policy behind the Anthropic Messages API or a compatible server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import httpx2
from pydantic import Field

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.training.rollout.endpoints.anthropic_messages import (
    SignedThinking,
    load_message,
    to_prompt,
    to_reply,
    to_usage,
)
from agentgym.training.rollout.endpoints.chat_completions import dig, load_json_or_none
from agentgym.training.rollout.endpoints.endpoint import (
    Client,
    HttpPolicy,
    Refusal,
    RequestConfig,
    UnreachableError,
)
from agentgym.training.rollout.models.plain_chat import as_text, to_encodable
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.config import TokenCount

VERSION = "2023-06-01"
"""The version of the API."""
# The API requires a limit; this one leaves room for thinking.
_MAX_TOKENS = 16_000


@dataclass(frozen=True)
class AnthropicConfig(RequestConfig):
    """Options of `AnthropicPolicy`, besides those of `RequestConfig`. None leaves an option to the
    server.

    Attributes:
        base_url: The address of the API, up to the part before `/v1/messages`.
        max_tokens: The maximum reply tokens, including thinking.
        thinking_budget: The maximum thinking tokens, below `max_tokens`; None disables thinking.
            Other forms go through `extra_body`, such as `{"thinking": {"type": "adaptive"}}`.
        temperature: The sampling temperature; with thinking the API allows only 1.
        top_p: The nucleus sampling threshold.
        tools: `native` sends tool schemas and structured calls; `text` sends plain user and
            assistant messages.
        dialect: The form in which native calls are written for the env, unless it is `auto`, which
            uses the env's.
        extra_body: Further fields of the request.

    Raises:
        ValueError: An option is out of range.
    """

    base_url: str = "https://api.anthropic.com"
    api_key_env: str = "ANTHROPIC_API_KEY"
    max_tokens: Annotated[int, Field(ge=1, le=10**9), TokenCount()] = _MAX_TOKENS
    thinking_budget: Annotated[int, Field(ge=1, le=10**9), TokenCount()] | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: Literal["native", "text"] = "native"
    dialect: Dialect = "auto"
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.thinking_budget is not None and self.thinking_budget >= self.max_tokens:
            raise ValueError(
                f"thinking_budget {self.thinking_budget} leaves no room for a reply of max_tokens "
                f"{self.max_tokens}; raise max_tokens"
            )


class AnthropicPolicy(HttpPolicy[AnthropicConfig]):
    """Policy that asks the Messages API; see `HttpPolicy`.

    Thinking blocks are sent back with their signatures, unless a context strategy cleared them. The
    system message, the tools and the chat so far are marked for the server's prompt cache.
    """

    remedies: ClassVar[Mapping[int, str]] = {
        404: "check model and base_url, which ends before /v1",
        413: "play with a context strategy and a window",
    }
    answer = "message"

    def __init__(self, config: AnthropicConfig) -> None:
        super().__init__(config)
        self._signed = SignedThinking()

    def connect(self) -> Client[Chat, Reply]:
        """Return a client of the API."""
        return _Client(self.config, self._signed)


class _Client:
    """Client of the Messages API."""

    def __init__(self, config: AnthropicConfig, signed: SignedThinking) -> None:
        self._config, self._signed = config, signed
        # The policy limits time and requests itself.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=config.concurrency)
        self._http = httpx2.AsyncClient(
            headers={
                "x-api-key": os.environ.get(config.api_key_env) or "none",
                "anthropic-version": VERSION,
            },
            timeout=None,
            limits=limits,
        )
        self._url = f"{config.base_url.rstrip('/')}/v1/messages"

    async def ask(self, chat: Chat) -> tuple[Reply, EndpointUsage]:
        """Ask for the reply to a chat."""
        try:
            response = await self._http.post(self._url, json=self._request(chat))
            text = response.content.decode("utf-8-sig", "replace")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        if response.status_code != httpx2.codes.OK:
            problem = dig(load_json_or_none(text), "error")
            raise Refusal(
                response.status_code,
                str(dig(problem, "message") or text),
                str(dig(problem, "type") or ""),
                response.headers.get("retry-after", ""),
            )
        answer = load_message(text)
        return to_reply(answer, self._config.dialect, self._signed), to_usage(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _request(self, chat: Chat) -> dict[str, Any]:
        config, native = self._config, self._config.tools == "native"
        chat = chat if native else as_text(chat.messages)
        thinking = {"type": "enabled", "budget_tokens": config.thinking_budget}
        options = {
            "thinking": None if config.thinking_budget is None else thinking,
            "temperature": config.temperature,
            "top_p": config.top_p,
        }
        return {
            "model": config.model,
            "max_tokens": config.max_tokens,
            **to_encodable(to_prompt(chat, self._signed, native=native)),
            **{name: value for name, value in options.items() if value is not None},
            **config.extra_body,
        }


def from_environment(env_id: str) -> AnthropicPolicy:
    """Return the policy described by `ANTHROPIC_MODEL`, `ANTHROPIC_BASE_URL` and
    `ANTHROPIC_API_KEY`, for any world; `ANTHROPIC_THINKING_BUDGET` sets its thinking tokens.

    Raises:
        ValueError: `ANTHROPIC_MODEL` is not set, or the budget is not a number of tokens.
    """
    if not (model := os.environ.get("ANTHROPIC_MODEL")):
        raise ValueError(
            f"no model to play {env_id}: set ANTHROPIC_MODEL to the name by which the server knows it"
        )
    options: dict[str, Any] = {}
    if url := os.environ.get("ANTHROPIC_BASE_URL"):
        options["base_url"] = url
    if budget := os.environ.get("ANTHROPIC_THINKING_BUDGET"):
        if not (budget.isascii() and budget.isdigit()):
            raise ValueError(
                f"ANTHROPIC_THINKING_BUDGET must be a number of tokens, got {budget!r}"
            )
        options |= {"thinking_budget": int(budget), "max_tokens": int(budget) + _MAX_TOKENS}
    return AnthropicPolicy(AnthropicConfig(model, **options))
