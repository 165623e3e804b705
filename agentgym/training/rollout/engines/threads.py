"""Engines that step envs in a shared thread pool: `threads` and `asyncio`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import gymnasium
from typing_extensions import override

from agentgym.play.policy import Reply
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
from agentgym.training.rollout.episode import play_reply
from agentgym.training.rollout.event_loop import event_loop
from agentgym.training.rollout.user_policy import PolicyRequest, UserPolicy

# Maximum number of tools that wait concurrently; each thread takes about 50 kB.
THREADS = 512
# Threads that the pool starts before it measures whether the interpreter is busy.
FEW_THREADS = 4
# Seconds for which CPU use is measured, a negligible time for tools that need a thread.
PROBE = 0.003


class ThreadPool:
    """Pool that starts a few threads on demand, and more if slots queue while all threads wait.

    If the interpreter is busy, more threads would only compete for it. The threads are daemons, so
    a hung thread does not block interpreter exit.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._few = limit, min(FEW_THREADS, limit)
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[ThreadSlot | None] = SimpleQueue()  # None ends a thread
        self._working: dict[ThreadSlot, threading.Thread] = {}
        self._threads: set[threading.Thread] = set()
        self._short = threading.Event()
        self._watch: threading.Thread | None = None
        self._closed = False

    def submit(self, slot: ThreadSlot) -> None:
        """Queue a slot's work."""
        self._waiting.put(slot)
        if len(self._threads) >= self._limit or self._short.is_set():
            return
        with self._lock:
            if len(self._threads) < self._few:
                self._start()
            else:
                self._short.set()
                self._watch = self._watch or start_thread(self._grow, "agentgym-env")

    def abandon(self, slot: ThreadSlot) -> bool:
        """Replace the thread that runs this slot; return False if there is no such thread."""
        with self._lock:
            thread = self._working.pop(slot, None)
            if thread is not None:
                self._threads.discard(thread)
                self._start()
        return thread is not None

    def close(self) -> None:
        """Finish queued work within at most `GRACE` seconds."""
        with self._lock:
            self._closed = True
            self._short.set()
            threads = list(self._threads)
        for _ in threads:
            self._waiting.put(None)
        until = time.monotonic() + GRACE
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _start(self) -> None:
        self._threads.add(start_thread(self._run, "agentgym-env"))

    def _grow(self) -> None:
        while self._short.wait() and not self._closed:
            computed = time.process_time()
            time.sleep(PROBE)
            idle = time.process_time() - computed < PROBE / 2
            with self._lock:
                more = min(self._waiting.qsize(), self._limit - len(self._threads))
                if more <= 0:
                    self._short.clear()
                    if not self._waiting.empty():  # a slot was queued before the flag was cleared
                        self._short.set()
                elif idle and not self._closed:
                    for _ in range(min(more, len(self._threads))):
                        self._start()

    def _run(self) -> None:
        while (slot := self._waiting.get()) is not None:
            if not self._work_for(slot):
                return

    def _work_for(self, slot: ThreadSlot) -> bool:
        # With a lock, threads would wait for each other and switch several times per step.
        if slot.dead:  # a dead slot is not registered, so `abandon` does not replace this thread
            slot.deliver(None)
            return True
        self._working[slot] = threading.current_thread()
        answer = slot.work()
        # Deregister the slot first, because it may be resubmitted as soon as its answer is posted.
        abandoned = self._working.pop(slot, None) is None
        slot.deliver(answer)
        return not abandoned


