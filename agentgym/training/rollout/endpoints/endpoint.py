"""Clients of model APIs over the vendors' SDKs, which retry, time out and pool connections.

A subclass names its SDK and converts questions to requests and answers to results. This base adds
concurrency for any number of threads and event loops, the cache, the budget and usage.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import os
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import Field

from agentgym.play.policy import PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.endpoints.answers import MALFORMED, quote
from agentgym.training.rollout.endpoints.budget import Budget
from agentgym.training.rollout.endpoints.reply_cache import ReplyCache
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.config import Config, TokenCount
from agentgym.world.digests import digest

# The SDKs wait at most this long if a server asks for it.
_MAX_RETRY_AFTER_S = 120.0
# How servers report that a chat exceeds the context window.
_TOO_LONG = re.compile(
    r"(?i)context[ _-]?(length|size|window)|(prompt|input) is too long|input token count"
)
_CLOSED = "the policy was closed before the reply arrived; close it when no call is running"
TRANSPORT = (
    "api_key_env", "concurrency", "timeout", "retries", "cache", "sample", "max_cost",
    "prompt_price", "reply_price", "ledger",
)  # fmt: skip
"""Options that do not affect the replies to a request, so no record contains them."""


class EndpointError(PolicyError):
    """The endpoint did not return a reply."""

    status: int | None = None
    """HTTP status; None if there was no answer."""


class ContextLengthError(EndpointError):
    """The chat exceeds the model's context window."""


@dataclass(frozen=True)
class RequestConfig(Config):
    """Options common to all APIs.

    Attributes:
        model: The model's name on the server.
        base_url: The API's URL.
        api_key_env: Environment variable with the API key; if unset, a placeholder is sent.
        concurrency: Maximum requests in flight, over all threads and chats.
        timeout: Seconds before a request is given up.
        retries: Maximum retries after temporary failures.

    Raises:
        ValueError: An option is out of range.
    """

    model: str
    base_url: str = ""
    api_key_env: str = ""
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 64
    timeout: Annotated[float, Field(ge=0.001, le=1e6)] = 600.0
    retries: Annotated[int, Field(ge=0, le=1_000)] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        host = None
        with suppress(ValueError):
            host = urlsplit(self.base_url).hostname
        if not host or not re.match("https?://", self.base_url):
            raise ValueError(
                f"base_url must begin with http:// or https:// and a host, got {self.base_url!r}"
            )


@dataclass(frozen=True)
class PolicyEndpointConfig(RequestConfig):
    """Options common to policies. None leaves an option to the server.

    Attributes:
        temperature: Sampling temperature.
        top_p: Nucleus sampling probability.
        max_tokens: Maximum reply tokens, including reasoning.
        tools: `native` sends tool schemas and structured calls, and removes the instructions for
            written calls from the system message; `text` sends plain user and assistant messages.
        extra_body: Additional request fields.
        cache: Folder that stores answers; a request that it contains is not sent. Empty for none.
        sample: Name of the draw. The cache answers equal requests of different draws differently.
        max_cost: Maximum cost of the requests, by the prices; None for no limit.
        prompt_price: Price per million prompt tokens.
        reply_price: Price per million reply tokens.
        ledger: File that sums the cost over processes and runs; empty to count in memory.
    """

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
        own = {option.name for option in fields(self)} | {"max_output_tokens", "stream"}
        if doubled := sorted(own & self.extra_body.keys()):
            raise ValueError(
                f"extra_body sets {doubled[0]!r}, which is an option of its own or not supported; "
                "remove it from extra_body"
            )
        if self.max_cost is not None and not self.prompt_price + self.reply_price:
            raise ValueError(
                f"max_cost {self.max_cost:g} requires prices; set prompt_price and reply_price"
            )


T = TypeVar("T")
QuestionT = TypeVar("QuestionT")
AnswerT = TypeVar("AnswerT")
ConfigT = TypeVar("ConfigT", bound=RequestConfig)
PolicyConfigT = TypeVar("PolicyConfigT", bound=PolicyEndpointConfig)


