"""Policy that calls an OpenAI-compatible chat-completions endpoint: vLLM, SGLang, llama.cpp,
`transformers serve`, hosted APIs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Generic, Literal

import openai
from pydantic import Field

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.training.rollout.endpoints.chat_completions import load_answer, to_reply, to_usage
from agentgym.training.rollout.endpoints.endpoint import (
    Client,
    ConfigT,
    HttpPolicy,
    Refusal,
    RequestConfig,
    UnreachableError,
)
from agentgym.training.rollout.models.plain_chat import as_text, to_encodable
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.config import TokenCount


@dataclass(frozen=True)
class EndpointConfig(RequestConfig):
    """Options of `EndpointPolicy`, in addition to those of `RequestConfig`.

    None leaves an option to the server.

    Attributes:
        base_url: The API's URL up to, but without, `/chat/completions`.
        temperature: Sampling temperature.
        top_p: Nucleus sampling probability.
        max_tokens: Maximum reply tokens. For models that expect another field name, use
            `extra_body`.
        seed: Seed of the server's sampler, the same in each request.
        tools: `native` sends tool schemas and structured calls; `text` sends plain user and
            assistant messages.
        dialect: Dialect in which native calls are written for the env; set it to the env's own
            unless that is `auto`.
        logprobs: Request log-probabilities. A reply with missing or invalid ones is a failure.
        extra_body: Additional request fields.

    Raises:
        ValueError: An option is out of range.
    """

    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10**9), TokenCount()] | None = None
    seed: int | None = None
    tools: Literal["native", "text"] = "native"
    dialect: Dialect = "auto"
    logprobs: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)


class EndpointPolicy(HttpPolicy[EndpointConfig]):
    """Policy that calls a chat-completions endpoint; see `HttpPolicy`."""

    remedies: ClassVar[Mapping[int, str]] = {
        400: "correct the options; a server without tool calling needs tools='text'",
        404: "check model and base_url, which mostly ends in /v1",
    }
    answer = "chat completion"

    def connect(self) -> Client[Chat, Reply]:
        """Return a client of the endpoint."""
        return _Client(self.config)


class OpenAIClient(Generic[ConfigT]):
    """Base of clients that use the `openai` library; `HttpClient` handles limits and retries."""

    def __init__(self, config: ConfigT) -> None:
        self._config = config
        self._client = openai.AsyncOpenAI(
            api_key=os.environ.get(config.api_key_env) or "none",
            base_url=config.base_url,
            max_retries=0,
            timeout=None,
            http_client=openai.DefaultAsyncHttpxClient(
                timeout=None, event_hooks={"response": [_read_as_utf8]}
            ),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class _Client(OpenAIClient[EndpointConfig]):
    async def ask(self, chat: Chat) -> tuple[Reply, EndpointUsage]:
        """Request the reply to a chat."""
        config = self._config
        with failures_of_openai():
            response = await self._client.chat.completions.with_raw_response.create(
                **_request(config, chat)
            )
        answer = load_answer(response.http_response.text)
        return to_reply(answer, config.dialect, logprobs=config.logprobs), to_usage(answer)


@contextmanager
def failures_of_openai() -> Iterator[None]:
    """Convert the library's errors into those that `HttpClient` handles.

    Raises:
        Refusal: The server answered with an error status.
        TimeoutError: The request timed out.
        UnreachableError: The server did not answer.
    """
    try:
        yield
    except openai.APIStatusError as error:
        wait = error.response.headers.get("retry-after", "")
        raise Refusal(error.status_code, error.message, str(error.code), wait) from error
    except openai.APITimeoutError as error:
        raise TimeoutError from error
    except openai.APIError as error:
        raise UnreachableError(error.__cause__ or error) from error


async def _read_as_utf8(response: Any) -> None:
    """Decode an answer as UTF-8, since servers may declare encodings on which Python raises."""
    response.encoding = "utf-8-sig"


def from_environment(env_id: str) -> EndpointPolicy:
    """Return a policy configured by `OPENAI_BASE_URL`, `OPENAI_MODEL` and `OPENAI_API_KEY`, for any
    world.

    Raises:
        ValueError: `OPENAI_MODEL` is not set.
    """
    if not (model := os.environ.get("OPENAI_MODEL")):
        raise ValueError(
            f"no model to play {env_id}: set OPENAI_MODEL to the model's name on the server"
        )
    url = os.environ.get("OPENAI_BASE_URL")
    return EndpointPolicy(EndpointConfig(model, url) if url else EndpointConfig(model))


def _request(config: EndpointConfig, chat: Chat) -> dict[str, Any]:
    if native := config.tools == "native":
        # Send unparsable replies verbatim, so the model sees its failed markup.
        chat = replace(
            chat,
            messages=[
                replace(m, text=m.raw, thinking="") if m.raw and not m.calls else m
                for m in chat.messages
            ],
        )
    options = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_tokens": config.max_tokens,
        "seed": config.seed,
        "tools": [tool.to_openai() for tool in chat.tools] or None if native else None,
        "logprobs": config.logprobs or None,
    }
    return {
        "model": config.model,
        "messages": to_encodable((chat if native else as_text(chat.messages)).to_openai()),
        "extra_body": dict(config.extra_body),
        **{name: value for name, value in options.items() if value is not None},
    }