class ThreadSlot(Slot):
    """Slot that runs in any free thread of a pool."""

    def __init__(self, make_env: MakeEnv, number: int, answers: Answers, pool: ThreadPool) -> None:
        super().__init__(number)
        self._make_env, self._answers, self._pool = make_env, answers, pool
        self._env: gymnasium.Env[Any, Any] | None = None
        self._task: int | Reply = 0  # the seed of an episode to start, or a reply to play

    @override
    def reset(self, seed: int) -> None:
        self._task = seed
        self._pool.submit(self)

    @override
    def step(self, reply: Reply) -> None:
        self._task = reply
        self._pool.submit(self)

    @override
    def close(self) -> None:
        self.dead = True
        if not self._pool.abandon(self):
            self._pool.submit(self)

    def work(self) -> Answer:
        """Run the requested reset or step and return the answer."""
        self.began = time.monotonic() + (OPENING if self._env is None else 0.0)
        answer = self._answer()
        self.began = NEVER
        return answer

    def deliver(self, answer: Answer | None) -> None:
        """Post a result, or close the env if the slot is closed."""
        if answer is not None and not self.dead:
            self._answers.put((self, answer))
        elif self._env is not None:
            env, self._env = self._env, None
            with suppress(Exception):
                env.close()

    def _answer(self) -> Answer:
        try:
            if self._env is None:
                self._env = self._make_env()
            if isinstance(self._task, Reply):
                return self._task, play_reply(self._env, self._task)
            chat: Chat = self._env.reset(seed=self._task)[0]
            return chat
        except Exception as error:  # noqa: BLE001 - a failure in a slot costs only its episode, which records it
            return failure_of(error)


class Threads(Engine):
    """Engine that steps envs in threads, for tools that wait for I/O. Abandons hung threads."""

    def __init__(self, threads: int = THREADS) -> None:
        check_int("threads", threads, 1, 100_000)
        self._threads = threads
        self._pool = ThreadPool(threads)

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        return ThreadSlot(make_env, number, answers, self._pool)

    def close(self) -> None:
        closing, self._pool = self._pool, ThreadPool(self._threads)
        closing.close()


class Asyncio(Threads):
    """Engine that awaits an async policy's replies in one event loop and steps envs in threads."""

    awaits = True

    def __init__(self, threads: int = THREADS) -> None:
        super().__init__(threads)
        self._posted: deque[_AwaitingSlot] = deque()
        self._woken = False

    def post(self, slot: _AwaitingSlot) -> None:
        """Start or cancel the task that awaits a slot's reply."""
        # One wake-up of the event loop handles all slots posted so far.
        self._posted.append(slot)
        if not self._woken:
            self._woken = True
            event_loop().call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._woken = False
        while self._posted:
            self._posted.popleft().await_reply()

    def check(self, policy: UserPolicy) -> None:
        if not policy.awaitable:
            raise ValueError(
                "the asyncio engine requires an async policy or a policy with `async def "
                f"areply(chat)`, and {policy.name} is neither; use the threads engine"
            )

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        return _AwaitingSlot(make_env, number, answers, self._pool, self)


class _AwaitingSlot(ThreadSlot):
    _waiting: asyncio.Task[None] | None = None

    def __init__(
        self,
        make_env: MakeEnv,
        number: int,
        answers: Answers,
        pool: ThreadPool,
        engine: Asyncio,
    ) -> None:
        super().__init__(make_env, number, answers, pool)
        self._engine = engine
        self._question: tuple[UserPolicy, PolicyRequest] | None = None

    @override
    def ask(self, policy: UserPolicy, request: PolicyRequest) -> None:
        self._question = policy, request
        self._engine.post(self)

    @override
    def close(self) -> None:
        super().close()
        self._engine.post(self)

    def await_reply(self) -> None:
        if self._question is not None and not self.dead:
            work = self._await_reply(*self._question)
            self._waiting = asyncio.get_running_loop().create_task(work)
        elif self._waiting is not None:
            self._waiting.cancel()

    async def _await_reply(self, policy: UserPolicy, request: PolicyRequest) -> None:
        self.began = time.monotonic()
        try:
            reply = await policy.areply(request)
        except Exception as error:  # noqa: BLE001 - a failure in a slot costs only its episode, which records it
            self._answers.put((self, failure_of(error)))
        else:
            self.began = NEVER  # waiting for a thread does not count as hanging
            self.step(reply)
        finally:
            self._waiting = None
