"""Engines whose envs step in threads that all slots share, the one with an event loop for replies."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, runtime_checkable

from typing_extensions import override

from agentgym.play.policy import Policy, Reply
from agentgym.text.messages import Chat
from agentgym.text.validation import check_int
from agentgym.training.rollout.engines.base import (
    GRACE,
    NEVER,
    OPENING,
    Answer,
    Answers,
    Engine,
    MakeEnv,
    Slot,
    failure_of,
    start_thread,
)
from agentgym.training.rollout.episode import Player

THREADS = 512
"""The most threads of an engine: the number of tools that may wait at the same time. A thread takes
some 50 kB.
"""
FEW_THREADS = 4
"""Threads that are active without a look at whether they are worth it."""
PROBE = 0.001
"""Seconds that a look at the interpreter takes: little beside a tool that is worth a thread."""
PROBES = 3
"""Looks in a row that have to find it idle, since one may by chance."""


class ThreadPool:
    """Threads that work for slots, started as they are needed.

    Few threads are active at first. While slots wait and the interpreter is idle, since all active
    threads wait for tools, there are more and more of them. While it is busy there are no more:
    threads that wait for the interpreter take a part of its time, and would do nothing sooner.
    Those that find nothing to do are parked.

    They are daemons, since a thread that hangs cannot be ended and must not keep the interpreter
    from ending.

    Args:
        limit: The most threads, those aside that hang.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._few = limit, min(FEW_THREADS, limit)
        self._lock = threading.Lock()
        self._waiting: deque[ThreadSlot] = deque()
        self._working: dict[ThreadSlot, threading.Thread] = {}
        self._threads: set[threading.Thread] = set()
        self._active = self._parked = 0
        self._calls: SimpleQueue[str | None] = SimpleQueue()  # to parked threads; None to end
        self._short = threading.Event()
        self._watch: threading.Thread | None = None
        self._closed = False

    def submit(self, slot: ThreadSlot) -> None:
        """Have the slot do its work."""
        self._waiting.append(slot)  # before the look: a thread that parks looks after it is counted
        if self._active >= self._few and (self._active >= self._limit or self._short.is_set()):
            return
        with self._lock:
            if self._active < self._few:
                self._activate()
            elif self._active < self._limit and not self._short.is_set():
                self._short.set()
                self._watch = self._watch or start_thread(self._grow, "agentgym-env")

    def abandon(self, slot: ThreadSlot) -> bool:
        """Put another thread in the place of the one that works for this slot, if one does."""
        with self._lock:
            thread = self._working.pop(slot, None)
            if thread is not None:
                self._threads.discard(thread)
                self._active -= 1
                self._activate()
        return thread is not None

    def close(self) -> None:
        """Wait for what was submitted, at most `GRACE` seconds, and end the threads."""
        with self._lock:
            self._closed = True
            self._short.set()
            threads = list(self._threads)
        for _ in threads:
            self._calls.put(None)
        until = time.monotonic() + GRACE
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _activate(self) -> None:
        self._active += 1
        if self._parked:
            self._parked -= 1
            self._calls.put("go on")
        else:
            self._threads.add(start_thread(self._run, "agentgym-env"))

    def _grow(self) -> None:
        """Double the active threads each time that slots wait although the interpreter is idle."""
        while self._short.wait() and not self._closed:
            idle = all(_interpreter_is_idle() for _ in range(PROBES))
            with self._lock:
                more = min(len(self._waiting), self._limit - self._active)
                if more <= 0:
                    self._short.clear()
                    if self._waiting and self._active < self._limit:  # submitted before that
                        self._short.set()
                elif idle and not self._closed:
                    for _ in range(min(more, self._active)):
                        self._activate()

    def _run(self) -> None:
        while True:
            try:
                slot = self._waiting.popleft()
            except IndexError:
                if self._park():
                    continue
                return
            if not self._work_for(slot):
                return

    def _work_for(self, slot: ThreadSlot) -> bool:
        """Have a slot do its work in this thread; return False if it was abandoned meanwhile.

        No lock is taken. A thread that waits for one gets it while another runs, which then has to
        wait for it at its next step, and so on: threads would be switched several times a step.
        """
        if slot.dead:  # it is not noted, so that one that is about to be noted is not replaced
            slot.deliver(None)
            return True
        self._working[slot] = threading.current_thread()
        answer = slot.work()
        # Before the answer, after which the slot may be submitted again.
        abandoned = self._working.pop(slot, None) is None
        slot.deliver(answer)
        return not abandoned

    def _park(self) -> bool:
        """Wait until there is more to do; return False if that is never."""
        with self._lock:
            self._active -= 1
            if self._waiting:  # it was submitted before this thread was counted out
                self._active += 1
                return True
            self._parked += 1
        return self._calls.get() is not None


def _interpreter_is_idle() -> bool:
    """Return whether this process hardly computes, and a thread that wakes goes on at once: where
    others compute, it has to wait for the interpreter's switch interval (5 ms).
    """
    began, computed = time.perf_counter(), time.process_time()
    time.sleep(PROBE)
    late = time.perf_counter() - began - PROBE
    return late < sys.getswitchinterval() / 2 and time.process_time() - computed < PROBE / 2


