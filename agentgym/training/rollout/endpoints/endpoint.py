"""Base of clients and policies that call an HTTP API, with retries, limits and usage.

Each API adds a client, which sends a request and reads its answer (`openai_policy`,
`anthropic_policy`).
"""

from __future__ import annotations

import asyncio
import copy
import itertools
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
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar, cast

from pydantic import Field

from agentgym.play.policy import PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.endpoints.chat_completions import AnswerError
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.config import Config

MAX_WAIT_S = 120.0
"""Longest wait before a retry; if the server asks for more, the request fails."""
# How servers report that a chat exceeds the context window.
_TOO_LONG = re.compile(r"(?i)context[ _-]?(length|size|window)|prompt is too long")
_CLOSED = "the policy was closed before the reply arrived; close it when no call is running"
# Separate generator, so retries never advance the program's global one.
_JITTER = random.Random()


class EndpointError(PolicyError):
    """The endpoint did not return a reply."""

    status: int | None = None
    """HTTP status; None if there was no answer."""


class ContextLengthError(EndpointError):
    """The chat exceeds the model's context window."""


class Refusal(Exception):
    """Answer with an HTTP error status.

    Args:
        status: The status.
        message: The server's message.
        code: The server's error code.
        wait: The `retry-after` header.
    """

    def __init__(self, status: int, message: str, code: str = "", wait: str = "") -> None:
        super().__init__(status, message, code, wait)
        self.status, self.message, self.code, self.wait = status, message, code, wait


class UnreachableError(Exception):
    """The server did not answer."""


@dataclass(frozen=True)
class RequestConfig(Config):
    """Options common to all HTTP APIs.

    Attributes:
        model: The model's name on the server.
        base_url: The API's URL.
        api_key_env: Environment variable with the API key; if unset, a placeholder is sent.
        concurrency: Maximum requests in flight, over all threads and chats.
        timeout: Seconds before a request is given up.
        retries: Maximum retries after temporary failures.
        backoff: Seconds before the first retry; each further wait doubles, minus a random part.

    Raises:
        ValueError: An option is out of range.
    """

    model: str
    base_url: str = ""
    api_key_env: str = ""
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 64
    timeout: Annotated[float, Field(ge=0.001, le=1e6)] = 600.0
    retries: Annotated[int, Field(ge=0, le=1_000)] = 5
    backoff: Annotated[float, Field(ge=0.0, le=MAX_WAIT_S)] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.match(r"https?://[^/]", self.base_url):
            raise ValueError(f"base_url must begin with http:// or https://, got {self.base_url!r}")


T = TypeVar("T")
QuestionT = TypeVar("QuestionT")
AnswerT = TypeVar("AnswerT")
QuestionT_contra = TypeVar("QuestionT_contra", contravariant=True)
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Client(Protocol[QuestionT_contra, AnswerT_co]):
    """Connection to an API."""

    async def ask(self, question: QuestionT_contra) -> tuple[AnswerT_co, EndpointUsage]:
        """Send one request and return the answer (for a chat, its reply).

        Raises:
            Refusal: The server answered with an error status.
            UnreachableError: The server did not answer.
            AnswerError: The answer cannot be read.
        """

    async def close(self) -> None:
        """Close the connections."""


ConfigT = TypeVar("ConfigT", bound=RequestConfig)


