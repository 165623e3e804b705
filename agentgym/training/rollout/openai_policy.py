"""A policy behind an OpenAI-compatible chat-completions endpoint: vLLM, SGLang, llama.cpp,
`transformers serve`, hosted APIs.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import math
import os
import random
import re
import threading
import time
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Literal, cast

import openai
from pydantic import Field

from agentgym.config import Config
from agentgym.messages import Chat
from agentgym.parsing import Dialect
from agentgym.policy import PolicyError, Reply
from agentgym.training.rollout.chat_completions import (
    AnswerError,
    load_answer,
    to_reply,
    to_usage,
)
from agentgym.training.rollout.plain_chat import as_text
from agentgym.training.rollout.token_usage import EndpointUsage

MAX_WAIT_S = 120.0
"""The longest wait before a request is sent again; a server that asks for a longer one is not asked
again.
"""
_CLOSED = "the policy was closed before the reply came; close it when no call is running"
# Its own, lest retries change what a seeded program draws from the shared one.
_JITTER = random.Random()


class EndpointError(PolicyError):
    """The endpoint gave no reply."""

    status: int | None = None
    """The HTTP status; None if there was no answer."""


class ContextLengthError(EndpointError):
    """The chat is longer than the model's context."""


@dataclass(frozen=True)
class EndpointConfig(Config):
    """Options of `EndpointPolicy`. An option that is None is left to the server.

    Attributes:
        model: The name by which the server knows the model.
        base_url: Where the API is, up to the part before `/chat/completions`.
        api_key_env: The environment variable that holds the key; if it is not set, a placeholder is
            sent.
        temperature: The sampling temperature.
        top_p: The share of probability that is sampled from.
        max_tokens: The most tokens of a reply. Models that want another name for it get it through
            `extra_body`.
        seed: The seed of the server's sampler, the same in each request.
        concurrency: The most requests in flight, whatever the number of threads and chats.
        timeout: Seconds until a request is given up.
        retries: The most times a request is sent again after a failure that may pass.
        backoff: Seconds before the first of these; each further one waits twice as long, less a
            random part.
        tools: `native` sends tool schemas and structured calls; `text` sends plain user and
            assistant messages.
        dialect: The form in which native calls are written for the env; the env's own, if that is
            not `auto`.
        logprobs: Ask for log-probabilities; an answer with text and without them, or with one that
            is none, counts as a failure.
        extra_body: Further fields of the request.

    Raises:
        ValueError: An option is out of range.
    """

    model: str
    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 16
    timeout: Annotated[float, Field(ge=0.001, le=1e6)] = 600.0
    retries: Annotated[int, Field(ge=0, le=1_000)] = 5
    backoff: Annotated[float, Field(ge=0.0, le=MAX_WAIT_S)] = 0.5
    tools: Literal["native", "text"] = "native"
    dialect: Dialect = "auto"
    logprobs: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.match(r"https?://[^/]", self.base_url):
            raise ValueError(f"base_url must begin with http:// or https://, got {self.base_url!r}")


