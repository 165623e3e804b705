"""Adapter for synchronous and asynchronous policies that take one chat or a list of chats."""

from __future__ import annotations

import asyncio
import functools
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentgym.play.policy import Policy, PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.event_loop import run
from agentgym.training.rollout.faults import PolicyFault, describe
from agentgym.world.world import MissingHook

# Default number of simultaneous episodes of an async policy in a study.
CONCURRENCY = 128
# First-parameter names of policies that take one chat, and of policies that take a list.
_ONE, _MANY = ("chat", "observation", "obs"), ("chats", "observations", "batch")
_IDS = ("episode_id", "episode_ids")
# Maximum length of a quoted error, which may contain whole prompts.
_LONGEST = 500
_REPLY = "return a str or a Reply"
PolicyLike = Policy | Callable[..., Any] | Mapping[str, Any]


class PolicyRequest(NamedTuple):
    """A chat that is waiting for a reply; retrying an episode changes its `episode_id`."""

    chat: Chat
    seed: int = 0
    episode_id: str = ""
    first: bool = False


class UserPolicy:
    """Adapter that turns a user's policy into a batched policy.

    The policy takes a list of chats, or one chat if its parameter is named `chat`, `observation` or
    `obs`, or is annotated `Chat`. If the name and the annotation are unclear, the first call
    determines whether the policy takes one chat or a list. The policy returns a str or a `Reply`
    per chat. All async policies run in one event loop.

    Two optional hooks support stateful policies. `reset` is called before an episode's first reply
    and may take `seed`, `episode_id` or both. A parameter `episode_ids` (`episode_id` for one chat)
    receives the ids of the chats' episodes. A policy that has `reset` but lacks this parameter
    plays one episode at a time.

    Args:
        policy: A callable, or an object with `async def areply(chat)`.

    Raises:
        ValueError: The policy cannot be called with chats.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.name = getattr(policy, "__qualname__", type(policy).__qualname__)
        self.last_fault: PolicyFault | None = None
        if isinstance(policy, type):
            raise ValueError(
                f"policy {self.name} is a class; give an instance, such as {self.name}()"
            )
        if not callable(policy) and not hasattr(policy, "areply"):
            _close(policy)
            raise ValueError(
                "policy must be a function from chats to replies, such as "
                f"OraclePolicy('ListWorld'), got {policy!r}"
            )
        self._call = policy if callable(policy) else policy.areply
        reset = getattr(policy, "reset", None)
        self._reset = reset if callable(reset) else None
        # A policy with an async `reset` runs in the event loop, where `reset` is awaited.
        self._call_is_async = _is_async(self._call)
        self._is_async = self._call_is_async or _is_async(self._reset)
        names = self._bind(self._call)
        self._ids = next((name for name in _IDS if name in names), "")
        self._takes_one = _takes_one(self._call) if callable(policy) else True
        self._reset_takes = self._reset_parameters()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "policy":  # during unpickling, `policy` is not yet set
            raise AttributeError(name)
        return getattr(self.policy, name)

    def check(self, agents: Sequence[str]) -> None:
        """Raise `ValueError` if the policy cannot play a team of these agents."""

    @property
    def awaitable(self) -> bool:
        """Report whether replies can be awaited one by one."""
        return self._is_async or hasattr(self.policy, "areply")

    @property
    def parallel_episodes(self) -> int:
        """Recommended number of concurrent episodes."""
        declared = getattr(self.policy, "concurrency", None)
        if isinstance(declared, int) and declared > 0:
            return declared
        config = getattr(self.policy, "config", None)
        limit = getattr(config, "concurrency", None)
        if self.awaitable and isinstance(limit, int):
            return 2 * limit  # keep `limit` requests in flight
        return CONCURRENCY if self.awaitable else 1

    @property
    def has_state(self) -> bool:
        """Whether the policy resets its state for each episode."""
        return self._reset is not None

    @property
    def serial(self) -> bool:
        """Whether the policy's episodes must not overlap."""
        return self.has_state and not self._ids

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Return a reply for each chat; if some chats fail, `PolicyError.replies` contains the
        other replies.
        """
        outcomes = self.ask([PolicyRequest(chat) for chat in chats])
        errors = [each for each in outcomes if isinstance(each, PolicyError)]
        if errors:
            errors[0].replies = outcomes
            raise errors[0]
        return [each for each in outcomes if isinstance(each, Reply)]

    def ask(self, requests: Sequence[PolicyRequest]) -> list[Reply | PolicyError]:
        """Return a reply or an error for each request."""
        work = self._ask(requests)
        if self._is_async:
            return run(work)
        # The coroutine never suspends, so one `send` runs it to completion without an event loop.
        try:
            work.send(None)
        except StopIteration as end:
            return list(end.value)
        finally:
            work.close()
        raise RuntimeError(f"policy {self.name} must not await without an event loop")

    async def areply(self, request: PolicyRequest) -> Reply:
        """Reply to one request, or raise `PolicyError`."""
        outcome: Reply | PolicyError | None = None
        if hasattr(self.policy, "areply"):
            if self._reset is not None:
                outcome = await self._begin(request)
            if outcome is None:
                outcome = await self._ask_one(request, self.policy.areply, awaits=True)
        else:
            (outcome,) = await self._ask([request])
        if isinstance(outcome, PolicyError):
            raise outcome
        return outcome

    async def _ask(self, requests: Sequence[PolicyRequest]) -> list[Reply | PolicyError]:
        if self._reset is None:
            return self._noted(await self._ask_some(requests))
        begun = [await self._begin(request) for request in requests]
        going = [request for request, error in zip(requests, begun, strict=True) if error is None]
        replies = iter(await self._ask_some(going) if going else ())
        return self._noted([error or next(replies) for error in begun])

    def _noted(self, outcomes: list[Reply | PolicyError]) -> list[Reply | PolicyError]:
        for outcome in outcomes:
            if isinstance(outcome, PolicyFault):
                self.last_fault = outcome
        return outcomes

    async def _begin(self, request: PolicyRequest) -> PolicyError | None:
        if self._reset is None or not request.first:
            return None
        known = {"seed": request.seed, "episode_id": request.episode_id}
        try:
            result = self._reset(**{name: known[name] for name in self._reset_takes})
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - a user's hook may raise anything, which costs its episode alone
            return self._fault(error)
        return None

    async def _ask_some(self, requests: Sequence[PolicyRequest]) -> list[Reply | PolicyError]:
        if self._takes_one is not True:
            outcomes = await self._ask_together(requests)
            if outcomes is not None:
                return outcomes
        awaits = self._call_is_async
        work = [self._ask_one(each, self._call, awaits=awaits) for each in requests]
        if awaits:
            return list(await asyncio.gather(*work))
        return [await each for each in work]

    async def _ask_one(
        self, request: PolicyRequest, function: Callable[..., Any], *, awaits: bool
    ) -> Reply | PolicyError:
        ids = {self._ids: request.episode_id} if self._ids and function == self._call else {}
        try:
            result = function(request.chat, **ids)
            if awaits:
                result = await result
            return self._read(result, "for one chat")
        except MissingHook:  # the world lacks a hook, so every later request would fail too
            raise
        except PolicyError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a user's policy may raise anything, which costs its episode alone
            return self._fault(error)

    async def _ask_together(
        self, requests: Sequence[PolicyRequest]
    ) -> list[Reply | PolicyError] | None:
        chats = [request.chat for request in requests]
        ids = {self._ids: [request.episode_id for request in requests]} if self._ids else {}
        try:
            result = self._call(chats, **ids)
            if self._call_is_async:
                result = await result
            if self._takes_one is None:
                self._takes_one = isinstance(result, (str, Reply))
                if self._takes_one:
                    return None
            return self._read_all(result, len(requests))
        except MissingHook:
            raise
        except PolicyFault as fault:
            return [fault] * len(requests)
        except Exception as error:  # noqa: BLE001 - a user's policy may raise anything, which costs its episode alone
            if self._takes_one is None and _asks_a_list_for_messages(error, chats):
                self._takes_one = True
                return None
            replies = error.replies if isinstance(error, PolicyError) else ()
            if len(replies) == len(requests):
                return list(replies)
            if len(requests) == 1 or getattr(error, "fatal", False):
                known = error if isinstance(error, PolicyError) else self._fault(error)
                return [known] * len(requests)
        # Send each chat separately, so that only the episodes of failing chats are lost.
        return [(await self._ask_some([request]))[0] for request in requests]

    def _read_all(self, result: Any, count: int) -> list[Reply | PolicyError]:
        if isinstance(result, (str, Reply)):
            raise PolicyFault(
                f"policy {self.name} returned one reply for a list of chats; return a list, or "
                "name its parameter `chat` to receive one chat at a time"
            )
        if not isinstance(result, Sequence) or isinstance(result, (bytes, bytearray)):
            raise self._wrong(result, "for a list of chats", f"{_EACH}")
        if len(result) != count:
            for each in result:
                _close(each)
            raise PolicyFault(
                f"policy {self.name} returned {len(result)} replies for {count} chats; {_EACH}"
            )
        outcomes: list[Reply | PolicyError] = []
        for each in result:
            try:
                outcomes.append(self._read(each, "in its list"))
            except PolicyFault as fault:
                outcomes.append(fault)
        return outcomes

    def _read(self, result: Any, where: str) -> Reply:
        if isinstance(result, str):
            return Reply(str(result))
        if not isinstance(result, Reply):
            raise self._wrong(result, where, _REPLY)
        if not isinstance(result.text, str):
            raise self._wrong(result.text, "as the text of a reply", "give Reply a str")
        return result

    def _wrong(self, result: Any, where: str, remedy: str) -> PolicyFault:
        kind = type(result).__name__
        if inspect.isawaitable(result):
            remedy = "define the policy itself with `async def`, or await the result"
        elif inspect.isgenerator(result) or inspect.isasyncgen(result):
            remedy = f"{remedy} instead of yielding"
        elif result is None:
            kind, remedy = "None", f"{remedy}, on every path"
        _close(result)
        return PolicyFault(f"policy {self.name} returned {kind} {where}; {remedy}")

    def _fault(self, error: Exception) -> PolicyFault:
        if isinstance(error, PolicyFault):
            return error
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        lines = traceback.format_exception(type(error), error, frames)
        cause = " ".join(describe(error).split())[:_LONGEST]
        return PolicyFault(f"policy {self.name} raised {cause}", "".join(lines).rstrip())

    def _bind(self, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
        signature = _signature(function)
        if signature is None:
            return {}
        ids = {name: () for name in _IDS if name in signature.parameters}
        try:
            signature.bind((), **ids)
        except TypeError as error:
            raise ValueError(
                f"policy {self.name} cannot be called with chats ({error}); it must take one chat "
                "or a list of chats, and optionally episode_id or episode_ids"
            ) from None
        return signature.parameters

    def _reset_parameters(self) -> tuple[str, ...]:
        signature = None if self._reset is None else _signature(self._reset)
        if signature is None:
            return ()
        kinds = [each.kind for each in signature.parameters.values()]
        takes: tuple[str, ...] = ("seed", "episode_id")
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            takes = tuple(name for name in takes if name in signature.parameters)
        try:
            signature.bind(**dict.fromkeys(takes))
        except TypeError as error:
            raise ValueError(
                f"reset of policy {self.name} cannot be called ({error}); its parameters may be "
                "seed and episode_id"
            ) from None
        return takes


_EACH = f"{_REPLY} for each chat, in a list"


def is_policy(function: Callable[..., Any]) -> bool:
    """Report whether a callable is a policy rather than a factory."""
    return not isinstance(function, type) and _takes_one(function) is not None


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # functions written in C may lack a signature
        return None


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - its code, not whether it is callable
    )


def _takes_one(function: Callable[..., Any]) -> bool | None:
    """Report whether a function takes one chat, judging by the first parameter; None if unclear."""
    signature = _signature(function)
    if signature is None:
        return None
    first = next(iter(signature.parameters.values()), None)
    if first is None:
        return None
    kind = first.annotation
    if kind is Chat or (isinstance(kind, str) and kind.rpartition(".")[2] == "Chat"):
        return True
    if "Chat]" in str(kind):
        return False
    if first.name in _ONE:
        return True
    return False if first.name in _MANY else None


def _asks_a_list_for_messages(error: Exception, chats: list[Chat]) -> bool:
    return (
        isinstance(error, AttributeError)
        and error.obj is chats
        and error.name is not None
        and hasattr(Chat, error.name)
    )


def _close(result: Any) -> None:
    # A coroutine that is never awaited would raise a warning.
    if inspect.iscoroutine(result):
        result.close()
