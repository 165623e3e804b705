"""Where episodes are played while they are collected: what all engines have in common, and the one
that plays in the thread of the collector.

An engine opens slots. A slot plays one episode at a time with a `Player` and answers in a mailbox, so
that the collector can wait for whichever slot is ready, and give up one without the others.
"""

from __future__ import annotations

import gc
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from typing_extensions import override

from agentgym.assemble.registry import spec
from agentgym.play.policy import Policy, PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.episode import Player, StepOutcome

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
EnvLike = str | EnvSpec | MakeEnv
"""An id of a world, a spec (`agentgym.spec(...)`), or a function that makes an env with a spec."""
GRACE = 5.0
"""Seconds that slots may take to close before they are killed: enough for a tool call that is under
way.
"""
OPENING = 60.0
"""Seconds that a slot may take to open on top of the timeout: a process that imports a deep-learning
library needs some.
"""
NEVER = float("inf")
"""The time at which something begins that has not begun."""
YOUNG = 50_000
"""New objects after which Python searches, whatever the slots. With its 700, it goes through the
recorded steps so often that this takes a third of the time of a step at 1,000 slots.
"""
YOUNG_PER_SLOT = 200
"""New objects a slot after which Python searches. A step adds some twelve that last until its
episode is done with, so that most of them go without having been visited, however many slots there
are; as garbage, 200 take 20 kB.
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


class Slot(ABC):
    """A place in which episodes are played, one after the other. What is asked is answered in a
    mailbox.

    Args:
        number: Which of the slots of a collector it is.

    Attributes:
        began: When the work on what was asked began (`time.monotonic`), or `NEVER`: a slot that
            waits for its turn does not hang. Lies ahead if the work begins with what may take
            longer, such as the start of a process.
        dead: It was given up, so what it still answers counts for nothing.
    """

    def __init__(self, number: int) -> None:
        self.number, self.began, self.dead = number, NEVER, False

    def use(self, policy: Any) -> None:
        """Play with this policy from now on; a slot that is never given one need not fill this."""
        raise NotImplementedError

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Begin an episode; the answer is put into the mailbox."""

    @abstractmethod
    def step(self, reply: Reply | None) -> None:
        """Play a reply, or that of the slot's own policy; the answer is put into the mailbox."""

    @abstractmethod
    def close(self) -> None:
        """Stop, whatever is going on, without waiting."""


class Answers:
    """A mailbox for the answers of slots, which many threads fill and one empties."""

    def __init__(self) -> None:
        self._answers: deque[tuple[Slot, Answer]] = deque()
        self._arrived = threading.Event()

    def put(self, item: tuple[Slot, Answer]) -> None:
        """Put an answer, with its slot."""
        self._answers.append(item)
        if not self._arrived.is_set():
            self._arrived.set()

    def wake(self) -> None:
        """End the wait of the one that empties it, if there is one."""
        self._arrived.set()

    def get(self, timeout: float | None) -> list[tuple[Slot, Answer]]:
        """Return all answers, and wait for one if there are none; empty if that takes too long, and
        when it was woken without one, which happens late too, for an answer that was taken before.
        """
        if not self._answers:
            self._arrived.wait(timeout)
        self._arrived.clear()  # before they are taken: what comes later is announced again
        return [self._answers.popleft() for _ in range(len(self._answers))]


class Engine:
    """Way to play episodes. A subclass fills `slot`.

    Attributes:
        isolates: An error in a slot costs that slot's episode alone; if not, it is raised.
        replicates: Each slot has the policy at hand, unless the collector says otherwise.
        recovered: How often an episode was brought back to where it was, since the worker that it
            shared with another one had to be ended for the other's sake.
    """

    isolates = True
    replicates = False
    recovered = 0

    def share(self, policy: Policy) -> Any:
        """Return the form in which slots are handed a policy to use as their own."""
        return policy

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        raise NotImplementedError

    def close(self) -> None:
        """Wait for slots that were closed, at most `GRACE` seconds, and free what they shared."""


class LocalSlot(Slot):
    """Plays in the thread of the collector, at once."""

    def __init__(self, make_env: MakeEnv, number: int, answers: Answers) -> None:
        super().__init__(number)
        self._player, self._answers = Player(make_env()), answers

    @override
    def use(self, policy: Any) -> None:
        self._player.policy = policy

    @override
    def reset(self, seed: int) -> None:
        self._answers.put((self, self._player.reset(seed)))

    @override
    def step(self, reply: Reply | None) -> None:
        self._answers.put((self, self._player.step(reply)))

    @override
    def close(self) -> None:
        self._player.close()


class Lockstep(Engine):
    """All in the thread of the collector, in the same order each time: the choice for quick worlds,
    and for exact resumption.
    """

    isolates = False

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        return LocalSlot(make_env, number, answers)


def factory_of(env: EnvLike) -> MakeEnv:
    """Return the function that makes an env."""
    if isinstance(env, str):
        env = spec(env)
    return partial(gymnasium.make, env) if isinstance(env, EnvSpec) else env


def start_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Start a thread that does not keep the interpreter from ending."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def describe(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def failure_of(error: Exception) -> Failure:
    """Return the failure of a slot in which an error was raised."""
    return Failure(describe(error), isinstance(error, PolicyError))


class RareGarbageCollection:
    """The threshold of the garbage collector, raised as long as any slots are in use."""

    _lock = threading.Lock()
    _users = _slots = 0
    _before = (0, 0, 0)

    @classmethod
    def begin(cls, slots: int) -> None:
        """Raise the threshold for some more slots."""
        with cls._lock:
            if not cls._users:
                cls._before = gc.get_threshold()
            cls._users += 1
            cls._set(cls._slots + slots)

    @classmethod
    def end(cls, slots: int) -> None:
        """Lower the threshold again."""
        with cls._lock:
            cls._users -= 1
            cls._set(cls._slots - slots)

    @classmethod
    def _set(cls, slots: int) -> None:
        cls._slots = slots
        young = max(YOUNG, YOUNG_PER_SLOT * slots) if cls._users else 0
        if cls._before[0]:  # 0 is that of somebody who wants no search
            gc.set_threshold(max(young, cls._before[0]), *cls._before[1:])
