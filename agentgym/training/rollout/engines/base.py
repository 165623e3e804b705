"""Engine and slot interfaces, and the `lockstep` engine.

An engine opens slots. A slot plays one episode at a time with a `Player` and posts its answers to a
mailbox, so the collector can wait for any slot and give one up without affecting the others.
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
"""A world id, a spec (`agentgym.spec(...)`), or a function that makes an env with a spec."""
GRACE = 5.0
"""Seconds that slots may take to close before they are killed; enough for a running tool call."""
OPENING = 60.0
"""Extra seconds, on top of the timeout, to open a slot: importing a deep-learning library is slow.
"""
NEVER = float("inf")
"""Start time of work that has not started."""
YOUNG = 50_000
"""Minimum garbage-collection threshold. With Python's default of 700, collections visit the
recorded steps so often that they take a third of the step time at 1,000 slots.
"""
YOUNG_PER_SLOT = 200
"""Garbage-collection threshold per slot. A step allocates about twelve objects that live as long as
the episode; most are then freed before a collection visits them. 200 objects take about 20 kB.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure that makes a slot unusable.

    Attributes:
        cause: The error in one line.
        by_policy: The policy failed after its own retries, so the episode is not played again.
    """

    cause: str
    by_policy: bool = False


Answer = Chat | tuple[Reply, StepOutcome] | Failure
"""Result of a reset, result of a step, or a failure."""


class Slot(ABC):
    """Place that plays one episode at a time and posts answers to a mailbox.

    Args:
        number: The slot's index in the collector.

    Attributes:
        began: When the current request started (`time.monotonic`), or `NEVER`; waiting for a turn
            does not count as hanging. It lies in the future when the request first has to start a
            process.
        dead: Whether the slot has been given up; its later answers are ignored.
    """

    def __init__(self, number: int) -> None:
        self.number, self.began, self.dead = number, NEVER, False

    def use(self, policy: Any) -> None:
        """Use this policy from now on. Slots that never own a policy need not implement it."""
        raise NotImplementedError

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Start an episode and post its first chat."""

    @abstractmethod
    def step(self, reply: Reply | None) -> None:
        """Play a reply, or one by the slot's own policy if None, and post the outcome."""

    @abstractmethod
    def close(self) -> None:
        """Stop immediately, without waiting."""


class Answers:
    """Mailbox for slot answers, with many writers and one reader."""

    def __init__(self) -> None:
        self._answers: deque[tuple[Slot, Answer]] = deque()
        self._arrived = threading.Event()

    def put(self, item: tuple[Slot, Answer]) -> None:
        """Post an answer with its slot."""
        self._answers.append(item)
        if not self._arrived.is_set():
            self._arrived.set()

    def wake(self) -> None:
        """Wake the reader if it is waiting."""
        self._arrived.set()

    def get(self, timeout: float | None) -> list[tuple[Slot, Answer]]:
        """Return all answers, waiting for one if there are none.

        The list is empty after a timeout or a wake-up. A wake-up can arrive late, for an answer
        that was already returned.
        """
        if not self._answers:
            self._arrived.wait(timeout)
        self._arrived.clear()  # before taking the answers, so a later one sets it again
        return [self._answers.popleft() for _ in range(len(self._answers))]


class Engine:
    """Way to play episodes; subclasses implement `slot`.

    Attributes:
        isolates: An error in a slot costs only that slot's episode. If False, the error is raised.
        replicates: By default each slot has its own access to the policy.
        recovered: Number of times an episode was restored after its worker was ended because of
            another episode.
    """

    isolates = True
    replicates = False
    recovered = 0

    def share(self, policy: Policy) -> Any:
        """Return the policy in the form that slots receive."""
        return policy

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        raise NotImplementedError

    def close(self) -> None:
        """Wait up to `GRACE` seconds for closed slots, then free shared resources."""


class LocalSlot(Slot):
    """Slot that plays synchronously in the collector's thread."""

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
    """Engine that plays all slots in the collector's thread, always in the same order.

    Use it for fast worlds and for exact resumption.
    """

    isolates = False

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        return LocalSlot(make_env, number, answers)


def factory_of(env: EnvLike) -> MakeEnv:
    """Return a function that makes the env."""
    if isinstance(env, str):
        env = spec(env)
    return partial(gymnasium.make, env) if isinstance(env, EnvSpec) else env


def start_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def describe(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def failure_of(error: Exception) -> Failure:
    """Return the failure that an error in a slot causes."""
    return Failure(describe(error), isinstance(error, PolicyError))


class RareGarbageCollection:
    """Raise the garbage-collection threshold while slots are in use."""

    _lock = threading.Lock()
    _users = _slots = 0
    _before = (0, 0, 0)

    @classmethod
    def begin(cls, slots: int) -> None:
        """Raise the threshold for additional slots."""
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
        if cls._before[0]:  # 0 means that the user has disabled collection
            gc.set_threshold(max(young, cls._before[0]), *cls._before[1:])
