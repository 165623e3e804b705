"""Policies that use the vendors' SDKs, which handle retries, timeouts and connection pools."""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar, cast

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.text.prompts import read_dialect, without_written_calls
from agentgym.training.rollout.endpoints.answers import MALFORMED, quote
from agentgym.training.rollout.endpoints.config import TRANSPORT, EndpointOptions
from agentgym.training.rollout.endpoints.connection import (
    Connection,
    ContextLengthError,
    EndpointError,
    Session,
)
from agentgym.training.rollout.endpoints.reply_cache import ReplyCache
from agentgym.training.rollout.models.plain_chat import as_text, to_encodable
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.digests import digest

# Maximum retry delay in seconds that the SDKs accept from a server.
_MAX_RETRY_AFTER_S = 120.0
# Request options that make the SDKs return the raw response, which includes the retry count.
_RAW = {"headers": {"X-Stainless-Raw-Response": "true"}}
# Cache field that stores the error for a chat that exceeds the context window.
_REFUSED = "over the context window"
_SECONDS = "agentgym.seconds"
# Server error messages for a chat that exceeds the context window.
_TOO_LONG = re.compile(
    r"(?i)context[ _-]?(length|size|window)|(prompt|input) is too long|input token count"
)
ConfigT = TypeVar("ConfigT", bound=EndpointOptions)


