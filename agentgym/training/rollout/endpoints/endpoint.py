"""Policies behind an HTTP API: requests in a loop of their own, tried again after failures that may
pass, whatever the API.

An API adds its client, the form of a request and the reading of an answer (`openai_policy`,
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
"""The longest wait before a request is sent again; a server that asks for a longer one is not asked
again.
"""
_TOO_LONG = re.compile(r"(?i)context[ _-]?(length|size|window)|prompt is too long")
"""Words in which servers say that the chat is longer than the model's context."""
_CLOSED = "the policy was closed before the reply came; close it when no call is running"
# Its own, lest retries change what a seeded program draws from the shared one.
_JITTER = random.Random()


class EndpointError(PolicyError):
    """The endpoint gave no reply."""

    status: int | None = None
    """The HTTP status; None if there was no answer."""


class ContextLengthError(EndpointError):
    """The chat is longer than the model's context."""


class Refusal(Exception):
    """An answer with an HTTP status that is no success.

    Args:
        status: The status.
        message: The server's own words.
        code: The server's name for the error.
        wait: Its header `retry-after`.
    """

    def __init__(self, status: int, message: str, code: str = "", wait: str = "") -> None:
        super().__init__(status, message, code, wait)
        self.status, self.message, self.code, self.wait = status, message, code, wait


class UnreachableError(Exception):
    """No answer came."""


@dataclass(frozen=True)
class RequestConfig(Config):
    """Options of a policy behind an HTTP API.

    Attributes:
        model: The name by which the server knows the model.
        base_url: Where the API is.
        api_key_env: The environment variable that holds the key; if it is not set, a placeholder is
            sent.
        concurrency: The most requests in flight, whatever the number of threads and chats.
        timeout: Seconds until a request is given up.
        retries: The most times a request is sent again after a failure that may pass.
        backoff: Seconds before the first of these; each further one waits twice as long, less a
            random part.

    Raises:
        ValueError: An option is out of range.
    """

    model: str
    base_url: str = ""
    api_key_env: str = ""
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 16
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
    """Client of an API, with its connections."""

    async def ask(self, question: QuestionT_contra) -> tuple[AnswerT_co, EndpointUsage]:
        """Ask for an answer (to a chat, its reply), once.

        Raises:
            Refusal: The server refused.
            UnreachableError: No answer came.
            AnswerError: The answer cannot be read.
        """

    async def close(self) -> None:
        """Close the connections."""


ConfigT = TypeVar("ConfigT", bound=RequestConfig)


class HttpClient(Generic[ConfigT, QuestionT, AnswerT]):
    """Asks an HTTP API; the base of the policies and of the sampler that have one behind them.

    It may be called from any number of threads and, through `areply`, from any event loop: requests
    run in one loop of its own, in a thread that starts with the first call, so that connections are
    reused and `concurrency` holds for all callers together. A forked process starts afresh, and so
    does a pickled copy, with a limit of its own. Dropping it closes it.

    Args:
        config: The model, and how it is asked.

    Attributes:
        remedies: Advice by the HTTP status of a refusal.
        answer: The name of an answer of the API, for errors.
        usage: The usage of all replies so far.
        last: The usage of the newest reply.
    """

    remedies: ClassVar[Mapping[int, str]] = {}
    answer: ClassVar[str] = "answer"

    def __init__(self, config: ConfigT) -> None:
        self.config = config
        # Like `last` replaced, never changed, and by the thread of the lane only.
        self.usage = EndpointUsage()
        self.last: EndpointUsage | None = None
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._lane: Lane[QuestionT, AnswerT] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)

    @property
    def provenance(self) -> dict[str, Any]:
        """Return the model, the address and the sampler, which are recorded with each episode."""
        return {k: v for k, v in asdict(self.config).items() if k not in _TRANSPORT}

    def connect(self) -> Client[QuestionT, AnswerT]:
        """Return a client, which must hold no reference to this object."""
        raise NotImplementedError

    def ask(self, questions: Sequence[QuestionT]) -> list[AnswerT]:
        """Return the answer to each question, all asked at once up to `concurrency`.

        Raises:
            EndpointError: A question got no answer; its `replies` are those to the others.
        """
        lane = self._open()
        future = lane.submit(self._answers(lane, questions))
        try:
            return future.result()
        except CancelledError:
            raise EndpointError(_CLOSED) from None
        finally:
            future.cancel()  # an interrupt of this thread must not leave requests behind

    def close(self) -> None:
        """Give up what is in flight and close the connections; a later call opens new ones."""
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
        """In a forked process the lane has no thread, its sockets are the parent's, and nobody may
        be there to open the lock.
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
            if not isinstance(error, EndpointError):  # the call was cancelled, or is at fault
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
            f"{where} gave no {self.answer}: {failure}; check that base_url is that of the API"
        )

    def _refused(self, failure: Refusal, message: str) -> EndpointError:
        status, kind = failure.status, EndpointError
        otherwise = (
            "see the log of the server, or raise retries"
            if status >= 500
            else "correct the options"
        )
        remedies = {
            401: f"put the key into the environment variable {self.config.api_key_env}",
            429: "lower concurrency, raise retries, or see to the quota",
            **self.remedies,
        }
        remedy = remedies.get(status, otherwise if status >= 400 else "check base_url")
        if status == 400 and _TOO_LONG.search(f"{failure.code} {failure.message}"):
            kind = ContextLengthError
            remedy = "play with a context strategy and a window, or lower max_tokens"
        error = kind(f"{message}; {remedy}")
        error.status = status
        return error


_TRANSPORT = ("api_key_env", "concurrency", "timeout", "retries", "backoff")
"""Options of which no reply depends."""


class HttpPolicy(HttpClient[ConfigT, Chat, Reply]):
    """Asks an HTTP API for its replies; the base of a policy for each API. See `HttpClient`."""

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat, all at once up to `concurrency`.

        Raises:
            EndpointError: A chat got no reply; its `replies` are those of the others.
        """
        return self.ask(chats)

    async def areply(self, chat: Chat) -> Reply:
        """Reply to one chat without blocking the event loop that this is awaited in.

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
    """An event loop in a thread, with the client and the slots that belong to it; it holds no
    reference to its owner.
    """

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
        # Work that follows the stop would never be run, nor its future be resolved.
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
            # A forked process that freed a loop would be warned that it had not closed it.
            _orphans.append(self)
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


def _wait(failure: Exception, sent: int, config: RequestConfig) -> float | None:
    """Return the seconds until a failed request is sent again; None if it is not."""
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
