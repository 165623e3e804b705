"""Policy behind the Anthropic Messages API or a compatible server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, ClassVar

import anthropic
from pydantic import Field

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.endpoints.anthropic_messages import to_prompt, to_reply, to_usage
from agentgym.training.rollout.endpoints.config import PolicyEndpointConfig
from agentgym.training.rollout.endpoints.connection import Connection
from agentgym.training.rollout.endpoints.kept_replies import KeptReplies
from agentgym.training.rollout.endpoints.policy import FromEnvironment, HttpPolicy, dialect_of
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.config import TokenCount

# The API requires a limit; this one leaves room for thinking.
_MAX_TOKENS = 16_000


@dataclass(frozen=True)
class AnthropicConfig(PolicyEndpointConfig):
    """Options of `AnthropicPolicy` and `PolicyEndpointConfig`.

    Attributes:
        base_url: The API's URL up to, but without, `/v1/messages`.
        max_tokens: Maximum reply tokens, including thinking; None for 16,000 and the thinking.
        thinking_budget: Maximum thinking tokens, below `max_tokens`; None disables thinking.
            Other forms go through `extra_body`, such as `{"thinking": {"type": "adaptive"}}`.

    Raises:
        ValueError: An option is out of range.
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
                f"thinking_budget {self.thinking_budget} leaves no room for a reply of max_tokens "
                f"{self.max_tokens}; raise max_tokens"
            )


class AnthropicPolicy(HttpPolicy[AnthropicConfig]):
    """Policy that calls the Messages API and returns thinking blocks with their signatures."""

    sdk: ClassVar[ModuleType] = anthropic
    client = anthropic.AsyncAnthropic
    remedies: ClassVar[Mapping[int, str]] = {
        404: "check model and base_url, which ends before /v1",
        413: "play with a context strategy and a window",
    }
    answer: ClassVar[str] = "message"

    def __init__(self, config: AnthropicConfig, connection: Connection | None = None) -> None:
        super().__init__(config, connection)
        self._kept = KeptReplies("tool_use", "id")

    def compose(self, chat: Chat) -> dict[str, Any]:
        """Return the prompt and the options."""
        config = self.config
        fields = to_prompt(chat, self._kept)
        fields |= {"max_tokens": config.max_tokens, "cache_control": {"type": "ephemeral"}}
        if config.thinking_budget is not None:
            fields["thinking"] = {"type": "enabled", "budget_tokens": config.thinking_budget}
        return fields

    async def post(self, client: anthropic.AsyncAnthropic, body: dict[str, Any]) -> Any:
        """Send a request."""
        return await client.messages.with_raw_response.create(
            model=body["model"],
            max_tokens=body["max_tokens"],
            messages=body["messages"],
            # The SDK has no arguments for sampling options.
            extra_body=body,
        )

    def read(self, chat: Chat, answer: Any) -> tuple[Reply, EndpointUsage]:
        """Convert an answer."""
        return to_reply(answer, dialect_of(chat), self._kept), to_usage(answer)


# Reads `ANTHROPIC_BASE_URL`, `ANTHROPIC_MODEL` and `ANTHROPIC_API_KEY`.
from_environment = FromEnvironment("ANTHROPIC", AnthropicConfig, AnthropicPolicy)