class HttpClient(Generic[ConfigT, QuestionT, AnswerT]):
    """Client of an HTTP API that any number of threads and event loops may call.

    Requests run in an event loop in the client's own thread, which starts with the first call.
    Connections are reused, and `concurrency` holds for all callers together. Forked processes and
    pickled copies start a new loop with their own limit. Garbage collection closes the client.

    Args:
        config: The model and the request options.

    Attributes:
        remedies: Advice by HTTP status.
        answer: What the API calls an answer, for errors.
        usage: Usage of all replies so far.
        last: Usage of the latest reply.
    """

    remedies: ClassVar[Mapping[int, str]] = {}
    answer: ClassVar[str] = "answer"

    def __init__(self, config: ConfigT) -> None:
        self.config = config
        # `usage` and `last` are replaced, never mutated, and only by the lane's thread.
        self.usage = EndpointUsage()
        self.last: EndpointUsage | None = None
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._lane: Lane[QuestionT, AnswerT] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)

    @property
    def provenance(self) -> dict[str, Any]:
        """Return model, URL and sampling options, which are recorded with each episode."""
        return {k: v for k, v in asdict(self.config).items() if k not in _TRANSPORT}

    def connect(self) -> Client[QuestionT, AnswerT]:
        """Return a client, which must hold no reference to this object."""
        raise NotImplementedError

    def ask(self, questions: Sequence[QuestionT]) -> list[AnswerT]:
        """Answer all questions, up to `concurrency` at a time.

        Raises:
            EndpointError: A question got no answer; `replies` contains the other answers.
        """
        lane = self._open()
        future = lane.submit(self._answers(lane, questions))
        try:
            return future.result()
        except CancelledError:
            raise EndpointError(_CLOSED) from None
        finally:
            future.cancel()  # cancel the requests if this thread is interrupted

    def close(self) -> None:
        """Cancel requests in flight and close the connections; a later call opens new ones."""
        self._follow_fork()
        with self._lock:
            lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()

    def _open(self) -> Lane[QuestionT, AnswerT]:
        self._follow_fork()
        with self._lock:
            if self._lane is None:
                self._lane = Lane(self.connect(), self.config.concurrency)
                weakref.finalize(self, self._lane.close)
            return self._lane

    def _follow_fork(self) -> None:
        """Start afresh in a forked process.

        There, the lane has no thread, its sockets belong to the parent, and the lock may be held
        for ever.
        """
        if self._pid != os.getpid():
            self._pid, self._lock, self._lane = os.getpid(), threading.Lock(), None

    async def _answers(
        self, lane: Lane[QuestionT, AnswerT], questions: Sequence[QuestionT]
    ) -> list[AnswerT]:
        tasks = [asyncio.create_task(self._answer(lane, question)) for question in questions]
        try:
            await asyncio.wait(tasks) if tasks else None
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, EndpointError)):
            if not isinstance(error, EndpointError):  # cancelled, or a bug
                raise error
            whole = copy.copy(error)
            whole.replies = cast("Any", outcomes)
            raise whole from error
        return cast("list[AnswerT]", outcomes)

    async def _answer(self, lane: Lane[QuestionT, AnswerT], question: QuestionT) -> AnswerT:
        for sent in itertools.count(1):
            async with lane.slots:
                began = time.monotonic()
                try:
                    async with asyncio.timeout(self.config.timeout):
                        answer, used = await lane.client.ask(question)
                    break
                except _FAILURES as error:
                    failure = error
            wait = _wait(failure, sent, self.config)
            if wait is None:
                self.usage += EndpointUsage(requests=sent, retries=sent - 1)
                raise self._explain(failure, sent) from failure
            await asyncio.sleep(wait)
        last = replace(used, requests=sent, retries=sent - 1, seconds=time.monotonic() - began)
        self.last, self.usage = last, self.usage + last
        return answer

    def _explain(self, failure: Exception, sent: int) -> EndpointError:
        config = self.config
        where = f"{config.base_url} (model {config.model}, {sent} request{'s' if sent > 1 else ''})"
        if isinstance(failure, Refusal):
            return self._refused(
                failure, f"{where} answered {failure.status}: {failure.message[:500]}"
            )
        if isinstance(failure, TimeoutError):
            return EndpointError(
                f"{where} took over {config.timeout:g} s; raise timeout, or lower concurrency or "
                "max_tokens"
            )
        if isinstance(failure, UnreachableError):
            return EndpointError(
                f"{where} cannot be reached: {failure}; start the server or correct base_url"
            )
        return EndpointError(
            f"{where} returned no {self.answer}: {failure}; check that base_url is the API's URL"
        )

    def _refused(self, failure: Refusal, message: str) -> EndpointError:
        status, kind = failure.status, EndpointError
        otherwise = (
            "check the server's log, or raise retries" if status >= 500 else "correct the options"
        )
        remedies = {
            401: f"set the environment variable {self.config.api_key_env} to the key",
            429: "lower concurrency, raise retries, or check the quota",
            **self.remedies,
        }
        remedy = remedies.get(status, otherwise if status >= 400 else "check base_url")
        if status == 400 and _TOO_LONG.search(f"{failure.code} {failure.message}"):
            kind = ContextLengthError
            remedy = "play with a context strategy and a window, or lower max_tokens"
        error = kind(f"{message}; {remedy}")
        error.status = status
        return error


# Options that do not affect replies.
_TRANSPORT = ("api_key_env", "concurrency", "timeout", "retries", "backoff")


class HttpPolicy(HttpClient[ConfigT, Chat, Reply]):
    """Policy that calls an HTTP API; see `HttpClient`."""

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat, up to `concurrency` at a time.

        Raises:
            EndpointError: A chat got no reply; `replies` contains the other replies.
        """
        return self.ask(chats)

    async def areply(self, chat: Chat) -> Reply:
        """Reply to one chat without blocking the caller's event loop.

        Raises:
            EndpointError: The chat got no reply.
        """
        lane = self._open()
        try:
            return await asyncio.wrap_future(lane.submit(self._answer(lane, chat)))
        except asyncio.CancelledError:
            if lane.closed:
                raise EndpointError(_CLOSED) from None
            raise


_FAILURES = (TimeoutError, Refusal, UnreachableError, AnswerError)
_orphans: list[Lane[Any, Any]] = []


class Lane(Generic[QuestionT, AnswerT]):
    """Event loop in a thread, with its client and semaphore; holds no reference to its owner."""

    def __init__(self, client: Client[QuestionT, AnswerT], concurrency: int) -> None:
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


def _wait(failure: Exception, sent: int, config: RequestConfig) -> float | None:
    """Return the seconds before a failed request is retried; None for no retry."""
    delay = 0.0
    if sent > config.retries:
        return None
    if isinstance(failure, Refusal):
        passing = failure.status in (408, 409, 429) or failure.status >= 500
        if failure.code == "insufficient_quota" or not passing:
            return None
        delay = retry_after(failure.wait, time.time())
    backoff = config.backoff * 2.0 ** min(sent - 1, 30) * (1 - _JITTER.random() / 2)
    return max(delay, min(backoff, MAX_WAIT_S)) if delay <= MAX_WAIT_S else None


def retry_after(header: str, now: float) -> float:
    """Parse a `retry-after` header, in seconds or as a date; 0 if neither."""
    wait = 0.0
    try:
        wait = float(header)
    except ValueError:
        with suppress(ArithmeticError, LookupError, OSError, TypeError, ValueError):
            wait = parsedate_to_datetime(header).timestamp() - now
    return 0.0 if math.isnan(wait) else max(wait, 0.0)