class ThreadSlot(Slot):
    """Plays in whichever thread of a pool is free."""

    def __init__(self, make_env: MakeEnv, number: int, answers: Answers, pool: ThreadPool) -> None:
        super().__init__(number)
        self._make_env, self._answers, self._pool = make_env, answers, pool
        self._player: Player | None = None
        self._policy: Any = None
        self._seed: int | None = None
        self._reply: Reply | None = None

    @override
    def use(self, policy: Any) -> None:
        self._policy = policy

    @override
    def reset(self, seed: int) -> None:
        self._seed = seed
        self._pool.submit(self)

    @override
    def step(self, reply: Reply | None) -> None:
        self._reply = reply
        self._pool.submit(self)

    @override
    def close(self) -> None:
        self.dead = True
        if not self._pool.abandon(self):
            self._pool.submit(self)

    def work(self) -> Answer | None:
        """Do what was asked and return the answer; None if the slot is closed."""
        if self.dead:
            return None
        self.began = time.monotonic() + (0.0 if self._player else OPENING)
        answer = self._answer()
        self.began = NEVER
        return answer

    def deliver(self, answer: Answer | None) -> None:
        """Put an answer where it belongs, or close the env if the slot is closed."""
        if answer is not None and not self.dead:
            self._answers.put((self, answer))
        elif self._player is not None:
            player, self._player = self._player, None
            with suppress(Exception):  # nobody waits for the end of an env that is given up
                player.close()

    def _answer(self) -> Answer:
        try:
            player = self._player = self._player or Player(self._make_env())
            if self._seed is None:
                return player.step(self._reply)
            seed, self._seed = self._seed, None
            player.policy = self._policy
            return player.reset(seed)
        except Exception as error:  # noqa: BLE001 - whatever breaks in a slot costs its episode alone, and is reported with it
            return failure_of(error)


class Threads(Engine):
    """Threads that step the envs of all slots: for tools that wait, on a disk, a network or a
    process.

    A thread that hangs is abandoned.

    Args:
        threads: The most threads, which are started as they are needed: the number of tools that
            may wait at the same time.
    """

    def __init__(self, threads: int = THREADS) -> None:
        check_int("threads", threads, 1, 100_000)
        self._pool = ThreadPool(threads)

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        return ThreadSlot(make_env, number, answers, self._pool)

    def close(self) -> None:
        """Wait for slots that were closed, at most `GRACE` seconds, and end the threads."""
        self._pool.close()


@runtime_checkable
class AsyncPolicy(Protocol):
    """A policy that waits for its replies without blocking, such as
    `agentgym.training.rollout.openai_policy.EndpointPolicy`.
    """

    async def areply(self, chat: Chat) -> Reply:
        """Reply to one chat."""


class Asyncio(Threads):
    """One event loop for the replies of all slots, threads that step the envs of all: for
    endpoints.

    The policy needs `areply(chat)`.

    Args:
        threads: The most threads, as in `Threads`.
    """

    replicates = True

    def __init__(self, threads: int = THREADS) -> None:
        super().__init__(threads)
        self._loop = _Loop()

    def share(self, policy: Policy) -> Any:
        """Return the policy.

        Raises:
            ValueError: It has no `areply`.
        """
        if not isinstance(policy, AsyncPolicy):
            raise ValueError(
                "the asyncio engine needs a policy with `async def areply(chat)`, and "
                f"{type(policy).__name__} has none; use threads"
            )
        return policy

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        return _AwaitingSlot(make_env, number, answers, self._pool, self._loop)

    def close(self) -> None:
        """Cancel what is still awaited, wait for slots that were closed, end threads and loop."""
        super().close()
        self._loop.close()


class _AwaitingSlot(ThreadSlot):
    """A slot whose own policy replies in an event loop."""

    def __init__(
        self, make_env: MakeEnv, number: int, answers: Answers, pool: ThreadPool, loop: _Loop
    ) -> None:
        super().__init__(make_env, number, answers, pool)
        self._loop = loop
        self._task: asyncio.Task[None] | None = None

    @override
    def step(self, reply: Reply | None) -> None:
        if reply is None:
            self._loop.post(self)
        else:
            super().step(reply)

    @override
    def close(self) -> None:
        super().close()
        self._loop.post(self)

    def await_reply(self) -> None:
        """Begin to wait for a reply, in the event loop; stop to if the slot is closed."""
        player = self._player
        if player is not None and not self.dead:
            self._task = asyncio.get_running_loop().create_task(self._await_reply(player.chat))
        elif self._task is not None:
            self._task.cancel()

    async def _await_reply(self, chat: Chat) -> None:
        self.began = time.monotonic()
        try:
            reply = await self._policy.areply(chat)
        except Exception as error:  # noqa: BLE001 - whatever breaks in a slot costs its episode alone, and is reported with it
            self._answers.put((self, failure_of(error)))
        else:
            self.began = NEVER  # until a thread is free
            super().step(reply)
        finally:
            self._task = None


class _Loop:
    """An event loop in a thread of its own. It is woken once for all that is posted meanwhile."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._posted: deque[_AwaitingSlot] = deque()
        self._woken = False
        self._thread = start_thread(self._loop.run_forever, "agentgym-asyncio")

    def post(self, slot: _AwaitingSlot) -> None:
        """Have a slot wait for its reply, or stop to."""
        self._posted.append(slot)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._take)

    def close(self) -> None:
        """Cancel what is still awaited and end the loop."""
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop)
        self._thread.join(GRACE)
        if not self._thread.is_alive():
            self._loop.close()

    def _take(self) -> None:
        self._woken = False
        while self._posted:
            self._posted.popleft().await_reply()


async def _cancel_all() -> None:
    loop = asyncio.get_running_loop()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.wait(rest, timeout=GRACE / 2) if rest else None
    loop.call_soon(loop.stop)