class HttpClient(Generic[ConfigT, QuestionT, AnswerT]):
    """Client of an API that any number of threads and event loops may call.

    Requests run in an event loop in a thread that starts with the first call. Forked processes and
    pickled copies start their own. Garbage collection closes the connections.

    Args:
        config: The model and the request options.
        connection: Connection to share; its `concurrency` and budget hold for all clients together.

    Attributes:
        sdk: The vendor's SDK.
        remedies: Advice by HTTP status.
        answer: What the API calls an answer, for errors.
        usage: Usage of all replies so far.
        last: Usage of the latest reply.
    """

    sdk: ClassVar[ModuleType]
    remedies: ClassVar[Mapping[int, str]] = {}
    answer: ClassVar[str] = "answer"

    def __init__(self, config: ConfigT, connection: Connection | None = None) -> None:
        self.config = config
        self.connection = connection or Connection(functools.partial(self.connect, config), config)
        # `usage` and `last` are replaced, never mutated, and only by the lane's thread.
        self.usage = EndpointUsage()
        self.last: EndpointUsage | None = None
        folder = getattr(config, "cache", "")
        self._cache = ReplyCache(Path(folder)) if folder else None
        self._asked: Counter[str] = Counter()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)

    @property
    def provenance(self) -> dict[str, Any]:
        """Return model, URL and sampling options, which are recorded with each episode."""
        return {k: v for k, v in asdict(self.config).items() if k not in TRANSPORT}

    # The hooks of an API.

    @classmethod
    def connect(cls, config: ConfigT) -> Any:
        """Return the SDK's asynchronous client."""
        raise NotImplementedError

    def request(self, question: QuestionT) -> dict[str, Any]:
        """Return the body of a request."""
        raise NotImplementedError

    async def post(self, client: Any, body: dict[str, Any]) -> Any:
        """Send a request and return the SDK's raw response."""
        raise NotImplementedError

    def read(self, question: QuestionT, answer: Any) -> tuple[AnswerT, EndpointUsage]:
        """Convert an answer; may raise any error in `MALFORMED`."""
        raise NotImplementedError

    def over_window(self, error: ContextLengthError) -> AnswerT:
        """Return the answer to a question that exceeds the context window, or raise the error."""
        raise error

    def ask(self, questions: Sequence[QuestionT]) -> list[AnswerT]:
        """Answer all questions, up to `concurrency` at a time.

        Raises:
            EndpointError: A question got no answer; `replies` contains the other answers.
            BudgetError: The budget is spent.
        """
        lane = self.connection.open()
        future = lane.submit(self._answers(lane, questions))
        try:
            return future.result()
        except CancelledError:
            raise EndpointError(_CLOSED) from None
        finally:
            future.cancel()  # cancel the requests if this thread is interrupted

    def close(self) -> None:
        """Cancel requests in flight and close the connections; a later call opens new ones."""
        self.connection.close()

    async def _answers(self, lane: Lane, questions: Sequence[QuestionT]) -> list[AnswerT]:
        tasks = [asyncio.create_task(self._answer(lane, question)) for question in questions]
        try:
            await asyncio.wait(tasks) if tasks else None
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, EndpointError)):
            if not isinstance(error, EndpointError):  # cancelled, out of budget, or a bug
                raise error
            whole = copy.copy(error)
            whole.replies = cast("Any", outcomes)
            raise whole from error
        return cast("list[AnswerT]", outcomes)

    async def _answer(self, lane: Lane, question: QuestionT) -> AnswerT:
        body = self.request(question)
        key = self._key(body) if self._cache else ""
        if self._cache and (stored := self._cache.get(key)) is not None:
            answer, used = self.read(question, stored)
            return self._count(answer, replace(used, cached_replies=1))
        async with lane.slots, self.connection.budget.reserve() as pay:
            began = time.monotonic()
            # Beyond the SDK's own timeout, because that one restarts with each byte received.
            patience = self.config.timeout * (1 + self.config.retries)
            try:
                async with asyncio.timeout(patience + _MAX_RETRY_AFTER_S * self.config.retries):
                    response = await self.post(lane.client, body)
                sent = 1 + response.retries_taken
                data = json.loads(response.http_response.content)
                answer, used = self.read(question, data)
            except ContextLengthError as error:
                return self.over_window(error)
            except (self.sdk.APIError, TimeoutError, *MALFORMED) as error:
                if isinstance(error, self.sdk.APIError):
                    sent = _requests_of(error)
                elif isinstance(error, TimeoutError):
                    sent = 1 + self.config.retries
                self.usage += EndpointUsage(requests=sent, retries=sent - 1)
                explained = self.explain(error, sent)
                if isinstance(explained, ContextLengthError):
                    return self.over_window(explained)
                raise explained from error
            seconds = time.monotonic() - began
            used = replace(used, requests=sent, retries=sent - 1, seconds=seconds)
            pay(used)
        if self._cache:
            self._cache.put(key, data)
        return self._count(answer, used)

    def _key(self, body: Mapping[str, Any]) -> str:
        """Return the cache key of a request, which counts equal requests of this client."""
        config = self.config
        sample = getattr(config, "sample", "")
        # Not the digest of the body itself, which takes long for long chats.
        text = json.dumps(body, sort_keys=True)
        place = digest([type(self).__name__, config.base_url, sample, text])
        self._asked[place] += 1
        return digest([place, self._asked[place]])

    def _count(self, answer: AnswerT, used: EndpointUsage) -> AnswerT:
        self.last, self.usage = used, self.usage + used
        return answer

    def explain(self, failure: Exception, sent: int) -> EndpointError:
        """Return the error for a failure after some requests, with a remedy."""
        config = self.config
        where = f"{config.base_url} (model {config.model}, {sent} request{'s' if sent > 1 else ''})"
        if isinstance(failure, self.sdk.APIStatusError):
            return self._refused(failure, where)
        if isinstance(failure, (TimeoutError, self.sdk.APITimeoutError)):
            return EndpointError(
                f"{where} took over {config.timeout:g} s; raise timeout, or lower concurrency or "
                "max_tokens"
            )
        if isinstance(failure, self.sdk.APIConnectionError):
            cause = failure.__cause__ or failure
            return EndpointError(
                f"{where} cannot be reached: {cause}; start the server or correct base_url"
            )
        return EndpointError(
            f"{where} returned no {self.answer}: {type(failure).__name__}: {str(failure)[:500]}; "
            "check that base_url is the API's URL"
        )

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


