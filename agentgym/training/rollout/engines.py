"""Where episodes are played while they are collected: in this thread, in threads, with an event
loop, in processes, on a cluster.

An engine opens slots. A slot plays one episode at a time with a `Player` and answers in a queue, so
that the collector can wait for whichever slot is ready, and give up one without the others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from queue import Queue, SimpleQueue
from typing import Any, Protocol, runtime_checkable

import gymnasium
from gymnasium.envs.registration import EnvSpec
from typing_extensions import override

from agentgym.messages import Chat
from agentgym.policy import Policy, PolicyError, Reply
from agentgym.training.rollout.episode import Player, StepOutcome

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
EnvLike = str | EnvSpec | MakeEnv
"""An id of a world, a spec (`agentgym.spec(...)`), or a function that makes an env with a spec."""
GRACE = 5.0
"""Seconds that slots may take to close before they are killed: enough for a tool call that is under
way.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of a slot, which is of no use after that.

    Attributes:
        cause: The error in one line.
        by_policy: The policy could not reply. It has tried what may help, so that playing the
            episode again would not.
    """

    cause: str
    by_policy: bool = False


Answer = Chat | tuple[Reply, StepOutcome] | Failure
"""The result of a reset, of a step or of a breakdown."""


class Playing(Protocol):
    """A `Player`, here or elsewhere."""

    def use(self, policy: Any) -> None:
        """Play with this policy from now on."""

    def reset(self, seed: int) -> Chat:
        """Begin an episode."""

    def step(self, reply: Reply | None) -> tuple[Reply, StepOutcome]:
        """Play a reply; with None, that of the player's own policy."""

    def close(self) -> None:
        """Close the env."""


class Slot:
    """A place in which episodes are played, one after the other. What is asked is answered in a
    queue.

    Args:
        number: Which of the slots of a collector it is.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def use(self, policy: Any) -> None:
        """Play with this policy from now on."""
        raise NotImplementedError

    def reset(self, seed: int) -> None:
        """Begin an episode; the answer is put into the queue."""
        raise NotImplementedError

    def step(self, reply: Reply | None) -> None:
        """Play a reply, or that of the slot's own policy; the answer is put into the queue."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop when all that was asked is done."""
        raise NotImplementedError

    def join(self, seconds: float) -> bool:
        """Wait for the end at most `seconds`; return whether it has come."""
        raise NotImplementedError

    def kill(self) -> None:
        """Stop at once, whatever is going on, without waiting."""
        raise NotImplementedError


Answers = Queue[tuple[Slot, Answer]]
"""No `SimpleQueue`: in CPython 3.11 one may wait for ever if a timeout of microseconds runs out
before it has begun to wait.
"""


