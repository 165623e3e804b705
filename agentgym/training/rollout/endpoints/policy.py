"""Policies behind APIs, and their factories for `--policy`."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Generic, TypeVar

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.text.prompts import read_dialect, without_written_calls
from agentgym.training.rollout.endpoints.config import PolicyEndpointConfig
from agentgym.training.rollout.endpoints.connection import (
    CLOSED,
    Connection,
    ContextLengthError,
    EndpointError,
)
from agentgym.training.rollout.endpoints.endpoint import HttpClient
from agentgym.training.rollout.models.plain_chat import as_text, to_encodable

ConfigT = TypeVar("ConfigT", bound=PolicyEndpointConfig)


class HttpPolicy(HttpClient[ConfigT, Chat, Reply]):
    """Policy that calls an API.

    A chat that exceeds the context window is the agent's own result: the reply ends its episode as
    `over_window`.
    """

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat, like `ask`."""
        return self.ask(chats)

    async def areply(self, chat: Chat) -> Reply:
        """Reply to one chat without blocking the caller's event loop."""
        session = self.connection.open()
        try:
            return await asyncio.wrap_future(session.submit(self._answer(session, chat)))
        except asyncio.CancelledError:
            if session.closed:
                raise EndpointError(CLOSED) from None
            raise

    def compose(self, chat: Chat) -> dict[str, Any]:
        """Return the API's request fields for a chat; None leaves an option to the server."""
        raise NotImplementedError

    def request(self, chat: Chat) -> dict[str, Any]:
        """Return the request body."""
        config = self.config
        options = {"temperature": config.temperature, "top_p": config.top_p}
        fields = options | self.compose(_to_wire(chat, config.tools))
        given = {name: value for name, value in fields.items() if value is not None}
        body = {"model": config.model, **given, **config.extra_body}
        # The cache key and the SDK must see the same values.
        return dict(to_encodable(json.loads(json.dumps(body))))

    def over_window(self, error: ContextLengthError) -> Reply:
        """Return the reply that ends the episode."""
        return Reply("", ended="over_window")


def _to_wire(chat: Chat, tools: str) -> Chat:
    """Return the chat with either tool schemas or instructions for written calls."""
    if tools == "text":
        return as_text(chat.messages)
    if not chat.tools:
        return chat
    messages = [
        replace(m, text=without_written_calls(m.text)) if m.role == "system" else m
        for m in chat.messages
    ]
    return replace(chat, messages=tuple(messages))


def dialect_of(chat: Chat) -> Dialect:
    """Return the dialect of calls that the env's system message states."""
    first = chat.messages[0] if chat.messages else None
    return read_dialect(first.text) if first is not None and first.role == "system" else "auto"


class FromEnvironment(Generic[ConfigT]):
    """Factory of policies that share connections; the prefix `OPENAI` reads `OPENAI_MODEL` etc."""

    def __init__(
        self, prefix: str, config: type[ConfigT], policy: type[HttpPolicy[ConfigT]]
    ) -> None:
        self.prefix, self.config, self.policy = prefix, config, policy
        # A policy per episode must not mean a connection per episode.
        self._connection = functools.lru_cache(maxsize=8)(self._connect)

    def __call__(self, env_id: str, **options: Any) -> HttpPolicy[ConfigT]:
        """Return a policy for any world; `options` are the config's fields."""
        for name in ("model", "base_url"):
            if value := os.environ.get(f"{self.prefix}_{name.upper()}"):
                options.setdefault(name, value)
        if "model" not in options:
            raise ValueError(
                f"no model to play {env_id}: set {self.prefix}_MODEL to the model's name on the "
                "server"
            )
        config = self.config(**options)
        shared = asdict(config) | {"extra_body": {}, "sample": ""}
        return self.policy(config, self._connection(json.dumps(shared)))

    def _connect(self, options: str) -> Connection:
        return Connection(self.policy.client, self.config(**json.loads(options)))