class HttpPolicy(HttpClient[PolicyConfigT, Chat, Reply]):
    """Policy that calls an API; see `HttpClient`.

    A chat that exceeds the model's context window is the agent's own result: the reply ends its
    episode as `over_window`.
    """

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat, up to `concurrency` at a time.

        Raises:
            EndpointError: A chat got no reply; `replies` contains the other replies.
            BudgetError: The budget is spent.
        """
        return self.ask(chats)

    async def areply(self, chat: Chat) -> Reply:
        """Reply to one chat without blocking the caller's event loop.

        Raises:
            EndpointError: The chat got no reply.
            BudgetError: The budget is spent.
        """
        lane = self.connection.open()
        try:
            return await asyncio.wrap_future(lane.submit(self._answer(lane, chat)))
        except asyncio.CancelledError:
            if lane.closed:
                raise EndpointError(_CLOSED) from None
            raise

    def over_window(self, error: ContextLengthError) -> Reply:
        """Return the reply that ends the episode."""
        return Reply("", ended="over_window")


class Connection:
    """Lane to an API, opened on demand, with the budget of all its clients.

    Args:
        connect: Returns the SDK's client.
        config: The request options.
    """

    def __init__(self, connect: Callable[[], Any], config: RequestConfig) -> None:
        self._connect, self._concurrency = connect, config.concurrency
        self.budget = Budget(config)
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._lane: Lane | None = None

    def open(self) -> Lane:
        """Return the lane."""
        self._follow_fork()
        with self._lock:
            if self._lane is None:
                self._lane = Lane(self._connect(), self._concurrency)
                weakref.finalize(self, self._lane.close)
            return self._lane

    def close(self) -> None:
        """Close the lane, if it is open."""
        self._follow_fork()
        with self._lock:
            lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()

    def _follow_fork(self) -> None:
        """Start afresh in a forked process.

        There, the lane has no thread, its sockets belong to the parent, and the lock may be held
        for ever.
        """
        if self._pid != os.getpid():
            self._pid, self._lock, self._lane = os.getpid(), threading.Lock(), None


_orphans: list[Lane] = []


class Lane:
    """Event loop in a thread, with its client and semaphore; holds no reference to its owner."""

    def __init__(self, client: Any, concurrency: int) -> None:
        self.client = client
        self.slots = asyncio.Semaphore(concurrency)
        self.closed, self._lock, self._pid = False, threading.Lock(), os.getpid()
        self._work: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="agentgym-endpoint", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""
        # After the stop, a coroutine would never run and its future never resolve.
        with self._lock:
            if self.closed:
                work.close()
                raise EndpointError(_CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._work.add(future)
            return future

    def close(self) -> None:
        """Cancel all work and end the thread."""
        if self._pid != os.getpid():
            # Keep the loop alive: freeing it in a forked process would warn that it is open.
            _orphans.append(self)
            return
        with self._lock:
            if not self.closed:
                self.closed = True
                for future in list(self._work):
                    future.cancel()
                self._loop.call_soon_threadsafe(self._stop.set)
        # The garbage collector may call this in the lane's own thread. The timeout guards against a
        # hanging name lookup.
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def _run(self) -> None:
        # Not `asyncio.Runner`: it starts a thread when it ends, which Python 3.12 forbids during
        # interpreter shutdown.
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


def _requests_of(error: Any) -> int:
    """Return how often the SDK sent a failed request, from the header of its last one."""
    return 1 + int(error.request.headers.get("x-stainless-retry-count", 0))