class Engine:
    """Way to play episodes. A subclass fills `slot`.

    Attributes:
        isolates: An error in a slot costs that slot's episode alone; if not, it is raised.
        replicates: Each slot has the policy at hand, unless the collector says otherwise.
    """

    isolates = True
    replicates = False

    def share(self, policy: Policy) -> Any:
        """Return the form in which slots are handed a policy to use as their own."""
        return policy

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the slots had in common."""


class LocalSlot(Slot):
    """Plays in the thread of the collector, at once."""

    def __init__(self, make_env: MakeEnv, number: int, answers: Answers) -> None:
        super().__init__(number)
        self._player, self._answers = Player(make_env()), answers

    @override
    def use(self, policy: Any) -> None:
        self._player.use(policy)

    @override
    def reset(self, seed: int) -> None:
        self._answers.put((self, self._player.reset(seed)))

    @override
    def step(self, reply: Reply | None) -> None:
        self._answers.put((self, self._player.step(reply)))

    @override
    def close(self) -> None:
        self._player.close()

    @override
    def join(self, seconds: float) -> bool:
        return True

    @override
    def kill(self) -> None:
        self.close()


class ThreadSlot(Slot):
    """Plays in a thread of its own.

    Args:
        open_player: Makes the player, in the thread.
        number: Which of the slots it is.
        answers: Where answers go.
        abort: Makes a call of the player that hangs return or raise, if anything can.
    """

    def __init__(
        self,
        open_player: Callable[[], Playing],
        number: int,
        answers: Answers,
        abort: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(number)
        self._open, self._answers, self._abort = open_player, answers, abort
        self._requests: SimpleQueue[tuple[str, Any] | None] = SimpleQueue()
        # A daemon, since a thread that hangs cannot be ended and must not keep the interpreter from
        # ending.
        self._thread = threading.Thread(
            target=self._run, name=f"agentgym-slot-{number}", daemon=True
        )
        self._thread.start()

    @override
    def use(self, policy: Any) -> None:
        self._requests.put(("use", policy))

    @override
    def reset(self, seed: int) -> None:
        self._requests.put(("reset", seed))

    @override
    def step(self, reply: Reply | None) -> None:
        self._requests.put(("step", reply))

    @override
    def close(self) -> None:
        self._requests.put(None)

    @override
    def join(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @override
    def kill(self) -> None:
        self.close()
        self._abort()

    def _run(self) -> None:
        try:
            with closing(self._open()) as player:
                for method, argument in iter(self._requests.get, None):
                    answer = getattr(player, method)(argument)
                    if method != "use":
                        self._answers.put((self, answer))
        except Exception as error:  # noqa: BLE001 - whatever breaks in a slot costs its episode alone, and is reported with it
            self._answers.put((self, Failure(describe(error), isinstance(error, PolicyError))))


class Lockstep(Engine):
    """All in the thread of the collector, in the same order each time: the choice for quick worlds,
    and for exact resumption.
    """

    isolates = False

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        return LocalSlot(make_env, number, answers)


class Threads(Engine):
    """A thread for each slot: for tools that wait, on a disk, a network or a process.

    A thread that hangs is abandoned.
    """

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        return ThreadSlot(lambda: Player(make_env()), number, answers)


@runtime_checkable
class AsyncPolicy(Protocol):
    """A policy that waits for its replies without blocking, such as
    `agentgym.training.rollout.openai_policy.EndpointPolicy`.
    """

    async def areply(self, chat: Chat) -> Reply:
        """Reply to one chat."""
        ...


class Asyncio(Engine):
    """One event loop for the replies of all slots, a thread for each env: for endpoints.

    The policy needs `areply(chat)`.
    """

    replicates = True

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="agentgym-asyncio", daemon=True
        )
        self._thread.start()

    def share(self, policy: Policy) -> Any:
        """Return the policy, with replies awaited in the event loop.

        Raises:
            ValueError: It has no `areply`.
        """
        if not isinstance(policy, AsyncPolicy):
            name = type(policy).__name__
            raise ValueError(
                f"the asyncio engine needs a policy with `async def areply(chat)`, and {name} has "
                "none; use threads"
            )
        return _Awaited(policy, self._loop)

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        return _AwaitingSlot(make_env, number, answers)

    def close(self) -> None:
        """Cancel what is still awaited and end the loop."""
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop)
        self._thread.join(GRACE)
        if not self._thread.is_alive():
            self._loop.close()


class _AwaitingSlot(ThreadSlot):
    """A slot whose wait for a reply can be cancelled."""

    def __init__(self, make_env: MakeEnv, number: int, answers: Answers) -> None:
        self._awaited: _Awaited | None = None
        super().__init__(lambda: Player(make_env()), number, answers, self._cancel)

    @override
    def use(self, policy: Any) -> None:
        self._awaited = policy.copy()
        super().use(self._awaited)

    def _cancel(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()


class _Awaited:
    """A policy that waits in this thread for replies that an event loop awaits."""

    def __init__(self, policy: AsyncPolicy, loop: asyncio.AbstractEventLoop) -> None:
        self.policy, self.loop = policy, loop
        self._cancel: Callable[[], object] = lambda: None

    def copy(self) -> _Awaited:
        return _Awaited(self.policy, self.loop)

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        replies = asyncio.run_coroutine_threadsafe(self._all(chats), self.loop)
        self._cancel = replies.cancel
        return replies.result()

    def cancel(self) -> None:
        self._cancel()

    async def _all(self, chats: Sequence[Chat]) -> list[Reply]:
        return await asyncio.gather(*map(self.policy.areply, chats))


async def _cancel_all() -> None:
    loop = asyncio.get_running_loop()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.wait(rest, timeout=GRACE / 2) if rest else None
    loop.call_soon(loop.stop)


def describe(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
