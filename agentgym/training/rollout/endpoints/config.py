"""Options of endpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from agentgym.world.config import Config, TokenCount

# Options that do not affect replies and are therefore not recorded.
TRANSPORT = (
    "api_key_env", "concurrency", "timeout", "retries", "cache", "sample", "max_cost",
    "prompt_price", "reply_price", "ledger",
)  # fmt: skip


@dataclass(frozen=True)
class EndpointOptions(Config):
    """Options of all APIs. If an option is None, the server's default applies.

    Attributes:
        api_key_env: Environment variable with the API key; if unset, a placeholder is sent.
        concurrency: Maximum number of concurrent requests, across all threads.
        retries: Maximum number of retries after temporary failures.
        top_p: Nucleus sampling probability.
        max_tokens: Maximum reply tokens, including reasoning.
        tools: `native` sends tool schemas and structured calls, and omits the call instructions
            from the system message; `text` sends only plain user and assistant messages.
        cache: Folder that stores answers, so that requests are not repeated; empty for no cache.
        sample: Name of the sample; the cache stores each sample's answers separately.
        max_cost: Maximum total cost of requests at the given prices; None for no limit.
        reply_price: Price per million reply tokens; `prompt_price` is per million prompt tokens.
        ledger: File that stores the total cost of all processes and runs; if empty, the total is
            kept in memory.
    """

    model: str
    base_url: str = ""
    api_key_env: str = ""
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 64
    timeout: Annotated[float, Field(ge=0.001, le=1e6)] = 600.0
    retries: Annotated[int, Field(ge=0, le=1_000)] = 5
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    top_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10**9), TokenCount()] | None = None
    tools: Literal["native", "text"] = "native"
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    cache: str = ""
    sample: str = ""
    max_cost: Annotated[float, Field(ge=0.0, le=1e12)] | None = None
    prompt_price: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0
    reply_price: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0
    ledger: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.match("https?://[^/]", self.base_url):
            raise ValueError(
                f"base_url must begin with http:// or https:// and a host, got {self.base_url!r}"
            )
        own = {option.name for option in fields(self)} | {"max_output_tokens", "stream"}
        if doubled := sorted(own & self.extra_body.keys()):
            raise ValueError(
                f"extra_body must not set {doubled[0]!r}, which is a separate option or "
                "unsupported; remove it from extra_body"
            )
        if self.max_cost is not None and not self.prompt_price + self.reply_price:
            raise ValueError(
                f"max_cost {self.max_cost:g} requires prices; set prompt_price and reply_price"
            )