class HttpPolicy(Generic[ConfigT]):
    """Policy that calls an API from any number of threads and event loops.

    Subclasses choose the SDK, turn chats into requests and turn answers into replies. Requests run
    in the endpoints' event loop. Forked processes and pickled copies open their own connections.
    Policies that share a `connection` also share its `concurrency` and budget. If a chat exceeds
    the context window, the reply ends the episode with the reason `over_window`.
    """

    sdk: ClassVar[ModuleType]
    client: ClassVar[Callable[..., Any]]
    path: str
    remedies: ClassVar[Mapping[int, str]] = {}
    answer: ClassVar[str] = "answer"

    def __init__(self, config: ConfigT, connection: Connection | None = None) -> None:
        self.config = config
        self.connection = connection or Connection(type(self).client, config)
        # Only the event loop's thread updates `usage`.
        self.usage = EndpointUsage()
        self._cache = ReplyCache(config.cache)
        self._asked: Counter[str] = Counter()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)

    @property
    def provenance(self) -> dict[str, Any]:
        """Model, URL and sampling options."""
        return {k: v for k, v in asdict(self.config).items() if k not in TRANSPORT}

    # Hooks for subclasses.

    def compose(self, chat: Chat) -> dict[str, Any]:
        """Return the API's request fields for a chat; fields that are None are not sent."""
        raise NotImplementedError

    def read(self, chat: Chat, answer: Any) -> tuple[Reply, EndpointUsage]:
        """Convert an answer to a reply and its usage; may raise any error in `MALFORMED`."""
        raise NotImplementedError

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat, up to `concurrency` at a time.

        Raises:
            EndpointError: A chat got no reply; `replies` contains the other replies.
            BudgetError: The budget is spent.
        """
        session = self.connection.open()
        future = session.submit(self._answers(session, chats))
        try:
            return future.result()
        finally:
            future.cancel()  # if this thread is interrupted, cancel the requests

    async def areply(self, chat: Chat) -> Reply:
        """Reply to one chat without blocking the event loop."""
        session = self.connection.open()
        return await asyncio.wrap_future(session.submit(self._answer(session, chat)))

    def close(self) -> None:
        """Close the connections; a later call reopens them."""
        self.connection.close()

    def request(self, chat: Chat) -> dict[str, Any]:
        """Return the request body."""
        config = self.config
        options = {"temperature": config.temperature, "top_p": config.top_p}
        fields = options | self.compose(_to_wire(chat, config.tools))
        given = {name: value for name, value in fields.items() if value is not None}
        body = {"model": config.model, **given, **config.extra_body}
        # The cache key and the SDK must see the same values.
        return dict(to_encodable(json.loads(json.dumps(body))))

    async def _answers(self, session: Session, chats: Sequence[Chat]) -> list[Reply]:
        tasks = [asyncio.create_task(self._answer(session, chat)) for chat in chats]
        try:
            await asyncio.wait(tasks) if tasks else None
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, EndpointError)):
            if not isinstance(error, EndpointError):
                raise error
            whole = copy.copy(error)
            whole.replies = cast("Any", outcomes)
            raise whole from error
        return cast("list[Reply]", outcomes)

    async def _answer(self, session: Session, chat: Chat) -> Reply:
        body = self.request(chat)
        key = self._key(body)
        data = self._cache.get(key)
        try:
            if data is None:
                data, reply, used = await self._send(session, chat, body)
                seconds = used.seconds
                self._cache.put(key, {**data, _SECONDS: seconds})
            elif _REFUSED in data:
                raise ContextLengthError(data[_REFUSED])
            else:
                reply, used = self.read(chat, data)
                used, seconds = replace(used, cached_replies=1), data.get(_SECONDS, 0.0)
        except ContextLengthError as error:
            self._cache.put(key, {_REFUSED: str(error)})
            return Reply("", ended="over_window")
        self.usage += used
        # A cached reply keeps its original duration, so that a repeated run writes the same bytes.
        return _with_usage(reply, replace(used, seconds=seconds))

    async def _send(
        self, session: Session, chat: Chat, body: dict[str, Any]
    ) -> tuple[Any, Reply, EndpointUsage]:
        sent = 1
        async with session.slots, self.connection.budget.reserve() as pay:
            began = time.monotonic()
            # The SDK's timeout restarts with each received byte, so it does not limit the total
            # time.
            patience = self.config.timeout * (1 + self.config.retries)
            try:
                async with asyncio.timeout(patience + _MAX_RETRY_AFTER_S * self.config.retries):
                    response = await session.client.post(
                        self.path, body=body, cast_to=object, options=_RAW
                    )
                sent += response.retries_taken
                data = json.loads(response.http_response.content)
                reply, used = self.read(chat, data)
            except (self.sdk.APIError, TimeoutError, *MALFORMED) as error:
                if isinstance(error, self.sdk.APIError):
                    sent = _requests_of(error)
                self.usage += EndpointUsage(requests=sent, retries=sent - 1)
                raise self.explain(error, sent) from error
            seconds = time.monotonic() - began
            used = replace(used, requests=sent, retries=sent - 1, seconds=seconds)
            pay(used)
        return data, reply, used

    def _key(self, body: Mapping[str, Any]) -> str:
        if not self._cache.folder:
            return ""
        # Hash the body as one string, because hashing a long nested value is slow.
        text = json.dumps(body, sort_keys=True)
        place = digest([type(self).__name__, self.config.base_url, self.config.sample, text])
        self._asked[place] += 1
        return digest([place, self._asked[place]])

    def explain(self, failure: Exception, sent: int) -> EndpointError:
        """Return an error that explains a failed request and suggests a remedy."""
        config = self.config
        where = f"{config.base_url} (model {config.model}, {sent} request{'s' if sent > 1 else ''})"
        if isinstance(failure, self.sdk.APIStatusError):
            return self._refused(failure, where)
        if isinstance(failure, (TimeoutError, self.sdk.APITimeoutError)):
            said = (
                f"took over {config.timeout:g} s; raise timeout, or lower concurrency or max_tokens"
            )
        elif isinstance(failure, self.sdk.APIConnectionError):
            cause = failure.__cause__ or failure
            said = f"cannot be reached: {cause}; start the server or correct base_url"
        else:
            cause = f"{type(failure).__name__}: {str(failure)[:500]}"
            said = f"returned no {self.answer}: {cause}; check that base_url is the API's URL"
        return EndpointError(f"{where} {said}")

    def _refused(self, failure: Any, where: str) -> EndpointError:
        status: int = failure.status_code
        remedy = "correct the options" if status >= 400 else "check base_url"
        if status >= 500:
            remedy = "check the server's log, or raise retries"
        remedies = {
            401: f"set the environment variable {self.config.api_key_env} to the key",
            429: "lower concurrency, raise retries, or check the quota",
            **self.remedies,
        }
        remedy, kind = remedies.get(status, remedy), EndpointError
        if status in (400, 413) and _TOO_LONG.search(f"{failure.message} {quote(failure.body)}"):
            kind = ContextLengthError
            remedy = "play with a context strategy and a window, or lower max_tokens"
        error = kind(f"{where} answered {status}: {failure.message[:500]}; {remedy}")
        error.status = status
        return error


def _requests_of(error: Any) -> int:
    return 1 + int(error.request.headers.get("x-stainless-retry-count", 0))


def _with_usage(reply: Reply, used: EndpointUsage) -> Reply:
    usage: dict[str, float] = {"seconds": used.seconds}
    if not used.unmetered:
        usage |= {
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
        }
    return replace(reply, usage=usage)


def _to_wire(chat: Chat, tools: str) -> Chat:
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
    """Return the tool-call dialect that the system message specifies."""
    first = chat.messages[0] if chat.messages else None
    return read_dialect(first.text) if first is not None and first.role == "system" else "auto"


class FromEnvironment(Generic[ConfigT]):
    """Factory of policies that share connections; variables such as `OPENAI_MODEL` set defaults."""

    def __init__(
        self, prefix: str, config: type[ConfigT], policy: type[HttpPolicy[ConfigT]]
    ) -> None:
        self.prefix, self.config, self.policy = prefix, config, policy
        # Each episode may have its own policy, but all policies must share a connection.
        self._connection = functools.lru_cache(maxsize=8)(self._connect)

    def __call__(self, env_id: str, **options: Any) -> HttpPolicy[ConfigT]:
        """Return a policy for any world; `options` are fields of the config."""
        for name in ("model", "base_url"):
            if value := os.environ.get(f"{self.prefix}_{name.upper()}"):
                options.setdefault(name, value)
        if "model" not in options:
            raise ValueError(
                f"no model is chosen for {env_id}; set {self.prefix}_MODEL to the model's name on "
                "the server"
            )
        config = self.config(**options)
        shared = asdict(config) | {"extra_body": {}, "sample": ""}
        return self.policy(config, self._connection(json.dumps(shared)))

    def _connect(self, options: str) -> Connection:
        return Connection(self.policy.client, self.config(**json.loads(options)))