class EndpointPolicy:
    """Asks a chat-completions endpoint for its replies.

    It may be called from any number of threads and, through `areply`, from any event loop: requests
    run in one loop of its own, in a thread that starts with the first call, so that connections are
    reused and `concurrency` holds for all callers together. A forked process starts afresh, and so
    does a pickled copy, with a limit of its own. Dropping the policy closes it.

    Args:
        config: The model, and how it is asked.

    Attributes:
        usage: The usage of all replies so far.
        last: The usage of the newest reply.
    """

    def __init__(self, config: EndpointConfig) -> None:
        self.config = config
        # Like `last` replaced, never changed, and by the thread of the lane only.
        self.usage = EndpointUsage()
        self.last: EndpointUsage | None = None
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._lane: _Lane | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return EndpointPolicy, (self.config,)

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat, all at once up to `concurrency`.

        Raises:
            EndpointError: A chat got no reply; its `replies` are those of the others.
        """
        lane = self._open()
        future: Future[list[Reply]] = lane.submit(self._replies(lane, chats))
        try:
            return future.result()
        except CancelledError:
            raise EndpointError(_CLOSED) from None
        finally:
            future.cancel()  # an interrupt of this thread must not leave requests behind

    async def areply(self, chat: Chat) -> Reply:
        """Reply to one chat without blocking the event loop that this is awaited in.

        Raises:
            EndpointError: The chat got no reply.
        """
        lane = self._open()
        try:
            reply: Reply = await asyncio.wrap_future(lane.submit(self._reply(lane, chat)))
        except asyncio.CancelledError:
            if lane.closed:
                raise EndpointError(_CLOSED) from None
            raise
        return reply

    def close(self) -> None:
        """Give up what is in flight and close the connections; a later call opens new ones."""
        self._follow_fork()
        with self._lock:
            lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()

    def _open(self) -> _Lane:
        self._follow_fork()
        with self._lock:
            if self._lane is None:
                self._lane = _Lane(self.config)
                weakref.finalize(self, self._lane.close)
            return self._lane

    def _follow_fork(self) -> None:
        """In a forked process the lane has no thread, its sockets are the parent's, and nobody may
        be there to open the lock.
        """
        if self._pid != os.getpid():
            self._pid, self._lock, self._lane = os.getpid(), threading.Lock(), None

    async def _replies(self, lane: _Lane, chats: Sequence[Chat]) -> list[Reply]:
        tasks = [asyncio.create_task(self._reply(lane, chat)) for chat in chats]
        try:
            await asyncio.wait(tasks) if tasks else None
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, EndpointError)):
            if not isinstance(error, EndpointError):  # the call was cancelled, or is at fault
                raise error
            whole = copy.copy(error)
            whole.replies = cast("list[Reply | PolicyError]", outcomes)
            raise whole from error
        return cast("list[Reply]", outcomes)

    async def _reply(self, lane: _Lane, chat: Chat) -> Reply:
        request = _request(self.config, chat)
        for sent in itertools.count(1):
            async with lane.slots:
                began = time.monotonic()
                try:
                    reply, used = await self._ask(lane, request)
                    break
                except _FAILURES as error:
                    failure = error
            wait = _wait(failure, sent, self.config)
            if wait is None:
                self.usage += EndpointUsage(requests=sent, retries=sent - 1)
                raise _explain(failure, sent, self.config) from failure
            await asyncio.sleep(wait)
        last = replace(used, requests=sent, retries=sent - 1, seconds=time.monotonic() - began)
        self.last, self.usage = last, self.usage + last
        return reply

    async def _ask(self, lane: _Lane, request: dict[str, Any]) -> tuple[Reply, EndpointUsage]:
        async with asyncio.timeout(self.config.timeout):
            response = await lane.client.chat.completions.with_raw_response.create(**request)
        answer = load_answer(response.http_response.text)
        reply = to_reply(answer, self.config.dialect, logprobs=self.config.logprobs)
        return reply, to_usage(answer)


_FAILURES = (TimeoutError, openai.APIError, AnswerError)
_orphans: list[_Lane] = []


class _Lane:
    """An event loop in a thread, with the client and the slots that belong to it; it holds no
    reference to the policy.
    """

    def __init__(self, config: EndpointConfig) -> None:
        key = os.environ.get(config.api_key_env) or "none"
        self.client = openai.AsyncOpenAI(
            api_key=key,
            base_url=config.base_url,
            max_retries=0,
            timeout=None,
            http_client=openai.DefaultAsyncHttpxClient(
                timeout=None, event_hooks={"response": [_read_as_utf8]}
            ),
        )
        self.slots = asyncio.Semaphore(config.concurrency)
        self.closed, self._lock, self._pid = False, threading.Lock(), os.getpid()
        self._work: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="agentgym-endpoint", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine in the loop."""
        with (
            self._lock
        ):  # work that follows the stop would never be run, nor its future be resolved
            if self.closed:
                work.close()
                raise EndpointError(_CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._work.add(future)
            return future

    def close(self) -> None:
        """Cancel all work and end the thread."""
        if self._pid != os.getpid():
            _orphans.append(
                self
            )  # a forked process that freed a loop would be warned that it had not closed it
            return
        with self._lock:
            if not self.closed:
                self.closed = True
                for future in list(self._work):
                    future.cancel()
                self._loop.call_soon_threadsafe(self._stop.set)
        # The garbage collector may call this in the very thread; a name lookup that hangs must not
        # hang the caller.
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def _run(self) -> None:
        # No `asyncio.Runner`: it ends by starting a thread, which Python 3.12 forbids when the
        # interpreter shuts down and this lane is closed.
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        await self._stop.wait()
        await asyncio.gather(
            *(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True
        )
        await self.client.close()


async def _read_as_utf8(response: Any) -> None:
    """Read the text of an answer as JSON is encoded, whatever encoding its headers name: among
    those that Python knows are some that raise.
    """
    response.encoding = "utf-8-sig"


def from_environment(env_id: str) -> EndpointPolicy:
    """The policy that `OPENAI_BASE_URL`, `OPENAI_MODEL` and `OPENAI_API_KEY` describe, for any
    world.

    Raises:
        ValueError: `OPENAI_MODEL` is not set.
    """
    if not (model := os.environ.get("OPENAI_MODEL")):
        raise ValueError(
            f"no model to play {env_id}: set OPENAI_MODEL to the name by which the server knows it"
        )
    url = os.environ.get("OPENAI_BASE_URL")
    return EndpointPolicy(EndpointConfig(model, url) if url else EndpointConfig(model))


def _request(config: EndpointConfig, chat: Chat) -> dict[str, Any]:
    if native := config.tools == "native":
        # A reply in which no call could be read is shown as it was written, failed markup included.
        chat = replace(
            chat,
            messages=[
                replace(m, text=m.raw, thinking="") if m.raw and not m.calls else m
                for m in chat.messages
            ],
        )
    messages = (chat if native else as_text(chat.messages)).to_openai()
    options = {
        name: getattr(config, name) for name in ("temperature", "top_p", "max_tokens", "seed")
    }
    options["tools"] = [tool.to_openai() for tool in chat.tools] or None if native else None
    options["logprobs"] = config.logprobs or None
    try:
        json.dumps(messages, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no request can carry
        messages = json.loads(json.dumps(messages, ensure_ascii=False).encode(errors="replace"))
    request = {"model": config.model, "messages": messages, "extra_body": dict(config.extra_body)}
    return request | {name: value for name, value in options.items() if value is not None}


def _wait(failure: Exception, sent: int, config: EndpointConfig) -> float | None:
    """Return the seconds until a failed request is sent again; None if it is not."""
    delay = 0.0
    if sent > config.retries:
        return None
    if isinstance(failure, openai.APIStatusError):
        if failure.code == "insufficient_quota" or not (
            failure.status_code in (408, 409, 429) or failure.status_code >= 500
        ):
            return None
        delay = retry_after(failure.response.headers.get("retry-after", ""), time.time())
    backoff = config.backoff * 2.0 ** min(sent - 1, 30) * (1 - _JITTER.random() / 2)
    return max(delay, min(backoff, MAX_WAIT_S)) if delay <= MAX_WAIT_S else None


def retry_after(header: str, now: float) -> float:
    """Return the wait in seconds that a server asks for, as seconds or as a date, at a time in
    seconds since 1970; 0 if neither.
    """
    wait = 0.0
    try:
        wait = float(header)
    except ValueError:
        with suppress(ArithmeticError, LookupError, OSError, TypeError, ValueError):
            wait = parsedate_to_datetime(header).timestamp() - now
    return 0.0 if math.isnan(wait) else max(wait, 0.0)


def _explain(failure: Exception, sent: int, config: EndpointConfig) -> EndpointError:
    where = f"{config.base_url} (model {config.model}, {sent} request{'s' if sent > 1 else ''})"
    if isinstance(failure, openai.APIStatusError):
        return _refused(
            failure, f"{where} answered {failure.status_code}: {failure.message[:500]}", config
        )
    if isinstance(failure, TimeoutError):
        return EndpointError(
            f"{where} took over {config.timeout:g} s; raise timeout, or lower concurrency or "
            "max_tokens"
        )
    if isinstance(failure, openai.APIError):
        return EndpointError(
            f"{where} cannot be reached: {failure.__cause__ or failure}; start the server or "
            "correct base_url"
        )
    return EndpointError(
        f"{where} gave no chat completion: {failure}; check that base_url is that of the API"
    )


def _refused(failure: openai.APIStatusError, message: str, config: EndpointConfig) -> EndpointError:
    status, kind = failure.status_code, EndpointError
    remedies = {
        400: "correct the options; a server without tool calling needs tools='text'",
        401: f"put the key into the environment variable {config.api_key_env}",
        404: "check model and base_url, which mostly ends in /v1",
        429: "lower concurrency, raise retries, or see to the quota",
    }
    remedy = remedies.get(
        status,
        "see the log of the server, or raise retries"
        if status >= 500
        else "correct the options"
        if status >= 400
        else "check base_url",
    )
    if status == 400 and re.search(
        r"(?i)context[ _-]?(length|size|window)", f"{failure.code} {failure.message}"
    ):
        kind, remedy = (
            ContextLengthError,
            "play with a context strategy and a window, or lower max_tokens",
        )
    error = kind(f"{message}; {remedy}")
    error.status = status
    return error
